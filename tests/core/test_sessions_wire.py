from __future__ import annotations

import array
import fcntl
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import cbor2
import numpy as np
import pytest

from soma.engine.blobs import MAP_FROM, Blob
from soma.engine.parcels import pack
from soma.sessions.wire import Connection, get_parcel, put_parcel
from support.threads import run_in_threads

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

LARGE = np.arange(2 * MAP_FROM // 8, dtype=np.float64)


@pytest.fixture
def pair():
    ours, theirs = map(Connection, socket.socketpair())
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture
def raw_pair():
    """A bare socket that says what it likes to a connection."""
    bare, theirs = socket.socketpair()
    connection = Connection(theirs)
    yield bare, connection
    bare.close()
    connection.close()


def soon(seconds=20):
    return time.monotonic() + seconds


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def file_of(raw):
    fd = os.memfd_create("test", os.MFD_CLOEXEC)
    os.write(fd, raw)
    return fd


def small_file_blob(number):
    return Blob.of_file(b"head%d" % number, (4,), file_of(b"%04d" % number))


def bytes_of(blob):
    return b"".join(map(bytes, blob.parts()))


def whole_message(kind="act", fields=None, outlines=(), rest=b"", **changed):
    body = cbor2.dumps([kind, fields or {}, list(outlines)])
    head = {"magic": b"\xf0SoM", "version": 1, "files": 0, "body": len(body), "inline": len(rest)}
    return struct.pack("<4sHxxIQQ", *(head | changed).values()) + body + rest


class TestMessages:
    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"a": None, "b": [1, 2.5, True], "c": {"d": b"raw"}, "e": 2**200, "f": -(2**70)},
            {"text": "ä日本\0\n", "half": "folder/\udce4", "\udc80": ["\udcff"]},
            {"long": "x" * 300_000},
        ],
        ids=["empty", "kinds", "surrogates", "long"],
    )
    def test_fields_arrive_as_they_were(self, pair, fields):
        ours, theirs = pair
        reading = []
        reader = threading.Thread(target=lambda: reading.append(theirs.receive(soon())))
        reader.start()
        ours.send("kind", fields)
        reader.join(20)
        assert (reading[0].kind, reading[0].fields, reading[0].blobs) == ("kind", fields, [])

    @pytest.mark.parametrize(
        "value", [7, np.arange(5), LARGE, {"a": [LARGE, "b"], "c": None}, {1j, "a"}, b"", []]
    )
    def test_a_parcel_arrives_as_it_was(self, pair, value):
        ours, theirs = pair
        blobs = []
        ours.send("act", {"x": put_parcel(pack(value, hashed=True), blobs)}, blobs)
        message = theirs.receive(soon())
        found = get_parcel(message.fields["x"], message.blobs)
        assert found.digest == pack(value, hashed=True).digest
        np.testing.assert_equal(found.open(), value)

    def test_a_large_one_is_passed_as_its_file(self, pair):
        ours, theirs = pair
        blob = pack(LARGE).blob
        ours.send("act", {}, [blob])
        (found,) = theirs.receive(soon()).blobs
        assert os.fstat(found.fd).st_ino == os.fstat(blob.fd).st_ino
        assert fcntl.fcntl(found.fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        assert found.lengths == blob.lengths

    def test_more_descriptors_than_one_call_passes(self, pair):
        ours, theirs = pair
        blobs = [small_file_blob(number) for number in range(405)]
        before = open_descriptors()
        ours.send("many", {"n": 1}, blobs)
        ours.send("next", {"n": 2}, blobs[:3])
        message = theirs.receive(soon())
        assert [bytes_of(one) for one in message.blobs] == [bytes_of(one) for one in blobs]
        assert [bytes_of(one) for one in theirs.receive(soon()).blobs] == [
            bytes_of(one) for one in blobs[:3]
        ]
        del message
        assert open_descriptors() == before

    def test_many_small_pieces_and_one_large(self, pair):
        ours, theirs = pair
        blobs = [Blob(b"h" * (i % 7), [memoryview(b"%d" % i)] * (i % 3)) for i in range(2000)]
        blobs.append(Blob(b"long" * 500_000, []))
        sender = threading.Thread(target=ours.send, args=("many", {}, blobs))
        sender.start()
        message = theirs.receive(soon())
        sender.join(20)
        assert list(map(bytes_of, message.blobs)) == list(map(bytes_of, blobs))

    def test_threads_do_not_mix_their_messages(self, pair):
        ours, theirs = pair
        found = []
        reader = threading.Thread(
            target=lambda: [found.append(theirs.receive(soon())) for _ in range(400)]
        )
        reader.start()

        def work(number):
            for turn in range(100):
                blob = Blob(b"%d" % number * (number * 20_000 + 1), [])
                ours.send("a", {"from": number, "turn": turn}, [blob])

        run_in_threads(work, 4)
        reader.join(60)
        assert all(
            bytes_of(one.blobs[0]) == b"%d" % one.fields["from"] * (one.fields["from"] * 20_000 + 1)
            for one in found
        )
        turns = [[one.fields["turn"] for one in found if one.fields["from"] == n] for n in range(4)]
        assert turns == [list(range(100))] * 4

    def test_what_cbor_cannot_say_is_refused_before_anything_is_sent(self, pair):
        ours, theirs = pair
        with pytest.raises(ValueError, match="CBOR"):
            ours.send("act", {"x": object()})
        ours.send("act", {"x": 1})
        assert theirs.receive(soon()).fields == {"x": 1}


class TestWaiting:
    def test_a_deadline_that_passes_loses_nothing(self, raw_pair):
        bare, connection = raw_pair
        raw = whole_message(
            fields={"a": "x" * 100_000}, outlines=[(3, [4], False)], rest=b"abcdefg"
        )
        for cut in (1, 20, 50, len(raw) - 3):
            bare.sendall(raw[:cut])
            with pytest.raises(TimeoutError):
                connection.receive(time.monotonic() + 0.01)
            bare.sendall(raw[cut:])
            message = connection.receive(soon())
            assert message.fields == {"a": "x" * 100_000}
            assert bytes_of(message.blobs[0]) == b"abcdefg"

    def test_the_end_of_the_stream_is_none_again_and_again(self, pair):
        ours, theirs = pair
        ours.send("last", {})
        ours.close()
        assert theirs.receive(soon()).kind == "last"
        assert theirs.receive(soon()) is None
        assert theirs.receive(soon()) is None
        with pytest.raises(ConnectionError):
            theirs.send("a", {})

    def test_the_end_is_the_end_when_not_all_was_read(self, pair):
        ours, theirs = pair
        theirs.send("unread", {})
        ours.send("last", {})
        ours.close()
        assert theirs.receive(soon()).kind == "last"
        assert theirs.receive(soon()) is None

    def test_closing_wakes_whoever_waits(self, pair):
        ours, _ = pair
        found = []
        reader = threading.Thread(target=lambda: found.append(ours.receive()))
        reader.start()
        ours.close()
        reader.join(20)
        assert found == [None]
        with pytest.raises(ConnectionError, match="closed"):
            ours.send("a", {})

    def test_closing_wakes_whoever_sends(self, pair):
        ours, _ = pair
        found = []

        def send():
            with pytest.raises(ConnectionError):
                ours.send("a", {}, [Blob(b"x" * 20_000_000, [])])
            found.append("woken")

        sender = threading.Thread(target=send)
        sender.start()
        while not ours.sender:
            time.sleep(0.001)
        ours.close()
        sender.join(20)
        assert found == ["woken"]

    def test_an_interrupted_send_breaks_the_connection_for_both(self, pair):
        ours, theirs = pair

        def interrupt(*_):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt):
                ours.send("a", {}, [Blob(b"x" * 20_000_000, [])])  # nobody reads
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        with pytest.raises(ConnectionError, match="interrupted in the middle"):
            ours.send("b", {})
        with pytest.raises(ConnectionError, match="middle of a message"):
            theirs.receive(soon())

    def test_sending_to_nobody_does_not_end_a_program_that_dies_of_sigpipe(self, pair):
        ours, theirs = pair
        theirs.close()
        before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        try:
            with pytest.raises(ConnectionError, match="other side is gone"):
                ours.send("a", {})
        finally:
            signal.signal(signal.SIGPIPE, before)


