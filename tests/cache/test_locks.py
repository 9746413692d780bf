"""Locks between processes, tried with real ones."""

from __future__ import annotations

import ast
import errno
import fcntl
import gc
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from soma import _notices
from soma.engine.claims import Claims, leave_claims
from soma_cache import locks as room
from soma_cache.locks import KeyLocks
from support.signals import hear_ctrl_c

KEY, OTHER = "ab" * 32, "cd" * 32

PROGRAM = """
import os, signal, sys, threading, time, warnings
from soma.engine import claims as room
from soma.engine.claims import Claims, leave_claims
from soma_cache.locks import KeyLocks

warnings.simplefilter("ignore")  # newer Pythons warn of threads at a fork
locks = KeyLocks(sys.argv[1])
claims = Claims(locks)
KEY, OTHER = "ab" * 32, "cd" * 32

def in_fork(work):
    down, up = os.pipe()
    if os.fork() == 0:
        try:
            os.write(up, repr(eval(work)).encode())
        finally:
            os._exit(0)
    os.close(up)
    found = os.read(down, 1000).decode()
    os.close(down)
    os.wait()
    return eval(found)

def fork_that_stays():
    pid = os.fork()
    while pid == 0:
        time.sleep(600)
    return pid

def hold_until_interrupted():
    try:
        with claims.claim(KEY):
            print("'held'", flush=True)
            time.sleep(600)
    except KeyboardInterrupt:
        return "interrupted"

def lock_and_unlock():
    while True:
        locks.lock(KEY)
        locks.unlock(KEY)

def with_another_claimed():
    with claims.claim(OTHER):
        return locks.holder(OTHER)

for line in sys.stdin:
    print(repr(eval(line)), flush=True)
"""


class Process:
    """A process of its own, which evaluates what it is asked to."""

    def __init__(self, path, program=PROGRAM):
        self._started = subprocess.Popen(
            [sys.executable, "-u", "-c", program, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=hear_ctrl_c,  # noqa: PLW1509  # no threads hold what it needs
        )
        self.pid = self._started.pid
        self._lines = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._started.stdout:
            self._lines.put(line.rstrip("\n"))

    def send(self, expression):
        self._started.stdin.write(expression + "\n")
        self._started.stdin.flush()

    def line(self):
        return self._lines.get(timeout=60)

    def answer(self):
        return ast.literal_eval(self.line())

    def ask(self, expression):
        self.send(expression)
        return self.answer()

    def signal(self, number):
        os.kill(self.pid, number)

    def wait(self):
        return self._started.wait(60)

    def kill(self):
        self._started.kill()
        self.wait()
        self._reader.join(60)
        self._started.stdin.close()
        self._started.stdout.close()


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder / "locks"


@pytest.fixture
def start(path):
    """Start processes that end with the test."""
    started = []

    def one(where=path, program=PROGRAM):
        started.append(Process(where, program))
        return started[-1]

    yield one
    for process in started:
        process.kill()


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch):
    monkeypatch.setattr(_notices, "_told", set())


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(room, "_LOOK_EVERY_S", 0.0)


def test_a_key_that_one_process_holds_is_not_got_by_another(path, start):
    here, there = KeyLocks(path), start()
    assert here.lock(KEY)
    assert not there.ask("locks.lock(KEY)")
    assert there.ask("locks.lock(OTHER)")
    assert not here.lock(OTHER)
    here.unlock(KEY)
    assert there.ask("locks.lock(KEY)")
    assert not here.lock(KEY)


def test_what_is_held_already_is_given_and_given_back_once(path, start):
    here, there = KeyLocks(path), start()
    assert here.lock(KEY)
    assert here.lock(KEY)
    here.unlock(KEY)
    assert there.ask("locks.lock(KEY)")
    here.unlock(KEY)  # not ours to give
    assert not here.lock(KEY)
    assert there.ask("locks.lock(KEY)")


