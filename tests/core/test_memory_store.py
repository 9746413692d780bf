from __future__ import annotations

import gc
import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from soma import InvalidInput, UnknownName
from soma.contracts import ActionRecord
from soma.engine import MemoryStore, descriptors
from soma.engine import blobs as blobs_room
from soma.engine.blobs import MAP_FROM, Blob
from soma.engine.claims import Claims
from soma.frame import content_hash, decode_parts, encode
from support.threads import run_in_threads

BIG = 2 * MAP_FROM // 8


def put(store, value, key=None):
    encoded = encode(value)
    digest = store.write((encoded.header, encoded.buffers))
    if key is not None:
        store.commit(
            ActionRecord(
                key=key,
                outputs={"output": digest},
                bytes={"output": encoded.nbytes},
                compute_ms=2.0,
            )
        )
    return digest


def get(store, digest):
    frame = store.read(digest)
    return None if frame is None else decode_parts(*frame)


def _open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
class TestBlobs:
    @pytest.mark.parametrize(
        "value",
        [
            7,
            {"a": [1, 2.5, None], "b": "text"},
            np.arange(BIG, dtype=np.float64),
            [np.zeros(BIG), np.arange(5), np.asfortranarray(np.ones((3, BIG)))],
            np.zeros((0, 3)),
            b"x" * (3 * MAP_FROM + 1),
        ],
        ids=["int", "dict", "large", "several", "empty", "bytes"],
    )
    def test_what_is_taken_is_what_was_put(self, value):
        encoded = encode(value)
        blob = Blob(encoded.header, encoded.buffers)
        assert blob.nbytes == encoded.nbytes
        for _ in range(2):
            assert content_hash(decode_parts(*blob.frame())) == encoded.digest

    @pytest.mark.parametrize("mapped", [True, False])
    def test_takers_write_and_nobody_else_sees_it(self, mapped, monkeypatch):
        if not mapped:
            monkeypatch.setattr(descriptors, "reserve", lambda: False)
        encoded = encode(np.arange(float(BIG)))
        blob = Blob(encoded.header, encoded.buffers)
        one, other = decode_parts(*blob.frame()), decode_parts(*blob.frame())
        one[:] = -1.0
        np.testing.assert_array_equal(other, np.arange(float(BIG)))
        np.testing.assert_array_equal(decode_parts(*blob.frame()), np.arange(float(BIG)))

    def test_a_map_outlives_its_blob(self):
        encoded = encode(np.arange(float(BIG)))
        taken = decode_parts(*Blob(encoded.header, encoded.buffers).frame())
        gc.collect()
        np.testing.assert_array_equal(taken, np.arange(float(BIG)))

    def test_descriptors_are_given_back(self):
        before, held = _open_descriptors(), descriptors._held
        encoded = encode(np.zeros(BIG))
        blobs = [Blob(encoded.header, encoded.buffers) for _ in range(3)]
        taken = [decode_parts(*blob.frame()) for blob in blobs for _ in range(2)]
        assert descriptors._held == held + 3 + 6
        assert _open_descriptors() == before + 3 + 6
        del blobs, taken
        gc.collect()
        assert descriptors._held == held
        assert _open_descriptors() == before

    def test_without_descriptors_values_lie_in_plain_memory(self, monkeypatch):
        monkeypatch.setattr(descriptors, "_held", 1 << 40)
        encoded = encode(np.arange(float(BIG)))
        blob = Blob(encoded.header, encoded.buffers)
        assert blob._fd == -1
        np.testing.assert_array_equal(decode_parts(*blob.frame()), np.arange(float(BIG)))

    def test_a_file_that_cannot_be_made_is_no_error(self, monkeypatch):
        def refuse():
            raise OSError(24, "Too many open files")

        held = descriptors._held
        monkeypatch.setattr(blobs_room, "_anonymous_file", refuse)
        encoded = encode(np.arange(float(BIG)))
        blob = Blob(encoded.header, encoded.buffers)
        np.testing.assert_array_equal(decode_parts(*blob.frame()), np.arange(float(BIG)))
        assert descriptors._held == held

    def test_the_file_behind_a_blob_cannot_be_written_to(self):
        encoded = encode(np.zeros(BIG))
        blob = Blob(encoded.header, encoded.buffers)
        with pytest.raises(PermissionError):
            os.pwrite(blob._fd, b"x", 0)


