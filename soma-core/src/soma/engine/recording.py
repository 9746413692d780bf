"""What happens in a run, entered into its report and announced to those who listen."""

from __future__ import annotations

from typing import Any, NamedTuple

from soma.contracts import ActionRecord
from soma.engine.elsewhere import Seat
from soma.engine.parcels import Parcel
from soma.engine.report import Decision, Failure, NodeRun
from soma.engine.run import Run
from soma.errors import describe_error
from soma.events import (
    BranchTaken,
    LoopCompleted,
    NodeCacheHit,
    NodeCacheMiss,
    NodeCompleted,
    NodeFailed,
    NodePlaced,
    NodeStarted,
)
from soma.events.human import times
from soma.values import summary

__all__ = ["Made", "done", "failed", "hit", "looped", "missed", "started", "took_arm"]


class Made(NamedTuple):  # the engine makes one for each call: a dataclass takes four times as long
    """What user code has returned."""

    found: Any
    """The object; ``NOT_IN_HAND`` where only its bytes are here."""
    duration_ms: float
    """What the call took."""
    parcel: Parcel | None = None
    """Its bytes, where another process has made it."""
    told: str = ""
    """Type and size in words, where they came with it."""
    worker: str = ""
    """Who has made it, where that was another process."""
    why: str = ""
    """As of ``Done``."""
    inside: bool = False
    """As of ``Done``."""
    stays: tuple[str, ...] = ()
    """As of ``Done``."""


def started(run: Run, at: int, what: Any, seat: Seat | None = None) -> None:
    """User code is about to be called, in another process where there is a seat."""
    if run.announcer.listening:
        trainable = run.program.traits[run.node[at]].trainable
        _announce(run, at, NodeStarted, what=what, kind="Trainable" if trainable else "Stateless")
        if seat is not None:
            _announce(run, at, NodePlaced, what=what, worker=seat.name, pid=seat.pid)


def failed(run: Run, at: int, what: Any, error: BaseException) -> None:
    """User code has raised."""
    failure = Failure(run.id_of(at), what, describe_error(error), run.passes_of(at))
    run.report.failures.append(failure)
    if run.announcer.listening:
        _announce(run, at, NodeFailed, what=what, error=failure.error)


def done(
    run: Run, at: int, what: Any, outcome: Any, made: Made, *, key: str | None, nbytes: int = 0
) -> None:
    """User code has returned. ``key`` is None where what it returned is not looked up by one."""
    duration_ms, passes = made.duration_ms, run.passes_of(at)
    run.report.actions.append(
        NodeRun(run.id_of(at), what, outcome, duration_ms, nbytes, passes, key or "", made.worker)
    )
    if run.announcer.listening:
        _announce(
            run,
            at,
            NodeCompleted,
            what=what,
            duration=duration_ms,
            output_summary=made.told or summary(made.found),
            outcome=outcome,
            bytes=nbytes,
        )


def hit(run: Run, at: int, what: Any, record: ActionRecord, began: float) -> None:
    """What a node would compute is known. That this very call has computed it is no hit."""
    if run.made and (run.site(at), what) in run.made:
        return
    nbytes = record.bytes[what]
    run.report.actions.append(
        NodeRun(run.id_of(at), what, "hit", 0.0, nbytes, run.passes_of(at), record.key)
    )
    if run.announcer.listening and run.is_news(at, what, record.key):
        _announce(
            run,
            at,
            NodeCacheHit,
            what=what,
            key=record.key,
            tier=record.tier or getattr(run.store, "tier", "Local"),
            load_time=(run.call.clock() - began) * 1e3,
            bytes=nbytes,
        )


def missed(run: Run, at: int, what: Any, key: str | None) -> None:
    """What was looked up is not known."""
    if key is not None and run.announcer.listening:
        _announce(run, at, NodeCacheMiss, what=what, key=key)


def took_arm(run: Run, at: int, arm: str) -> None:
    """A branch has decided."""
    outcome = f"took arm {arm!r}"
    run.report.decisions.append(Decision(run.id_of(at), outcome, run.passes_of(at), arm=arm))
    if run.announcer.listening and run.is_news(at, outcome):
        _announce(run, at, BranchTaken, arm=arm)


def looped(run: Run, at: int, count: int, *, stopped: bool | None) -> None:
    """A loop has made its last pass. ``stopped`` is None where nobody was asked."""
    id_, passes = run.id_of(at), times(count, "pass")
    why = "" if stopped is None else ", stopped" if stopped else ", max_iterations reached"
    run.report.decisions.append(
        Decision(id_, passes + why, run.passes_of(at), iterations=count, stopped=stopped)
    )
    if stopped is False:
        run.notices.tell(
            "LoopNotStopped",
            id_,
            f"loop {id_!r} came to its end after {passes} (max_iterations), and its until never "
            "said stop",
            once=(id_, count),
        )
    if run.announcer.listening and run.is_news(at, passes + why):
        _announce(run, at, LoopCompleted, iterations=count, stopped=stopped)


def _announce(run: Run, at: int, event: Any, /, **fields: Any) -> None:
    node, passes = run.id_of(at), run.passes_of(at)
    run.announcer.emit(event(run_id=run.report.run_id, node_id=node, passes=passes, **fields))
