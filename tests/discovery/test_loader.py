"""Every way in which a plugin can be broken, as real ``.dist-info`` folders on a real path."""

from __future__ import annotations

import json

import pytest

from soma import __version__
from support.distributions import run_python, run_soma, write_distribution, write_plugin

# name -> (plugin module, requires, phase, what the error says, what the fix says)
BROKEN = {
    "import-error": (
        "import soma\nraise ValueError('bad\\nday')\n",
        (),
        "import",
        "ValueError: bad day",
        "pip uninstall broken",
    ),
    "error-without-words": (
        """
class Awkward(Exception):
    def __str__(self):
        raise RuntimeError
raise Awkward
""",
        (),
        "import",
        "Awkward: (its message cannot be shown)",
        "pip uninstall broken",
    ),
    "base-exception": (
        "class Own(BaseException): pass\nraise Own('deep')\n",
        (),
        "import",
        "Own: deep",
        "pip uninstall broken",
    ),
    "undecodable-words": (
        "raise OSError('caf\\udce9')\n",
        (),
        "import",
        "OSError: caf\\udce9",
        "pip uninstall broken",
    ),
    "raising-getattr": (
        "import soma\ndef __getattr__(name):\n    raise ImportError(name)\n",
        (),
        "hooks",
        "has no hook",
        "mark the functions",
    ),
    "raising-repr": (
        """
import soma
class Odd:
    def __repr__(self):
        raise RuntimeError('no repr')
@soma.hookimpl
def soma_commands():
    return [Odd()]
""",
        (),
        "call",
        "RuntimeError: no repr",
        "pip uninstall broken",
    ),
    "family-module": (
        "import soma.ray\n",
        (),
        "import",
        "soma.ray comes from the 'soma-ray' package, which is not installed",
        'pip install "soma-core[ray]"',
    ),
    "missing-module": (
        "import module_nobody_has\n",
        (),
        "import",
        "No module named 'module_nobody_has'",
        "install what provides 'module_nobody_has'",
    ),
    "syntax-error": ("def soma_commands(:\n", (), "import", "SyntaxError", "pip uninstall"),
    "exits": ("import sys\nsys.exit(3)\n", (), "import", "SystemExit: 3", "pip uninstall"),
    "wrong-signature": (
        "import soma\n@soma.hookimpl\ndef soma_commands(config):\n    return []\n",
        (),
        "signature",
        "config",
        "a hook takes nothing and returns specs",
    ),
    "optional-arguments": (
        "import soma\n@soma.hookimpl\ndef soma_commands(config=None, **more):\n    return []\n",
        (),
        "signature",
        "soma_commands(config=None, **more) takes arguments",
        "a hook takes nothing and returns specs",
    ),
    "wrapper": (
        "import soma\n@soma.hookimpl(wrapper=True)\ndef soma_commands():\n    return (yield)\n",
        (),
        "signature",
        "soma_commands() is a wrapper",
        "a hook takes nothing and returns specs",
    ),
    "half-marked": (
        """
import soma
@soma.hookimpl
def soma_codecs():
    return []
def soma_comands():
    return []
""",
        (),
        "hooks",
        "soma_comands in broken.plugin is not marked",
        "write @soma.hookimpl above def soma_comands(): or call it something else",
    ),
    "unknown-hook": (
        "import soma\n@soma.hookimpl\ndef soma_comands():\n    return []\n",
        (),
        "hooks",
        "'soma_comands', which is not a hook. Did you mean 'soma_commands'?",
        "rename the function",
    ),
    "forgotten-mark": (
        "import soma\ndef soma_commands():\n    return []\n",
        (),
        "hooks",
        "soma_commands in broken.plugin is not marked",
        "write @soma.hookimpl above def soma_commands():",
    ),
    "no-hook": ("import soma\n", (), "hooks", "has no hook", "mark the functions"),
    "raising-hook": (
        "import soma\n@soma.hookimpl\ndef soma_commands():\n    raise OSError('no disk')\n",
        (),
        "call",
        "OSError: no disk",
        "pip uninstall broken",
    ),
    "raising-half-way": (
        (
            "import soma\n@soma.hookimpl\ndef soma_commands():\n"
            "    yield soma.CommandSpec(name='half', target='a:b')\n    raise OSError('no disk')\n"
        ),
        (),
        "call",
        "OSError: no disk",
        "pip uninstall broken",
    ),
    "returns-none": (
        "import soma\n@soma.hookimpl\ndef soma_commands():\n    pass\n",
        (),
        "specs",
        "soma_commands returned None; expected an iterable of CommandSpec",
        "yield soma.CommandSpec(...)",
    ),
    "returns-one": (
        (
            "import soma\n@soma.hookimpl\ndef soma_commands():\n"
            "    return soma.CommandSpec(name='one', target='a:b')\n"
        ),
        (),
        "specs",
        "expected an iterable of CommandSpec",
        "yield soma.CommandSpec(...)",
    ),
    "invalid-spec": (
        "import soma\n@soma.hookimpl\ndef soma_commands():\n    return [{'name': 'x'}]\n",
        (),
        "specs",
        "gave {'name': 'x'}",
        "yield soma.CommandSpec(...)",
    ),
    "another-spec": (
        (
            "import soma\n@soma.hookimpl\ndef soma_commands():\n"
            "    yield soma.EventSinkSpec(name='x', target='a:b')\n"
        ),
        (),
        "specs",
        "gave EventSinkSpec(",
        "yield soma.CommandSpec(...)",
    ),
    "wrong-arguments": (
        "import soma\n@soma.hookimpl\ndef soma_commands():\n    return [soma.CommandSpec('x')]\n",
        (),
        "call",
        "TypeError: CommandSpec.__init__() takes 1 positional argument but 2 were given",
        "plugin.py:4 if the plugin is yours; otherwise report it",
    ),
    "wrong-field": (
        (
            "import soma\n@soma.hookimpl\ndef soma_commands():\n"
            "    yield soma.CommandSpec(name='x', target='nowhere')\n"
        ),
        (),
        "specs",
        "target must be 'package.module:attribute', not 'nowhere'",
        "plugin.py:4",
    ),
    "cores-own-name": (
        (
            "import soma\n@soma.hookimpl\ndef soma_commands():\n"
            "    yield soma.CommandSpec(name='plugins', target='a:b')\n"
        ),
        (),
        "names",
        "claims the command 'plugins', which is core's own",
        "choose another name",
    ),
    "one-name-twice": (
        (
            "import soma\n@soma.hookimpl\ndef soma_commands():\n"
            "    yield soma.CommandSpec(name='x', target='a:b')\n"
            "    yield soma.CommandSpec(name='x', target='a:c')\n"
        ),
        (),
        "names",
        "claims the command 'x' twice",
        "offer it once",
    ),
    "one-type-twice": (
        (
            "import soma\n@soma.hookimpl\ndef soma_codecs():\n"
            "    yield soma.CodecSpec(name='x', target='a:b', types=('m.T',))\n"
            "    yield soma.CodecSpec(name='y', target='a:b', types=('m.T',))\n"
        ),
        (),
        "names",
        "claims the codec by types 'm.T' twice",
        "offer it once",
    ),
    "wrong-core": (
        None,
        ("soma-core~=9.9",),
        "requirements",
        f"requires soma-core~=9.9, but soma-core {__version__} is running",
        f"install a release of broken made for soma-core {__version__}",
    ),
    "missing-requirement": (
        None,
        ("soma-core", "package-nobody-has>=2"),
        "requirements",
        "requires package-nobody-has, which is not installed",
        'pip install "package-nobody-has>=2"',
    ),
    "missing-sibling": (
        None,
        ("soma-ray",),
        "requirements",
        "requires soma-ray, which is not installed",
        'pip install "soma-core[ray]"',
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plugin_is_left_out_whole_and_the_good_one_works(case, tmp_path):
    plugin, requires, phase, error, fix = BROKEN[case]
    write_plugin(tmp_path, "broken", plugin=plugin, requires=requires, version="0.3")
    write_plugin(tmp_path, "good-one")

    listed = run_soma("plugins list --json", tmp_path)
    assert listed.returncode == 0
    rows = {row["name"]: row for row in json.loads(listed.stdout)}
    row = rows["broken"]
    assert (row["status"], row["phase"], row["version"]) == ("failed", phase, "0.3")
    assert error in row["error"]
    assert fix in row["fix"]
    assert row["provides"] == []
    assert row["file"] == str(tmp_path / "broken" / "plugin.py")
    assert rows["good-one"]["status"] == "ok"

    notice = [line for line in listed.stderr.splitlines() if "broken" in line]
    assert len(notice) == 1
    assert notice[0].startswith("soma: left out the plugin broken 0.3: ")
    assert error in notice[0]

    assert run_soma("good-one", tmp_path).stdout == "good-one ran\n"
    helped = run_soma("--help", tmp_path)
    assert helped.returncode == 0
    assert "good-one" in helped.stdout
    assert "Plugins left out" in helped.stdout

    checked = run_soma("plugins check", tmp_path)
    assert checked.returncode == 1
    assert "broken: loads: FAILED" in checked.stdout
    assert "good-one: command 'good-one': ok" in checked.stdout
    assert run_soma("plugins check good-one", tmp_path).returncode == 0

    shown = run_soma("plugins show broken", tmp_path)
    assert shown.returncode == 0
    assert f"phase        {phase}" in shown.stdout
    own_code_raised = phase in ("import", "call")
    if case not in ("wrong-field", "raising-getattr", "error-without-words"):
        assert ("Traceback" in shown.stdout) == own_code_raised
    hooks = {"call": "soma_commands", "import": "not read", "requirements": "not read"}.get(phase)
    assert hooks is None or f"hooks        {hooks}" in shown.stdout


def test_nothing_of_a_plugin_with_an_unmet_requirement_is_run(tmp_path):
    write_plugin(
        tmp_path,
        "broken",
        plugin="open('ran', 'w').close()\n",
        requires=("package-nobody-has",),
    )
    run_soma("plugins list", tmp_path, cwd=tmp_path)
    assert not (tmp_path / "ran").exists()


def test_an_extra_or_a_marker_for_elsewhere_is_no_requirement(tmp_path):
    write_plugin(
        tmp_path,
        "fine",
        requires=(
            'package-nobody-has; extra == "all"',
            'package-nobody-has; sys_platform == "amiga"',
            "soma-core>=0.1",
        ),
    )
    assert rows_of(tmp_path)["fine"]["status"] == "ok"


def test_another_version_of_anything_but_core_is_left_to_check(tmp_path):
    odd = ("click<1", "not a requirement !", 'pluggy; os_name ~= "x"', "damaged")
    write_plugin(tmp_path, "fine", requires=odd)
    write_distribution(tmp_path, "damaged", metadata="")
    next(tmp_path.glob("damaged*/METADATA")).write_bytes(b"Name: damaged\nVersion: \xff\n")
    assert rows_of(tmp_path)["fine"]["status"] == "ok"
    checked = run_soma("plugins check fine", tmp_path)
    assert checked.returncode == 1
    assert "requires click<1, but click " in checked.stdout
    assert "cannot be read: 'not a requirement !'" in checked.stdout
    assert "cannot be read: 'pluggy; os_name ~=" in checked.stdout
    assert "requires damaged, whose metadata cannot be read" in checked.stdout


def rows_of(*folders, **environment) -> dict[str, dict]:
    done = run_soma("plugins list --json", *folders, **environment)
    assert done.returncode == 0, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)}


