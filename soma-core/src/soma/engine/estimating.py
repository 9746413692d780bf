"""What a fit and a forward would do, from what is recorded: nothing runs and nothing is kept.

Each call is gone through once, downwards, which says what each node has to be looked up by
(estimate_walk.py). Then it is gone through once more: whose values somebody needs, and whether they
are there (estimate_needs.py). What is known and not needed costs nothing, however large it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from types import FunctionType
from typing import Any, Literal, TypeAlias

from soma.contracts import ActionStore
from soma.engine import checks
from soma.engine.elsewhere import Placement
from soma.engine.estimate_actions import Action, Promises
from soma.engine.estimate_needs import find_needs
from soma.engine.estimate_times import LastTime, Timed, last_times
from soma.engine.estimate_walk import UNKNOWN, Walk
from soma.engine.estimates import Estimate, EstimateRow
from soma.engine.program import Program
from soma.engine.run import Call
from soma.engine.running import check_targets, of_arms_not_taken, read_identities
from soma.engine.states import NodeState
from soma.errors import InvalidInput, Nameless, shown

__all__ = ["estimate"]

_Phase: TypeAlias = Literal["fit", "forward"]
_READ_BYTES_PER_MS = 1_000_000
"""1 GB/s, as where it is decided whether an output is worth its bytes."""


def estimate(
    program: Program,
    store: ActionStore | None,
    x: Any = UNKNOWN,
    y: Any = None,
    *,
    states: Mapping[str, NodeState],
    phase: Any = None,
    placement: Placement | None = None,
    seed: Any = None,
    epochs: Any = 1,
    batch_size: Any = None,
    shuffle: Any = False,
    warm_start: bool = False,
    refresh: Any = (),
) -> Estimate:
    """Return what a fit, a forward, or both would do.

    Args:
        program: what would run.
        store: what is known; None for nothing.
        x: the input of the graph; ``...`` where nothing is known of it.
        y: what would be learned from.
        states: node id -> what it has learned.
        phase: ``"fit"``, ``"forward"``, or None: the fit where anything learns, and the forward of
            the same x with what that fit gives.
        placement: which nodes run in other processes.
        seed: as in ``fit``, as all that follow.
        epochs: as there.
        batch_size: as there.
        shuffle: as there.
        warm_start: as there.
        refresh: as there; a forward after a fit computes nothing anew.

    Raises:
        InvalidInput: there is no such phase.
        SomaError: whatever such a fit or forward refuses.
    """
    phases = _phases(program, phase)
    _check_data(program, x, y, states, phases)
    asked = checks.check_refresh(program, refresh)
    settings: dict[str, Any] = {"x": x, "seed": checks.check_seed(seed)}
    options = checks.check_options(epochs, batch_size, shuffle)
    _check_program(program, store, placement)
    promises, walks = Promises(), []
    learned: dict[str, Action] = {}
    if "fit" in phases:
        call = Call(
            fitting=True,
            y=y,
            options=options,
            states=states,
            warm_start=warm_start,
            refresh=asked,
            **settings,
        )
        fit = Walk(program, store, call, promises)
        fit.go()
        walks.append(fit)
        states = {**of_arms_not_taken(program, call, fit.run.states), **fit.run.states}
        learned = fit.learned
    if "forward" in phases:
        anew = asked if len(phases) == 1 else frozenset()
        call = Call(fitting=False, states=states, refresh=anew, **settings)
        forward = Walk(program, store, call, promises)
        forward.learned = learned
        forward.go()
        walks.append(forward)
    find_needs(walks)
    times, notices = _times(program, store, walks)
    return Estimate(
        phases=phases,
        rows=tuple(_rows(program, walks, times)),
        notices=(*_notices(walks), *notices),
    )


def _phases(program: Program, phase: Any) -> tuple[_Phase, ...]:
    if phase is None:
        return ("fit", "forward") if program.learners else ("forward",)
    if phase not in ("fit", "forward"):
        raise InvalidInput(
            f"phase is 'fit', 'forward', or None for what it takes to have both, not {shown(phase)}"
        )
    found: tuple[_Phase, ...] = (phase,)
    return found


def _check_data(
    program: Program, x: Any, y: Any, states: Mapping[str, NodeState], phases: tuple[_Phase, ...]
) -> None:
    """Refuse what a fit or forward refuses, in the order in which they do."""
    if "fit" not in phases:
        checks.check_fitted(program, states)
        checks.check_input("x", x)
        return
    if x is not UNKNOWN:
        checks.check_data(program, x, y)
    checks.check_learners(program)


def _check_program(
    program: Program, store: ActionStore | None, placement: Placement | None
) -> None:
    check_targets(program, placement, anywhere=False)
    if store is not None:
        checks.check_cached(program)
        read_identities(program)


def _rows(
    program: Program, walks: Iterable[Walk], times: Mapping[int, LastTime]
) -> Iterator[EstimateRow]:
    for walk in walks:
        phase: _Phase = "fit" if walk.run.call.fitting else "forward"
        for action in walk.actions:
            yield _row(program, phase, action, times.get(id(action)))


def _times(
    program: Program, store: ActionStore | None, walks: Iterable[Walk]
) -> tuple[dict[int, LastTime], list[str]]:
    """Return how long actions took the last time, and what is to be told of that."""
    actions = [one for walk in walks for one in walk.actions]
    if store is None:
        return {}, []
    timed = {
        id(one): _timed(program, one)
        for one in actions
        if one.record is None and one.outcome != "reused"
    }
    of_runs = any(one.rest for one in actions)
    wanted = {one for one in timed.values() if one is not None}
    failed: list[str] = []
    found = dict(last_times(store, wanted, failed.append, of_runs=of_runs))
    in_scripts = {
        _in_script(program, one): one
        for one in wanted
        if one not in found and not one.name.startswith(_SCRIPT)
    }
    again = {} if failed else last_times(store, in_scripts, failed.append, of_runs=of_runs)
    found |= {in_scripts[one]: last for one, last in again.items()}
    times = {place: found[one] for place, one in timed.items() if one in found}
    told = [f"the last times cannot be read from the cache: {why}" for why in failed]
    return times, [*told, *_told_of_scripts(sorted({one.name for one in again}))]


_SCRIPT = "__main__."


def _in_script(program: Program, one: Timed) -> Timed:
    """Return the same as it is called where its module is run as a script."""
    made = program.filters[program.places[one.node]]
    root = made if isinstance(made, FunctionType) else type(made)
    return one._replace(name=f"{_SCRIPT}{root.__qualname__}")


def _told_of_scripts(names: Sequence[str]) -> Iterator[str]:
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield (
            f"the cache knows {names[0]}{more}, of a script: what is imported has keys of its own, "
            "since the name of its module is in them. The times are those of the script. To share "
            "results, import it in the script as well"
        )


def _timed(program: Program, action: Action) -> Timed | None:
    try:
        name = program.identity(action.place).read().name
    except Nameless:
        return None
    return Timed(name, program.ids[action.place], action.what)


def _row(program: Program, phase: _Phase, action: Action, last: LastTime | None) -> EstimateRow:
    record = action.record
    ms: float | None = None
    nbytes = 0 if record is None else record.bytes[action.what]
    since: float | None = None if record is None else record.created_at
    if action.outcome == "reused":
        ms = 0.0
    elif action.outcome == "read":
        ms = nbytes / _READ_BYTES_PER_MS
    elif record is not None:
        ms = record.compute_ms
    elif last is not None:
        ms, since = last.run_ms if action.rest else last.ms, last.since
    return EstimateRow(
        phase=phase,
        node=program.ids[action.place],
        what=action.what,
        outcome=action.outcome,
        ms=_finite(ms),
        nbytes=nbytes,
        key=action.key,
        since=_finite(since),
        passes=action.passes,
        why=action.why,
    )


def _finite(number: float | None) -> float | None:
    """Return a number of a record; None where it says nothing."""
    return number if number is not None and isfinite(number) else None


def _notices(walks: Iterable[Walk]) -> tuple[str, ...]:
    told = (one for walk in walks for one in walk.report.notices if one.kind == "NodeNotKept")
    return tuple(dict.fromkeys(one.message for one in told))
