from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import threading
from uuid import uuid4

import pytest
from blake3 import blake3

from soma_cache import sending
from soma_cache.folder_tier import FolderTier
from soma_cache.remote import MOST_RECORD_BYTES, Remote
from support.threads import run_in_threads

PATIENCE_S = 60
KEY = "ab" * 32
RAW = random.Random(4).randbytes(100_000)  # noqa: S311  # data, not secrets


def digest_of(raw):
    return blake3(raw).hexdigest()


def name_of(raw):
    return f"cas/b3/{digest_of(raw)[:2]}/{digest_of(raw)}.bin"


def record_of(key):
    return f"actions/{key[:2]}/{key}.json"


class Clock:
    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


class Shelf:
    """A tier in memory that does what ``hook(what, name)`` does before it does its own."""

    def __init__(self):
        self.things = {}
        self.calls = []
        self.hook = lambda what, name: None

    def _do(self, what, name):
        self.calls.append((what, name))
        self.hook(what, name)

    def get(self, name):
        self._do("get", name)
        found = self.things.get(name)
        return None if found is None else (b"", [memoryview(found)])

    def put(self, name, frame):
        self._do("put", name)
        self.things[name] = b"".join((frame[0], *frame[1]))

    def exists(self, name):
        self._do("exists", name)
        return name in self.things

    def delete(self, name):
        self._do("delete", name)
        self.things.pop(name, None)

    def list(self, prefix):
        return iter([name for name in self.things if name.startswith(prefix)])


class Hang:
    """A hook that waits, until the test is over, or lets go."""

    def __init__(self):
        self.over = threading.Event()
        self.entered = threading.Semaphore(0)

    def __call__(self, what, name):
        self.entered.release()
        assert self.over.wait(PATIENCE_S)

    def wait_until_entered(self):
        assert self.entered.acquire(timeout=PATIENCE_S)


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def name():
    """Of each thing is told once in a process."""
    return f"lab-{uuid4().hex}"


@pytest.fixture
def remote(shelf, clock, name):
    return Remote(shelf, name, clock=clock, patience_s=PATIENCE_S)


@pytest.fixture
def hasty(shelf, clock, name):
    """Give a remote that waits for nothing that hangs."""
    return Remote(shelf, name, clock=clock, patience_s=0.05)


@pytest.fixture
def hang():
    made = Hang()
    yield made
    made.over.set()


def raising(error):
    def hook(what, name):
        raise error

    return hook


def frame(raw):
    return raw[:10], [memoryview(raw)[10:500], memoryview(raw)[500:]]


