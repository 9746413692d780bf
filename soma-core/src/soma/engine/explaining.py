"""Why a node was computed in a run of a graph: what its report says, and what the cache has.

What was looked up and not found is compared with what there is (misses.py). The rest was not looked
up at all, or was known and had to be made again, and the report and the node say why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from soma.contracts import ActionRecord, ActionStore
from soma.engine.misses import (
    GONE,
    REFRESHED,
    Miss,
    MissReport,
    explain_record,
    look_up,
    of_class,
)
from soma.engine.program import Program
from soma.engine.report import NodeRun, RunReport
from soma.engine.states import NodeState
from soma.errors import GraphError, InvalidInput, UnknownNode, describe_error, did_you_mean
from soma.events.human import one_line

__all__ = ["explain_miss"]

_LOST = "it was looked up and not found, and what was made could not be kept, or is gone by now"
_NOT_CACHEABLE = "its outputs are never kept (_cacheable = False)"
_NOT_DETERMINISTIC = "its outputs are kept only with a seed (_deterministic = False)"
_NO_CACHE = "the graph has no cache"
_NO_HASH = (
    "it has no key: what it is given, or what it has learned, has no hash. Ask the nodes above it"
)
_NO_STATE_HASH = "it has no key: nothing says how to write down what it has learned"
_NOT_SHOWN = "it has no key: its fit has returned None, so nobody knows what it has learned"
_TOO_MANY = "it was looked up and not found; so many are not compared one by one"
_MOST_COMPARED = 200
"""Of the passes of a loop the first so many are compared."""


def explain_miss(
    program: Program,
    store: ActionStore | None,
    report: RunReport | None,
    node: str,
    *,
    states: Mapping[str, NodeState],
) -> MissReport:
    """Return why a node was computed in a run.

    Args:
        program: what ran.
        store: where it looked.
        report: what the run did.
        node: its id.
        states: node id -> what it has learned.

    Raises:
        UnknownNode: there is no node of that id.
        GraphError: it is a branch or a loop.
        InvalidInput: nothing has run yet.
    """
    place = program.places.get(node)
    if place is None:
        raise UnknownNode(f"There is no node {node!r}.{did_you_mean(str(node), program.ids)}")
    if place in program.controls:
        raise GraphError(
            f"{node!r} is a branch or a loop, which computes nothing itself: ask the nodes in it"
        )
    if report is None:
        raise InvalidInput("Nothing has run yet: call fit or forward, and then ask why")
    rows = [one for one in report.actions if one.node == node]
    computed = [one for one in rows if one.outcome != "hit"]
    explained = _Explained(program, store, report, place, states.get(node))
    misses = [explained.miss(one) for one in computed]
    misses += [
        Miss(
            node=node,
            what=one.what,
            passes=one.passes,
            reason=f"it had to be computed, and raised {one_line(one.error)}",
        )
        for one in report.failures
        if one.node == node
    ]
    return MissReport(node=node, misses=tuple(misses), hits=len(rows) - len(computed))


class _Explained:
    """Explains the rows of one node; the records of its class are read once."""

    def __init__(
        self,
        program: Program,
        store: ActionStore | None,
        report: RunReport,
        place: int,
        state: NodeState | None,
    ) -> None:
        self._program = program
        self._store = store
        self._report = report
        self._place = place
        self._state = state
        self._others: Sequence[ActionRecord] | None = None
        self._left = _MOST_COMPARED

    def miss(self, row: NodeRun) -> Miss:
        if row.node in self._report.refreshed or row.outcome != "computed" or not row.key:
            return self._miss(row, self._plain_reason(row))
        self._left -= 1
        if self._left < 0:
            return self._miss(row, _TOO_MANY)
        try:
            return self._compared(row)
        except Exception as error:  # noqa: BLE001  # a store is somebody else's code
            return self._miss(row, f"the cache cannot be asked: {one_line(describe_error(error))}")

    def _miss(self, row: NodeRun, reason: str) -> Miss:
        return Miss(node=row.node, what=row.what, passes=row.passes, key=row.key, reason=reason)

    def _compared(self, row: NodeRun) -> Miss:
        record = None if self._store is None else look_up(self._store, row.key)
        if record is None or self._store is None:
            return self._miss(row, self._told(row.node) or _LOST)
        if self._others is None:
            self._others = list(of_class(self._store, record.name))
        found = explain_record(record, self._others, self._sources(row))
        return Miss(
            node=row.node,
            what=row.what,
            passes=row.passes,
            key=row.key,
            reason=found.reason,
            differs=found.differs,
            nearest=found.nearest,
        )

    def _sources(self, row: NodeRun) -> Sequence[str] | None:
        """Return what feeds the node; None where a branch or loop around it decides that."""
        names = self._program.names[self._place]
        inside = self._place >= self._program.size
        return None if inside and (row.passes or not names) else names

    def _plain_reason(self, row: NodeRun) -> str:
        if row.node in self._report.refreshed:
            return REFRESHED
        if row.outcome == "recomputed":
            return GONE
        if self._store is None:
            return _NO_CACHE
        return self._told(row.node) or self._told("") or self._without_key(row)

    def _without_key(self, row: NodeRun) -> str:
        """Return why nothing was looked up, where the run has not told."""
        traits, state = self._program.traits[self._place], self._state
        of_output = row.what == "output"
        reasons = {
            _NOT_CACHEABLE: of_output and not traits.cacheable,
            _NOT_DETERMINISTIC: of_output and not traits.deterministic,
            _NOT_SHOWN: of_output and state is not None and not state.shown,
            _NO_STATE_HASH: of_output and state is not None and not state.hash(),
        }
        return next((reason for reason, holds in reasons.items() if holds), _NO_HASH)

    def _told(self, node: str) -> str:
        """Return what the run has told of a node; of the input of the graph, where it is empty."""
        told = [one.message for one in self._report.notices if one.node == node]
        return told[0] if told else ""
