"""What the engine does around a call that runs in another process; actions.py has the rest."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

from soma.engine import recording
from soma.engine.calls import add_note
from soma.engine.claims import leave_claims
from soma.engine.elsewhere import Action, Done, Given, Seat
from soma.engine.node_keys import NodeKey, options_of, rng_key
from soma.engine.parcels import Parcel
from soma.engine.recording import Made
from soma.engine.run import Run
from soma.engine.states import NodeState
from soma.engine.values import NOT_IN_HAND
from soma.errors import CacheConfigError, Nameless, NotSendable
from soma.identity import Identity

__all__ = ["Made", "fit_elsewhere", "forward_elsewhere", "turn_of"]

_HERE: AbstractContextManager[None] = nullcontext()


def turn_of(run: Run, at: int, what: str = "output") -> AbstractContextManager[Seat | None]:
    """Wait for the process in which a node runs; at once, and None, where that is this one.

    Waited for before a claim is taken, so that whoever holds a claim waits for nobody's turn. A
    node that runs a graph of its own, and holds a claim for itself, lets go of it.
    """
    if run.placement is None or not run.placed(at):
        return _HERE
    leave_claims()
    return _Turn(run, at, what, run.placement.turn(run.node[at], lambda: run.stopped))


class _Turn:
    """A turn that says which node it was waited for, where it cannot be had."""

    __slots__ = ("_at", "_run", "_turn", "_what")

    def __init__(self, run: Run, at: int, what: str, turn: AbstractContextManager[Seat]) -> None:
        self._run, self._at, self._what, self._turn = run, at, what, turn

    def __enter__(self) -> Seat:
        try:
            return self._turn.__enter__()
        except BaseException as error:
            if not self._run.stopped:
                add_note(error, self._run, self._at, "fit" if self._what == "state" else "forward")
                recording.failed(self._run, self._at, self._what, error)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._turn.__exit__(kind, error, trace)


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
        identity=_identity(run, place, found),
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
    state = None if learned is None else _sendable(run, at, seat, "its state", learned.pack)
    action = Action(
        node=run.program.ids[place],
        filter=run.program.filters[place],
        identity=_identity(run, place, found),
        what="forward",
        x=x,
        state=state,
        takes=traits.forward_takes,
        rng=rng_key(run, at, found) if "rng" in traits.forward_takes else None,
        is_function=traits.is_function,
        hashed=run.store is not None,
    )
    return _made(_run(run, at, seat, action), seat)


def _identity(run: Run, place: int, found: NodeKey) -> Identity | None:
    """Return what a node is, also where its calls have no keys; None where nothing says so."""
    if found.identity is not None:
        return found.identity
    try:
        return run.program.identity(place).read()
    except (CacheConfigError, Nameless):
        return None


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
    return Made(
        found,
        done.took_ms,
        parcel=done.parcel,
        told=done.summary,
        worker=seat.name,
        why=done.why,
        inside=done.inside,
        stays=done.stays,
    )


def _sendable(run: Run, at: int, seat: Seat, what: str, pack: Callable[[], Parcel]) -> Parcel:
    try:
        return pack()
    except NotSendable as error:
        raise NotSendable(
            f"Node {run.id_of(at)!r} runs at {seat.name!r}, and {what} cannot travel there: "
            f"{error}. Or let it run here: target='local'"
        ) from None
