"""What every tier of a cache must do, as tests.

A tier keeps bytes under names of two forms, and what they mean is not its business:

    actions/<aa>/<key>.json        a record: replaced where another is put under its name
    cas/b3/<aa>/<digest>.bin       a blob: named by its hash, so that it is never another

<aa> are the first two of the 64 hexadecimal digits. Bytes may come back in other pieces than they
were put: callers join them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from soma.contracts import CacheTier, Frame
from soma.testing._frames import Breaking, assert_same_bytes, hash_of, whole
from soma.testing._suite import ConformanceSuite
from soma.testing._threads import in_threads

__all__ = ["CacheTierSuite"]

_MIB = 1 << 20
_THREADS = 8
_ROUNDS = 20


def _bytes_like(text: str, nbytes: int) -> bytes:
    seed = hash_of(text).encode()
    return (seed * (nbytes // len(seed) + 1))[:nbytes]


def _frame(header: bytes, *pieces: bytes) -> Frame:
    return header, [memoryview(one) for one in pieces]


def _record(text: str) -> str:
    key = hash_of(text)
    return f"actions/{key[:2]}/{key}.json"


def _blob(frame: Frame) -> str:
    digest = hash_of(whole(frame))
    return f"cas/b3/{digest[:2]}/{digest}.bin"


def _frame_of(nbytes: int) -> Frame:
    raw = _bytes_like("frame", nbytes)
    return _frame(raw[:64], raw[64:])


_SIZES = (1, 2047, 2048, 2049, 65_536, _MIB - 1, _MIB, _MIB + 1, 11 * _MIB)
_FRAMES: dict[str, Callable[[], Frame]] = {
    "header alone": lambda: _frame(b"header"),
    "nothing at all": lambda: _frame(b""),
    "buffers alone": lambda: _frame(b"", b"one", b"two"),
    "empty buffers": lambda: _frame(b"h", b"", b"x", b"", b""),
    "all bytes there are": lambda: _frame(bytes(range(256)), bytes(range(256))[::-1]),
    "4,000 pieces": lambda: _frame(b"h", *(b"%d" % one for one in range(4000))),
    "large and small": lambda: _frame(b"h", bytes(3 * _MIB), b"y", _bytes_like("b", _MIB)),
}
_FRAMES |= {f"{nbytes:,} bytes": partial(_frame_of, nbytes) for nbytes in _SIZES}
"""What it is -> what makes it: whoever imports a suite does not pay for its megabytes."""


class CacheTierSuite(ConformanceSuite):
    """Derive from it and give the fixtures.

    - ``tier``: a ``soma.contracts.CacheTier`` in which nothing is, another for each check;
    - ``another``: a second object over the storage of ``tier``, as another machine would open it.
      Where there can be none, leave it out: the checks that need it are then skipped.
    """

    @pytest.fixture
    def tier(self) -> CacheTier:
        """Give a tier in which nothing is."""
        pytest.fail(f"{type(self).__name__} has to give the fixture 'tier'")

    @pytest.fixture
    def another(self, tier: CacheTier) -> CacheTier | None:  # noqa: ARG002  # for who overrides
        """Give a second object over the storage of ``tier``, as another machine would open it."""
        return None

    def test_nothing_is_there_at_first(self, tier: CacheTier) -> None:
        """What is not there is None, False or nothing, and never an error."""
        for name in (_record("a"), _blob(_frame(b"a"))):
            assert tier.get(name) is None
            assert tier.exists(name) is False
            tier.delete(name)
        for prefix in ("", "actions/", "cas/b3/00"):
            assert list(tier.list(prefix)) == []

    @pytest.mark.parametrize("name", _FRAMES)
    def test_bytes_come_back(self, tier: CacheTier, name: str) -> None:
        """All of them in their order, under either form of name."""
        frame = _FRAMES[name]()
        for place in (_record(name), _blob(frame)):
            tier.put(place, frame)
            assert tier.exists(place) is True
            for _ in range(2):  # the second may come from another place
                _assert_there(tier, place, whole(frame))

    def test_names_are_not_mixed_up(self, tier: CacheTier) -> None:
        """A record and a blob of the same digits are two things, and so are neighbours."""
        digits = hash_of("digits")
        near = digits[:-1] + ("0" if digits[-1] != "0" else "1")
        names = [f"actions/{one[:2]}/{one}.json" for one in (digits, near)]
        names += [f"cas/b3/{one[:2]}/{one}.bin" for one in (digits, near)]
        for name in names:
            tier.put(name, _frame(name.encode()))
        for name in names:
            _assert_there(tier, name, name.encode())
        tier.delete(names[0])
        assert [tier.exists(one) for one in names] == [False, True, True, True]

    def test_a_record_is_replaced(self, tier: CacheTier) -> None:
        """The last one counts, be it shorter or longer."""
        for raw in (b"first", b"a longer second one", b"3rd", b""):
            tier.put(_record("replaced"), _frame(raw[:2], raw[2:]))
            _assert_there(tier, _record("replaced"), raw)
        assert list(tier.list("")) == [_record("replaced")]

    def test_a_blob_that_is_there_is_put_again(self, tier: CacheTier) -> None:
        """Somebody else may have brought it: that is no error."""
        frame = _frame(b"header", _bytes_like("blob", 100_000))
        for _ in range(3):
            tier.put(_blob(frame), frame)
        _assert_there(tier, _blob(frame), whole(frame))
        assert list(tier.list("cas/")) == [_blob(frame)]

    @pytest.mark.parametrize("nbytes", [100, 100_000, 2 * _MIB])
    def test_memory_is_not_shared(self, tier: CacheTier, nbytes: int) -> None:
        """Whoever put or got the bytes goes on with that memory, and nobody else sees it."""
        expected = _bytes_like("mine", nbytes)
        mine = bytearray(expected)
        tier.put(_record("mine"), (b"", [memoryview(mine)]))
        mine[:] = bytes(nbytes)
        for _ in range(2):
            found = tier.get(_record("mine"))
            assert found is not None
            assert_same_bytes(whole(found), expected)
            for piece in found[1]:
                if not piece.readonly:
                    piece[:] = bytes(len(piece))

    def test_what_was_deleted_is_gone(self, tier: CacheTier) -> None:
        """Once or twice; it can be put again."""
        frame = _frame(b"header", b"buffer")
        for name in (_record("deleted"), _blob(frame)):
            tier.put(name, frame)
            for _ in range(2):
                tier.delete(name)
                assert tier.get(name) is None
                assert tier.exists(name) is False
            assert list(tier.list("")) == []
            tier.put(name, frame)
            _assert_there(tier, name, whole(frame))
            tier.delete(name)

    def test_names_are_listed_by_how_they_start(self, tier: CacheTier) -> None:
        """A prefix is the start of a text, wherever it ends; each name comes once."""
        names = {_record(str(number)) for number in range(60)}
        names |= {_blob(_frame(b"%d" % number)) for number in range(60)}
        for name in names:
            tier.put(name, _frame(b"x"))
        one = min(names)
        other = max(names)
        prefixes = ["", "a", "actions", "actions/", "cas/b3/", "cas/b", "nothing", "actions/../"]
        for name in (one, other):
            prefixes += [name[:end] for end in (8, 9, 10, 11, 12, 13, 30, len(name) - 1)]
            prefixes += [name, name + "x", name + "/"]
        for prefix in prefixes:
            expected = sorted(name for name in names if name.startswith(prefix))
            assert sorted(tier.list(prefix)) == expected, f"list({prefix!r})"

    def test_what_is_listed_may_be_deleted_on_the_way(self, tier: CacheTier) -> None:
        """So is a tier emptied."""
        for number in range(30):
            tier.put(_record(str(number)), _frame(b"x"))
        for name in tier.list("actions/"):
            tier.delete(name)
        assert list(tier.list("")) == []

    @pytest.mark.parametrize("looks", range(4))
    @pytest.mark.parametrize("nbytes", [100, 100_000, 2 * _MIB])
    def test_a_put_that_breaks_off_leaves_nothing(
        self, tier: CacheTier, nbytes: int, looks: int
    ) -> None:
        """Whole or not at all: under a name lie all bytes, or what lay there before."""
        frame = _frame(b"header", _bytes_like("a", nbytes), _bytes_like("b", nbytes))
        for name in (_record("broken"), _blob(frame)):
            if not _breaks_off(tier, name, frame, looks):
                _assert_there(tier, name, whole(frame))
                continue
            assert tier.exists(name) is False, "a broken put has left something"
            assert tier.get(name) is None
            assert list(tier.list("")) == []
        tier.put(_record("old"), _frame(b"old"))
        broken = _breaks_off(tier, _record("old"), frame, looks)
        _assert_there(tier, _record("old"), b"old" if broken else whole(frame))

    def test_a_reader_never_sees_half(self, tier: CacheTier) -> None:
        """While a record is replaced, whoever reads sees the old one or the new one."""
        name = _record("shared")
        values = [bytes([number]) * (100_000 + 50_000 * number) for number in range(_THREADS // 2)]
        tier.put(name, _frame(values[0]))
        writing = threading.Semaphore(0)

        def work(number: int) -> None:
            if number < len(values):
                for _ in range(_ROUNDS):
                    tier.put(name, _frame(values[number][:7], values[number][7:]))
                writing.release()
                return
            while not writing.acquire(blocking=False):
                found = tier.get(name)
                assert found is not None, "it is gone while it is replaced"
                assert whole(found) in values, "half of one, or two mixed"

        in_threads(work, _THREADS)
        assert list(tier.list("")) == [name]

    def test_many_threads_put_the_same_and_different_things(self, tier: CacheTier) -> None:
        """Each finds what it has put, at once and whole; afterwards everything is there."""
        common = [_frame(b"common %d" % turn, _bytes_like(str(turn), 5000)) for turn in range(5)]

        def work(number: int) -> None:
            for turn in range(_ROUNDS):
                blob, own = common[turn % len(common)], b"own %d %d" % (number, turn)
                tier.put(_blob(blob), blob)
                tier.put(_record(own.decode()), _frame(own))
                _assert_there(tier, _blob(blob), whole(blob))
                _assert_there(tier, _record(own.decode()), own)

        in_threads(work, _THREADS)
        assert sorted(tier.list("cas/")) == sorted(map(_blob, common))
        assert len(list(tier.list("actions/"))) == _THREADS * _ROUNDS

    @pytest.mark.parametrize("nbytes", [1, 2048, 100_000, _MIB + 1])
    def test_another_finds_what_was_put(
        self, tier: CacheTier, another: CacheTier | None, nbytes: int
    ) -> None:
        """In both directions, and also where it has looked before and found nothing."""
        both = (tier, _given(another, tier))
        for number, (one, other) in enumerate((both, both[::-1])):
            frame = _frame(b"%d" % number, _bytes_like(str(number), nbytes))
            for name in (_record(str(number)), _blob(frame)):
                assert other.get(name) is None
                assert other.exists(name) is False
                one.put(name, frame)
                assert other.exists(name) is True
                _assert_there(other, name, whole(frame))
                assert list(other.list(name)) == [name]
            assert sorted(other.list("")) == sorted(one.list(""))

    def test_another_replaces_and_deletes(self, tier: CacheTier, another: CacheTier | None) -> None:
        """A tier remembers nothing that it would give instead of what is there."""
        other, name = _given(another, tier), _record("shared")
        tier.put(name, _frame(b"first"))
        _assert_there(tier, name, b"first")
        other.put(name, _frame(b"second"))
        _assert_there(tier, name, b"second")
        other.delete(name)
        assert tier.get(name) is None
        assert tier.exists(name) is False
        assert list(tier.list("")) == []


def _assert_there(tier: CacheTier, name: str, expected: bytes) -> None:
    found = tier.get(name)
    assert found is not None, f"{name} is not there"
    assert isinstance(found[1], Sequence), "a frame is a header and a sequence of buffers"
    assert_same_bytes(whole(found), expected, name)


def _breaks_off(tier: CacheTier, name: str, frame: Frame, looks: int) -> bool:
    """Put a frame that breaks off, and say whether it came to that."""
    try:
        tier.put(name, (frame[0], Breaking(frame[1], looks)))
    except OSError:  # that of the buffers, or the tier's own
        return True
    return False


def _given(another: CacheTier | None, tier: CacheTier) -> CacheTier:
    if another is None:
        pytest.skip(
            "there is no second object over the storage: the fixture 'another' is not given"
        )
    assert another is not tier, "'another' is the same object: it proves nothing"
    return another