def test_nothing_but_an_empty_file_is_left_behind(path):
    here = KeyLocks(path)
    assert not path.exists()
    assert here.lock(KEY)
    here.unlock(KEY)
    assert [one.name for one in path.parent.iterdir()] == ["locks"]
    assert path.stat().st_size == 0


def test_a_key_is_free_when_its_holder_was_killed(path, start):
    here, there = KeyLocks(path), start()
    assert there.ask("locks.lock(KEY)")
    assert not here.lock(KEY)
    there.signal(signal.SIGKILL)
    there.wait()
    assert here.lock(KEY)


def test_a_fork_of_a_holder_that_was_killed_does_not_keep_the_key(path, start):
    here, there = KeyLocks(path), start()
    assert there.ask("locks.lock(KEY)")
    fork = there.ask("fork_that_stays()")
    try:
        assert not here.lock(KEY)
        there.signal(signal.SIGKILL)
        there.wait()
        os.kill(fork, 0)  # it is there
        assert here.lock(KEY)
    finally:
        os.kill(fork, signal.SIGKILL)


def test_a_fork_has_locks_of_its_own(path, start):
    here, there = KeyLocks(path), start()
    assert there.ask("locks.lock(KEY)")
    assert there.ask("in_fork('locks.lock(KEY)')") is False
    assert there.ask("in_fork('locks.lock(OTHER)')") is True
    assert there.ask("in_fork('locks.unlock(KEY)')") is None
    assert not here.lock(KEY)  # neither its end nor its unlocking has let go of its parent's
    assert there.ask("in_fork('claims.attempt(OTHER, str()) is not None')") is True
    assert there.ask("locks.unlock(KEY)") is None
    assert there.ask("in_fork('locks.lock(KEY)')") is True
    assert here.lock(KEY)


def test_a_fork_made_while_another_thread_locks_is_not_stuck(start):
    there = start()
    there.ask("locks.lock(OTHER)")
    there.ask("threading.Thread(target=lock_and_unlock, daemon=True).start()")
    for _ in range(50):
        assert there.ask("in_fork('locks.lock(OTHER)')") is False


@pytest.mark.parametrize("way", ["the same path", "a symlink", "the folder renamed"])
def test_two_of_one_file_in_one_process(path, start, tmp_path, way):
    """Opening the second and letting go of it takes nothing from the first."""
    first = KeyLocks(path)
    assert first.lock(KEY)
    second_path = path
    if way == "a symlink":
        (tmp_path / "link").symlink_to(path.parent)
        second_path = tmp_path / "link" / "locks"
    elif way == "the folder renamed":
        second_path = path.parent.rename(tmp_path / "renamed") / "locks"
    second, there = KeyLocks(second_path), start(second_path)
    assert second.lock(OTHER)
    assert second.lock(KEY)
    second.unlock(OTHER)
    second.unlock(KEY)
    assert there.ask("locks.lock(OTHER)")
    assert not there.ask("locks.lock(KEY)")
    assert second.lock(KEY)
    first.unlock(KEY)
    assert not there.ask("locks.lock(KEY)")
    del second
    gc.collect()
    third = KeyLocks(second_path)
    assert third.lock("ef" * 32)  # with it, what was left is tidied up
    assert there.ask("locks.lock(KEY)")
    assert not there.ask("locks.lock('ef' * 32)")


def test_descriptors_go_with_those_that_use_them(tmp_path):
    def count():
        return len(list(Path("/proc/self/fd").iterdir()))

    kept = []
    for number in range(3):
        one = KeyLocks(tmp_path / f"{number}")
        assert one.lock(KEY)
        kept.append(one)
    before = count()
    for number in range(50):
        assert KeyLocks(tmp_path / f"other{number}").lock(KEY)
    gc.collect()
    assert count() <= before + 1  # the last one is closed when another is opened
    assert all(one.holder(KEY) == f"process {os.getpid()}" for one in kept)