class TestRubbish:
    @pytest.mark.parametrize(
        ("raw", "sentence"),
        [
            (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "beginning of a message"),
            (whole_message(version=9), "version 9"),
            (whole_message(body=1 << 60), "no message is as large"),
            (whole_message(inline=1 << 60), "no message is as large"),
            (whole_message(files=1 << 31), "no message is as large"),
            (whole_message(kind=7), "not .kind"),
            (whole_message(fields=[1]), "not .kind"),
            (whole_message(body=3), "cannot be read"),
            (whole_message(outlines=[1]), "cannot be read"),
            (whole_message(outlines=[(-1, [], False)]), "cannot be read"),
            (whole_message(outlines=[("3", [], False)]), "cannot be read"),
            (whole_message(outlines=[(3, [5], False)], rest=b"abc"), "its blobs have 0 and 8"),
            (whole_message(outlines=[(3, [5], True)], rest=b"abc"), "its blobs have 1 and 3"),
            (
                whole_message(outlines=[(3, [5], True)], rest=b"abc", files=1),
                "0 of its 1 descriptors",
            ),
        ],
    )
    def test_is_named_and_ends_the_connection(self, raw_pair, raw, sentence):
        bare, connection = raw_pair
        bare.sendall(raw)
        with pytest.raises(ConnectionError, match=sentence):
            connection.receive(soon())
        with pytest.raises(ConnectionError):
            connection.send("a", {})
        assert connection.broken

    def test_half_a_message(self, raw_pair):
        bare, connection = raw_pair
        bare.sendall(whole_message()[:-1])
        bare.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError, match="middle of a message"):
            connection.receive(soon())

    @pytest.mark.parametrize("kept", [4, 30])
    def test_descriptors_of_half_a_message_are_closed(self, raw_pair, kept):
        bare, connection = raw_pair
        before = open_descriptors()
        fd = file_of(b"abcd")
        socket.send_fds(bare, [whole_message(outlines=[(0, [4], True)], files=1)[:kept]], [fd])
        os.close(fd)
        bare.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError, match="middle of a message"):
            connection.receive(soon())
        assert open_descriptors() == before

    def test_descriptors_of_a_refused_message_are_closed(self, raw_pair):
        bare, connection = raw_pair
        before = open_descriptors()
        fds = [file_of(b"abcd") for _ in range(3)]
        outlines = [(0, [4], True), (0, [4_000], True), (0, [4], True)]
        socket.send_fds(bare, [whole_message(outlines=outlines, files=3)], fds)
        for fd in fds:
            os.close(fd)
        with pytest.raises(ConnectionError, match="4000 bytes came in a file of fewer"):
            connection.receive(soon())
        assert open_descriptors() == before

    def test_descriptors_that_nobody_announced_are_closed(self, raw_pair):
        bare, connection = raw_pair
        before = open_descriptors()
        fd = file_of(b"abcd")
        socket.send_fds(bare, [whole_message()], [fd, fd])
        os.close(fd)
        assert connection.receive(soon()).kind == "act"
        connection.close()
        assert open_descriptors() == before - 1

    def test_no_descriptors_left(self, pair):
        ours, theirs = pair
        blobs = [small_file_blob(number) for number in range(8)]
        ours.send("a", {}, blobs)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        before = open_descriptors()
        filled = array.array("i")
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        try:
            while True:
                try:
                    filled.append(os.dup(0))
                except OSError:
                    break
            for _ in range(5):
                os.close(filled.pop())
            with pytest.raises(ConnectionError, match="can have no more"):
                theirs.receive(soon())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for fd in filled:
                os.close(fd)
        assert open_descriptors() == before


