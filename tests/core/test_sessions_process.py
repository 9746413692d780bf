from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import venv
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from soma import InvalidInput, __version__
from soma.engine.parcels import pack
from soma.errors import MemoryExceeded, SessionError, SessionLost, SessionTimeout
from soma.sessions import launch
from soma.sessions.process import ChildProcess
from soma.sessions.wire import get_parcel, put_parcel
from support import children
from support.children import answer, ask
from support.threads import run_in_threads

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

MAIN = "support.children:main"
MEGABYTE = 1 << 20
DIES_WITHIN_S = 2.0


def start(name="local-1", **settings):
    return ChildProcess.start(name, _main=MAIN, **settings)


@pytest.fixture
def child():
    made = start()
    yield made
    made.close()


@pytest.fixture
def starting():
    """Start children that are closed whatever happens."""
    made = []

    def begin(name="local-1", **settings):
        made.append(start(name, **settings))
        return made[-1]

    yield begin
    for one in made:
        one.close()


def ask_for_its_end(child, *order):
    """What it says before it ends is delivered."""
    assert ask(child, *order) in {"last words", "looping"}
    answer(child)


def lives(pid):
    """Whether a process runs: what has ended and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def wait_until(what, seconds=20):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


_ELDERS = set()


@pytest.fixture(autouse=True)
def elders():
    """Take note of the processes that others have begun: they may stay."""
    _ELDERS.clear()
    _ELDERS.update(offspring())


def offspring():
    """Return the processes begun meanwhile that have not been reaped yet."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has ended meanwhile
            found += (task / "children").read_text().split()
    return [pid for pid in found if pid not in _ELDERS]


def computes(child):
    """Whether the main thread of the child is at work."""
    text = Path(f"/proc/{child.pid}/stat").read_text().rpartition(") ")[2].split()
    return text[0] == "R"


def program(tmp_path, text, name="python"):
    """Write a program that is given as ``python=``."""
    path = tmp_path / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def run_script(tmp_path, text, **settings):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT + text)
    return subprocess.run(
        [sys.executable, path],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(children.__file__).parents[1])},
        check=False,
        **settings,
    )


SCRIPT = """
import os, signal, sys, time
from soma.errors import SessionLost
from soma.sessions.process import ChildProcess
from support.children import answer, ask
def start(name="local-1", **settings):
    return ChildProcess.start(name, _main="support.children:main", **settings)
"""


class TestTalking:
    def test_it_answers(self, child):
        assert child.alive
        assert child.name == "local-1"
        assert lives(child.pid)
        assert child.pid != os.getpid()
        assert child.ended() == "is running"
        assert ask(child, "echo", 1, "ä", None) == [1, "ä", None]

    def test_values_come_back(self, child):
        value = {"small": np.arange(3), "large": np.arange(MEGABYTE)}
        blobs = []
        ask_fields = {"call": 1, "what": "echo", "args": [put_parcel(pack(value), blobs)]}
        child.send("do", ask_fields, blobs)
        message = child.receive(time.monotonic() + 60)
        found = get_parcel(message.fields["made"][0], message.blobs).open()
        np.testing.assert_equal(found, value)

    def test_nothing_until_the_deadline(self, child):
        assert child.receive(time.monotonic() + 0.01) is None
        assert child.receive(time.monotonic() - 1) is None
        assert ask(child, "echo", 1) == [1]

    def test_what_cannot_be_said_is_refused_and_costs_nothing(self, child):
        with pytest.raises(ValueError, match="CBOR"):
            child.send("do", {"x": object()})
        assert ask(child, "echo", 1) == [1]

    def test_it_works_where_its_parent_does(self, starting, monkeypatch, tmp_path):
        monkeypatch.setenv("SOMA_TEST", "ä")
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path / "half\udce4"))
        found = ask(starting(), "place")
        assert found["cwd"] == str(tmp_path)
        assert found["home"] == "ä"
        assert list(found["path"]) == sys.path
        assert list(found["argv"]) == sys.argv
        assert list(found["affinity"]) == sorted(os.sched_getaffinity(0))

    def test_programs_that_it_starts_inherit_nothing(self, child):
        assert list(ask(child, "place")["inherited"]) == [0, 1, 2]

    def test_affinity_is_that_of_the_thread_that_asks(self, starting):
        before = os.sched_getaffinity(0)
        starting().close()  # the thread that starts children is there
        try:
            os.sched_setaffinity(0, {min(before)})
            assert list(ask(starting(), "place")["affinity"]) == [min(before)]
        finally:
            os.sched_setaffinity(0, before)

    def test_torch_gets_as_many_threads(self, starting, monkeypatch):
        torch = type(sys)("torch")
        torch.get_num_threads = lambda: 3
        monkeypatch.setitem(sys.modules, "torch", torch)
        one = starting()
        ask(one, "torch_threads")
        assert ask(one, "told_threads") == 3

    def test_its_starting_thread_may_end(self):
        made = []
        run_in_threads(lambda _: made.append(start()), 1)
        gc.collect()
        assert ask(made[0], "echo", 1) == [1]
        made[0].close()

    def test_ten_at_once(self):
        found = {}

        def work(number):
            one = start(f"local-{number}")
            try:
                found[number] = (one.pid, ask(one, "echo", number))
            finally:
                one.close()
            assert one.ended() == "exited with status 0"

        run_in_threads(work, 10)
        assert sorted(found) == list(range(10))
        assert len({pid for pid, _ in found.values()}) == 10
        assert all(made == [number] for number, (_, made) in found.items())
        assert offspring() == []