class TestDamagedMetadata:
    def test_entry_points_that_cannot_be_read_are_a_row(self, tmp_path):
        write_plugin(tmp_path, "good-one")
        write_distribution(tmp_path, "damaged", entry_points="[soma]\nno equals sign\n")
        rows = rows_of(tmp_path)
        assert rows["good-one"]["status"] == "ok"
        assert rows["damaged"]["status"] == "failed"
        assert rows["damaged"]["phase"] == "metadata"

    def test_damage_that_is_none_of_our_business_is_not_reported(self, tmp_path):
        write_plugin(tmp_path, "good-one")
        write_distribution(tmp_path, "damaged", entry_points="[pytest11]\nno equals sign\n")
        rows = rows_of(tmp_path)
        assert rows["good-one"]["status"] == "ok"
        assert "damaged" not in rows

    @pytest.mark.parametrize("text", ["", "Version: 1\n", "\x00\x01"])
    def test_metadata_without_a_name_is_a_row(self, text, tmp_path):
        write_plugin(tmp_path, "good-one")
        write_distribution(
            tmp_path, "damaged", entry_points="[soma]\nx = damaged.plugin\n", metadata=text
        )
        rows = rows_of(tmp_path)
        assert rows["good-one"]["status"] == "ok"
        assert rows["damaged"]["status"] == "failed"
        assert rows["damaged"]["phase"] == "metadata"

    @pytest.mark.parametrize(
        ("value", "error"),
        [
            ("damaged.plugin:hooks", "'damaged.plugin:hooks', which is not a module"),
            ("not a name", "not a name"),
            ("gone.plugin", "No module named 'gone'"),
        ],
    )
    def test_an_entry_point_that_names_no_module_is_a_row(self, value, error, tmp_path):
        write_distribution(tmp_path, "damaged", entry_points=f"[soma]\nx = {value}\n")
        row = rows_of(tmp_path)["damaged"]
        assert (row["status"], row["phase"]) == ("failed", "import")
        assert error in row["error"]