def test_a_send_that_nobody_waits_for_breaks_off_and_the_connection_with_it(pair):
    ours, theirs = pair
    looks = iter([False, False, True])
    with pytest.raises(TimeoutError, match="did not take what it was sent"):
        ours.send("large", {}, [Blob(b"x" * (1 << 22), [])], give_up=looks.__next__)
    assert next(looks, "all used") == "all used"
    with pytest.raises(ConnectionError, match="did not take"):
        ours.send("next", {})
    with pytest.raises(ConnectionError, match="in the middle of a message"):
        theirs.receive(soon())


def test_what_is_given_up_before_any_of_it_was_sent_breaks_nothing(pair):
    ours, theirs = pair
    sent = 0

    def fill():
        nonlocal sent
        while True:
            ours.send("small", {"number": sent}, give_up=lambda: True)
            sent += 1

    with pytest.raises(TimeoutError):
        fill()
    assert not ours.broken
    for number in range(sent):
        assert theirs.receive(soon()).fields == {"number": number}
    ours.send("after", {}, give_up=lambda: True)
    assert theirs.receive(soon()).kind == "after"


def test_who_does_not_wait_for_another_sender_gives_up(pair):
    ours, theirs = pair
    stuck = threading.Thread(target=ours.send, args=("large", {}, [Blob(b"x" * (1 << 22), [])]))
    stuck.start()
    while not ours.sender:
        time.sleep(0.001)
    with pytest.raises(TimeoutError):
        ours.send("small", {}, give_up=lambda: True)
    assert not ours.broken
    assert theirs.receive(soon()).kind == "large"
    stuck.join(60)
    assert not stuck.is_alive()


def test_a_send_waits_as_long_as_it_takes_where_nobody_gives_up(pair):
    ours, theirs = pair
    looked = []

    def keep_on():
        looked.append(1)
        return False

    sending = threading.Thread(
        target=ours.send,
        args=("large", {}, [Blob(b"x" * (1 << 22), [])]),
        kwargs={"give_up": keep_on},
    )
    sending.start()
    while len(looked) < 2:
        time.sleep(0.001)
    assert theirs.receive(soon()).blobs[0].header == b"x" * (1 << 22)
    sending.join(60)
    assert not sending.is_alive()