class TestEnds:
    @pytest.mark.parametrize(
        ("order", "how"),
        [
            (("leave", 3), "exited with status 3"),
            (("leave", 0), "exited with status 0"),
            (("raise_signal", signal.SIGKILL), r"was killed by signal 9 \(SIGKILL\); not by Soma"),
            (("raise_signal", signal.SIGTERM), r"was killed by signal 15 \(SIGTERM\)$"),
            (("segfault",), r"was killed by signal 11 \(SIGSEGV\)$"),
        ],
        ids=["exit", "exit_0", "kill", "term", "segfault"],
    )
    def test_are_named_soon(self, child, order, how):
        begun = time.monotonic()
        with pytest.raises(SessionLost, match=rf"^Process local-1 \(pid {child.pid}\) {how}"):
            ask_for_its_end(child, *order)
        assert time.monotonic() - begun < DIES_WITHIN_S + 8  # the machine may be busy
        assert not child.alive
        with pytest.raises(SessionLost, match=how):
            child.send("do", {})
        with pytest.raises(SessionLost, match=how):
            child.receive(time.monotonic() + 5)
        assert offspring() == []

    @pytest.mark.parametrize("own_session", [False, True])
    def test_a_grandchild_that_holds_everything_open(self, child, own_session):
        grandchild = ask(child, "fork", own_session)
        try:
            os.kill(child.pid, signal.SIGKILL)
            with pytest.raises(SessionLost, match="SIGKILL"):
                child.receive(time.monotonic() + 30)
            if not own_session:
                wait_until(lambda: not lives(grandchild))
        finally:
            if lives(grandchild):
                os.kill(grandchild, signal.SIGKILL)

    def test_a_kill_says_why(self, child):
        ask(child, "loop")
        child.kill("it took longer than timeout_s=5")
        with pytest.raises(SessionLost, match=r"was killed: it took longer than timeout_s=5$"):
            answer(child)
        child.kill("again")
        assert child.ended() == "was killed: it took longer than timeout_s=5"

    def test_a_kill_takes_what_it_started_along(self, child):
        grandchild = ask(child, "fork", False)
        child.kill("enough")
        wait_until(lambda: not lives(grandchild))

    def test_too_much_memory(self, starting):
        one = starting(memory_bytes=200 * MEGABYTE)
        assert ask(one, "echo", 1) == [1]
        with pytest.raises(MemoryExceeded, match=r"it took \d+\.\d MB .* may take 200\.0 MB"):
            ask(one, "allocate", 600 * MEGABYTE)
        assert isinstance(MemoryExceeded(""), SessionLost | MemoryError)

    def test_memory_below_the_limit(self, starting):
        one = starting(memory_bytes=200 * MEGABYTE)
        one.send("do", {"call": 0, "what": "allocate", "args": [40 * MEGABYTE]})
        assert one.receive(time.monotonic() + 0.5) is None
        assert one.alive

    def test_one_that_closes_its_connection_is_ended(self, child):
        with pytest.raises(SessionLost, match=r"was killed: its connection broke|closed its"):
            ask(child, "close_descriptors")
        wait_until(lambda: not lives(child.pid))

    def test_one_that_talks_rubbish_is_ended(self, child):
        with pytest.raises(
            SessionLost, match=r"was killed: its connection broke: .*beginning of a"
        ):
            ask(child, "rubbish")

    def test_somebody_else_takes_its_exit_status(self, tmp_path):
        made = run_script(
            tmp_path,
            """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
one = start()
try:
    ask(one, "leave", 3); answer(one)
except SessionLost as error:
    print(error)
one.close()
""",
        )
        assert "has ended, and other code of this process took its exit status" in made.stdout
        assert made.stderr == ""

    def test_without_pidfd(self, starting, monkeypatch):
        def refuse(*_):
            raise OSError("a sandbox")

        monkeypatch.setattr(os, "pidfd_open", refuse)
        one = starting()
        with pytest.raises(SessionLost, match="exited with status 4"):
            ask_for_its_end(one, "leave", 4)
        two = starting()
        assert ask(two, "echo", 2) == [2]
        two.close()
        assert two.ended() == "exited with status 0"