class TestTwoPluginsOneName:
    @pytest.fixture
    def folder(self, tmp_path):
        for name in ("first", "second"):
            write_plugin(
                tmp_path,
                name,
                plugin=f"""
                import soma

                @soma.hookimpl
                def soma_commands():
                    yield soma.CommandSpec(name="shared", target="{name}.cli:command")
                    yield soma.CommandSpec(name="{name}", target="{name}.cli:command")

                @soma.hookimpl
                def soma_runners():
                    yield soma.RunnerSpec(
                        name="{name}", target="{name}.cli:command", schemes=("far",)
                    )
                """,
            )
        return tmp_path

    def test_using_the_name_names_both(self, folder):
        done = run_soma("shared", folder)
        assert done.returncode == 1
        assert done.stderr == (
            "Error: The command 'shared' is claimed by first 1.0 and second 1.0, so neither is "
            "used. Remove one of them: pip uninstall first or pip uninstall second\n"
        )

    def test_their_other_names_work(self, folder):
        assert run_soma("first", folder).stdout == "first ran\n"
        assert run_soma("second", folder).stdout == "second ran\n"

    def test_it_shows_everywhere(self, folder):
        rows = rows_of(folder)
        assert rows["first"]["status"] == rows["second"]["status"] == "conflict"
        clash = "command shared is claimed by first 1.0 and second 1.0, so neither is used"
        assert clash in rows["first"]["error"]
        assert "(broken) claimed by first 1.0 and second 1.0" in run_soma("--help", folder).stdout
        checked = run_soma("plugins check second", folder)
        assert checked.returncode == 1
        assert "the command 'shared' is claimed by first 1.0 and second 1.0" in checked.stdout

    def test_a_scheme_is_a_name_too(self, folder):
        done = run_python(
            """
            from soma.registry import default
            from soma import NameConflict, RunnerSpec
            for by_alias, name in ((False, "first"), (True, "far")):
                try:
                    print(default().find(name, RunnerSpec, by_alias=by_alias).dist)
                except NameConflict as error:
                    print(error)
            """,
            folder,
        )
        assert done.stdout.splitlines() == [
            "first",
            (
                "The runner 'far' is claimed by first 1.0 and second 1.0, so neither is used. "
                "Remove one of them: pip uninstall first or pip uninstall second"
            ),
        ]


