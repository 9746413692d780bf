"""``soma doctor`` without a cache: each section, fine and broken, and what the command prints."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import sys
import time
from dataclasses import replace
from email.message import Message
from importlib.metadata import PackageNotFoundError, distributions
from pathlib import Path

import pytest

from soma import ActionStoreSpec, __version__
from soma.cli import doctor as command
from soma.cli.root import run
from soma.contracts import Finding
from soma.doctor import cache, children, environment, examine, installation, plugins, torch_threads
from soma.doctor.guarded import guarded, patiently
from soma.doctor.torch_threads import TorchThreads
from soma.errors import BrokenPackage, MissingPackage
from soma.plugins import discover
from soma.plugins.checks import iter_checks
from soma.plugins.report import PluginReport
from soma.registry import Catalog, Offer, Registry
from support import checkups
from support.distributions import write_plugin

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"


def told(found):
    """Return (state, text) of each finding, in one line each."""
    return [(one.state, one.text) for one in found]


def the_one(found):
    (one,) = found
    assert (one.state == "fine") == (one.advice == "")
    return one


def is_over(pid):
    """Say whether a process ends, which it may take a moment to do; a zombie has ended."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        except OSError:
            return True
        if state[0] == "Z":
            return True
        time.sleep(0.01)
    return False


class TestGuards:
    def test_what_a_check_raises_is_a_finding_after_what_it_has_found(self):
        note, fault = guarded("shelf", checkups.fails_on_the_way)
        assert note == checkups.NOTE
        assert (fault.about, fault.state) == ("shelf", "wrong")
        assert fault.text == "it cannot be checked: RuntimeError: the lamp is broken"
        assert fault.advice

    @pytest.mark.parametrize(
        ("check", "says"),
        [
            (checkups.leaves, "SystemExit: 3"),
            (checkups.nothing, "TypeError: 'NoneType' object is not iterable"),
            (checkups.takes_something, "TypeError: takes_something() missing 1 required"),
            (checkups.a_number, "TypeError: 'int' object is not callable"),
            (lambda: [None], "TypeError: a check yields soma.contracts.Finding, not None"),
        ],
    )
    def test_whatever_it_raises(self, check, says):
        assert says in the_one(guarded("shelf", check)).text

    @pytest.mark.parametrize(
        ("changed", "says"),
        [
            ({"state": "bad"}, "its state is 'bad', and not fine or note or wrong"),
            ({"state": None}, "its state is no text, but None"),
            ({"state": ["fine"]}, "its state is no text, but ['fine']"),
            ({"text": None}, "its text is no text, but None"),
            ({"text": b"it stands"}, "its text is no text, but b'it stands'"),
            ({"about": 3}, "its about is no text, but 3"),
            ({"advice": None}, "its advice is no text, but None"),
            ({"about": 3, "state": 4, "text": 5, "advice": 6}, "its state is no text, but 4"),
        ],
    )
    def test_a_finding_that_nobody_can_show_is_one(self, changed, says, monkeypatch, capsys):
        odd = replace(checkups.NOTE, **changed)
        fault, after = guarded("attic", lambda: [odd, checkups.FINE])
        assert after == checkups.FINE
        assert (fault.about, fault.state) == ("attic" if "about" in changed else "shelf", "wrong")
        assert says in fault.text
        assert ("it is dusty" in fault.text) == ("text" not in changed)
        assert fault.advice
        found = [("attic", one) for one in guarded("attic", lambda: [odd])]
        monkeypatch.setattr(command, "examine", lambda: found)
        assert run(["doctor"]) == run(["doctor", "--json"]) == 1
        assert "  WRONG  " in capsys.readouterr().out

    def test_ctrl_c_is_no_finding(self):
        def interrupted():
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            list(guarded("shelf", interrupted))

    def test_what_hangs_is_left_behind(self):
        try:
            note, fault = patiently("shelf", checkups.hangs, 0.1, "is it there?")
        finally:
            checkups.never.set()
        assert note == checkups.NOTE
        assert told([fault]) == [("wrong", "it has not answered within 0.1 s")]
        assert fault.advice == "is it there?"

    def test_who_answers_is_heard_to_the_end(self):
        assert list(patiently("shelf", checkups.a_list, 30)) == [checkups.NOTE, checkups.WRONG]
        assert [one.state for one in patiently("s", checkups.fails_on_the_way, 30)] == [
            "note",
            "wrong",
        ]


