"""How long nodes took the last time, by what is recorded.

The record of the same node counts; where there is none, that of another node of the same class. The
records of a class are asked for once, and only where a row has no time without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from soma.contracts import ActionRecord, ActionStore
from soma.errors import describe_error

__all__ = ["LastTime", "Timed", "last_times"]

_MOST_READ = 1000
"""Of one class so many records are looked at, the newest ones."""


class Timed(NamedTuple):
    """What a time is asked for of."""

    name: str
    """Class or function, as in ``ActionRecord.name``."""
    node: str
    what: str


class LastTime(NamedTuple):
    """How long something took."""

    ms: float
    run_ms: float
    """All that the same node took in the same run, for loops."""
    since: float


class _Newest:
    """The newest record of one node, or of one class."""

    __slots__ = ("record", "run_ms")

    def __init__(self, record: ActionRecord) -> None:
        self.record = record
        self.run_ms = record.compute_ms

    def add(self, record: ActionRecord) -> None:
        mine, other = self.record.origin, record.origin
        if mine.get("run") == other.get("run") and mine.get("node") == other.get("node"):
            self.run_ms += record.compute_ms


def last_times(
    store: ActionStore, wanted: Iterable[Timed], failed: Callable[[str], object], *, of_runs: bool
) -> Mapping[Timed, LastTime]:
    """Return how long each of these took the last time; what was never recorded is left out.

    Args:
        store: where it is recorded.
        wanted: of what.
        failed: told why the store could not say, where it could not.
        of_runs: whether ``run_ms`` is asked for, too; else it may be less than it was.
    """
    asked: dict[str, list[Timed]] = {}
    for one in wanted:
        asked.setdefault(one.name, []).append(one)
    found: dict[Timed, LastTime] = {}
    try:
        for name, records in _records_of(store, asked.keys()):
            found.update(_found(asked[name], records, of_runs=of_runs))
    except Exception as error:  # noqa: BLE001  # a store that fails knows no times: that is all
        failed(describe_error(error))
    return found


def _records_of(
    store: ActionStore, names: Iterable[str]
) -> Iterator[tuple[str, Iterable[ActionRecord]]]:
    """Yield classes with their records, the newest first."""
    recent = getattr(store, "recent", None)
    if recent is not None:
        for name in names:
            yield name, recent(name, _MOST_READ)
        return
    by_name: dict[str, list[ActionRecord]] = {name: [] for name in names}
    if not by_name:
        return
    for record in store.records():
        if record.name in by_name:
            by_name[record.name].append(record)
    for name, records in by_name.items():
        yield name, sorted(records, key=lambda one: one.created_at, reverse=True)


def _found(
    wanted: Iterable[Timed], records: Iterable[ActionRecord], *, of_runs: bool
) -> dict[Timed, LastTime]:
    """Return the times of one class."""
    newest: dict[tuple[str, str], _Newest] = {}  # by node and what, and under "" for any node
    missing = {(one.node, one.what) for one in wanted}
    for record in records:
        for what in record.outputs:
            node = record.origin.get("node", "")
            missing.discard((node, what))
            for place in {(node, what), ("", what)}:
                if place in newest:
                    newest[place].add(record)
                else:
                    newest[place] = _Newest(record)
        if not missing and not of_runs:
            break
    found = {}
    for one in wanted:
        last = newest.get((one.node, one.what)) or newest.get(("", one.what))
        if last is not None:
            record = last.record
            found[one] = LastTime(record.compute_ms, last.run_ms, record.created_at)
    return found