class TestSwitches:
    @pytest.mark.parametrize(
        ("value", "on"),
        [
            ("", set()),
            ("one", {"one"}),
            ("One, two-plugin", {"one", "two-plugin"}),
            ("TWO_plugin", {"two-plugin"}),
        ],
    )
    def test_only_what_is_named_is_loaded(self, value, on, tmp_path):
        write_plugin(tmp_path, "one")
        write_plugin(tmp_path, "two-plugin")
        rows = rows_of(tmp_path, SOMA_LOAD_PLUGINS=value)
        assert {name for name, row in rows.items() if row["status"] == "ok"} == on
        others = {"one", "two-plugin"} - on
        assert {name for name, row in rows.items() if row["status"] == "off"} >= others
        for name in others:
            done = run_soma(name, tmp_path, SOMA_LOAD_PLUGINS=value)
            assert done.returncode == 2

    def test_nothing_of_what_is_off_is_run(self, tmp_path):
        write_plugin(tmp_path, "one", plugin="raise SystemExit('ran')\n")
        done = run_soma("plugins list", tmp_path, SOMA_LOAD_PLUGINS="")
        assert done.returncode == 0
        assert done.stderr == ""

    def test_a_name_that_is_not_installed_is_told(self, tmp_path):
        write_plugin(tmp_path, "one")
        done = run_soma("plugins list", tmp_path, SOMA_LOAD_PLUGINS="one,on")
        assert done.stderr == (
            "soma: SOMA_LOAD_PLUGINS names on, and no plugin of that name is installed\n"
        )

    def test_strict_turns_a_failure_into_an_error_where_plugins_are_used(self, tmp_path):
        write_plugin(tmp_path, "broken", plugin="raise ValueError('no')\n")
        write_plugin(tmp_path, "good-one")
        done = run_soma("good-one", tmp_path, SOMA_STRICT_PLUGINS="1")
        assert done.returncode == 1
        assert "SOMA_STRICT_PLUGINS is set, and these plugins failed: broken 1.0: " in done.stderr
        for off in ("0", "false", "No", ""):
            assert run_soma("good-one", tmp_path, SOMA_STRICT_PLUGINS=off).returncode == 0
        assert run_soma("--help", tmp_path, SOMA_STRICT_PLUGINS="1").returncode == 0
        assert run_soma("plugins list", tmp_path, SOMA_STRICT_PLUGINS="1").returncode == 0
        assert run_soma("plugins show broken", tmp_path, SOMA_STRICT_PLUGINS="1").returncode == 0


