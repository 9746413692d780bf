"""Objects for those who need them: in hand, read from the store, or made again.

A missing input is asked of the node upstream in this plan, never of whoever recorded that hash: a
filter that is applied twice may have one key for both. The walk upwards is a loop with a stack.

The surprise: what is made again may be another value than the one that was recorded, and then
everything below it has been looked up under the wrong keys. So the run starts over with the new
value fixed (``Changed``); old and new are never mixed. Each start fixes one node more.
"""

from __future__ import annotations

import threading
from typing import Any

from soma.engine.actions import compute_output, forward_key
from soma.engine.run import Run
from soma.engine.values import NOT_IN_HAND, VirtualValue, read_value

__all__ = ["Changed", "Inputs"]


class Changed(Exception):  # a signal to the engine, not an error
    """An output came out differently than it had been recorded."""

    def __init__(self, place: int, value: VirtualValue) -> None:
        super().__init__(place)
        self.place = place
        self.value = value


class Inputs:
    """Gathers what nodes are given. One per run: two threads do not make one value again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __call__(self, run: Run, place: int) -> Any:
        """Return what a node is given, as an object of its own.

        Raises:
            Changed: something above came out differently than it had been recorded.
        """
        sources = run.program.before[place]
        if not sources:
            return run.x.take()
        for one in sources:
            self.ensure(run, one)
        if len(sources) == 1:
            return run.outputs[sources[0]].take()
        return {run.program.ids[one]: run.outputs[one].take() for one in sources}

    def result(self, run: Run, place: int) -> Any:
        """Return what a leaf gave, as an object of the caller's own.

        Raises:
            Changed: it, or something above it, came out differently than it had been recorded.
        """
        self.ensure(run, place)
        return run.outputs[place].take()

    def ensure(self, run: Run, place: int) -> None:
        """Have an output in hand.

        Raises:
            Changed: it, or something above it, came out differently than it had been recorded.
        """
        if run.outputs[place].in_hand:
            return
        with self._lock:
            stack = [place]
            while stack:
                one = stack[-1]
                if _is_here(run, one):
                    stack.pop()
                    continue
                missing = [p for p in run.program.before[one] if not _is_here(run, p)]
                if missing:
                    stack += missing
                    continue
                _make_again(run, one)  # or not, if its inputs are gone: then once more


def _is_here(run: Run, place: int) -> bool:
    value = run.outputs[place]
    if value.in_hand:
        return True
    if run.store is None or not value.digest:
        return False
    found = read_value(run.store, value.digest)
    if found is NOT_IN_HAND:
        return False
    value.give(found)
    return True


def _make_again(run: Run, place: int) -> None:
    known = run.outputs[place]
    ids, sources = run.program.ids, run.program.before[place]
    if not sources:
        given = {"": run.x.take_beside()}
    else:
        given = {ids[one]: run.outputs[one].take_beside() for one in sources}
    if any(one is NOT_IN_HAND for one in given.values()):
        return  # somebody else was their last taker just now
    x = given if len(sources) > 1 else next(iter(given.values()))
    id_ = ids[place]
    run.notice("NodeRecomputed", id_, f"{id_!r} was known but not kept, and is computed again")
    value = compute_output(run, place, forward_key(run, place), x, outcome="recomputed")
    if known.digest and value.digest != known.digest:
        value.sticky = True
        raise Changed(place, value)
    known.give(value.peek(), owned=value.owned)
