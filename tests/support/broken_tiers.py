"""A tier that is a dict, and tiers that break the contract, each in one way.

The broken ones are run by tests/core/test_store_suite.py, in another process, where each has to
fail.
"""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from soma.testing import CacheTierSuite

__all__ = ["FAULTS", "DictTier"]

FAULTS = set()
"""(Name of a class of checks below, check of it that has to fail)."""


class DictTier:
    """A tier in a dict, which several objects may share."""

    def __init__(self, held=None):
        self.held = {} if held is None else held

    def get(self, name):
        found = self.held.get(name)
        return None if found is None else (b"", [memoryview(found)])

    def put(self, name, frame):
        self.held[name] = b"".join((frame[0], *frame[1]))

    def exists(self, name):
        return name in self.held

    def delete(self, name):
        self.held.pop(name, None)

    def list(self, prefix):
        return iter([name for name in list(self.held) if name.startswith(prefix)])


def found_by(*checks, with_another=False):
    """Run the suite over a class of tiers, which these checks refuse."""

    def add(broken):
        class TestBroken(CacheTierSuite):
            @pytest.fixture
            def tier(self):
                return broken()

            if with_another:

                @pytest.fixture
                def another(self, tier):
                    return broken(tier.held)

        name = f"Test{broken.__name__}"
        globals()[name] = TestBroken
        TestBroken.__name__ = TestBroken.__qualname__ = name
        FAULTS.update((name, check) for check in checks)
        return broken

    return add


@found_by("test_nothing_is_there_at_first")
class RaisesForWhatIsAbsent(DictTier):
    def get(self, name):
        return b"", [memoryview(self.held[name])]


@found_by("test_nothing_is_there_at_first")
class DeletesOnlyWhatIsThere(DictTier):
    def delete(self, name):
        del self.held[name]


@found_by("test_bytes_come_back")
class WritesAThousandPieces(DictTier):
    def put(self, name, frame):
        super().put(name, (frame[0], frame[1][:1024]))


@found_by("test_bytes_come_back")
class HasNothingEmpty(DictTier):
    def get(self, name):
        return super().get(name) if self.held.get(name) else None


@found_by("test_names_are_not_mixed_up")
class GoesByTheDigits(DictTier):
    def put(self, name, frame):
        super().put(name, frame)
        digits = name.rpartition("/")[2].partition(".")[0]
        for other in self.held:
            if digits in other:
                self.held[other] = self.held[name]


@found_by("test_a_record_is_replaced")
class KeepsTheFirst(DictTier):
    def put(self, name, frame):
        if name not in self.held:
            super().put(name, frame)


@found_by("test_a_record_is_replaced")
class WritesOverTheOld(DictTier):
    def put(self, name, frame):
        old = self.held.get(name, b"")
        super().put(name, frame)
        self.held[name] += old[len(self.held[name]) :]


@found_by("test_a_blob_that_is_there_is_put_again")
class RefusesWhatIsThere(DictTier):
    def put(self, name, frame):
        if name in self.held:
            raise FileExistsError(name)
        super().put(name, frame)


@found_by("test_memory_is_not_shared")
class KeepsTheWritersMemory(DictTier):
    def put(self, name, frame):
        self.held[name] = frame

    def get(self, name):
        return self.held.get(name)


@found_by("test_memory_is_not_shared")
class GivesItsOwnMemory(DictTier):
    def put(self, name, frame):
        self.held[name] = bytearray(b"".join((frame[0], *frame[1])))


@found_by("test_what_was_deleted_is_gone")
class ListsWhatWent(DictTier):
    def __init__(self):
        super().__init__()
        self._seen = set()

    def put(self, name, frame):
        super().put(name, frame)
        self._seen.add(name)

    def list(self, prefix):
        return iter(sorted(name for name in self._seen if name.startswith(prefix)))


@found_by("test_names_are_listed_by_how_they_start")
class ListsFolders(DictTier):
    def list(self, prefix):
        folder = prefix.rstrip("/") + "/" if prefix else ""
        return super().list(folder)


@found_by("test_what_is_listed_may_be_deleted_on_the_way")
class ListsWhatItLooksAt(DictTier):
    def list(self, prefix):
        return (name for name in self.held if name.startswith(prefix))


@found_by("test_a_put_that_breaks_off_leaves_nothing")
class LeavesHalf(DictTier):
    def put(self, name, frame):
        self.held[name] = bytes(frame[0])
        for one in frame[1]:
            self.held[name] += one


@found_by("test_a_put_that_breaks_off_leaves_nothing")
class LeavesTempFiles(DictTier):
    def put(self, name, frame):
        self.held["tmp/1"] = b""
        super().put(name, frame)
        del self.held["tmp/1"]


@found_by("test_a_put_that_breaks_off_leaves_nothing")
class SwallowsErrors(DictTier):
    def put(self, name, frame):
        with suppress(OSError):
            super().put(name, frame)


@found_by("test_a_reader_never_sees_half")
class RemovesBeforeItWrites(DictTier):
    def put(self, name, frame):
        self.held.pop(name, None)
        time.sleep(0.001)
        super().put(name, frame)


@found_by("test_many_threads_put_the_same_and_different_things")
class LosesWhatOthersPut(DictTier):
    def put(self, name, frame):
        copy = DictTier(dict(self.held))
        copy.put(name, frame)
        time.sleep(0.001)
        self.held = copy.held


@found_by("test_another_finds_what_was_put", with_another=True)
class RemembersMisses(DictTier):
    def __init__(self, held=None):
        super().__init__(held)
        self._missed = set()

    def get(self, name):
        if name not in self.held:
            self._missed.add(name)
        return None if name in self._missed else super().get(name)


@found_by("test_another_replaces_and_deletes", with_another=True)
class RemembersWhatItGave(DictTier):
    def __init__(self, held=None):
        super().__init__(held)
        self._given = {}

    def get(self, name):
        return self._given.setdefault(name, super().get(name))