class TestInstallation:
    @pytest.fixture
    def core(self, monkeypatch):
        """Metadata of soma-core, to be changed; None: there is none."""
        found = Message()
        found["Version"] = __version__
        found["Requires-Python"] = f">={MINOR}"
        found["Classifier"] = f"Programming Language :: Python :: {MINOR}"
        found["Requires-Dist"] = "pytest"

        def metadata(name):
            assert name == "soma-core"
            return found

        monkeypatch.setattr(installation, "metadata", metadata)
        return found

    def look(self, about):
        return [one for one in installation.look_at_installation() if one.about == about]

    def test_all_is_fine(self, core):
        found = list(installation.look_at_installation())
        assert [one.about for one in found] == ["soma", "python", "system", "requirements"]
        assert found[0].text.startswith(f"soma-core {__version__}, in ")
        assert f" {MINOR}." in found[1].text
        assert {one.state for one in found if one.about != "system"} == {"fine"}

    def test_of_this_very_installation(self):
        """Its own metadata is of the version that runs."""
        assert the_one(self.look("soma")).state == "fine"
        assert the_one(self.look("requirements")).state == "fine"

    def test_another_version_is_installed_than_runs(self, core):
        core.replace_header("Version", "0.0.9")
        one = the_one(self.look("soma"))
        assert one.state == "note"
        assert "what is installed is 0.0.9" in one.text

    def test_it_is_not_installed(self, monkeypatch):
        def metadata(name):
            raise PackageNotFoundError(name)

        monkeypatch.setattr(installation, "metadata", metadata)
        one = the_one(self.look("soma"))
        assert (one.state, one.advice[:11]) == ("note", "pip install")
        assert self.look("requirements") == []
        assert the_one(self.look("python"))

    def test_this_python_is_too_old(self, core):
        core.replace_header("Requires-Python", ">=4.2")
        one = the_one(self.look("python"))
        assert one.state == "wrong"
        assert f"Soma {__version__} needs >=4.2" in one.text
        assert f"Python {MINOR}" in one.advice

    def test_nobody_has_tried_this_python(self, core):
        core.replace_header("Classifier", "Programming Language :: Python :: 3.99")
        (one,) = self.look("python")
        assert (one.state, one.text[-25:]) == ("note", "is tested with CPython 3.99"[-25:])

    def test_requirements_that_are_not_there_or_do_not_fit(self, core):
        core["Requires-Dist"] = "nobody-has-this>=2"
        core["Requires-Dist"] = "pytest<1"
        core["Requires-Dist"] = 'unneeded; extra == "more"'
        first, second = self.look("requirements")
        assert "requires nobody-has-this, which is not installed" in first.text
        assert (first.state, first.advice) == ("wrong", 'pip install "nobody-has-this>=2"')
        assert "requires pytest<1, but pytest " in second.text

    def test_damaged_metadata_is_a_finding(self, core):
        core.replace_header("Requires-Python", "of any age")
        assert "it cannot be checked: InvalidSpecifier" in the_one(self.look("python")).text
        assert the_one(self.look("soma")).state == "fine"

    def test_the_original_beside_it(self, core, monkeypatch):
        monkeypatch.setattr(installation, "version", lambda name: {"somatize": "0.5.1"}[name])
        _, one = self.look("soma")
        assert one.state == "wrong"
        assert "somatize 0.5.1, the original" in one.text
        assert one.advice.startswith("pip uninstall somatize")