def test_the_holder_is_named(path, start):
    here, there = KeyLocks(path), start()
    assert here.holder(KEY) == ""
    assert here.lock(OTHER)
    assert here.holder(OTHER) == f"process {os.getpid()}"
    assert here.holder(KEY) == ""
    assert there.ask("locks.lock(KEY)")
    assert here.holder(KEY) == f"process {there.pid}"
    there.kill()
    assert here.holder(KEY) == ""


def test_a_waiter_says_which_process_computes(path, start, monkeypatch):
    lines, told = [], threading.Event()
    monkeypatch.setattr("soma.engine.claims.TELL_AFTER_S", 0.01)
    monkeypatch.setattr("soma.engine.claims.tell", lambda line: (lines.append(line), told.set()))
    there, claims, got = start(), Claims(KeyLocks(path)), threading.Event()
    assert there.ask("locks.lock(KEY)")

    def wait():
        with claims.claim(KEY):
            got.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert told.wait(60)
    assert not got.is_set()
    there.ask("locks.unlock(KEY)")
    thread.join(60)
    assert got.is_set()
    assert lines == [f"waiting for process {there.pid}, which computes the same"]


def test_a_waiter_gets_the_key_when_the_holder_dies(path, start):
    there, waiter = start(), start()
    assert there.ask("locks.lock(KEY)")
    waiter.ask("setattr(room, 'TELL_AFTER_S', 0.0)")
    waiter.send("claims.claim(KEY).__enter__()")
    assert waiter.line() == f"soma: waiting for process {there.pid}, which computes the same"
    there.signal(signal.SIGKILL)
    assert waiter.answer() is None
    assert KeyLocks(path).holder(KEY) == ""  # unopened: it knows of nothing
    assert not KeyLocks(path).lock(KEY)


def test_ctrl_c_ends_a_waiter_at_once(path, start):
    here, waiter = KeyLocks(path), start()
    assert here.lock(KEY)
    waiter.ask("setattr(room, 'TELL_AFTER_S', 0.0)")
    waiter.send("claims.claim(KEY).__enter__()")
    assert waiter.line() == f"soma: waiting for process {os.getpid()}, which computes the same"
    waiter.signal(signal.SIGINT)
    assert waiter.wait() == -signal.SIGINT
    assert not start().ask("locks.lock(KEY)")  # the holder has it still


def test_ctrl_c_to_a_holder_frees_the_key(path, start):
    here, there = KeyLocks(path), start()
    there.send("hold_until_interrupted()")
    assert there.answer() == "held"
    assert not here.lock(KEY)
    there.signal(signal.SIGINT)
    assert there.answer() == "interrupted"
    assert here.lock(KEY)  # and it lives


STORM = (
    PROGRAM.rpartition("for line in")[0]
    + """
import random

class Broken(BaseException):
    pass

armed = False

def alarm(*_):
    global armed
    if armed:
        armed = False
        raise Broken

def locked():
    lines = open("/proc/locks").read().splitlines()
    return [line for line in lines if line.split()[4] == str(os.getpid())]

signal.signal(signal.SIGALRM, alarm)
draw, seen = random.Random(8), 0
for turn in range(600):
    claim = claims.claim(KEY)
    signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-6, 60e-6))
    try:
        armed = True
        for _ in range(20):
            with claim:
                pass
        armed = False
    except Broken:
        seen += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    armed = False
    claim.__exit__(None, None, None)  # as a run that is abandoned does
    assert not locked(), turn
    other = threading.Thread(target=lambda: claims.claim(KEY).__enter__(), daemon=True)
    other.start()
    other.join(30)
    assert not other.is_alive(), turn
    while not locked():  # the system may leave one out of the list while others come and go
        time.sleep(0.001)
    claims._held[KEY].__exit__(None, None, None)
print(seen)
"""
)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="looks into /proc")
def test_whatever_is_interrupted_leaves_nothing_locked(start):
    assert start(program=STORM).answer() > 0


