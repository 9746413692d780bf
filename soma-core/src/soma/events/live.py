"""A table of a run that is drawn over itself several times a second.

The only module of core that imports rich. A thread of ours draws, so that a drawing that fails is
the end of the drawing and of nothing else. What is printed meanwhile appears above the table, if it
goes to the same terminal. It aligns its cells itself: rich.table.Table takes ten times as long, and
what draws takes its time from what runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from threading import Event, Thread
from time import monotonic
from typing import IO, TypeAlias, cast

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.live import Live
from rich.segment import Segment, Segments
from rich.style import Style

from soma.events.board import Board, Row, Snapshot
from soma.events.human import (
    ID_WIDTH,
    clipped,
    human_bytes,
    human_ms,
    one_line,
    outcomes_text,
    passes_text,
    printable,
    times,
)
from soma.events.streams import Quiet, flush_redirected, is_same_terminal

__all__ = ["LiveTable"]

_PER_SECOND = 8
_JOIN_S = 2.0
"""How long a drawing may take that is under way when the table is closed."""
_AROUND = 4
"""Lines that are no rows: the header, what is not shown, the counts, and the cursor's when done."""
_GAP = 2
"""Cells between two columns."""
_SHOW_CURSOR = "\x1b[?25h"
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_SPINNER = "|/-\\"
_HEADER = ("node", "", "time", "bytes", "")
_AMOUNTS = {2, 3}
"""The columns whose ends stand below each other."""
_Cell: TypeAlias = tuple[str, str]
"""A text and its style."""
_Line: TypeAlias = list[_Cell]
_tables: list[LiveTable] = []
"""The one that draws, and those that are about to see that they may not."""


def _leave(table: LiveTable) -> None:
    with suppress(ValueError):
        _tables.remove(table)