class TestClosing:
    def test_twice(self, child):
        child.close()
        child.close()
        assert child.ended() == "exited with status 0"
        assert not child.alive
        with pytest.raises(SessionLost, match="exited with status 0"):
            child.send("do", {})
        with pytest.raises(SessionLost, match="exited with status 0"):
            child.receive(None)

    def test_one_that_holds_the_interpreter(self, child):
        ask(child, "hold_interpreter")
        child.close(timeout_s=0.2)
        assert child.ended() == "was killed: it did not end in 0.2 s after it was told to"
        assert not lives(child.pid)

    def test_one_that_was_stopped(self, child):
        ask(child, "stop")
        assert child.receive(time.monotonic() + 0.05) is None
        child.close(timeout_s=0.1)
        assert not lives(child.pid)

    def test_while_another_thread_waits_for_it(self, child):
        said = []

        def wait():
            with pytest.raises(SessionLost) as caught:
                ask_for_its_end(child, "loop")
            said.append(str(caught.value))

        waiting = threading.Thread(target=wait)
        waiting.start()
        wait_until(lambda: computes(child))
        child.close()
        waiting.join(20)
        assert len(said) == 1

    def test_one_that_is_dropped_ends(self):
        one = start()
        pid = one.pid
        del one
        gc.collect()
        wait_until(lambda: not lives(pid))

    def test_nothing_is_left(self):
        start().close()
        before = open_descriptors()
        threads = threading.active_count()
        for _ in range(10):
            start().close()
        for number in range(3):
            one = start()
            with pytest.raises(SessionLost):
                ask_for_its_end(one, "leave", number)
            one.close()
        assert open_descriptors() == before
        assert threading.active_count() == threads
        assert offspring() == []

    def test_nothing_is_left_of_those_that_never_were(self, tmp_path):
        short = program(tmp_path, "#!/bin/sh\nexit 1\n")
        with pytest.raises(SessionError):
            start(python=short)
        before = open_descriptors()
        for _ in range(100):
            with pytest.raises(SessionError):
                start(python=short)
        assert open_descriptors() == before
        assert offspring() == []

    def test_the_end_of_the_program_closes_them(self, tmp_path):
        made = run_script(
            tmp_path, "print(start().pid, flush=True)\nkept = start()\nprint(kept.pid)\n"
        )
        assert (made.returncode, made.stderr) == (0, "")
        pids = made.stdout.split()
        assert len(pids) == 2, "the script ran once"
        assert not any(map(lives, pids))

    @pytest.mark.parametrize("busy", ["hold_interpreter", "search", "loop", None])
    def test_a_parent_that_is_killed_takes_them_along(self, tmp_path, busy):
        path = tmp_path / "script.py"
        path.write_text(
            SCRIPT
            + f"""
one, busy = start(), {busy!r}
if busy: ask(one, busy)
print(one.pid, flush=True)
time.sleep(600)
"""
        )
        env = {**os.environ, "PYTHONPATH": str(Path(children.__file__).parents[1])}
        parent = subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, env=env)
        with parent:
            pid = int(parent.stdout.readline())
            assert lives(pid)
            parent.kill()
        wait_until(lambda: not lives(pid), 10)

    def test_a_copy_of_the_parent_leaves_them_alone(self, tmp_path):
        made = run_script(
            tmp_path,
            """
import warnings
warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads
one = start()
before = len(os.listdir("/proc/self/fd"))
pid = os.fork()
if not pid:
    assert not one.alive
    for use in (lambda: one.send("do", {}), lambda: one.receive(None)):
        try: use()
        except SessionLost as error: assert "which this one was forked from" in str(error), error
        else: raise AssertionError
    one.kill("x"); one.drain_output(); one.close()
    assert len(os.listdir("/proc/self/fd")) == before - 5
    two = start("local-2")
    assert ask(two, "echo", 2) == [2]
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert ask(one, "echo", 1) == [1]
one.close()
print(one.ended())
""",
        )
        assert (made.stdout, made.stderr) == ("exited with status 0\n", "")