def finished(work):
    """Call ``work`` on another thread, and fail where it does not return."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


class TestReading:
    def test_what_is_not_there_is_none(self, remote):
        assert remote.record(KEY) is None
        assert remote.blob(digest_of(RAW)) is None
        assert remote.blob(digest_of(RAW), len(RAW)) is None
        assert not remote.has(digest_of(RAW))

    @pytest.mark.parametrize("nbytes", [None, len(RAW)])
    def test_what_is_there_comes_as_it_is(self, remote, shelf, nbytes):
        shelf.things = {record_of(KEY): b"a record", name_of(RAW): RAW}
        assert remote.record(KEY) == b"a record"
        assert remote.blob(digest_of(RAW), nbytes) == RAW
        assert remote.has(digest_of(RAW))

    def test_a_frame_in_pieces_is_joined(self, remote, shelf, monkeypatch):
        monkeypatch.setattr(shelf, "get", lambda name: (RAW[:3], [memoryview(RAW)[3:]]))
        assert remote.blob(digest_of(RAW), len(RAW)) == RAW
        monkeypatch.setattr(shelf, "get", lambda name: (RAW, []))
        assert remote.blob(digest_of(RAW), len(RAW)) == RAW
        assert remote.record(KEY) == RAW
        monkeypatch.setattr(shelf, "get", lambda name: (b"", []))
        assert remote.blob(digest_of(b""), 0) == b""

    def test_many_threads_ask_at_once(self, remote, shelf):
        raws = [str(number).encode() * 1000 for number in range(16)]
        shelf.things = {name_of(raw): raw for raw in raws}
        wrong = []

        def ask(number):
            for _ in range(20):
                found = remote.blob(digest_of(raws[number]))
                if found != raws[number]:
                    wrong.append(number)

        run_in_threads(ask, 16)
        assert wrong == []

    @pytest.mark.parametrize("nbytes", [None, len(RAW)])
    @pytest.mark.parametrize("kind", ["folder", "shelf"])
    @pytest.mark.parametrize(
        "damaged",
        [
            RAW[:-1] + bytes([RAW[-1] ^ 1]),
            RAW[: len(RAW) // 2],
            b"",
            RAW + b"\0",
            RAW[::-1],
        ],
        ids=["flipped", "halved", "emptied", "lengthened", "another"],
    )
    def test_a_damaged_blob_is_none_and_is_healed_by_the_next_push(
        self, tmp_path, name, kind, nbytes, damaged
    ):
        tier = FolderTier(f"file://{tmp_path}/shared") if kind == "folder" else Shelf()
        remote = Remote(tier, name, patience_s=PATIENCE_S)
        tier.put(name_of(RAW), (damaged, []))
        assert remote.blob(digest_of(RAW), nbytes) is None
        remote.push(KEY, b"a record", {digest_of(RAW): frame(RAW)})
        assert remote.flush(PATIENCE_S)
        assert remote.blob(digest_of(RAW), nbytes) == RAW

    def test_damage_counts_as_failure(self, remote, shelf, capfd):
        shelf.things = {name_of(RAW): b"something else", record_of(KEY): b"a record"}
        for _ in range(3):
            assert remote.blob(digest_of(RAW)) is None
        assert remote.is_away()
        assert "does not have the hash" in capfd.readouterr().err

    def test_what_is_longer_than_expected_is_not_read(self, tmp_path, name, monkeypatch):
        tier = FolderTier(f"file://{tmp_path}/shared")
        tier.put(name_of(RAW), (RAW, []))
        tier.put(record_of(KEY), (b"a record", []))
        for one in (name_of(RAW), record_of(KEY)):
            os.truncate(tmp_path / "shared" / one, 1 << 40)  # a hole: no disk is used
        read = []
        monkeypatch.setattr(tier, "get", read.append)
        remote = Remote(tier, name, patience_s=PATIENCE_S)
        assert remote.blob(digest_of(RAW), len(RAW)) is None
        assert remote.record(KEY) is None
        assert read == []

    def test_what_came_longer_than_expected_is_none(self, remote, shelf):
        shelf.things = {record_of(KEY): bytes(MOST_RECORD_BYTES + 1), name_of(RAW): RAW}
        assert remote.record(KEY) is None
        assert remote.blob(digest_of(RAW), len(RAW) - 1) is None
        shelf.things[record_of(KEY)] = bytes(MOST_RECORD_BYTES)
        assert remote.record(KEY) == bytes(MOST_RECORD_BYTES)

    @pytest.mark.parametrize("answer", ["text", 7, (None, None), (b"", ["text"]), (), object()])
    def test_an_answer_that_is_no_frame_is_none(self, remote, shelf, monkeypatch, answer):
        monkeypatch.setattr(shelf, "get", lambda name: answer)
        assert remote.blob(digest_of(RAW)) is None
        assert remote.record(KEY) is None


class TestFailing:
    @pytest.mark.parametrize(
        "error",
        [OSError("no route"), ValueError("no route"), SystemExit("no route"), MemoryError()],
    )
    def test_after_three_in_a_row_it_is_left_alone_and_that_is_said_once(
        self, remote, shelf, clock, capfd, error
    ):
        shelf.hook = raising(error)
        for away in (False, False, True):
            assert remote.record(KEY) is None
            assert remote.is_away() is away
        assert len(shelf.calls) == 3
        assert remote.record(KEY) is None
        assert remote.blob(digest_of(RAW), len(RAW)) is None
        assert not remote.has(digest_of(RAW))
        assert len(shelf.calls) == 3
        clock.now_s += 29.9
        assert remote.is_away()
        clock.now_s += 0.2
        assert not remote.is_away()
        assert remote.record(KEY) is None
        assert len(shelf.calls) == 4
        assert remote.is_away()
        said = capfd.readouterr().err
        assert said.count("\n") == 1
        for part in (remote.name, "30 s", "on this machine", type(error).__name__, str(error)):
            assert part in said

    def test_a_success_begins_the_count_again(self, remote, shelf):
        shelf.things[record_of(KEY)] = b"a record"
        for _ in range(3):
            shelf.hook = raising(OSError("no route"))
            assert remote.record(KEY) is None
            assert remote.blob(digest_of(RAW)) is None
            shelf.hook = lambda what, name: None
            assert remote.record(KEY) == b"a record"
        assert not remote.is_away()

    def test_it_works_again_after_its_rest(self, remote, shelf, clock):
        shelf.things[record_of(KEY)] = b"a record"
        shelf.hook = raising(OSError("no route"))
        for _ in range(3):
            remote.record(KEY)
        shelf.hook = lambda what, name: None
        assert remote.record(KEY) is None
        clock.now_s += 31
        assert remote.record(KEY) == b"a record"

    def test_a_folder_under_a_file_is_a_remote_that_fails(self, tmp_path, name, capfd):
        (tmp_path / "file").write_text("here")
        remote = Remote(FolderTier(f"file://{tmp_path}/file/cache"), name, patience_s=PATIENCE_S)
        for _ in range(5):
            assert remote.record(KEY) is None
            assert remote.blob(digest_of(RAW), len(RAW)) is None
        remote.push(KEY, b"a record", {})
        assert not remote.flush(PATIENCE_S)
        assert remote.dropped == 1
        assert capfd.readouterr().err.count("\n") == 1


class TestHanging:
    def test_who_does_not_answer_is_left_alone(self, hasty, shelf, clock, hang, capfd):
        shelf.things[record_of(KEY)] = b"a record"
        shelf.hook = hang
        finished(lambda: hasty.record(KEY))
        hang.wait_until_entered()
        assert hasty.is_away()
        assert hasty.record(KEY) is None
        assert len(shelf.calls) == 1
        said = capfd.readouterr().err
        assert said.count("\n") == 1
        assert hasty.name in said
        assert "not answered within 0.05 s" in said
        shelf.hook = lambda what, name: None
        clock.now_s += 31
        assert not hasty.is_away()

    def test_a_late_answer_is_nobodys(self, hasty, shelf, clock, hang):
        shelf.things[record_of(KEY)] = b"a record"
        shelf.hook = hang
        assert hasty.record(KEY) is None
        hang.over.set()
        assert hasty.is_away()
        assert hasty.record(KEY) is None

    def test_a_blob_gets_the_time_for_its_bytes(self, shelf, hang, clock, name, capfd):
        remote = Remote(shelf, name, clock=clock, patience_s=0.05)
        shelf.hook = hang
        assert remote.blob(digest_of(RAW), 4_000_000) is None
        assert "within 0.25 s" in capfd.readouterr().err

    def test_threads_that_hang_do_not_pile_up(self, hasty, shelf, clock, hang):
        shelf.hook = hang
        for _ in range(50):
            assert hasty.record(KEY) is None
            clock.now_s += 31
        for _ in range(8):
            hang.wait_until_entered()
        assert len(shelf.calls) == 8
        assert hasty.is_away()
        before = set(threading.enumerate())
        hang.over.set()
        for thread in before:
            if thread.name.startswith("soma: asking"):
                thread.join(PATIENCE_S)
        assert not hasty.is_away()

    def test_ctrl_c_is_heard_while_it_hangs(self, remote, shelf, hang):
        def interrupt_and_hang(what, name):
            os.kill(os.getpid(), signal.SIGINT)
            hang(what, name)

        shelf.hook = interrupt_and_hang
        with pytest.raises(KeyboardInterrupt):
            remote.record(KEY)


class TestPushing:
    def test_blobs_go_first_and_the_record_last(self, remote, shelf):
        remote.push(KEY, b"a record", {digest_of(RAW): frame(RAW), digest_of(b"x"): (b"x", [])})
        assert remote.flush(PATIENCE_S)
        assert [name for what, name in shelf.calls if what == "put"] == [
            name_of(RAW),
            name_of(b"x"),
            record_of(KEY),
        ]
        assert shelf.things == {name_of(RAW): RAW, name_of(b"x"): b"x", record_of(KEY): b"a record"}
        assert remote.dropped == 0

    def test_what_is_there_is_not_sent_again(self, remote, shelf):
        shelf.things[name_of(RAW)] = RAW
        remote.push(KEY, b"a record", {digest_of(RAW): frame(RAW)})
        assert remote.flush(PATIENCE_S)
        assert shelf.calls == [("exists", name_of(RAW)), ("put", record_of(KEY))]

    def test_what_is_there_with_another_size_is_sent_again(self, tmp_path, name):
        tier = FolderTier(f"file://{tmp_path}/shared")
        tier.put(name_of(RAW), (RAW[:-1], []))
        remote = Remote(tier, name, patience_s=PATIENCE_S)
        remote.push(KEY, b"a record", {digest_of(RAW): frame(RAW)})
        assert remote.flush(PATIENCE_S)
        assert remote.blob(digest_of(RAW), len(RAW)) == RAW

    def test_a_folder_takes_what_another_reads(self, tmp_path, name):
        one = Remote(FolderTier(f"file://{tmp_path}/shared"), name, patience_s=PATIENCE_S)
        other = Remote(FolderTier(f"file://{tmp_path}/shared"), name, patience_s=PATIENCE_S)
        assert other.record(KEY) is None
        one.push(KEY, b"a record", {digest_of(RAW): frame(RAW)})
        assert one.flush(PATIENCE_S)
        assert other.record(KEY) == b"a record"
        assert other.blob(digest_of(RAW), len(RAW)) == RAW

    def test_the_run_does_not_wait(self, remote, shelf, hang):
        shelf.hook = hang
        remote.push(KEY, b"a record", {digest_of(RAW): frame(RAW)})
        hang.wait_until_entered()
        assert not remote.flush(0.01)
        assert shelf.things == {}
        hang.over.set()
        assert remote.flush(PATIENCE_S)
        assert shelf.things == {name_of(RAW): RAW, record_of(KEY): b"a record"}

    def test_a_flush_gives_up_on_what_stands_still(self, remote, shelf, clock, hang):
        shelf.hook = hang
        remote.push(KEY, b"a record", {})
        hang.wait_until_entered()
        clock.now_s += PATIENCE_S + 1
        finished(lambda: remote.flush(10 * PATIENCE_S))
        assert not remote.is_away()  # for those who ask

    @pytest.mark.parametrize("limit", ["_MOST_PARCELS", "_MOST_BYTES"])
    def test_what_finds_no_room_is_dropped(self, hasty, shelf, hang, monkeypatch, limit):
        monkeypatch.setattr(sending, limit, 2 if limit == "_MOST_PARCELS" else 2 * len(RAW))
        shelf.hook = hang
        for number in range(5):
            key = str(number) * 64
            hasty.push(key, RAW, {})
            if number == 0:
                hang.wait_until_entered()
        assert hasty.dropped == 3
        hang.over.set()
        assert not hasty.flush(PATIENCE_S)
        hasty.push("a" * 64, RAW, {})
        assert hasty.flush(PATIENCE_S)
        assert set(shelf.things) == {record_of(one * 64) for one in "01a"}
        assert hasty.dropped == 3

    def test_what_is_larger_than_all_the_room_goes_alone(self, hasty, shelf, monkeypatch):
        monkeypatch.setattr(sending, "_MOST_BYTES", 10)
        hasty.push(KEY, RAW, {})
        assert hasty.flush(PATIENCE_S)
        assert shelf.things == {record_of(KEY): RAW}

    def test_nothing_is_sent_while_it_is_away(self, remote, shelf, clock):
        shelf.hook = raising(OSError("no route"))
        for _ in range(3):
            remote.record(KEY)
        shelf.hook = lambda what, name: None
        shelf.calls.clear()
        remote.push(KEY, b"a record", {})
        assert not remote.flush(PATIENCE_S)
        assert remote.dropped == 1
        assert shelf.calls == []
        clock.now_s += 31
        remote.push(KEY, b"a record", {})
        assert remote.flush(PATIENCE_S)
        assert shelf.things == {record_of(KEY): b"a record"}

    def test_what_waits_is_dropped_when_it_goes_away(self, remote, shelf, hang):
        shelf.hook = hang
        for number in range(3):
            remote.push(str(number) * 64, b"a record", {})
        hang.wait_until_entered()
        shelf.hook = raising(OSError("no route"))
        for _ in range(3):
            remote.record(KEY)
        assert remote.is_away()
        assert not remote.flush(PATIENCE_S)
        hang.over.set()
        finished(lambda: _until(lambda: remote.dropped == 2))
        assert shelf.things == {record_of("0" * 64): b"a record"}

    def test_no_record_goes_without_its_blobs(self, remote, shelf):
        def refuse_blobs(what, name):
            if name.startswith("cas/"):
                raise ValueError("no blobs here")

        shelf.hook = refuse_blobs
        remote.push(KEY, b"a record", {digest_of(RAW): frame(RAW)})
        assert not remote.flush(PATIENCE_S)
        assert shelf.things == {}
        assert remote.dropped == 1

    def test_pushes_that_fail_count_as_failures(self, remote, shelf, name, capfd):
        shelf.hook = raising(ValueError("no route"))
        for number in range(3):
            assert not remote.is_away()
            remote.push(str(number) * 64, b"a record", {})
            finished(lambda: remote.flush(PATIENCE_S))
            finished(lambda at=number: _until(lambda: remote.dropped == at + 1))
        assert remote.is_away()
        assert capfd.readouterr().err.count(name) == 1

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EFBIG])
    def test_one_that_takes_nothing_is_still_read(self, remote, shelf, clock, capfd, number):
        def refuse(what, name):
            if what == "put":
                raise OSError(number, os.strerror(number))

        shelf.things[record_of(KEY)] = b"a record"
        shelf.hook = refuse
        for _ in range(5):
            remote.push("cd" * 32, b"a record", {})
            remote.flush(PATIENCE_S)
        assert remote.dropped == 5
        assert [what for what, _ in shelf.calls] == ["put"]
        assert not remote.is_away()
        assert remote.record(KEY) == b"a record"
        said = capfd.readouterr().err
        assert said.count("\n") == 1
        assert remote.name in said
        assert os.strerror(number) in said
        shelf.hook = lambda what, name: None
        clock.now_s += 31
        remote.push("cd" * 32, b"a record", {})
        assert remote.flush(PATIENCE_S)
        assert record_of("cd" * 32) in shelf.things

    @pytest.mark.parametrize("how", ["argument", "tier"])
    def test_to_one_that_is_read_only_nothing_is_sent(self, shelf, name, how, capfd):
        if how == "tier":
            shelf.read_only = True
            remote = Remote(shelf, name)
        else:
            remote = Remote(shelf, name, read_only=True)
        assert remote.read_only
        remote.push(KEY, b"a record", {digest_of(RAW): frame(RAW)})
        assert remote.flush(PATIENCE_S)
        assert (shelf.calls, remote.dropped) == ([], 0)
        assert capfd.readouterr().err == ""

    def test_the_thread_ends_when_it_has_nothing_to_do(self, remote, shelf, monkeypatch):
        monkeypatch.setattr(sending, "_LINGER_S", 0.0)
        for number in range(3):
            remote.push(str(number) * 64, b"a record", {})
            assert remote.flush(PATIENCE_S)
            for thread in threading.enumerate():
                if thread.name == f"soma: sending to {remote.name}":
                    thread.join(PATIENCE_S)
                    assert not thread.is_alive()
        assert len(shelf.things) == 3

    def test_many_threads_push_at_once(self, remote, shelf):
        run_in_threads(
            lambda number: [
                remote.push(f"{number:02x}{at:02x}" * 16, str(at).encode(), {}) for at in range(20)
            ],
            8,
        )
        assert remote.flush(PATIENCE_S)
        assert shelf.things == {
            record_of(f"{number:02x}{at:02x}" * 16): str(at).encode()
            for number in range(8)
            for at in range(20)
        }
        assert remote.dropped == 0


def _until(holds):
    pause = threading.Event()
    while not holds():
        pause.wait(0.01)


class TestProcesses:
    START = """