class TestStore:
    def test_records_and_blobs(self):
        store = MemoryStore()
        assert store.lookup("k") is None
        assert store.read("00") is None
        digest = put(store, {"a": 1}, "k")
        assert digest == content_hash({"a": 1})
        record = store.lookup("k")
        assert (record.key, record.outputs, record.compute_ms) == ("k", {"output": digest}, 2.0)
        assert get(store, digest) == {"a": 1}
        assert [one.key for one in store.records()] == ["k"]
        assert store.verify() == []

    def test_equal_values_are_kept_once(self):
        store = MemoryStore()
        assert put(store, [1, 2], "a") == put(store, [1, 2], "b")
        stats = store.stats()
        assert (stats["records"], stats["blobs"], stats["compute_ms"]) == (2, 1, 4.0)

    def test_the_least_recently_used_goes_first(self):
        size = encode(b"0" * 1000).nbytes
        store = MemoryStore(max_bytes=3 * size)
        digests = [put(store, bytes([number]) * 1000, str(number)) for number in range(3)]
        store.read(digests[0])
        digests.append(put(store, b"3" * 1000, "3"))
        assert [store.read(one) is not None for one in digests] == [True, False, True, True]
        assert store.stats()["bytes"] == 3 * size
        assert store.lookup("1") is not None  # its record stays

    def test_what_is_pinned_stays(self):
        size = encode(b"0" * 1000).nbytes
        store = MemoryStore(max_bytes=2 * size)
        pinned = put(store, b"p" * 1000, "p")
        store.pin("best", "p")
        others = [put(store, bytes([number]) * 1000, str(number)) for number in range(4)]
        assert store.read(pinned) is not None
        assert [store.read(one) is not None for one in others] == [False, False, False, True]
        store.unpin("best")
        put(store, b"4" * 1000)
        put(store, b"5" * 1000)
        assert store.read(pinned) is None
        with pytest.raises(KeyError, match="There is no pin 'best'"):
            store.unpin("best")
        with pytest.raises(UnknownName, match="no record of the key 'zz'"):
            store.pin("x", "zz")

    def test_gc_frees_what_it_says(self):
        store = MemoryStore()
        size = encode(b"0" * 1000).nbytes
        digests = [put(store, bytes([number]) * 1000) for number in range(4)]
        assert store.gc(max_bytes=2 * size, dry_run=True) == 2 * size
        assert store.stats()["blobs"] == 4
        assert store.gc(max_bytes=2 * size) == 2 * size
        assert [store.read(one) is not None for one in digests] == [False, False, True, True]
        assert store.gc(max_bytes=2 * size) == 0

    def test_what_is_larger_than_the_store_is_refused(self):
        store = MemoryStore(max_bytes=100)
        with pytest.raises(OSError, match="more than the store holds"):
            put(store, b"0" * 1000)
        assert store.stats()["bytes"] == 0

    @pytest.mark.parametrize("size", [0, -5, 1.5, True, "1G"])
    def test_a_size_is_a_whole_number(self, size):
        with pytest.raises(InvalidInput, match="cache_max_bytes"):
            MemoryStore(max_bytes=size)

    def test_many_threads(self):
        store = MemoryStore(max_bytes=200_000)
        wrong = []

        def work(seed):
            for number in range(200):
                value = [seed % 3, number, "x" * 500]
                digest = put(store, value, f"{seed % 3}-{number}")
                found = get(store, digest)
                if found not in (value, None):
                    wrong.append(found)

        run_in_threads(work, 6)
        assert wrong == []
        assert store.stats()["bytes"] == sum(blob.nbytes for blob in store._blobs.values())


class TestClaims:
    def test_one_holds_and_the_others_wait(self):
        claims, order = Claims(), []
        held, done = threading.Event(), threading.Event()

        def first():
            with claims.claim("k"):
                held.set()
                assert done.wait(30)
                order.append("first")

        def second():
            assert held.wait(30)
            with claims.claim("k"):
                order.append("second")

        threads = [threading.Thread(target=one) for one in (first, second)]
        for thread in threads:
            thread.start()
        assert held.wait(30)
        with claims.claim("other"):  # another key is free
            done.set()
        for thread in threads:
            thread.join(30)
        assert order == ["first", "second"]

    def test_who_holds_a_claim_does_not_wait_for_a_second(self):
        """Two that hold one each and want the other's would wait for ever."""
        claims = Claims()
        ready = threading.Barrier(2, timeout=30)
        done = []

        def work(mine, wanted):
            with claims.claim(mine):
                ready.wait()
                with claims.claim(wanted):
                    done.append(mine)
                ready.wait()

        threads = [threading.Thread(target=work, args=pair) for pair in ("ab", "ba")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        assert sorted(done) == ["a", "b"]
        with claims.claim("a"), claims.claim("a"):
            pass

    def test_a_claim_is_let_go_from_outside(self):
        claims, order = Claims(), []
        held, go_on = threading.Event(), threading.Event()
        claim = claims.claim("k")

        def abandoned():
            with claim:
                held.set()
                assert go_on.wait(30)

        thread = threading.Thread(target=abandoned)
        thread.start()
        assert held.wait(30)
        claim.__exit__(None, None, None)
        with claims.claim("k"):
            order.append("mine")
            go_on.set()
            thread.join(30)
        assert order == ["mine"]

    def test_a_waiter_says_whom_it_waits_for(self, monkeypatch):
        monkeypatch.setattr("soma.engine.claims.TELL_AFTER_S", 0.01)
        claims, lines = Claims(), []
        held, told = threading.Event(), threading.Event()
        monkeypatch.setattr(
            "soma.engine.claims.tell", lambda text: (lines.append(text), told.set())
        )

        def holder():
            with claims.claim("k"):
                held.set()
                assert told.wait(30)

        thread = threading.Thread(target=holder, name="the-holder")
        thread.start()
        assert held.wait(30)
        with claims.claim("k"):
            thread.join(30)
        assert lines == ["waiting for the-holder, which computes the same"]