class LiveTable:
    """The table on a terminal, from ``open`` to ``close``."""

    def __init__(self, board: Board, phase: str, total_nodes: int, stream: Quiet) -> None:
        self._board = board
        self._phase = phase
        self._total_nodes = total_nodes
        self._stream = stream
        # Plain text in, plain text out: what users print is theirs, "[/]" and ":smile:" included.
        self._console = Console(
            file=cast("IO[str]", stream),
            force_terminal=True,
            force_jupyter=False,
            markup=False,
            emoji=False,
            highlight=False,
        )
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            get_renderable=self._draw,
            redirect_stdout=is_same_terminal(sys.stdout, stream),
            redirect_stderr=is_same_terminal(sys.stderr, stream),
        )
        self._closing = Event()
        self._thread = Thread(target=self._keep_drawing, name="soma-progress", daemon=True)

    @classmethod
    def open(cls, board: Board, phase: str, total_nodes: int, stream: Quiet) -> LiveTable | None:
        """Start to draw; None where somebody draws already, or it cannot be."""
        for one in _tables:
            if one.is_over:  # whose closing was interrupted
                _leave(one)
        table = None
        try:
            table = cls(board, phase, total_nodes, stream)
            _tables.append(table)  # of two that come at once, one is the first in the list
            if _tables[0] is not table:
                _leave(table)
                return None
            table._live.start()
            table._thread.start()
        except BaseException as error:
            if table is not None:
                table.close()
            if not isinstance(error, Exception):
                raise
            return None
        return table

    @property
    def is_over(self) -> bool:
        """Whether it draws no more."""
        return self._closing.is_set() and not self._thread.is_alive()

    def close(self) -> None:
        """Draw a last time, leave the cursor below the table and let others draw."""
        self._closing.set()
        try:
            if self._thread.ident is not None:
                self._thread.join(_JOIN_S)
        finally:  # also when Ctrl-C is pressed again while it closes
            try:
                with suppress(Exception):
                    flush_redirected()
                    self._live.stop()
            finally:
                try:
                    self._stream.write(_SHOW_CURSOR)
                    self._stream.flush()
                finally:
                    _leave(self)

    def _keep_drawing(self) -> None:
        with suppress(Exception):
            while not self._closing.wait(1 / _PER_SECOND):
                self._live.refresh()

    def _draw(self) -> Segments:
        found = self._board.snapshot(max(self._console.height - _AROUND, 1))
        now = self._board.clock()
        lines = self._aligned([self._cells(row, now) for row in found.rows]) if found.rows else []
        hidden = found.nodes - len(found.rows)
        if hidden:
            lines.append([(f"and {hidden} more", "dim")])
        text, style = self._last_line(found)
        lines.append([(_shortened(text, self._console.width), style)])
        return Segments(
            [
                Segment(text, Style.parse(style))  # it remembers what it has parsed
                for line in _with_ends(lines)
                for text, style in line
            ]
        )

    def _aligned(self, rows: list[_Line]) -> list[_Line]:
        """Return a header and rows whose cells stand below each other, the last one cut to fit."""
        rows.insert(0, [(header, "dim") for header in _HEADER])
        columns = list(zip(*rows, strict=True))[:-1]
        widths = [max(cell_len(text) for text, _ in column) for column in columns]
        room = self._console.width - sum(widths) - _GAP * len(widths)
        return [
            [
                *(_padded(cell, widths[place], place) for place, cell in enumerate(row[:-1])),
                (_shortened(row[-1][0], room), row[-1][1]),
            ]
            for row in rows
        ]

    def _cells(self, row: Row, now: float) -> _Line:
        done, style = _done(row)
        spent = row.duration_ms
        if row.running and not row.error:
            spent += sum(now - started for started in row.running.values()) * 1000
            verb = "fitting" if any(what == "state" for what, _ in row.running) else "running"
            share = f" {row.progress:.0%}" if row.progress else ""
            done, style = f"{self._spinner()} {verb}{share}", "bold"
        size = sum(row.sizes.values())
        limit = max(min(ID_WIDTH, self._console.width // 3), 8)
        return [
            (clipped(printable(row.node), limit), "red" if row.error else ""),
            (done, style),
            (human_ms(spent) if spent else "", ""),
            (human_bytes(size) if size else "", ""),
            (_note(row), "red" if row.error else "dim"),
        ]

    def _spinner(self) -> str:
        frames = _ASCII_SPINNER if self._console.options.ascii_only else _SPINNER
        return frames[int(monotonic() * _PER_SECOND) % len(frames)]

    def _last_line(self, found: Snapshot) -> _Cell:
        said = outcomes_text(found.hits, found.computed, found.recomputed)
        took = human_ms(found.elapsed_ms)
        if found.ended == "done":
            return (f"{self._phase} done in {took}: {said}", "bold green")
        if found.ended:
            error = one_line(found.error)
            return (f"{self._phase} {found.ended} after {took}: {error}", "bold red")
        epoch = f" · {found.epoch}" if found.epoch else ""
        nodes = f"{found.nodes} of {times(self._total_nodes, 'node')}"
        counts = f" · {said}" if found.hits or found.computed or found.recomputed else ""
        return (f"{self._phase}: {nodes}{counts} · {took}{epoch}", "bold")


def _done(row: Row) -> tuple[str, str]:
    """Return what was done with a node, and in which style that is written."""
    if row.error is not None:
        return "failed", "bold red"
    counts = {"hit": row.hits, "computed": row.computed, "recomputed": row.recomputed}
    outcomes = [outcome for outcome, count in counts.items() if count]
    if not outcomes:
        return "", ""
    text = outcomes_text(row.hits, row.computed, row.recomputed)
    if len(outcomes) == 1:
        once = counts[outcomes[0]] <= len(row.sizes)
        text = outcomes[0] if once else text
    style = "green" if outcomes == ["hit"] else "yellow" if row.recomputed else "cyan"
    return text, style


def _note(row: Row) -> str:
    """Return what there is to say beside the numbers."""
    if row.error is not None:
        return one_line(row.error)
    passes = [passes_text(row.passes)] if row.passes else []
    return ", ".join([*passes, one_line(row.note)] if row.note else passes)


def _padded(cell: _Cell, width: int, place: int) -> _Cell:
    text, style = cell
    gap = " " * (width - cell_len(text))
    return (gap + text if place in _AMOUNTS else text + gap) + " " * _GAP, style


def _shortened(text: str, room: int) -> str:
    if cell_len(text) <= room:
        return text
    return set_cell_size(text, room - 1) + "…" if room > 0 else ""


def _with_ends(lines: list[_Line]) -> Iterator[_Line]:
    for place, line in enumerate(lines):
        yield [("\n", ""), *line] if place else line
