"""Whose values somebody needs, and how they are had: what an estimate says of time.

What is known and not needed costs nothing, however large it is. What is needed and there is read.
What is needed and not there is made again, from what feeds it, which is needed then.

The surprise: what is made again may be kept this time, and then it is there for everybody who asks
after it: a node that gives the same, and the forward after the fit. So the order counts, and calls
are gone through in that of a run, with one set of hashes for all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from graphlib import TopologicalSorter

from soma.engine.estimate_actions import Action
from soma.engine.estimate_walk import Walk

__all__ = ["find_needs"]

_NO_TIME_BYTES = 2048
"""Reading so little takes no time: on disk it lies in the record."""
_RUNS = ("computed", "recomputed", "always", "unknown")


def find_needs(walks: Iterable[Walk]) -> None:
    """Say of each known value whether it is read or made again.

    Args:
        walks: calls that were gone through, in their order. The outcomes of their actions are
            changed.
    """
    kept: set[str] = set()
    for walk in walks:
        _Needs(walk, kept).find()


class _Needs:
    """The needs of one call.

    Args:
        walk: the call.
        kept: hashes of what has been made again by now, and kept; added to.
    """

    def __init__(self, walk: Walk, kept: set[str]) -> None:
        self._walk = walk
        self._kept = kept
        self._in_hand: set[int] = set()
        """Positions whose outputs were asked for, in one way or another."""

    def find(self) -> None:
        """Go through the call as a run does."""
        walk = self._walk
        wanted = deque(walk.wanted)
        for number, action in enumerate(walk.actions):
            while wanted and wanted[0].after <= number:
                self._ensure([wanted.popleft().at])
            if not action.rest:
                self._done(action)
        self._ensure([one.at for one in wanted])
        if not walk.run.call.fitting:
            self._ensure(walk.run.stands_for.get(one, one) for one in walk.run.program.leaves)

    def _done(self, action: Action) -> None:
        before = self._walk.run.before[action.at]
        if action.what == "state" and _is_known(action) and not self._is_there(action):
            self._ensure(before)
            if self._is_there(action):  # what it is made from turned out to be the same
                return
            action.outcome = "recomputed"
            self._kept.add(action.digest)  # states are, always
        if action.outcome in _RUNS:
            self._ensure(before)
            self._read_state(action)

    def _ensure(self, places: Iterable[int]) -> None:
        """Have outputs in hand: first it is found what is not there, then all of it is made."""
        walk, stack = self._walk, list(places)
        again: set[int] = set()
        while stack:
            at = stack.pop()
            action = walk.outputs.get(at)
            if at in self._in_hand or action is None:
                continue
            self._in_hand.add(at)
            if _is_known(action):
                if self._is_there(action):
                    _read(action)
                else:
                    again.add(at)
                    stack += walk.run.before[at]
        before = walk.run.before
        needs = {at: [one for one in before[at] if one in again] for at in again}
        for at in TopologicalSorter(needs).static_order():  # the order of a run (recompute.py)
            self._make_again(walk.outputs[at])

    def _make_again(self, action: Action) -> None:
        record = action.record
        if record is None or action.digest in self._kept:  # made for another meanwhile
            _read(action)
            return
        action.outcome = "recomputed"
        self._read_state(action)
        nbytes = record.bytes["output"]
        if self._walk.run.keeps_output(action.place, nbytes, record.compute_ms):
            self._kept.add(action.digest)

    def _read_state(self, action: Action) -> None:
        """Something is computed: what it has learned is needed, or what it goes on from."""
        run = self._walk.run
        if action.what == "state":
            _read(action.init)
        elif run.call.fitting:
            _read(self._walk.states.get(action.at))
        else:
            _read(self._walk.learned.get(run.id_of(action.at)))

    def _is_there(self, action: Action) -> bool:
        if action.digest in self._kept:
            return True
        return action.record is not None and self._walk.cache.holds(action.record, action.what)


def _is_known(action: Action) -> bool:
    """Say whether it is recorded, and nobody has asked after its value yet."""
    return action.record is not None and action.outcome == "reused"


def _read(action: Action | None) -> None:
    """A known value that is there is needed."""
    if action is None or action.record is None or action.outcome != "reused":
        return
    if action.record.bytes[action.what] > _NO_TIME_BYTES:
        action.outcome = "read"
