"""Action stores that break the contract, each in one way; the suite has to find every one of them.

Run by tests/core/test_store_suite.py, in another process, where each has to fail.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from hashlib import sha256

import pytest

from soma.contracts import ActionRecord
from soma.engine import MemoryStore
from soma.engine.blobs import Blob
from soma.frame import hash_parts
from soma.testing import ActionStoreSuite, _threads

__all__ = ["FAULTS", "View"]

FAULTS = set()
"""(Name of a class of checks below, check of it that has to fail)."""


def found_by(*checks, with_another=False):
    """Run the suite over a class of stores, which these checks refuse."""

    def add(broken):
        class TestBroken(ActionStoreSuite):
            @pytest.fixture
            def store(self, monkeypatch):
                monkeypatch.setattr(_threads, "TIMEOUT_S", 1.0)  # some of them hang
                return broken()

            if with_another:

                @pytest.fixture
                def another(self, store):
                    return broken(store.behind)

        name = f"Test{broken.__name__}"
        globals()[name] = TestBroken
        TestBroken.__name__ = TestBroken.__qualname__ = name
        FAULTS.update((name, check) for check in checks)
        return broken

    return add


class View:
    """One of several objects over one storage."""

    def __init__(self, behind=None):
        self.behind = MemoryStore() if behind is None else behind

    def __getattr__(self, name):
        return getattr(self.behind, name)


@found_by("test_an_unknown_key_is_a_miss")
class RaisesForAMiss(MemoryStore):
    def lookup(self, key):
        return self._records[key]


@found_by("test_what_was_never_written_is_not_there")
class RaisesForABlobThatWent(MemoryStore):
    def read(self, digest):
        return self._blobs[digest].frame()


@found_by("test_every_kind_of_frame_comes_back")
class JoinsThePieces(MemoryStore):
    def read(self, digest):
        found = super().read(digest)
        return found and (found[0], [memoryview(bytearray(b"".join(found[1])))])


@found_by("test_every_kind_of_frame_comes_back")
class DropsThePadding(MemoryStore):
    def read(self, digest):
        found = super().read(digest)
        return found and (found[0], found[1][::2])


@found_by("test_every_kind_of_frame_comes_back")
class HashesOtherwise(MemoryStore):
    def write(self, frame, digest=None):
        raw = b"".join((frame[0], *frame[1]))
        return super().write(frame, digest or sha256(raw).hexdigest())


@found_by("test_every_kind_of_frame_comes_back")
class WritesAThousandPieces(MemoryStore):
    def write(self, frame, digest=None):
        return super().write((frame[0], frame[1][:1024]), digest or super().write(frame))

    def read(self, digest):
        found = super().read(digest)
        return found and (found[0], found[1][:1024])


@found_by("test_a_digest_that_is_known_is_given_back")
class GivesNoDigestBack(MemoryStore):
    def write(self, frame, digest=None):
        found = super().write(frame, digest)
        return found if digest is None else None


@found_by("test_what_is_taken_is_the_takers_own")
class GivesEverybodyTheSame(MemoryStore):
    def __init__(self):
        super().__init__()
        self._taken = {}

    def read(self, digest):
        return self._taken.setdefault(digest, super().read(digest))


@found_by("test_what_is_taken_is_the_takers_own")
class GivesWhatCannotBeWrittenTo(MemoryStore):
    def read(self, digest):
        found = super().read(digest)
        return found and (found[0], [one.toreadonly() for one in found[1]])


@found_by("test_the_writer_may_go_on_with_its_memory")
class KeepsTheWritersMemory(MemoryStore):
    def __init__(self):
        super().__init__()
        self._given = {}

    def write(self, frame, digest=None):
        name = super().write(frame, digest)
        self._given[name] = frame
        return name

    def read(self, digest):
        found = self._given.get(digest)
        return found and (found[0], [memoryview(bytearray(one)) for one in found[1]])


@found_by("test_equal_values_are_one_blob")
class CountsEveryWrite(MemoryStore):
    writes = 0

    def write(self, frame, digest=None):
        self.writes += 1
        return super().write(frame, digest)

    def stats(self):
        return {**super().stats(), "blobs": self.writes}


@found_by("test_a_write_that_breaks_off_leaves_nothing")
class LeavesHalf(MemoryStore):
    def write(self, frame, digest=None):
        header, buffers = frame
        if digest is not None and digest not in self._blobs:
            self._blobs[digest] = Blob(header, buffers[:1])
            self._blobs[digest] = Blob(header, list(buffers))
        return super().write(frame, digest)


@found_by("test_a_write_that_breaks_off_leaves_nothing")
class SwallowsErrors(MemoryStore):
    def write(self, frame, digest=None):
        try:
            return super().write(frame, digest)
        except OSError:
            return super().write((frame[0], []), digest)


@found_by("test_bytes_in_memory_are_adopted_as_they_are")
class AdoptsNothing(MemoryStore):
    def adopt(self, blob, digest):
        pass


@found_by("test_bytes_are_shared_as_they_lie_in_memory")
class SharesTheHeaderOnly(MemoryStore):
    def share(self, digest):
        found = super().share(digest)
        return found and Blob(found.header, [])


@found_by("test_a_record_comes_back_field_by_field")
class LosesParts(MemoryStore):
    def commit(self, record):
        super().commit(replace(record, parts={}))


@found_by("test_a_record_comes_back_field_by_field")
class RoundsTimes(MemoryStore):
    def commit(self, record):
        super().commit(replace(record, compute_ms=round(record.compute_ms, 3)))


@found_by("test_a_record_comes_back_field_by_field")
class SaysItsOwnOrigin(MemoryStore):
    def commit(self, record):
        super().commit(replace(record, origin={"host": "here"}))


@found_by("test_a_record_of_something_pickled_says_so")
class ForgetsPickles(MemoryStore):
    def commit(self, record):
        super().commit(replace(record, pickled=False))


@found_by("test_the_store_says_when_if_nobody_else_does")
class CountsInMilliseconds(MemoryStore):
    def commit(self, record):
        super().commit(replace(record, created_at=time.time() * 1e3))


@found_by("test_several_outputs")
class KeepsOneOutput(MemoryStore):
    def commit(self, record):
        super().commit(replace(record, outputs=dict(list(record.outputs.items())[:1])))


@found_by("test_a_later_record_takes_the_place_of_an_earlier_one")
class KeepsTheFirst(MemoryStore):
    def commit(self, record):
        if self.lookup(record.key) is None:
            super().commit(record)


@found_by("test_all_records_are_listed")
class ListsWhatItLooksAt(MemoryStore):
    def records(self):
        return iter(self._records.values())


@found_by("test_one_computes_and_the_others_find_it", "test_who_comes_second_waits")
class ClaimsNothing(MemoryStore):
    def claim(self, key):
        return nullcontext()


class _Locks(MemoryStore):
    """Claims that are locks of the standard library."""

    kind = staticmethod(threading.Lock)

    def __init__(self):
        super().__init__()
        self._locks = {}

    def claim(self, key):
        return self._locks.setdefault(key, self.kind())


@found_by("test_a_thread_does_not_wait_for_itself")
class WaitsForItself(_Locks):
    pass


@found_by(
    "test_two_that_want_what_the_other_holds_go_on",
    "test_a_claim_is_let_go_from_another_thread",
)
class BelongsToItsThread(_Locks):
    kind = staticmethod(threading.RLock)


@found_by("test_other_keys_are_free")
class HasOneLock(_Locks):
    kind = staticmethod(threading.RLock)

    def claim(self, key):
        return super().claim("")


@found_by("test_a_body_that_raises_lets_go")
class HoldsAfterAnError(_Locks):
    @contextmanager
    def claim(self, key):
        lock = super().claim(key)
        lock.acquire()
        yield
        lock.release()


@found_by("test_a_lookup_waits_for_nobody")
class LocksLookups(_Locks):
    def lookup(self, key):
        with self.claim(key):
            return super().lookup(key)


@found_by("test_a_claim_at_once")
class GivesTwice(MemoryStore):
    def try_claim(self, key, who):
        return super().try_claim(key, who) or super().try_claim(f"{key} {who}", who)


@found_by("test_who_holds_a_claim_knows_it")
class CountsOtherThreads(MemoryStore):
    def holds_claim(self):
        return bool(self._claims._held)


@found_by("test_gc_lets_blobs_go_and_records_stay")
class RemovesRecords(MemoryStore):
    def gc(self, *, max_bytes, min_age_s=0.0, dry_run=False):
        freed = super().gc(max_bytes=max_bytes, dry_run=dry_run)
        self._records.clear()
        return freed


@found_by("test_what_went_can_be_written_again")
class RemembersWhatItWrote(MemoryStore):
    def __init__(self):
        super().__init__()
        self._wrote = set()

    def write(self, frame, digest=None):
        name = hash_parts(*frame)
        if name not in self._wrote:
            self._wrote.add(name)
            super().write(frame, name)
        return name


@found_by("test_gc_stops_at_the_bytes_that_may_remain")
class RemovesEverything(MemoryStore):
    def gc(self, *, max_bytes, min_age_s=0.0, dry_run=False):
        return super().gc(max_bytes=0, dry_run=dry_run)


@found_by("test_a_dry_run_removes_nothing_and_says_what_would_go")
class RunsDryForReal(MemoryStore):
    def gc(self, *, max_bytes, min_age_s=0.0, dry_run=False):
        return super().gc(max_bytes=max_bytes)


@found_by("test_what_is_pinned_survives_every_gc")
class PinsNothing(MemoryStore):
    def pin(self, name, key):
        super().pin(name, key)
        self._pins[name] = "0"


@found_by("test_what_is_pinned_survives_every_gc")
class TakesAllPinsAway(MemoryStore):
    def unpin(self, name):
        super().unpin(name)
        self._pins.clear()


@found_by("test_a_pin_moves_to_the_key_that_was_named_last")
class PinsTheFirst(MemoryStore):
    def pin(self, name, key):
        if name not in self._pins:
            super().pin(name, key)


@found_by("test_pins_have_names_of_any_kind")
class MixesNamesUp(MemoryStore):
    def pin(self, name, key):
        super().pin(name.casefold(), key)

    def unpin(self, name):
        super().unpin(name.casefold())


@found_by("test_a_pin_that_is_not_there_cannot_be_taken_away")
class TakesAwayWhatIsNotThere(MemoryStore):
    def unpin(self, name):
        self._pins.pop(name, None)


@found_by("test_stats_count_what_was_committed")
class CountsNoTime(MemoryStore):
    def stats(self):
        return {**super().stats(), "compute_ms": 0.0}


@found_by("test_a_healthy_store_has_nothing_to_tell")
class NamesWhatIsSound(MemoryStore):
    def verify(self):
        return list(self._blobs)[:1]


@found_by("test_many_threads_keep_the_same_and_different_things")
class LosesWhatOthersCommit(MemoryStore):
    def commit(self, record: ActionRecord):
        copy = self._records.copy()
        time.sleep(0.001)
        copy[record.key] = record
        self._records = copy


@found_by("test_gc_beside_those_who_read_and_write")
class LooksTwice(MemoryStore):
    def read(self, digest):
        if not self.has(digest):
            return None
        time.sleep(0.001)
        return self._blobs[digest].frame()


@found_by("test_another_finds_what_was_committed", with_another=True)
class RemembersMisses(View):
    def __init__(self, behind=None):
        super().__init__(behind)
        self._known = {}

    def lookup(self, key):
        return self._known.setdefault(key, self.behind.lookup(key))


@found_by("test_another_keeps_what_one_has_pinned", with_another=True)
class KeepsPinsToItself(View):
    def __init__(self, behind=None):
        super().__init__(behind)
        self._mine = {}

    def pin(self, name, key):
        self._mine[name] = key

    def unpin(self, name):
        del self._mine[name]


@found_by("test_another_lets_go_what_one_has_read", with_another=True)
class ThinksItIsThere(View):
    def __init__(self, behind=None):
        super().__init__(behind)
        self._there = set()

    def write(self, frame, digest=None):
        made = hash_parts(*frame)
        if made not in self._there:
            self.behind.write(frame, made)
            self._there.add(made)
        return made

    def read(self, digest):
        found = self.behind.read(digest)
        if found is None and digest in self._there:
            raise FileNotFoundError(digest)
        return found


@found_by("test_threads_on_two_objects", with_another=True)
class LosesWhatAnotherCommits(View):
    def commit(self, record):
        copy = self.behind._records.copy()
        time.sleep(0.001)
        copy[record.key] = record
        self.behind._records = copy
