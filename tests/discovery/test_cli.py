"""The ``soma`` command as a user meets it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from textwrap import dedent
from time import sleep

import pytest

from soma._hints import NAMES
from support.distributions import run_python, run_soma, without, write_plugin
from support.signals import hear_ctrl_c


def test_help_lists_commands_with_the_summaries_of_their_specs(tmp_path):
    write_plugin(tmp_path, "one")
    done = run_soma("--help", tmp_path)
    assert done.returncode == 0
    assert re.search(r"^  one  +What one does\.$", done.stdout, re.MULTILINE)
    assert run_soma("-h", tmp_path).stdout == done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("plugin list", "There is no command 'plugin'. Did you mean 'plugins'?"),
        ("coordinatr", "There is no command 'coordinatr'. Did you mean 'coordinator'?"),
        ("PLUGINS", "There is no command 'PLUGINS'. Did you mean 'plugins'?"),
        ("xyzzy", "There is no command 'xyzzy'. Known: "),
        ("plugins lst", "No such command 'lst'"),
        ("--frobnicate", "No such option"),
        ("plugins list --hook soma_comands", "'soma_comands' is not one of"),
    ],
)
def test_what_is_unknown_is_a_usage_error(words, sentence):
    done = run_soma(words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "dist"), [(name, dist) for (kind, name), dist in NAMES.items() if kind == "command"]
)
def test_a_command_of_the_family_that_is_not_installed_says_how_to_get_it(command, dist):
    done = run_python(
        f"""
        from importlib.metadata import PackageNotFoundError, version
        from soma.cli.root import run

        try:
            version({dist!r})
        except PackageNotFoundError:
            raise SystemExit(run([{command!r}]))
        print("installed")
        """
    )
    extra = dist.removeprefix("soma-")
    assert done.stdout == "installed\n" or (done.returncode, done.stderr) == (
        1,
        (
            f"Error: The command {command!r} comes from the {dist!r} package, which is not "
            "installed. "
            f'Install it with: pip install "soma-core[{extra}]"\n'
        ),
    )


class TestBrokenCommands:
    def test_a_target_that_does_not_import_ends_with_its_cause_and_where_to_look(self, tmp_path):
        write_plugin(tmp_path, "one", cli="import module_nobody_has\n")
        write_plugin(tmp_path, "two")
        done = run_soma("one", tmp_path)
        assert done.returncode == 1
        assert done.stderr == (
            "Error: The command 'one' comes from one 1.0, which is installed but failed to import: "
            "ModuleNotFoundError: No module named 'module_nobody_has'. See: soma plugins show one\n"
        )
        assert run_soma("--help", tmp_path).returncode == 0
        assert run_soma("two", tmp_path).stdout == "two ran\n"
        checked = run_soma("plugins check one", tmp_path)
        assert checked.returncode == 1
        assert "one.cli:command does not load: ModuleNotFoundError" in checked.stdout

    def test_a_target_that_is_not_there_is_marked_in_the_help(self, tmp_path):
        write_plugin(tmp_path, "one")
        (tmp_path / "one" / "cli.py").unlink()
        assert "(broken) one 1.0 has no module one.cli" in run_soma("--help", tmp_path).stdout
        assert run_soma("one", tmp_path).returncode == 1

    @pytest.mark.parametrize(
        ("cli", "sentence"),
        [
            (
                "command = 7\n",
                "not a click.Command but of type int. See: soma plugins check one",
            ),
            ("other = 7\n", "one.cli has no attribute 'command'"),
            ("raise SystemExit(9)\n", "SystemExit: 9"),
        ],
    )
    def test_a_target_that_is_no_command(self, cli, sentence, tmp_path):
        write_plugin(tmp_path, "one", cli=cli)
        done = run_soma("one", tmp_path)
        assert done.returncode == 1
        assert sentence in done.stderr
        assert run_soma("plugins check one", tmp_path).returncode == 1


class TestPlugins:
    def test_nothing_installed(self):
        done = run_python(
            without("soma-cache")
            + dedent("""
            import soma.plugins
            from soma.cli.root import run

            real = soma.plugins.discover
            soma.plugins.discover = lambda: real([])
            raise SystemExit(run(["plugins", "list"]))
            """)
        )
        assert done.returncode == 0
        assert done.stdout == "No plugins are installed.\n"

    def test_show_loads_what_is_offered_and_shows_why_it_does_not(self, tmp_path):
        write_plugin(tmp_path, "one", cli="import module_nobody_has\n")
        done = run_soma("plugins show one", tmp_path)
        assert "one 1.0: ok" in done.stdout
        assert "broken       command one: ModuleNotFoundError: No module named" in done.stdout
        assert "Traceback (most recent call last)" in done.stdout
        (row,) = json.loads(run_soma("plugins show one --json", tmp_path).stdout)
        assert [part["what"] for part in row["broken"]] == ["command one"]

    def test_list_shows_core_with_all(self, tmp_path):
        rows = json.loads(run_soma("plugins list --json --all", tmp_path).stdout)
        (core,) = [row for row in rows if row["name"] == "soma-core"]
        assert core["status"] == "ok"
        provided = {(one["kind"], one["name"]) for one in core["provides"]}
        names = ("codecs", "doctor", "estimate", "frame", "graph", "plugins", "runs")
        commands = {("command", one) for one in names}
        rest = {("action store", "memory"), ("event sink", "jsonl"), ("runner", "local")}
        assert provided == commands | rest
        rows = json.loads(run_soma("plugins list --json", tmp_path).stdout)
        assert "soma-core" not in {row["name"] for row in rows}

    def test_list_by_hook(self, tmp_path):
        write_plugin(tmp_path, "one")
        write_plugin(
            tmp_path,
            "two",
            plugin="""
            import soma

            @soma.hookimpl
            def soma_event_sinks():
                yield soma.EventSinkSpec(name="bell", target="two.cli:command")
            """,
        )
        found = run_soma("plugins list --json --hook soma_event_sinks", tmp_path)
        assert [row["name"] for row in json.loads(found.stdout)] == ["two"]
        none = run_soma("plugins list --hook soma_transports", tmp_path)
        assert none.stdout == "No plugin implements that hook.\n"

    def test_the_table(self, tmp_path):
        write_plugin(tmp_path, "one", version="12.0")
        write_plugin(tmp_path, "longer-name", requires=("package-nobody-has",))
        done = run_soma("plugins list", tmp_path)
        from_this_tree = ("soma-cache ", "soma-example ")  # where they are installed
        lines = [one for one in done.stdout.splitlines() if not one.startswith(from_this_tree)]
        assert [line.split() for line in lines] == [
            ["NAME", "VERSION", "STATUS", "PROVIDES"],
            [
                "longer-name",
                "1.0",
                "failed",
                "requires",
                "package-nobody-has,",
                "which",
                "is",
                "not",
                "installed",
                "->",
                "pip",
                "install",
                "package-nobody-has",
            ],
            ["one", "12.0", "ok", "command", "one"],
        ]
        assert lines[1].index("failed") == lines[2].index("ok") == lines[0].index("STATUS")

    @pytest.mark.parametrize("call", ["show", "check"])
    def test_an_unknown_plugin(self, call, tmp_path):
        write_plugin(tmp_path, "one-plugin")
        done = run_soma(f"plugins {call} one-plugins", tmp_path)
        assert done.returncode == 2
        assert done.stderr == ("There is no plugin 'one-plugins'. Did you mean 'one-plugin'?\n")

    @pytest.mark.parametrize("name", ["one-plugin", "One_Plugin", "ONE.PLUGIN"])
    def test_names_are_found_however_they_are_spelt(self, name, tmp_path):
        write_plugin(tmp_path, "one-plugin")
        assert "one-plugin 1.0: ok" in run_soma(["plugins", "show", name], tmp_path).stdout
        assert run_soma(["plugins", "check", name], tmp_path).returncode == 0

    def test_core_can_be_shown_and_checked_too(self):
        assert "soma-core" in run_soma("plugins show soma-core").stdout
        done = run_soma("plugins check soma-core")
        assert done.returncode == 0
        assert "soma-core: command 'plugins': ok" in done.stdout

    def test_check_counts_a_plugin_once_and_json_holds_the_same(self, tmp_path):
        write_plugin(tmp_path, "one")
        done = run_soma("plugins check one --json", tmp_path)
        assert [result["check"] for result in json.loads(done.stdout)] == [
            "loads",
            "requirements",
            "imports lightly",
            "command 'one'",
        ]

    def test_a_plugin_that_prints_does_not_spoil_json(self, tmp_path):
        write_plugin(
            tmp_path,
            "loud",
            plugin="""
            import soma

            print("here I am")

            @soma.hookimpl
            def soma_commands():
                print("and here")
                yield soma.CommandSpec(name="loud", target="loud.cli:command")
            """,
            cli="print('and there')\nimport click\ncommand = click.Command('loud')\n",
        )
        assert json.loads(run_soma("plugins list --json", tmp_path).stdout)
        done = run_soma("plugins check loud --json", tmp_path)
        assert {result["failure"] for result in json.loads(done.stdout)} == {""}
        assert done.returncode == 0
        assert "here I am" in done.stderr

    @pytest.mark.parametrize("module", ["numpy", "aiohttp", "torch"])
    def test_a_greedy_plugin_fails_its_check(self, module, tmp_path):
        (tmp_path / f"{module}.py").touch()  # stands in for the real one, which may be absent
        write_plugin(
            tmp_path,
            "greedy",
            plugin=f"""
            import {module}
            import soma

            @soma.hookimpl
            def soma_commands():
                return []
            """,
        )
        done = run_soma("plugins check greedy", tmp_path)
        assert done.returncode == 1
        assert f"importing greedy.plugin brings in {module}, which slows every" in done.stdout

    @pytest.mark.parametrize(
        ("hook", "spec", "target", "expected"),
        [
            ("soma_codecs", "CodecSpec(types=('m.T',), ", "'text'", "expected a codec"),
            (
                "soma_codecs",
                "CodecSpec(types=('m.T',), ",
                "type('C', (), dict(kind=1, type_name=1, dump=1, load=1))",
                "is a type; expected a codec object",
            ),
            ("soma_event_sinks", "EventSinkSpec(", "7", "expected something that can be called"),
        ],
    )
    def test_a_target_of_the_wrong_kind_fails_the_check(
        self, hook, spec, target, expected, tmp_path
    ):
        write_plugin(
            tmp_path,
            "odd",
            plugin=f"""
            import soma

            thing = {target}

            @soma.hookimpl
            def {hook}():
                yield soma.{spec}name="odd", target="odd.plugin:thing")
            """,
        )
        done = run_soma("plugins check odd", tmp_path)
        assert done.returncode == 1
        assert expected in done.stdout


def test_a_name_in_any_script_is_shown_and_found(tmp_path):
    write_plugin(tmp_path, "one", command="größe-日本")
    assert "größe-日本" in run_soma("plugins list", tmp_path, PYTHONUTF8="1").stdout
    assert run_soma(["größe-日本"], tmp_path, PYTHONUTF8="1").stdout == "one ran\n"


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["plugins", "list", "--all"]])
def test_a_closed_pipe_is_not_a_traceback(words):
    reader, writer = os.pipe()
    os.close(reader)  # nobody reads, from the start
    try:
        done = subprocess.run(
            [sys.executable, "-m", "soma", *words],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert "Traceback" not in done.stderr
    assert "BrokenPipeError" not in done.stderr


@pytest.mark.parametrize(
    ("body", "typed", "status"),
    [
        ("return True", "", 0),
        ("return 3", "", 0),
        ("click.get_current_context().exit(3)", "", 3),
        ("raise click.ClickException('no')", "", 1),
        ("raise click.UsageError('no')", "", 2),
        ("click.confirm('sure?', abort=True)", "n\\n", 1),
        ("click.confirm('sure?', abort=True)", "", 1),
        ("raise SystemExit(4)", "", 4),
        ("raise soma.UnknownName('no such thing')", "", 1),
    ],
)
def test_the_exit_status_of_a_command(body, typed, status, tmp_path):
    write_plugin(
        tmp_path,
        "one",
        cli=f"import click, soma\n\n@click.command()\ndef command():\n    {body}\n",
    )
    done = run_python(
        f"""
        import io, sys
        sys.stdin = io.TextIOWrapper(io.BytesIO(b"{typed}"))
        from soma.cli.root import run
        sys.exit(run(["one"]))
        """,
        tmp_path,
    )
    assert done.returncode == status
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("line", "offered"), [("soma ", {"one", "two", "plugins"}), ("soma plugins s", {"show"})]
)
def test_a_shell_completes_beside_a_broken_command(line, offered, tmp_path):
    write_plugin(tmp_path, "one", cli="import module_nobody_has\n")
    write_plugin(tmp_path, "two")
    words = line.split(" ")
    done = run_soma(
        [],
        tmp_path,
        _SOMA_COMPLETE="bash_complete",
        COMP_WORDS=line,
        COMP_CWORD=str(len(words) - 1),
    )
    assert {row.partition(",")[2] for row in done.stdout.split()} >= offered
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_a_command_with_130(tmp_path):
    write_plugin(
        tmp_path,
        "slow",
        cli="""
        import time

        import click

        @click.command()
        def command():
            print("started", flush=True)
            time.sleep(60)
        """,
    )
    with subprocess.Popen(
        [sys.executable, "-m", "soma", "slow"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,  # noqa: PLW1509  # it takes no lock
    ) as process:
        try:
            assert process.stdout.readline() == "started\n"
            sleep(0.5)  # a signal between printing and sleeping is seen only after the sleep
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()
