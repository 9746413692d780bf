"""Objects for those who need them: in hand, read from the store, or made again.

A missing input is asked of the node upstream in this plan, never of whoever recorded that hash: a
filter that is applied twice may have one key for both. What has to be made again is found first, by
a walk upwards that is a loop; then it is made in the order of the plan, each value once and kept
until the last of the walk has taken it.

The surprise: what is made again may be another value than the one that was recorded, and then
everything below it has been looked up under the wrong keys. So the run starts over with the new
value fixed (``Changed``); old and new are never mixed. Each start fixes at least one node more.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from graphlib import TopologicalSorter
from typing import Any

from soma.engine.actions import compute_output, keep_result, turn_of
from soma.engine.elsewhere import Given
from soma.engine.node_keys import Claimed, forward_key
from soma.engine.parcels import Parcel
from soma.engine.run import Run
from soma.engine.values import NOT_IN_HAND, VirtualValue, read_value, shared_parcel
from soma.errors import NotSendable
from soma.frame import names_codec

__all__ = ["Changed", "Inputs"]


class Changed(Exception):  # a signal to the engine, not an error
    """Outputs came out differently than they had been recorded."""

    def __init__(self, values: Mapping[int, VirtualValue]) -> None:
        super().__init__(sorted(values))
        self.values = values


class Inputs:
    """Gathers what nodes are given. One per run: two threads do not make one value again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changed: Mapping[int, VirtualValue] | None = None

    def start_over(self) -> None:
        """Go on with a run that has taken in what was changed."""
        self._changed = None

    def __call__(self, run: Run, at: int) -> Any:
        """Return what a node is given, as an object of its own.

        Of a node that is placed elsewhere it is bytes: what ``elsewhere.Given`` is.

        Raises:
            Changed: something above came out differently than it had been recorded.
            NotSendable: the node runs elsewhere, and something in it exists here alone.
        """
        sources = run.before[at]
        if sources:
            self.ensure(run, sources)
        where = "" if run.placement is None else run.placed(at)
        if where:
            return _packed(run, at, where)
        return _gathered(run, at) if sources else run.x.take()

    def results(self, run: Run) -> dict[int, Any]:
        """Return what each leaf gave, as objects of the caller's own.

        Raises:
            Changed: something came out differently than it had been recorded.
        """
        found = {leaf: run.stands_for.get(leaf, leaf) for leaf in run.program.leaves}
        if run.call.packed:
            return self._packed_results(run, found)
        self.ensure(run, found.values())
        for at in run.stands_for.keys() & found.keys():
            keep_result(run, found[at])  # of a loop it was not known before which pass is the last
        return {leaf: run.take(at) for leaf, at in found.items()}

    def _packed_results(self, run: Run, found: Mapping[int, int]) -> dict[int, Any]:
        """Return the bytes of each leaf, or the hash of what the store has."""
        kept = {at for at in found.values() if _is_found_by_hash(run, at)}
        self.ensure(run, [at for at in found.values() if at not in kept])
        for at in run.stands_for.keys() & found.keys():
            keep_result(run, found[at])
        return {
            leaf: run.outputs[at].digest if at in kept else run.take_packed(at)
            for leaf, at in found.items()
        }

    def ensure(self, run: Run, places: Iterable[int]) -> None:
        """Have outputs in hand, all of which are still to be taken by whoever asks.

        Raises:
            Changed: one of them, or something above, came out differently than it was recorded.
        """
        missing = [one for one in places if not run.outputs[one].in_hand]
        if not missing:
            return
        with self._lock:
            if self._changed is not None:  # on another thread; what it made must not be made twice
                raise Changed(self._changed)
            again = _missing_above(run, missing)
            while again and not _reserved(run, again):  # somebody took the last of one just now
                again = _missing_above(run, missing)
            if not again:
                return
            try:
                _make_all_again(run, _in_order(run, again))
            except Changed as changed:
                self._changed = changed.values
                raise


def _gathered(run: Run, at: int) -> Any:
    sources = run.before[at]
    if len(sources) == 1:
        return run.take(sources[0])
    return {id_: run.take(one) for id_, one in zip(run.names[at], sources, strict=True)}


def _is_found_by_hash(run: Run, at: int) -> bool:
    value = run.outputs[at]
    if value.kept_by is None or not value.digest:
        return False
    return run.cache.finds(value.digest, value.nbytes)