import os, sys, threading, time
from soma_cache.folder_tier import FolderTier
from soma_cache import sending
from soma_cache.remote import Remote
class Hangs:
    def get(self, name):
        threading.Event().wait()
    put = exists = delete = list = lambda self, *given: self.get(given)
class Slow(FolderTier):
    def put(self, name, frame):
        time.sleep(0.01)
        super().put(name, frame)
folder = "file://" + sys.argv[1]
keys = [64 * one for one in "0123456789abcdef"]
"""

    def run(self, script, tmp_path):
        (tmp_path / "shared").mkdir(exist_ok=True)  # or a line says that it is made
        done = subprocess.run(
            [sys.executable, "-c", self.START + script, str(tmp_path / "shared")],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    def test_one_that_hangs_when_it_is_read_does_not_keep_a_process(self, tmp_path):
        script = """
remote = Remote(Hangs(), "lab", patience_s=0.1)
print(remote.record(keys[0]), remote.blob(keys[0], 5), remote.is_away())
remote.push(keys[0], b"a record", {})
"""
        out, err = self.run(script, tmp_path)
        assert out == "None None True\n"
        assert err.count("\n") == 1
        assert "the remote cache lab is left alone" in err

    def test_one_that_hangs_when_it_is_written_does_not_keep_a_process(self, tmp_path):
        script = """