def test_a_plugin_that_needs_plugins_while_it_is_loaded_is_told_so(tmp_path):
    write_plugin(
        tmp_path,
        "eager",
        plugin="""
        import soma
        from soma.registry import default

        default().get("ws", soma.RunnerSpec, by_alias=True)
        """,
    )
    row = rows_of(tmp_path)["eager"]
    assert row["phase"] == "import"
    assert "while plugins were still being loaded" in row["error"]


def test_an_optional_hook_of_another_core_is_passed_over(tmp_path):
    write_plugin(
        tmp_path,
        "early",
        plugin="""
        import soma

        @soma.hookimpl(optionalhook=True)
        def soma_teleporters():
            return []

        @soma.hookimpl
        def soma_commands():
            return []
        """,
    )
    row = rows_of(tmp_path)["early"]
    assert (row["status"], row["hooks"], row["provides"]) == ("ok", ["soma_commands"], [])


def test_two_entry_points_of_one_distribution_are_two_plugins(tmp_path):
    write_distribution(
        tmp_path,
        "pair",
        entry_points="[soma]\nleft = pair.left\nright = pair.right\n",
        files={
            "pair/__init__.py": "",
            "pair/left.py": "raise ValueError('left is broken')\n",
            "pair/right.py": """
            import soma

            @soma.hookimpl
            def soma_commands():
                yield soma.CommandSpec(name="right", target="pair.right:soma_commands")
            """,
        },
    )
    done = run_soma("plugins show pair", tmp_path)
    assert "left = pair.left" in done.stdout
    assert "right = pair.right" in done.stdout
    assert "pair 1.0: failed" in done.stdout
    assert "pair 1.0: ok" in done.stdout


