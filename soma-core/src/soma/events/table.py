"""What a run did as a table for terminals, one line per node, without any library.

    fit
    node    what was done       forwards    time      bytes
    scaler  computed                      1.2 ms    4.1 KiB
    step    2 hits, 3 computed         5   3.4 s    1.5 MiB
    ───────────────────────────────────────────────────────
    total   2 hits, 5 computed         6   3.4 s    1.5 MiB

A node in a loop has done the same many times; it is still one line. Where some of it was computed
by workers, a column says by which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from soma.events.human import (
    clipped,
    human_bytes,
    human_ms,
    outcomes_text,
    printable,
    width,
)

__all__ = ["ActionRow", "NodeSummary", "human_bytes", "human_ms", "summarize", "table_text"]

_HEADER = ("node", "what was done", "where", "fits", "forwards", "time", "bytes")
_TEXTS = 3
"""So many columns are texts, from the left; the others are amounts, from the right."""
_ALWAYS = 2
"""So many columns are never left out."""


class ActionRow(Protocol):
    """One fit or forward of one node: what ``soma.engine.report.NodeRun`` looks like."""

    @property
    def node(self) -> str:
        """The id of the node."""

    @property
    def what(self) -> str:
        """``"state"`` for a fit, ``"output"`` for a forward."""

    @property
    def outcome(self) -> str:
        """``"hit"``, ``"computed"`` or ``"recomputed"``."""

    @property
    def duration_ms(self) -> float:
        """What it took; 0 for a hit."""

    @property
    def bytes(self) -> int:
        """Size of what came out; 0 where nobody measured."""

    @property
    def worker(self) -> str:
        """Who has computed it; empty for this process, and for a hit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSummary:
    """Everything that a run did with one node."""

    node: str
    fits: int
    """How often its state was made or found."""
    forwards: int
    """How often its output was made or found."""
    hits: int
    computed: int
    recomputed: int
    duration_ms: float
    """The sum of all of it."""
    bytes: int
    """Its last state and its last output together: what is there of it when the run is over."""
    where: tuple[str, ...] = ()
    """The workers that have computed some of it, each once; empty text: this process."""


@dataclass(slots=True)
class _Sums:
    whats: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    duration_ms: float = 0.0
    sizes: dict[str, int] = field(default_factory=dict)
    where: dict[str, None] = field(default_factory=dict)


def summarize(rows: Iterable[ActionRow]) -> list[NodeSummary]:
    """Return one summary per node, in the order in which the nodes appear first."""
    sums: dict[str, _Sums] = {}
    for row in rows:
        found = sums.get(row.node)
        if found is None:
            found = sums[row.node] = _Sums()
        found.whats[row.what] += 1
        found.outcomes[row.outcome] += 1
        found.duration_ms += row.duration_ms
        found.sizes[row.what] = row.bytes
        if row.outcome != "hit":
            found.where[row.worker] = None
    return [_summary(node, found) for node, found in sums.items()]


def _summary(node: str, found: _Sums) -> NodeSummary:
    return NodeSummary(
        node=node,
        fits=found.whats["state"],
        forwards=found.whats["output"],
        hits=found.outcomes["hit"],
        computed=found.outcomes["computed"],
        recomputed=found.outcomes["recomputed"],
        duration_ms=found.duration_ms,
        bytes=sum(found.sizes.values()),
        where=tuple(found.where),
    )


def table_text(summaries: Sequence[NodeSummary], title: str) -> str:
    """Return the title, a header, one line per node, a rule and a line of sums.

    A column in which no node has anything to say is left out; without a node, all of them are.
    """
    if not summaries:
        return f"{printable(title)}: nothing to do"
    placed = any(worker for one in summaries for worker in one.where)
    rows = [_cells(one, placed=placed) for one in summaries]
    columns = [
        _padded((head, *column, total), left=place < _TEXTS)
        for place, (head, column, total) in enumerate(
            zip(_HEADER, zip(*rows, strict=True), _totals(summaries), strict=True)
        )
        if place < _ALWAYS or any(column)
    ]
    lines = ["  ".join(cells) for cells in zip(*columns, strict=True)]
    lines.insert(-1, "─" * max(map(width, lines)))
    return "\n".join([printable(title), *(line.rstrip() for line in lines)])


def _cells(one: NodeSummary, *, placed: bool) -> tuple[str, ...]:
    return (
        clipped(printable(one.node)),
        _done(one),
        clipped(", ".join(printable(worker or "here") for worker in one.where)) if placed else "",
        str(one.fits) if one.fits > 1 else "",
        str(one.forwards) if one.forwards > 1 else "",
        human_ms(one.duration_ms) if one.duration_ms else "",
        human_bytes(one.bytes) if one.bytes else "",
    )


def _done(one: NodeSummary) -> str:
    """Return the one thing that was done without a count, where it was done once."""
    counts = {"hit": one.hits, "computed": one.computed, "recomputed": one.recomputed}
    outcomes = [outcome for outcome, count in counts.items() if count]
    once = one.fits <= 1 and one.forwards <= 1
    if len(outcomes) == 1 and once:  # fitted and forwarded alike is once, too
        return outcomes[0]
    return outcomes_text(one.hits, one.computed, one.recomputed)


def _totals(summaries: Sequence[NodeSummary]) -> tuple[str, ...]:
    return (
        "total",
        outcomes_text(
            sum(one.hits for one in summaries),
            sum(one.computed for one in summaries),
            sum(one.recomputed for one in summaries),
        ),
        "",
        str(sum(one.fits for one in summaries)),
        str(sum(one.forwards for one in summaries)),
        human_ms(sum(one.duration_ms for one in summaries)),
        human_bytes(sum(one.bytes for one in summaries)),
    )


def _padded(cells: tuple[str, ...], *, left: bool) -> list[str]:
    widest = max(map(width, cells))
    gaps = [" " * (widest - width(cell)) for cell in cells]
    pairs = zip(cells, gaps, strict=True)
    return [cell + gap if left else gap + cell for cell, gap in pairs]