def _packed(run: Run, at: int, where: str, *, again: bool = False) -> Given:
    """Return what a node is given as bytes; ``again``: it was not counted among the takers of x."""
    sources = run.before[at]
    if not sources:
        take = run.x.peek_packed if again else run.x.take_packed
        return _sent(run, at, where, "the input of the graph", take)
    found = {
        id_: _sent(run, at, where, f"what {id_!r} gives", partial(run.take_packed, one))
        for id_, one in zip(_names(run, at), sources, strict=True)
    }
    return found if len(sources) > 1 else next(iter(found.values()))


def _names(run: Run, at: int) -> tuple[str, ...]:
    names = run.names[at]
    return names or tuple(run.id_of(one) for one in run.before[at])  # a later pass of a loop


def _sent(run: Run, at: int, where: str, what: str, take: Callable[[], Parcel]) -> Parcel:
    try:
        return take()
    except NotSendable as error:
        raise NotSendable(
            f"Node {run.id_of(at)!r} runs at {where}, and {what} cannot travel there: {error}. "
            f"Or let both run here: target='local'"
        ) from None


def _missing_above(run: Run, places: list[int]) -> set[int]:
    """Return the nodes that have to run again, so that these outputs can be had."""
    again: set[int] = set()
    stack = list(places)
    while stack:
        one = stack.pop()
        if one not in again and not _is_here(run, one):
            again.add(one)
            stack += run.before[one]
    return again


def _in_order(run: Run, places: set[int]) -> list[int]:
    """Return nodes each after all that feed it: positions of a run say nothing of that."""
    needs = {one: [source for source in run.before[one] if source in places] for one in places}
    return list(TopologicalSorter(needs).static_order())


def _is_here(run: Run, at: int) -> bool:
    value = run.outputs[at]
    if value.in_hand:
        return True
    if run.store is None or not value.digest:
        return False
    if run.placement is not None:  # whose takers may want nothing but the bytes
        parcel = shared_parcel(run.store, value.digest)
        if parcel is not None and not names_codec(parcel.blob.header):
            value.give_packed(parcel)
            return True
    found = read_value(run.store, value.digest)
    if found is NOT_IN_HAND:
        return False
    value.give(found)
    return True


def _reserved(run: Run, again: set[int]) -> bool:
    """Count the walk among the takers of what it needs; False if some of that is gone by now."""
    # Some have a claim on what feeds them; the walk takes it over, so that nobody can end it.
    held = {one for one in again if run.stops_holding(one)}
    takers = Counter(source for one in again if one not in held for source in run.before[one])
    for at, count in takers.items():
        run.outputs[at].let_go(-count)
    sources = {source for one in again for source in run.before[one]}
    if all(at in again or run.outputs[at].in_hand for at in sources):
        return True
    for at, count in takers.items():
        run.outputs[at].let_go(count)
    run.holding |= held
    for one in held:
        if run.outputs[one].uses <= 0 and run.stops_holding(one):
            run.let_input_go(one)
    return False


def _make_all_again(run: Run, places: list[int]) -> None:
    """Make values again, in the order of the plan; those below a changed one are left out.

    Raises:
        Changed: some came out differently. All of them at once, so that the run starts over once.
    """
    changed: dict[int, VirtualValue] = {}
    left_out: set[int] = set()
    for at in places:
        if not left_out.isdisjoint(run.before[at]):
            left_out.add(at)
            continue
        value = _make_again(run, at)
        if value is not None:
            changed[at] = value
            left_out.add(at)
    if changed:
        raise Changed(changed)


def _make_again(run: Run, at: int) -> VirtualValue | None:
    """Make one value again; return it if it is another than the one that was known."""
    known = run.outputs[at]
    id_ = run.id_of(at)
    found = forward_key(run, at)
    where = run.placed(at)
    with turn_of(run, at) as seat, Claimed(run, found):
        if _is_here(run, at):  # another has made it meanwhile
            run.let_input_go(at)
            return None
        if where:
            x = _packed(run, at, where, again=True)
        else:
            x = _gathered(run, at) if run.before[at] else run.x.take_beside()
        run.notices.tell(
            "NodeRecomputed", id_, f"{id_!r} was known but not kept, and is computed again"
        )
        value = compute_output(run, at, found, x, seat=seat, outcome="recomputed")
    if known.digest and value.digest != known.digest:
        value.sticky = True
        return value
    known.kept_by = value.kept_by
    known.take_over(value)
    return None