class TestOutput:
    def told(self, capsys, child):
        child.drain_output()
        return capsys.readouterr().err

    def test_lines_are_marked(self, child, capsys):
        ask(child, "print", "one\ntwo ä\nhalf a li")
        assert self.told(capsys, child) == ("[local-1] one\n[local-1] two ä\n[local-1] half a li\n")
        ask(child, "print", "ne\n")
        assert self.told(capsys, child) == "[local-1] ne\n"
        assert self.told(capsys, child) == ""

    def test_raw_bytes_on_both(self, child, capsys):
        ask(child, "raw", 1, b"\xff\x00out\n")
        ask(child, "raw", 2, b"err\n\n")
        assert self.told(capsys, child) == "[local-1] \\xff\x00out\n[local-1] err\n[local-1] \n"

    def test_comes_without_being_asked_for(self, child, capsys):
        ask(child, "print", "now\nhalf")
        told = ""

        def has_come():
            nonlocal told
            told += capsys.readouterr().err
            return told == "[local-1] now\n"

        wait_until(has_come)
        child.close()
        assert capsys.readouterr().err == "[local-1] half\n"

    def test_much_of_it(self, child, capsys):
        ask(child, "print", "".join(f"line {number}\n" for number in range(50_000)))
        lines = self.told(capsys, child).splitlines()
        assert lines == [f"[local-1] line {number}" for number in range(50_000)]

    def test_a_traceback_of_a_crash(self, child, capsys):
        with pytest.raises(SessionLost):
            ask(child, "segfault")
        told = self.told(capsys, child)
        assert "[local-1] Fatal Python error: Segmentation fault\n" in told
        assert "do_segfault" in told

    @pytest.mark.parametrize("broken", [None, "raises"])
    def test_a_broken_stderr_hurts_nobody(self, child, monkeypatch, broken):
        class Raises:
            def write(self, text):
                raise RuntimeError(text)

        with monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", Raises() if broken else None)
            ask(child, "print", "lost\n")
            child.drain_output()
            assert ask(child, "echo", 1) == [1]


class TestInterrupts:
    def test_ctrl_c_passes_it_by(self, child):
        ask(child, "loop")
        for _ in range(3):
            os.kill(child.pid, signal.SIGINT)
        child.send("cancel", {"call": 5})  # another call
        assert child.receive(time.monotonic() + 0.1) is None
        child.send("cancel", {"call": 0})
        assert answer(child) == "cancelled"
        assert ask(child, "echo", 1) == [1]

    def test_a_call_that_has_not_begun(self, child):
        child.send("cancel", {"call": 9})
        child.send("do", {"call": 9, "what": "echo", "args": [1]})
        assert answer(child) == "cancelled"
        assert ask(child, "echo", 1) == [1]

    def test_never_in_the_middle_of_a_message(self, child):
        for call in range(1, 31):
            child.send("do", {"call": call, "what": "chatter", "args": []})
            for number in range(call * 10):
                assert answer(child) == number
            child.send("cancel", {"call": call})
            last = call * 10
            while (made := answer(child)) != "cancelled":
                assert made == last
                last += 1
        assert ask(child, "echo", 1) == [1]