remote = Remote(Hangs(), "lab", patience_s=0.1)
for key in keys:
    remote.push(key, b"a record", {})
"""
        _, err = self.run(script, tmp_path)
        assert err.count("\n") == 1
        assert "lab did not take 16 results, left on this machine alone: it does not keep up" in err

    def test_one_that_takes_its_time_is_waited_for_only_so_long(self, tmp_path):
        script = """
sending._EXIT_S = 0.1
remote = Remote(Hangs(), "lab", patience_s=1000.0)
remote.push(keys[0], b"a record", {})
"""
        _, err = self.run(script, tmp_path)
        assert "lab did not take 1 result, left on this machine alone: it does not keep up" in err

    def test_what_waits_is_sent_at_the_end_of_a_process(self, tmp_path):
        script = """
remote = Remote(Slow(folder), "lab", patience_s=1000.0)
for key in keys:
    remote.push(key, key.encode(), {})
"""
        assert self.run(script, tmp_path) == ("", "")
        tier = FolderTier(f"file://{tmp_path}/shared")
        assert len(list(tier.list("actions/"))) == 16
        for key in (64 * one for one in "0123456789abcdef"):
            assert tier.get(record_of(key))[1][0] == key.encode()

    def test_one_that_nobody_holds_any_more_sends_all_the_same(self, tmp_path):
        script = """