def test_two_plugins_of_one_distribution_that_claim_one_name_are_told_apart(tmp_path):
    write_plugin(tmp_path, "pair")
    points = next(tmp_path.glob("pair*/entry_points.txt"))
    points.write_text("[soma]\nleft = pair.plugin\nright = pair.plugin\n")
    done = run_soma("pair", tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "Error: The command 'pair' is claimed by two plugins of pair, 'left' and 'right', so "
        "neither is used. Offer it in one of them\n"
    )
    assert (
        "(broken) claimed by two plugins of pair, 'left' and" in run_soma("--help", tmp_path).stdout
    )


def test_waiting_for_another_thread_has_a_limit(tmp_path):
    """A plugin imports a module whose import, in the other thread, waits for the plugins."""
    write_plugin(tmp_path, "one", plugin="import started\nimport user_module\n")
    (tmp_path / "started.py").write_text("import gate\ngate.loading.set()\n")
    (tmp_path / "gate.py").write_text(
        "import threading\nloading = threading.Event()\nimporting = threading.Event()\n"
    )
    (tmp_path / "user_module.py").write_text(
        "import gate, soma\nfrom soma.registry import default\n"
        "gate.importing.set()\ngate.loading.wait(60)\n"
        "default().get('far', soma.RunnerSpec)\n"
    )
    done = run_python(
        """
        import threading
        import gate, soma.plugins
        soma.plugins._LOADING_TIMEOUT_S = 0.5

        def load():
            gate.importing.wait(60)
            soma.plugins.reports()

        loader = threading.Thread(target=load)
        loader.start()
        try:
            import user_module
        except soma.PluginError as error:
            print(error)
        loader.join(60)
        print(loader.is_alive())
        """,
        tmp_path,
    )
    first, second = done.stdout.splitlines()
    assert first.startswith("Plugins are still being loaded by another thread after 0 s.")
    assert second == "False"


def test_discovery_is_a_function_of_the_entry_points_it_is_given(tmp_path):
    done = run_python(
        """
        from importlib.metadata import EntryPoint, distributions
        from soma.plugins import discover

        assert discover([]) == ()
        own = next(d for d in distributions() if d.name == "one")
        (report,) = discover(own.entry_points.select(group="soma"))
        print(report.key, report.status, [offer.spec.name for offer in report.offers])
        (stray,) = discover([EntryPoint(name="x", group="soma", value="os")])
        print(stray.status, stray.error)
        """,
        _with_plugins(tmp_path, "one", "two"),
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "('one', 'one') ok ['one']",
        "failed its metadata cannot be read: it belongs to no distribution",
    ]


def test_many_threads_discover_once(tmp_path):
    done = run_python(
        """
        import threading
        import soma.plugins
        from soma import CommandSpec
        from soma.registry import default

        discoveries = []
        real = soma.plugins.discover
        soma.plugins.discover = lambda: discoveries.append(1) or real()
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(default().get("one", CommandSpec)))
            for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        print(len(found), len(set(map(id, found))), len(discoveries))
        """,
        _with_plugins(tmp_path, "one"),
    )
    assert done.stdout == "12 1 1\n", done.stderr
    assert done.stderr == ""


def _with_plugins(folder, *names):
    for name in names:
        write_plugin(folder, name)
    return folder