class TestPlugins:
    @pytest.fixture
    def look(self, tmp_path, monkeypatch):
        """Return what is found of the plugins in ``tmp_path``."""
        monkeypatch.syspath_prepend(tmp_path)

        def look(*more):
            points = [
                point
                for dist in distributions(path=[str(tmp_path)])
                for point in dist.entry_points.select(group="soma")
            ]
            found = (*discover(points), *more)
            monkeypatch.setattr(plugins, "reports", lambda: found)
            return list(plugins.look_at_plugins())

        return look

    def test_none(self, look):
        assert told(look()) == [("fine", "none are installed")]

    def test_a_good_one_and_broken_ones(self, look, tmp_path):
        write_plugin(tmp_path, "doctor-good")
        write_plugin(tmp_path, "doctor-bad", plugin="raise ValueError('bad day')\n")
        write_plugin(tmp_path, "doctor-poor", requires=("nobody-has-this",))
        bad, good, poor = look()
        assert [one.about for one in (bad, good, poor)] == [
            "plugin doctor-bad",
            "plugin doctor-good",
            "plugin doctor-poor",
        ]
        assert told([good]) == [("fine", "1.0: command doctor-good")]
        assert told([bad]) == [("wrong", "1.0 was left out (import): ValueError: bad day")]
        assert bad.advice.endswith("(more: soma plugins show doctor-bad)")
        assert "pip uninstall doctor-bad" in bad.advice
        assert "requires nobody-has-this, which is not installed" in poor.text
        assert "pip install nobody-has-this" in poor.advice

    def test_one_name_twice(self, look, tmp_path):
        write_plugin(tmp_path, "doctor-one", command="same")
        write_plugin(tmp_path, "doctor-two", command="same")
        clash = look()[-1]
        assert (clash.about, clash.state) == ("command same", "wrong")
        assert "claimed by doctor-one 1.0 and doctor-two 1.0" in clash.text
        assert "pip uninstall doctor-one or pip uninstall doctor-two" in clash.advice

    def test_a_target_that_is_not_there(self, look, tmp_path):
        write_plugin(tmp_path, "doctor-empty")
        (tmp_path / "doctor_empty" / "cli.py").unlink()
        one = the_one(look())
        assert one.state == "wrong"
        assert "offers the command 'doctor-empty', and has no module doctor_empty.cli" in one.text

    def test_a_release_that_does_not_fit(self, look, tmp_path, monkeypatch):
        write_plugin(tmp_path, "doctor-picky", requires=("pytest<1",))
        one = the_one(look())
        assert one.state == "wrong"
        assert one.text.startswith("1.0 requires pytest<1, but pytest ")
        assert one.advice == 'pip install "pytest<1"'

    def test_of_another_core(self, look, tmp_path):
        write_plugin(tmp_path, "doctor-later", requires=("soma-core>=99",))
        one = the_one(look())
        assert f"requires soma-core>=99, but soma-core {__version__} is running" in one.text

    def test_switched_off(self, look):
        off = PluginReport(
            dist="quiet",
            version="1.0",
            entry_point="quiet",
            module="quiet",
            status="off",
            fix="unset it",
        )
        assert the_one(look(off)) == Finding(
            about="plugin quiet",
            state="note",
            text="1.0 is switched off by SOMA_LOAD_PLUGINS",
            advice="unset it",
        )


class TestCache:
    @pytest.fixture
    def look(self, monkeypatch):
        """Return what is found with stores of these names and check-ups."""

        def look(left_out=None, **stores):
            offers = tuple(
                Offer(
                    spec=ActionStoreSpec(
                        name=name,
                        target="soma.engine.memory:MemoryStore",
                        shareable=False,
                        checkup=target and f"support.checkups:{target}",
                    ),
                    dist="shelves",
                    version="2.0",
                )
                for name, target in stores.items()
            )
            catalog = Catalog(offers=offers, left_out=left_out or {})
            registry = Registry(Catalog, lambda: catalog)
            report = PluginReport(
                dist="shelves", version="2.0", entry_point="s", module="s", offers=offers
            )
            monkeypatch.setattr(cache, "default", lambda: registry)
            monkeypatch.setattr(cache, "reports", lambda: (report,))
            return list(cache.look_at_cache())

        return look

    def test_a_store_without_a_check_up(self, look):
        one = the_one(look(disk=""))
        assert told([one]) == [("fine", "Graph() keeps results by 'disk' of shelves 2.0")]

    def test_every_store_is_asked(self, look):
        _, *rest = look(disk="fine", other="a_list", third="")
        assert rest == [checkups.FINE, checkups.NOTE, checkups.WRONG]

    def test_without_a_cache_on_disk(self, look, monkeypatch):
        def find(self, *args, **kwargs):
            raise MissingPackage("not there")

        monkeypatch.setattr(Registry, "find", find)
        one = the_one(look())
        assert one.state == "note"
        assert "gone when its process ends" in one.text
        assert one.advice == 'pip install "soma-core[cache]"'

    def test_a_cache_that_does_not_import(self, look, monkeypatch):
        def load(self, offer):
            raise BrokenPackage("it is of wood")

        monkeypatch.setattr(Registry, "load", load)
        one = the_one(look(disk=""))
        assert one.state == "wrong"
        assert "results are held in memory: it is of wood" in one.text

    @pytest.mark.parametrize(
        ("target", "says"),
        [
            ("missing", "support.checkups:missing, the check-up of shelves 2.0, does not load"),
            ("a_number", "TypeError: 'int' object is not callable"),
            ("nothing", "TypeError: 'NoneType' object is not iterable"),
            ("leaves", "SystemExit: 3"),
            ("takes_something", "missing 1 required positional argument"),
            ("texts", "a check yields soma.contracts.Finding, not 'it stands'"),
        ],
    )
    def test_a_broken_check_up_is_a_finding(self, look, target, says):
        _, *rest = look(disk=target, other="fine")
        assert rest[-1] == checkups.FINE
        assert (rest[-2].about, rest[-2].state) == ("cache disk", "wrong")
        assert says in rest[-2].text


