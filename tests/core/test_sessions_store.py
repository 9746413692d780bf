"""The store of the client, asked through a connection: what travels, and who waits for whom."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from soma.contracts import ActionRecord
from soma.engine import MemoryStore
from soma.engine.blobs import Blob
from soma.engine.run import Stopped
from soma.errors import SessionError
from soma.frame import content_hash, encode
from soma.sessions.child.serving import Call, Replies
from soma.sessions.child.store import ProxyStore
from soma.sessions.recent import Recent
from soma.sessions.store_server import StoreServer
from soma.sessions.wire import Connection, Message

LIMIT_S = 30
KEY = "a" * 64
OTHER = "b" * 64


class Ends:
    """Both ends of a connection, each read by a thread."""

    def __init__(self, store, may_wait=True):
        one, other = socket.socketpair()
        self.client, self.child = Connection(one), Connection(other)
        self.replies = Replies()
        self.call = Call(self.child, self.replies, Message("fit", {"call": 1}, []))
        self.store = ProxyStore(self.call, "Memory")
        self.server = StoreServer(store, self.client.send, "session 'x'")
        self.heard = []
        self.errors = []
        self.threads = [
            threading.Thread(target=self._serve, daemon=True),
            threading.Thread(target=self._reply, daemon=True),
        ]
        for one in self.threads:
            one.start()

    def _serve(self):
        while (message := self.client.receive()) is not None:
            if message.kind == "settled":
                self.client.send("answer", {"id": message.fields["id"]})
                continue
            self.heard.append(message.kind)
            self.server.handlers[message.kind](message)

    def _reply(self):
        while (message := self.child.receive()) is not None:
            self.replies.put(message)

    def settle(self):
        """Wait until all that was told has been heard."""
        self.call.ask("settled", {})

    def close(self):
        self.server.close()
        self.call.end()
        self.client.shutdown()
        self.child.shutdown()
        for one in self.threads:
            one.join(LIMIT_S)
        self.client.close()
        self.child.close()


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def ends(store):
    made = Ends(store)
    yield made
    made.close()


def record(key=KEY, digest="d", **more):
    usual = {"outputs": {"output": digest}, "bytes": {"output": 3}, "created_at": 1_234_567_890.125}
    return ActionRecord(key=key, compute_ms=1.5, **{**usual, **more})


def frame_of(value):
    encoded = encode(value)
    return (encoded.header, encoded.buffers), encoded.digest


def read(store, digest):
    frame = store.read(digest)
    return None if frame is None else bytes(frame[0]) + b"".join(frame[1])


def test_a_record_arrives_whole(ends, store):
    given = record(name="m.Scaler", parts={"attribute n": b"\x01\x02\x03\x04"}, pickled=True)
    store.commit(given)
    assert ends.store.lookup(KEY) == given
    assert ends.heard == ["lookup"]


def test_compute_takes_one_round_trip_and_one_message(ends, store):
    frame, digest = frame_of([1, 2])
    assert ends.store.lookup(KEY) is None
    with ends.store.claim(KEY):
        assert ends.store.lookup(KEY) is None
        assert ends.store.write(frame, digest) == digest
        ends.store.commit(record(digest=digest))
        assert ends.store.lookup(KEY) == record(digest=digest)
        assert ends.store.has(digest)
        assert ends.store.read(digest) is not None
    ends.settle()
    assert ends.heard == ["lookup", "keep"]
    assert store.lookup(KEY) == record(digest=digest)
    assert read(store, digest) == frame[0] + b"".join(frame[1])
    assert store.try_claim(KEY, "me") is not None


def test_a_hit_takes_one_round_trip(ends, store):
    frame, digest = frame_of([1, 2])
    store.write(frame, digest)
    store.commit(record(digest=digest))
    assert ends.store.lookup(KEY).outputs == {"output": digest}
    assert ends.store.has(digest)
    assert ends.heard == ["lookup"]
    assert store.try_claim(KEY, "me") is not None


def test_without_a_claim_all_is_sent_at_once(ends, store):
    frame, digest = frame_of("text")
    ends.store.write(frame)
    ends.store.commit(record(digest=digest))
    ends.settle()
    assert ends.heard == ["keep", "keep"]
    assert store.lookup(KEY) is not None
    assert store.has(digest)


def test_large_blobs_are_handed_over_and_not_copied(ends, store):
    digest = content_hash(bytes(2 << 20))
    encoded = encode(bytes(2 << 20))
    blob = Blob(encoded.header, encoded.buffers)
    ends.store.adopt(blob, digest)
    ends.settle()
    assert store.share(digest).fd >= 0
    import os

    assert os.fstat(store.share(digest).fd).st_ino == os.fstat(blob.fd).st_ino


def test_what_is_gone_is_none_and_can_be_written_again(ends, store):
    frame, digest = frame_of([3])
    store.commit(record(digest=digest))
    assert ends.store.lookup(KEY) is not None
    assert not ends.store.has(digest)
    assert ends.store.read(digest) is None
    ends.store.write(frame, digest)
    ends.settle()
    assert store.has(digest)


def test_what_is_read_belongs_to_the_reader(ends, store):
    frame, digest = frame_of(bytearray(b"abc"))
    store.write(frame, digest)
    first = ends.store.read(digest)
    for view in first[1]:
        view[:] = bytes(len(view))
    again = ends.store.read(digest)
    assert bytes(again[0]) + b"".join(again[1]) == read(store, digest)


def test_who_wants_the_same_waits_for_the_child(ends, store):
    assert ends.store.lookup(KEY) is None
    claim = ends.store.claim(KEY)
    claim.__enter__()
    came = threading.Event()

    def wait():
        with store.claim(KEY):
            came.set()

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert not came.wait(0.3)
    claim.__exit__(None, None, None)
    assert came.wait(LIMIT_S)
    waiting.join(LIMIT_S)


def test_the_child_waits_and_then_finds_the_record(ends, store):
    held = store.try_claim(KEY, "another")
    assert ends.store.lookup(KEY) is None
    found = []

    def compute():
        with ends.store.claim(KEY):
            found.append(ends.store.lookup(KEY))

    waiting = threading.Thread(target=compute, daemon=True)
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    store.commit(record())
    held.__exit__(None, None, None)
    waiting.join(LIMIT_S)
    assert found == [record()]
    ends.settle()
    assert store.try_claim(KEY, "me") is not None


def test_who_holds_a_claim_waits_for_nobody(ends, store):
    store.try_claim(OTHER, "another")
    with ends.store.claim(KEY), ends.store.claim(OTHER):
        assert store.try_claim(KEY, "me") is None


def test_who_was_offered_a_claim_waits_for_nobody(ends, store):
    store.try_claim(OTHER, "another")
    assert ends.store.lookup(KEY) is None
    with ends.store.claim(OTHER):
        pass
    assert store.try_claim(KEY, "me") is None


def test_another_thread_takes_what_was_offered(ends, store):
    assert ends.store.lookup(KEY) is None
    done = threading.Event()

    def compute():
        with ends.store.claim(KEY):
            done.set()

    other = threading.Thread(target=compute, daemon=True)
    other.start()
    assert done.wait(LIMIT_S)
    other.join(LIMIT_S)
    ends.settle()
    assert store.try_claim(KEY, "me") is not None


def test_two_threads_of_one_child_wait_for_each_other(ends, store):
    order = []

    def compute(name):
        with ends.store.claim(KEY):
            found = ends.store.lookup(KEY)
            if found is None:
                time.sleep(0.05)
                ends.store.commit(record())
            order.append((name, found is None))

    threads = [threading.Thread(target=compute, args=(n,), daemon=True) for n in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(LIMIT_S)
    assert sorted(fresh for _, fresh in order) == [False, False, False, True]


def test_a_callback_of_the_client_is_not_waited_for(store):
    held = store.claim(OTHER)
    held.__enter__()  # this thread holds a claim, so that its child must not wait
    store.try_claim(KEY, "another")
    ends = Ends(store)
    try:
        with ends.store.claim(KEY):
            pass
        assert ends.heard == ["claim"]
    finally:
        held.__exit__(None, None, None)
        ends.close()


def test_closing_lets_go_of_every_claim(ends, store):
    assert ends.store.lookup(KEY) is None
    ends.store.claim(OTHER).__enter__()
    ends.server.close()
    assert store.try_claim(KEY, "me") is not None
    assert store.try_claim(OTHER, "me") is not None


def test_a_claim_that_comes_after_the_end_is_let_go(ends, store):
    held = store.try_claim(KEY, "another")
    waiting = threading.Thread(target=enter, args=(ends.store.claim(KEY),), daemon=True)
    waiting.start()
    for _ in range(LIMIT_S * 100):
        if "claim" in ends.heard:
            break
        time.sleep(0.01)
    ends.server.close()
    ends.call.end()
    waiting.join(LIMIT_S)
    held.__exit__(None, None, None)
    for _ in range(LIMIT_S * 100):
        if (again := store.try_claim(KEY, "me")) is not None:
            break
        time.sleep(0.01)
    assert again is not None


def enter(claim):
    with contextlib.suppress(Stopped):
        claim.__enter__()


def test_after_the_call_nobody_is_asked(ends):
    ends.call.end()
    with pytest.raises(Stopped):
        ends.store.lookup(KEY)
    ends.store.commit(record())  # goes nowhere
    assert ends.heard == []


class Broken(MemoryStore):
    """Fails at whatever its attribute says."""

    fails = ""

    def lookup(self, key):
        self._check("lookup")
        return super().lookup(key)

    def adopt(self, blob, digest):
        self._check("adopt")
        super().adopt(blob, digest)

    def commit(self, record):
        self._check("commit")
        super().commit(record)

    def _check(self, what):
        if self.fails == what:
            raise OSError(28, "No space left on device")


def test_a_lookup_that_fails_fails_there():
    broken = Broken()
    ends = Ends(broken)
    try:
        broken.fails = "lookup"
        with pytest.raises(OSError, match="No space left"):
            ends.store.lookup(KEY)
    finally:
        ends.close()


class BreaksAfterClaims(MemoryStore):
    """Its lookups fail as long as somebody holds the key."""

    broken = True

    def lookup(self, key):
        free = MemoryStore.try_claim(self, key, "lookup")
        if free is None and self.broken:
            raise OSError("lookup broke")
        if free is not None:
            free.__exit__(None, None, None)
        return super().lookup(key)


@pytest.mark.parametrize("asks", ["lookup", "claim"])
def test_a_lookup_that_fails_leaves_no_claim(asks):
    broken = BreaksAfterClaims()
    ends = Ends(broken)
    try:
        with pytest.raises(OSError, match="lookup broke"):
            ends.store.lookup(KEY) if asks == "lookup" else ends.store.claim(KEY).__enter__()
        free = broken.try_claim(KEY, "me")
        assert free is not None
        free.__exit__(None, None, None)
        broken.broken = False
        assert ends.store.lookup(KEY) is None
        with ends.store.claim(KEY):
            assert broken.try_claim(KEY, "me") is None
    finally:
        ends.close()


class Foreign:
    """A store with what the contract says, whose claims belong to the thread that takes them."""

    def __init__(self):
        self.inner = MemoryStore()
        self.fails = ""
        self.key = threading.RLock()
        for name in ("write", "has", "commit"):
            setattr(self, name, getattr(self.inner, name))

    def lookup(self, key):
        if self.fails == "lookup":
            raise OSError("lookup broke")
        return self.inner.lookup(key)

    def read(self, digest):
        if self.fails == "read":
            raise OSError("read broke")
        return self.inner.read(digest)

    def claim(self, key):
        return self.key

    def is_free(self):
        """Say whether a thread of its own can have the claim."""
        found = []

        def look():
            found.append(self.key.acquire(timeout=LIMIT_S))
            if found[0]:
                self.key.release()

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        thread.join(2 * LIMIT_S)
        return found == [True]


def test_who_takes_a_claim_of_another_store_lets_go_of_it():
    foreign = Foreign()
    ends = Ends(foreign)
    try:
        for _ in range(2):
            with ends.store.claim(KEY):
                assert ends.store._holds[threading.get_ident()] == 1
                assert not foreign.key.acquire(blocking=False)
            ends.settle()
            assert foreign.is_free()
        ends.store.claim(KEY).__enter__()
    finally:
        ends.close()
    assert foreign.is_free()


def test_a_claim_that_was_waited_for_is_let_go_where_the_lookup_fails():
    foreign = Foreign()
    ends = Ends(foreign)
    try:
        foreign.fails = "lookup"
        with ends.store.claim(KEY):
            assert not ends.store._holds  # it is computed without
        assert foreign.is_free()
    finally:
        ends.close()


def test_a_blob_that_cannot_be_read_is_none_and_is_told(capsys):
    foreign = Foreign()
    foreign.fails = "read"
    server = StoreServer(foreign, lambda *_: None, "session 'x'")
    assert server.blob("0" * 64) is None
    assert "OSError: read broke" in capsys.readouterr().err
    server.close()


@pytest.mark.parametrize("what", ["adopt", "commit"])
def test_what_cannot_be_kept_is_no_record_and_is_told(what):
    broken = Broken()
    ends = Ends(broken)
    try:
        broken.fails = what
        frame, digest = frame_of([1])
        with ends.store.claim(KEY):
            ends.store.write(frame, digest)
            ends.store.commit(record(digest=digest))
        ends.settle()
        assert broken.lookup(KEY) is None
        assert ends.server.errors == ["OSError: [Errno 28] No space left on device"]
        assert ends.server.blob(digest) is not None
    finally:
        ends.close()


class Plain:
    """A store with what the contract says, and no more."""

    def __init__(self):
        self.inner = MemoryStore()
        for name in ("lookup", "write", "read", "has", "commit", "claim"):
            setattr(self, name, getattr(self.inner, name))


def test_a_store_that_has_only_what_the_contract_says():
    plain = Plain()
    ends = Ends(plain)
    try:
        frame, digest = frame_of(b"x" * (2 << 20))
        assert ends.store.lookup(KEY) is None
        with ends.store.claim(KEY):
            assert plain.inner.try_claim(KEY, "me") is None
            ends.store.write(frame, digest)
            ends.store.commit(record(digest=digest))
        ends.settle()
        assert ends.heard == ["lookup", "claim", "keep"]
        assert plain.lookup(KEY) == record(digest=digest)
        assert read(plain, digest) == frame[0] + b"".join(frame[1])
        again = Ends(plain)
        try:
            assert read(again.store, digest) == read(plain, digest)
        finally:
            again.close()
    finally:
        ends.close()


def test_the_rest_is_asked_at_the_client(ends):
    for ask in (
        ends.store.records,
        lambda: ends.store.pin("n", KEY),
        lambda: ends.store.unpin("n"),
        lambda: ends.store.gc(max_bytes=1),
    ):
        with pytest.raises(SessionError, match="lies at its client"):
            ask()
    assert dict(ends.store.stats()) == {}
    assert list(ends.store.verify()) == []


def test_recent_keeps_few_and_the_last():
    recent = Recent()
    for number in range(200):
        recent.add(str(number), Blob(b"", [memoryview(bytes(10))]))
    assert recent.get("199") is not None
    assert recent.get("136") is not None
    assert recent.get("135") is None
    large = Blob(b"", [memoryview(bytes(10))])
    large.nbytes = 1 << 40
    recent.add("large", large)
    assert recent.get("large") is large
    assert recent.get("199") is None
