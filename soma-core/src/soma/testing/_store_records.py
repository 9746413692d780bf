"""Records in a store: what is committed is found, field by field, and the last one counts."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest

from soma.contracts import ActionRecord, ActionStore
from soma.frame import encode
from soma.testing._frames import hash_of
from soma.testing._store_base import StoreCases, assert_kept, bytes_like, keep

__all__ = ["RecordCases"]

_DAY_S = 86_400.0

_FIELDS: dict[str, dict[str, Any]] = {
    "nothing else": {},
    "name": {"name": "pkg.module.Scale.<locals>.Узел"},
    "parts": {"parts": {"attribute alpha": bytes(4), "method forward": b"\xff\x00\n\x7f"}},
    "a part with a strange name": {"parts": {"ключ 'a b'/\"\\\n\0": b"1234", "": b"5678"}},
    "impure": {"effect": "impure"},
    "expensive": {"effect": "impure", "expensive": True},
    "origin": {"origin": {"node": "節点 1", "run": "2024-01-02_fit_a1b2"}},
    "created before": {"created_at": 1_234_567_890.125},
    "no time at all": {"compute_ms": 0.0},
    "a time with all its digits": {"compute_ms": 0.1 + 0.2},
    "years of compute": {"compute_ms": 3.2e12 + 0.5},
    "a time beyond reason": {"compute_ms": 1e300},
}


class RecordCases(StoreCases):
    """What is committed and looked up."""

    def test_an_unknown_key_is_a_miss(self, store: ActionStore) -> None:
        """None, and no error: it is what most lookups of a new pipeline find."""
        assert store.lookup(hash_of("unknown")) is None
        keep(store, "known", 1)
        assert store.lookup(hash_of("unknown")) is None

    @pytest.mark.parametrize("name", _FIELDS)
    def test_a_record_comes_back_field_by_field(self, store: ActionStore, name: str) -> None:
        """All of it is used again: by a hit, by gc, and by whoever asks why something ran."""
        record = _record(store, **_FIELDS[name])
        store.commit(record)
        _assert_found(store.lookup(record.key), record)
        (listed,) = store.records()
        _assert_found(listed, record)

    def test_a_record_of_something_pickled_says_so(self, store: ActionStore) -> None:
        """A store on this machine keeps it. One that lies elsewhere must not: mark it xfail."""
        record = _record(store, pickled=True)
        store.commit(record)
        _assert_found(store.lookup(record.key), record)

    def test_the_store_says_when_if_nobody_else_does(self, store: ActionStore) -> None:
        """``created_at`` of 0.0 becomes the time of the commit, in seconds since the epoch."""
        record = _record(store)
        store.commit(record)
        found = store.lookup(record.key)
        assert found is not None
        # To the day: a store elsewhere has a clock of its own.
        assert abs(found.created_at - time.time()) < _DAY_S, f"created_at is {found.created_at}"

    def test_several_outputs(self, store: ActionStore) -> None:
        """A composite block is one action with an output per node, some of them equal."""
        values = {
            "output": 7,
            "узел 1": bytes_like(1, 100_000),
            "節点/'\"\\ \U0001f600": bytes_like(1, 100_000),
            "": bytes_like(2, 2000),
        }
        record = _record(store, **values_of(store, values))
        store.commit(record)
        _assert_found(store.lookup(record.key), record)
        for value in values.values():
            assert_kept(store, value)

    def test_a_later_record_takes_the_place_of_an_earlier_one(self, store: ActionStore) -> None:
        """A node that was not deterministic: the record is replaced, and is never half of each."""
        first = _record(store, compute_ms=1.0, parts={"method forward": b"1234"})
        store.commit(first)
        values = {"output": bytes_like(3, 5000), "more": 3}
        second = _record(store, compute_ms=9.0, **values_of(store, values))
        for _ in range(2):
            store.commit(second)
            _assert_found(store.lookup(second.key), second)
            (listed,) = store.records()
            _assert_found(listed, second)
        for value in values.values():
            assert_kept(store, value)

    def test_all_records_are_listed(self, store: ActionStore) -> None:
        """Each once, whatever the order; what is committed meanwhile does no harm."""
        assert list(store.records()) == []
        keys = {hash_of(str(number)) for number in range(300)}
        for number in range(300):
            keep(store, str(number), number % 7)
        listed = [one.key for one in store.records()]
        assert len(listed) == len(keys)
        assert set(listed) == keys
        for place, _ in enumerate(store.records()):
            if place < 3:  # noqa: PLR2004  # a few will do
                keep(store, f"meanwhile {place}", place)


def values_of(store: ActionStore, values: dict[str, Any]) -> dict[str, Any]:
    """Write values, and return the fields of a record that name them."""
    written = {name: encode(value) for name, value in values.items()}
    return {
        "outputs": {name: store.write((x.header, x.buffers)) for name, x in written.items()},
        "bytes": {name: x.nbytes for name, x in written.items()},
    }


def _record(store: ActionStore, **fields: Any) -> ActionRecord:
    """Return a record, not committed, whose outputs are written."""
    usual = {"key": hash_of("record"), "compute_ms": 12.5}
    if "outputs" not in fields:
        usual |= values_of(store, {"output": [1, 2, 3]})
    return ActionRecord(**{**usual, **fields})


def _assert_found(found: ActionRecord | None, expected: ActionRecord) -> None:
    """Check all fields but ``tier``, which says where a record was found."""
    assert found is not None, "the record is not found"
    for field in dataclasses.fields(ActionRecord):
        one, other = getattr(found, field.name), getattr(expected, field.name)
        if field.name == "origin":  # the store adds to it
            assert dict(one).items() >= dict(other).items(), f"origin is {one!r}, not {other!r}"
        elif field.compare and not (field.name == "created_at" and other == 0.0):  # the store says
            assert one == other, f"{field.name} is {one!r}, not {other!r}"
            assert type(one) is type(other) or isinstance(other, dict)