class TestEnvironment:
    @pytest.fixture(autouse=True)
    def plain(self, monkeypatch):
        for name in [one for one in os.environ if one.startswith("SOMA_")]:
            monkeypatch.delenv(name)
        monkeypatch.setattr(environment, "reports", lambda: ())

    def look(self, about):
        return [one for one in environment.look_at_environment() if one.about == about]

    def test_variables_are_named_and_their_values_are_not(self, monkeypatch):
        assert told(self.look("variables")) == [("fine", "none of Soma's is set")]
        monkeypatch.setenv("SOMA_CACHE_REMOTE", "file://me:secret@there/x")
        monkeypatch.setenv("SOMA_OF_A_PLUGIN", "1")
        expected = [("fine", "SOMA_CACHE_REMOTE, SOMA_OF_A_PLUGIN")]
        assert told(self.look("variables")) == expected

    @pytest.mark.parametrize(
        ("name", "value", "says"),
        [
            ("SOMA_LOAD_PLUGINS", "nobody", "names nobody, and no plugin of that name"),
            ("SOMA_LOAD_PLUGIN", "a", "Did you mean 'SOMA_LOAD_PLUGINS'?"),
            ("SOMA_STRICT_PLUGIN", "1", "Did you mean 'SOMA_STRICT_PLUGINS'?"),
            ("SOMA_CACHE_KEEP", "ALL", "'ALL' means nothing"),
            ("SOMA_CACHE_KEEP", "1", "'1' means nothing"),
        ],
    )
    def test_values_and_names_that_mean_nothing(self, monkeypatch, name, value, says):
        monkeypatch.setenv(name, value)
        one = the_one(self.look("variables"))
        assert one.state == "note"
        assert says in one.text

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("SOMA_LOAD_PLUGINS", ""),
            ("SOMA_STRICT_PLUGINS", "0"),
            ("SOMA_CACHE_KEEP", "all"),
            ("SOMA_CACHE_KEEP", ""),
        ],
    )
    def test_values_that_mean_something(self, monkeypatch, name, value):
        monkeypatch.setenv(name, value)
        assert told(self.look("variables")) == [("fine", name)]

    @pytest.mark.parametrize(
        ("limits", "state", "says"),
        [
            ((1024, 4096), "fine", "1,024 at a time"),
            ((resource.RLIM_INFINITY,) * 2, "fine", "any number at a time"),
            ((1023, resource.RLIM_INFINITY), "note", "ulimit -n 4096"),
            ((256, 4096), "note", "ulimit -n 4096"),
            ((256, 512), "note", "ulimit -n 512"),
            ((256, 256), "note", "ask who runs this machine"),
        ],
    )
    def test_open_files(self, monkeypatch, limits, state, says):
        monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
        one = the_one(self.look("open files"))
        assert one.state == state
        assert says in one.text + one.advice

    def test_a_working_folder_that_is_gone(self, monkeypatch, tmp_path):
        assert self.look("working folder") == []
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        assert the_one(self.look("working folder")).advice == "cd ~"

    def test_a_folder_for_temporary_files(self, monkeypatch):
        assert the_one(self.look("temporary files")).state == "fine"

        def gettempdir():
            raise FileNotFoundError(2, "No usable temporary directory found")

        monkeypatch.setattr(environment.tempfile, "gettempdir", gettempdir)
        one = the_one(self.look("temporary files"))
        assert (one.state, "export TMPDIR=" in one.advice) == ("wrong", True)


