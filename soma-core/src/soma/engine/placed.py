"""What the engine does around a call that runs in another process; actions.py has the rest."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from soma.engine import recording
from soma.engine.calls import add_note
from soma.engine.elsewhere import Action, Done, Given, Seat
from soma.engine.node_keys import NodeKey, options_of, rng_key
from soma.engine.parcels import Parcel
from soma.engine.recording import Made
from soma.engine.run import Run
from soma.engine.states import NodeState
from soma.engine.values import NOT_IN_HAND
from soma.errors import NotSendable

__all__ = ["Made", "fit_elsewhere", "forward_elsewhere", "turn_of"]

_HERE: AbstractContextManager[None] = nullcontext()


def turn_of(run: Run, at: int) -> AbstractContextManager[Seat | None]:
    """Wait for the process in which a node runs; at once, and None, where that is this one.

    Waited for before a claim is taken, so that whoever holds a claim waits for nobody's turn.
    """
    if run.placement is None or not run.placed(at):
        return _HERE
    return run.placement.turn(run.node[at], lambda: run.stopped)


def fit_elsewhere(
    run: Run, at: int, found: NodeKey, x: Given, init: NodeState | None, *, seat: Seat
) -> Made:
    """Return what a node learns in another process."""
    place = run.node[at]
    takes = run.program.traits[place].fit_takes
    starts = init if "state" in takes else None
    action = Action(
        node=run.program.ids[place],
        filter=run.program.filters[place],
        what="fit",
        x=x,
        y=_sendable(run, at, seat, "y", run.y.take_packed),
        state=None if starts is None else _sendable(run, at, seat, "its state", starts.pack),
        takes=takes,
        options=options_of(run, place),
        rng=rng_key(run, at, found) if "rng" in takes else None,
        hashed=run.store is not None,
    )
    return _made(_run(run, at, seat, action), seat)


def forward_elsewhere(run: Run, at: int, found: NodeKey, x: Given, *, seat: Seat) -> Made:
    """Return what a node makes of its input in another process."""
    place = run.node[at]
    traits = run.program.traits[place]
    learned = run.state_of(at) if traits.trainable else None
    state = None
    if learned is not None and learned.shown:
        state = _sendable(run, at, seat, "its state", learned.pack)
    action = Action(
        node=run.program.ids[place],
        filter=run.program.filters[place],
        what="forward",
        x=x,
        state=state,
        takes=traits.forward_takes,
        rng=rng_key(run, at, found) if "rng" in traits.forward_takes else None,
        is_function=traits.is_function,
        hashed=run.store is not None,
    )
    return _made(_run(run, at, seat, action), seat)


def _run(run: Run, at: int, seat: Seat, action: Action) -> Done:
    what = "state" if action.what == "fit" else "output"
    try:
        recording.started(run, at, what, seat)
        return seat.run(action)
    except BaseException as error:
        add_note(error, run, at, action.what)
        recording.failed(run, at, what, error)
        raise


def _made(done: Done, seat: Seat) -> Made:
    found: Any = NOT_IN_HAND
    if done.parcel is None:
        found = None
    elif done.empty:
        found = {}
    return Made(found, done.took_ms, done.parcel, done.summary, seat.name)


def _sendable(run: Run, at: int, seat: Seat, what: str, pack: Callable[[], Parcel]) -> Parcel:
    try:
        return pack()
    except NotSendable as error:
        raise NotSendable(
            f"Node {run.id_of(at)!r} runs at {seat.name!r}, and {what} cannot travel there: "
            f"{error}. Or let it run here: target='local'"
        ) from None