class TestRefusals:
    def test_another_minor_version(self, tmp_path):
        python = program(
            tmp_path,
            f"#!{sys.executable}\nimport os, sys, time\n"
            "os.write(int(sys.argv[-1]), b'soma-hello 3.10.4 cpython 4711\\n')\ntime.sleep(600)\n",
        )
        with pytest.raises(SessionError) as caught:
            start(python=python)
        ours = ".".join(map(str, sys.version_info[:3]))
        assert f"({python}) runs Python 3.10.4 (cpython)" in str(caught.value)
        assert f"this process runs Python {ours} (cpython)" in str(caught.value)

    def test_a_real_one(self):
        found = other_minor()
        if found is None:
            pytest.skip("there is no other Python here")
        with pytest.raises(SessionError, match="travel only between equal minor versions"):
            start(python=found)

    @pytest.mark.parametrize("python", ["/nowhere/python", "no-such-python", "/", ""])
    def test_no_program(self, python):
        with pytest.raises(InvalidInput, match="is no program that can be run"):
            start(python=python)

    def test_a_file_that_is_not_executable(self, tmp_path):
        (tmp_path / "python").write_text("#!/bin/sh\n")
        with pytest.raises(InvalidInput, match="is no program that can be run"):
            start(python=str(tmp_path / "python"))

    def test_a_program_that_the_system_cannot_run(self, tmp_path):
        with pytest.raises(SessionError, match=r"could not be started: .*Exec format error"):
            start(python=program(tmp_path, "\x7fELF nonsense"))

    def test_a_program_that_is_no_python(self, tmp_path):
        python = program(tmp_path, "#!/bin/sh\necho 'what do you want?'\nexit 4\n")
        with pytest.raises(SessionError) as caught:
            start(python=python)
        assert str(caught.value) == (
            f"Process local-1 ({python}) ended before it said a word: it exited with status 4. "
            "It printed:\n    what do you want?"
        )

    def test_a_program_that_never_says_a_word(self, tmp_path):
        python = program(tmp_path, "#!/bin/sh\nexec sleep 600\n")
        with pytest.raises(SessionTimeout, match="was not ready in time"):
            start(python=python, start_timeout_s=0.3)
        assert offspring() == []

    def test_no_soma_there(self, tmp_path, monkeypatch):
        monkeypatch.setattr(launch, "_foreign_path", list)
        monkeypatch.delenv("PYTHONPATH", raising=False)
        python = program(tmp_path, f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
        with pytest.raises(SessionError, match="No module named 'soma'") as caught:
            start(python=python)
        assert "ended before it was ready: it exited with status 1" in str(caught.value)

    def test_another_release(self, monkeypatch):
        monkeypatch.setattr(launch, "__version__", "9.9.9")
        with pytest.raises(SessionError, match=f"has Soma {__version__} .*has Soma 9.9.9 "):
            start()

    def test_a_main_that_does_not_import(self):
        with pytest.raises(SessionError, match=r"No module named 'support\.nowhere'"):
            ChildProcess.start("local-1", _main="support.nowhere:main")

    def test_the_same_python_by_another_name(self, starting, tmp_path):
        one = starting(python=program(tmp_path, f'#!/bin/sh\nexec {sys.executable} "$@"\n'))
        assert ask(one, "echo", 1) == [1]

    def test_a_script_that_stays_in_between(self, starting, tmp_path):
        one = starting(python=program(tmp_path, f'#!/bin/sh\n{sys.executable} "$@"\nexit $?\n'))
        assert ask(one, "echo", 1) == [1]
        pid = one.pid
        one.kill("enough")
        with pytest.raises(SessionLost, match="was killed: enough"):
            answer(one)
        wait_until(lambda: not lives(pid))


def other_minor():
    """Return a Python that is not of our minor version, if there is one."""
    for minor in range(9, 15):
        if minor == sys.version_info[1]:
            continue
        named = [shutil.which(f"python3.{minor}")]
        named += Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")
        for found in filter(None, named):
            made = subprocess.run([found, "-c", ""], capture_output=True, check=False)
            if made.returncode == 0:  # a shim may say that it is not chosen
                return str(found)
    return None


def test_an_interpreter_that_lacks_what_soma_needs_is_told_how_to_get_it(tmp_path):
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    with pytest.raises(SessionError) as caught:
        ChildProcess.start("bare", python=python)
    told = str(caught.value)
    assert "ModuleNotFoundError: No module named" in told
    assert told.endswith(f"{python} -m pip install soma-core")