class TestTorch:
    @pytest.fixture
    def look(self, tmp_path, monkeypatch):
        """Return what is found of a torch that is this text; None: there is none."""
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        monkeypatch.setattr(torch_threads, "_cpus", lambda: 4)

        def look(text=None, status=0):
            monkeypatch.setattr(torch_threads, "_is_installed", lambda: text is not None)
            if text is not None:
                (tmp_path / "torch.py").write_text(text)
                monkeypatch.setenv("PYTHONPATH", str(tmp_path))
            asked = TorchThreads()
            try:
                return list(asked.look())
            finally:
                asked.close()

        return look

    def test_without_it_there_is_nothing_to_say(self, look):
        assert look() == []

    @pytest.mark.parametrize(
        ("text", "state", "says"),
        [
            ("get_num_threads = lambda: 4", "fine", "2.9, 4 threads on 4 CPUs"),
            ("get_num_threads = lambda: 1\nprint('hello')", "fine", "2.9, 1 thread on 4 CPUs"),
            ("get_num_threads = lambda: 5", "note", "export OMP_NUM_THREADS=4"),
            ("import nobody_has_this", "wrong", "No module named 'nobody_has_this'"),
            ("import os\nos.abort()", "wrong", "does not import: it was ended by signal 6"),
            ("raise SystemExit(5)", "wrong", "does not import: exit status 5"),
        ],
    )
    def test_what_it_says_of_itself(self, look, text, state, says):
        one = the_one(look(f"__version__ = '2.9'\n{text}\n"))
        assert (one.about, one.state) == ("torch", state)
        assert says in one.text + one.advice

    def test_it_hangs(self, look, monkeypatch):
        monkeypatch.setattr(torch_threads, "_LIMIT_S", 0.2)
        one = the_one(look("import time\ntime.sleep(30)\n"))
        assert told([one]) == [("wrong", "it is installed, and importing it takes more than 0.2 s")]

    def test_who_holds_its_pipes_is_not_waited_for(self, look, monkeypatch, tmp_path):
        """What it has started ends with it, or is left behind where it has gone its own way."""
        monkeypatch.setattr(torch_threads, "_LIMIT_S", 2.0)
        ended, left = tmp_path / "ended", tmp_path / "left"
        began = time.monotonic()
        look(
            "import pathlib, subprocess, sys, time\n"
            f"for name, own in ({str(ended)!r}, False), ({str(left)!r}, True):\n"
            "    one = subprocess.Popen(['sleep', '40'], start_new_session=own)\n"
            "    pathlib.Path(name).write_text(str(one.pid))\n"
            "time.sleep(40)\n"
        )
        try:
            assert time.monotonic() - began < 30
            assert is_over(int(ended.read_text()))
        finally:
            os.kill(int(left.read_text()), signal.SIGKILL)

    @pytest.mark.parametrize("files", [[], ["__init__.py"]])
    def test_a_folder_of_its_name_is_no_torch(self, monkeypatch, tmp_path, files):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        (tmp_path / "torch" / "data").mkdir(parents=True)
        for name in files:
            (tmp_path / "torch" / name).touch()
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(sys, "path", [str(tmp_path)])
        asked = TorchThreads()
        try:
            assert list(asked.look()) == []
        finally:
            asked.close()

    def test_its_metadata_alone_is_no_torch(self, look):
        assert look("raise ModuleNotFoundError('gone', name='torch')") == []

    @pytest.mark.parametrize("said", ["1", "4", " 2 ", "4,2", "2, 1"])
    def test_numbers_of_threads(self, look, monkeypatch, said):
        monkeypatch.setenv("OMP_NUM_THREADS", said)
        assert look() == []

    @pytest.mark.parametrize("said", ["", "0", "-1", "many", "1.5", "9" * 400, "1,,2", "²"])
    def test_what_is_no_number_of_threads(self, look, monkeypatch, said):
        monkeypatch.setenv("OMP_NUM_THREADS", said)
        one = the_one(look())
        assert (one.about, one.state) == ("threads", "note")
        assert "is a number of threads" in one.text

    def test_more_threads_than_there_are_cpus(self, look, monkeypatch):
        monkeypatch.setenv("OMP_NUM_THREADS", "64,2")
        assert "OMP_NUM_THREADS=64,2, and this process may use 4" in the_one(look()).text


class TestChildren:
    def test_one_starts_and_answers(self):
        assert told(children.look_at_children()) == [("fine", "it starts and answers")]

    def test_one_that_cannot_be_started(self, monkeypatch):
        monkeypatch.setattr(sys, "executable", "")
        one = the_one(children.look_at_children())
        assert one.state == "wrong"
        assert "does not know which Python runs it" in one.text


