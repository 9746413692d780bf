"""What a run does, while it does it: a live table on a terminal, a line per action elsewhere.

    soma: fit scaler: computed in 1.2 ms, 4.1 KiB
    soma: forward scaler: hit
    soma: forward step (pass 3): computed in 8 µs, 812 B
    soma: fit done in 1.3 s: 1 hit, 2 computed

It listens to one run and is never the reason why that run fails: a stream that is closed or broken
is written to no more. There is one table at a time on a terminal; whoever comes second, or on a
thread of its own, writes lines, which appear above it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from threading import RLock
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from soma._notices import tell_once
from soma.errors import InvalidInput, shown
from soma.events.board import Board
from soma.events.bus import Bus, Subscription
from soma.events.human import (
    clipped,
    human_bytes,
    human_ms,
    one_line,
    outcomes_text,
    passes_text,
    printable,
)
from soma.events.streams import Quiet, can_draw, put_redirected_back

if TYPE_CHECKING:
    from soma.events.live import LiveTable

__all__ = ["Progress", "shown_progress"]

_process = [object()]
"""Another object in each fork; asking for the process id takes longer than all the rest."""


class Progress:
    """Shows one run on a stream; a listener for its events, from any thread.

    Args:
        total_nodes: How many nodes the graph has.
        phase: ``"fit"`` or ``"forward"``.
        run_id: The run to be shown; empty for the first that is heard of.
        stream: Where to; ``sys.stderr`` as it is when the display opens.
    """

    def __init__(
        self, *, total_nodes: int, phase: str, run_id: str = "", stream: IO[str] | None = None
    ) -> None:
        self._total_nodes = total_nodes
        self._phase = phase
        self._stream = stream
        self._board = Board(run_id)
        self._live: LiveTable | None = None
        self._lines: Quiet | None = None
        self._lock = RLock()
        self._process = _process[0]

    def __enter__(self) -> Self:
        stream = sys.stderr if self._stream is None else self._stream
        if can_draw(stream):
            self._live = self._open_table(stream)
        if self._live is None:
            self._lines = Quiet(stream)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if _process[0] is not self._process:
            return  # a fork leaves through here as well, and the table is its parent's
        if kind is not None and self._board.stop(kind.__name__):
            self._write(f"{self._phase} stopped: {kind.__name__}")
        if self._live is not None:
            self._live.close()

    def __call__(self, event: Any) -> None:
        """Take one event in; those of other runs, and of kinds that are not shown, are nothing."""
        if _process[0] is not self._process:
            return  # in a fork, locks may be held by threads that are not there
        if self._live is not None:
            self._board.take(event)
        elif self._lines is not None:
            with self._lock:  # lines in the order in which the board counts
                if self._board.take(event):
                    self._write(self._line(event))

    def _open_table(self, stream: IO[str]) -> LiveTable | None:
        """Return the table; None where there cannot be one."""
        try:
            from soma.events.live import LiveTable
        except ImportError:
            tell_once(
                ("progress", "rich"),
                "progress is shown as lines; for a table that is kept up to date: pip install rich",
            )
            return None
        return LiveTable.open(self._board, self._phase, self._total_nodes, Quiet(stream))

    def _write(self, line: str) -> None:
        if line and self._lines is not None:
            self._lines.write(f"soma: {line}\n")
            self._lines.flush()

    def _line(self, event: Any) -> str:
        """Return what is said about an event; empty where nothing is."""
        say = _ABOUT_RUN.get(event.event_type)
        if say is not None:
            return f"{self._phase} {say(event, self._board)}"
        say = _ABOUT_NODE.get(event.event_type)
        return f"{_action(event)}: {say(event, self._board)}" if say is not None else ""


class shown_progress:  # noqa: N801  # it is called like a function
    """Show one run of a graph while a ``with`` block runs, where that is wanted.

    A class, since contextlib's generator form assigns to ``__traceback__``, which a frozen
    exception refuses.

    Raises:
        InvalidInput: ``wanted`` is neither True nor False.
    """

    def __init__(self, bus: Bus, wanted: Any, report: Any, total_nodes: int) -> None:
        if not isinstance(wanted, bool):
            raise InvalidInput(f"progress must be True or False, not {shown(wanted)}")
        self._bus = bus
        self._subscription: Subscription | None = None
        self._progress = (
            Progress(total_nodes=total_nodes, phase=report.phase, run_id=report.run_id)
            if wanted
            else None
        )

    def __enter__(self) -> None:
        if self._progress is None:
            return
        self._subscription = self._bus.subscribe(self._progress, plain=False, name="progress")
        try:
            self._progress.__enter__()
        except BaseException as caught:  # Ctrl-C at this very moment
            self.__exit__(type(caught), caught, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._subscription is not None:
                self._subscription.cancel()
        finally:
            if self._progress is not None:
                self._progress.__exit__(kind, error, trace)


def _action(event: Any) -> str:
    verb = "fit" if event.what == "state" else "forward"
    passes = f" ({passes_text(event.passes)})" if event.passes else ""
    return f"{verb} {clipped(printable(event.node_id))}{passes}"


def _run_completed(event: Any, board: Board) -> str:
    said = outcomes_text(board.hits, board.computed, board.recomputed)
    return f"done in {human_ms(event.duration)}: {said}"


def _node_completed(event: Any, _board: Board) -> str:
    size = f", {human_bytes(event.bytes)}" if event.bytes else ""
    return f"{event.outcome} in {human_ms(event.duration)}{size}"


def _failed(event: Any, _board: Board) -> str:
    return f"failed: {one_line(str(event.error))}"


_ABOUT_RUN: Mapping[str, Callable[[Any, Board], str]] = {
    "RunCompleted": _run_completed,
    "RunFailed": _failed,
    "EpochCompleted": lambda _event, board: one_line(board.epoch),
}
_ABOUT_NODE: Mapping[str, Callable[[Any, Board], str]] = {
    "NodeCompleted": _node_completed,
    "NodeCacheHit": lambda _event, _board: "hit",
    "NodeFailed": _failed,
}


def _forked() -> None:
    _process[0] = object()
    put_redirected_back()


os.register_at_fork(after_in_child=_forked)