import gc
remote = Remote(Slow(folder), "lab", patience_s=1000.0)
for key in keys:
    remote.push(key, key.encode(), {})
del remote
gc.collect()
"""
        assert self.run(script, tmp_path) == ("", "")
        assert len(list(FolderTier(f"file://{tmp_path}/shared").list("actions/"))) == 16

    def test_a_child_by_fork_begins_with_nothing_to_send_and_works(self, tmp_path):
        script = """
import warnings
warnings.simplefilter("ignore")  # later Pythons warn of a fork beside threads
entered, go_on = threading.Event(), threading.Event()
class Gate(FolderTier):
    def put(self, name, frame):
        entered.set()
        assert go_on.wait(60)
        super().put(name, frame)
remote = Remote(Gate(folder), "lab", patience_s=1000.0)
for key in keys[:3]:
    remote.push(key, b"of the parent", {})
assert entered.wait(60)
pid = os.fork()
if pid == 0:
    go_on = threading.Event()
    go_on.set()
    assert remote.flush(60) and remote.dropped == 0
    assert FolderTier(folder).get("actions/00/" + keys[0] + ".json") is None
    remote.push(keys[9], b"of the child", {})
    assert remote.flush(60)
    assert remote.record(keys[9]) == b"of the child"
    assert remote.record(keys[0]) is None
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert remote.record(keys[9]) == b"of the child"
go_on.set()
assert remote.flush(60)
print(*sorted(one[11] for one in FolderTier(folder).list("actions/")))
"""
        assert self.run(script, tmp_path) == ("0 1 2 9\n", "")

    def test_a_child_by_fork_is_not_held_up_by_what_hung_in_its_parent(self, tmp_path):
        script = """
import warnings
warnings.simplefilter("ignore")
hang = True
class Tier(FolderTier):
    def get(self, name):
        if hang:
            threading.Event().wait()
        return super().get(name)
now = 0.0
remote = Remote(Tier(folder), "lab", patience_s=0.02, clock=lambda: now)
FolderTier(folder).put("actions/00/" + keys[0] + ".json", (b"a record", []))
for _ in range(10):
    remote.record(keys[0])
    now += 31
assert remote.is_away()
hang = False
pid = os.fork()
if pid == 0:
    remote._patience.patience_s = 60
    assert remote.record(keys[0]) == b"a record"
    os._exit(0)
print(os.waitpid(pid, 0)[1])
"""
        out, err = self.run(script, tmp_path)
        assert out == "0\n"
        assert err.count("\n") == 1