class TestCommand:
    @pytest.fixture
    def doctor(self, monkeypatch, capsys):
        """Run the command over these findings; return (status, what it has printed)."""

        def doctor(*found, words=()):
            def examine():
                print("a plugin says hello")  # noqa: T201  # as some do
                yield from found

            monkeypatch.setattr(command, "examine", examine)
            status = run(["doctor", *words])
            out, err = capsys.readouterr()
            assert err == "a plugin says hello\n"
            return status, out

        return doctor

    def test_lines_in_their_sections(self, doctor):
        status, out = doctor(
            ("shelves", checkups.FINE),
            ("shelves", checkups.NOTE),
            ("lamps", checkups.WRONG),
        )
        assert status == 1
        assert out == (
            "shelves\n"
            "  ok     shelf: it stands\n"
            "  note   shelf: it is dusty\n"
            "         -> wipe it\n"
            "\n"
            "lamps\n"
            "  WRONG  shelf: it has fallen down\n"
            "         -> lift it\n"
            "\n"
            "1 thing is wrong; 1 note.\n"
        )

    def test_only_what_is_wrong_counts(self, doctor):
        status, out = doctor(("shelves", checkups.FINE), ("shelves", checkups.NOTE))
        assert (status, out.splitlines()[-1]) == (0, "Nothing is wrong; 1 note.")
        status, out = doctor(*[("shelves", checkups.WRONG)] * 2)
        assert (status, out.splitlines()[-1]) == (1, "2 things are wrong.")

    def test_json(self, doctor):
        status, out = doctor(("shelves", checkups.WRONG), words=["--json"])
        assert status == 1
        assert json.loads(out) == [
            {
                "section": "shelves",
                "about": "shelf",
                "state": "wrong",
                "text": "it has fallen down",
                "advice": "lift it",
            }
        ]
        assert json.loads(doctor(words=["--json"])[1]) == []

    def test_words_have_colours_on_a_terminal(self, monkeypatch):
        class Terminal(io.StringIO):
            def isatty(self):
                return True

        monkeypatch.delenv("NO_COLOR", raising=False)
        out = Terminal()
        command._print(checkups.WRONG, out)
        assert out.getvalue().startswith("  \x1b[31mWRONG\x1b[0m  shelf: ")
        monkeypatch.setenv("NO_COLOR", "1")
        out = Terminal()
        command._print(checkups.WRONG, out)
        assert out.getvalue().startswith("  WRONG  shelf: ")

    def test_texts_stay_on_their_line(self, doctor):
        odd = Finding(about="a\nb", state="note", text="\x1b[31m\nred\udce9", advice="x\ty")
        _, out = doctor(("shelves", odd))
        assert out.splitlines()[1:3] == [
            "  note   a b: \\x1b[31m red\\udce9",
            "         -> x y",
        ]


def test_a_check_that_is_broken_itself_stops_no_other(monkeypatch):
    def broken():
        raise ZeroDivisionError

    monkeypatch.setattr("soma.doctor.look_at_plugins", broken)
    monkeypatch.setattr("soma.doctor.look_at_children", lambda: [checkups.FINE])
    monkeypatch.setattr("soma.doctor.look_at_cache", list)
    found = list(examine())
    assert ("children", checkups.FINE) in found
    faults = [one for section, one in found if section == "plugins"]
    assert told(faults) == [("wrong", "it cannot be checked: ZeroDivisionError")]
    assert next(section for section, _ in found) == "installation"


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("fine", ""),
        ("missing", "support.checkups:missing does not load: ImportError"),
        ("a_number", "support.checkups:a_number is a int; expected a function"),
    ],
)
def test_soma_plugins_check_loads_the_check_up(target, says):
    spec = ActionStoreSpec(
        name="shelf",
        target="soma.engine.memory:MemoryStore",
        shareable=False,
        checkup=f"support.checkups:{target}",
    )
    offers = (Offer(spec=spec, dist="shelves", version="2.0"),)
    report = PluginReport(dist="shelves", version="2.0", entry_point="s", module="s", offers=offers)
    (check,) = [one for one in iter_checks((report,), "shelves") if "check-up" in one.name]
    assert check.name == "check-up of action store 'shelf'"
    if not says:
        check.run()
        return
    with pytest.raises(AssertionError) as refused:
        check.run()
    assert str(refused.value).startswith(says)