def test_two_processes_that_would_wait_for_each_other_both_go_on(path, start):
    one, two = start(), start()
    assert one.ask("claims.claim(KEY).__enter__()") is None
    assert two.ask("claims.claim(OTHER).__enter__()") is None
    assert one.ask("with_another_claimed()") == f"process {two.pid}"
    assert two.ask("claims.claim(KEY).__enter__()") is None
    here = KeyLocks(path)
    assert not here.lock(KEY)
    assert not here.lock(OTHER)


def test_claims_that_a_thread_leaves_are_free_for_other_processes(path, start):
    claims, there = Claims(KeyLocks(path)), start()
    with claims.claim(KEY), claims.claim(OTHER):
        assert not there.ask("locks.lock(KEY)")
        leave_claims()
        assert there.ask("locks.lock(KEY)")
        assert there.ask("locks.lock(OTHER)")
    assert not claims.held_here()
    assert claims.attempt(KEY, "who") is None


def test_a_claim_that_another_thread_ends_is_free_for_other_processes(path, start):
    claims, there = Claims(KeyLocks(path)), start()
    claim = claims.attempt(KEY, "a child")
    assert there.ask("claims.attempt(KEY, str())") is None
    thread = threading.Thread(target=claim.__exit__, args=(None, None, None))
    thread.start()
    thread.join(60)
    assert there.ask("claims.attempt(KEY, str()) is not None")
    claim.__exit__(None, None, None)
    assert claims.attempt(KEY, "a child") is None


TURNS = (
    PROGRAM.rpartition("for line in")[0]
    + """
seen = os.open(sys.argv[1] + ".seen", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
print("'ready'", flush=True)
sys.stdin.readline()
for _ in range(25):
    with claims.claim(KEY):
        os.write(seen, b"%d\\n" % os.getpid())
        time.sleep(0.0005)
        os.write(seen, b"%d\\n" % os.getpid())
print("'done'", flush=True)
"""
)


def test_eight_processes_that_take_one_key_never_overlap(path, start):
    processes = [start(program=TURNS) for _ in range(8)]
    assert [one.answer() for one in processes] == ["ready"] * 8
    for one in processes:
        one.send("go")
    assert [one.answer() for one in processes] == ["done"] * 8
    seen = Path(f"{path}.seen").read_text().split()
    assert seen[0::2] == seen[1::2]
    assert {pid: seen.count(pid) for pid in seen} == {str(one.pid): 50 for one in processes}


def test_locks_that_do_not_work_are_told_of_once_and_gone_without(path, monkeypatch, capsys):
    def fails(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", fails)
    claims = Claims(KeyLocks(path))
    for _ in range(3):
        with claims.claim(KEY):
            assert claims.attempt(KEY, "who") is None  # threads still wait for each other
    assert capsys.readouterr().err == (
        "soma: processes cannot see what others compute, and may compute the same: "
        f"OSError: [Errno {errno.ENOLCK}] No locks available: '{path}'\n"
    )


def test_a_refusal_is_not_taken_for_a_holder(path, monkeypatch, capsys):
    """A sandbox forbids it for ever: nobody may wait for that to end."""

    def forbids(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(fcntl, "lockf", forbids)
    with Claims(KeyLocks(path)).claim(KEY):
        pass
    assert capsys.readouterr().err.count("Permission denied") == 1


def test_a_folder_in_place_of_the_file(path, capsys):
    path.mkdir()
    claims = Claims(KeyLocks(path))
    for key in (KEY, OTHER):
        with claims.claim(key):
            pass
    assert capsys.readouterr().err.count("soma: processes cannot see") == 1


UNPRIVILEGED = """
import os, sys
from soma.engine.claims import Claims
from soma_cache.locks import KeyLocks
if os.geteuid() == 0:
    os.seteuid(65534)
claims = Claims(KeyLocks(sys.argv[1]))
for key in ("ab", "cd"):
    with claims.claim(key):
        assert claims.attempt(key, "who") is None
print("'done'")
"""


@pytest.fixture
def public():
    """A folder that another user gets through to."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_a_file_that_is_read_only_is_told_of_once_and_gone_without(public, start):
    path = public / "locks"
    path.touch(0o444)
    public.chmod(0o777)
    there = start(path, UNPRIVILEGED)
    assert there.line() == (
        "soma: processes cannot see what others compute, and may compute the same: "
        f"PermissionError: [Errno {errno.EACCES}] Permission denied: '{path}'"
    )
    assert there.answer() == "done"


def test_a_folder_that_takes_no_files_needs_no_locks(public, start):
    """Nothing can be kept in it, and whoever keeps says so."""
    public.chmod(0o555)
    assert start(public / "locks", UNPRIVILEGED).line() == "'done'"
    assert start(public / "absent" / "locks", UNPRIVILEGED).line() == "'done'"
    public.chmod(0o755)
    (public / "file").touch()
    assert start(public / "file" / "locks", UNPRIVILEGED).line() == "'done'"


def test_a_folder_that_is_not_there_is_prepared(tmp_path, start):
    path = tmp_path / "new" / "locks"
    made = []

    def prepare():
        path.parent.mkdir()
        made.append(path)

    here = KeyLocks(path, prepare=prepare)
    assert made == []
    assert here.lock(KEY)
    assert made == [path]
    assert not start(path).ask("locks.lock(KEY)")


def test_a_folder_that_cannot_be_prepared_needs_no_locks(tmp_path):
    def prepare():
        raise OSError(errno.ENOSPC, "No space left on device")

    here = KeyLocks(tmp_path / "new" / "locks", prepare=prepare)
    assert here.lock(KEY)
    here.unlock(KEY)
    assert here.holder(KEY) == ""


def test_a_folder_that_was_removed_is_locked_anew(path, start, often):
    here = KeyLocks(path, prepare=lambda: path.parent.mkdir(exist_ok=True))
    assert here.lock(KEY)
    path.unlink()
    path.parent.rmdir()
    here.unlock(KEY)  # where it was taken
    assert here.lock(KEY)
    there = start()
    assert not there.ask("locks.lock(KEY)")
    here.unlock(KEY)
    assert there.ask("locks.lock(KEY)")


def test_a_relative_path_stays_where_it_was(path, start, tmp_path, monkeypatch, often):
    monkeypatch.chdir(path.parent)
    here = KeyLocks("locks")
    monkeypatch.chdir(tmp_path)
    assert here.lock(KEY)
    assert not start().ask("locks.lock(KEY)")


@pytest.mark.parametrize(
    ("key", "neighbour"),
    [("0" * 64, "0" * 14 + "1" + "0" * 49), ("f" * 64, "f" * 14 + "e" + "f" * 49)],
)
def test_the_first_and_the_last_byte_are_locked_alone(path, start, key, neighbour):
    here, there = KeyLocks(path), start()
    assert here.lock(key)
    assert not there.ask(f"locks.lock({key!r})")
    assert there.ask(f"locks.lock({neighbour!r})")


def test_threads_lock_and_unlock_side_by_side(path, start):
    """Two stores of one folder in one process: what either holds, nobody else gets."""
    there, stop, wrong = start(), threading.Event(), []
    held = {KEY: KeyLocks(path), OTHER: KeyLocks(path)}

    def work(own):
        while not stop.is_set():
            if not own.lock("ef" * 32):
                wrong.append("refused")
            own.unlock("ef" * 32)

    for key, own in held.items():
        assert own.lock(key)
    threads = [threading.Thread(target=work, args=(own,)) for own in held.values()]
    for thread in threads:
        thread.start()
    try:
        for _ in range(200):
            assert not there.ask("locks.lock(KEY) or locks.lock(OTHER)")
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert wrong == []
    assert there.ask("locks.lock('ef' * 32)")
