"""An estimate as a table. A node in a loop does the same many times; it is still one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from soma.engine.estimates import OUTCOME_WORDS, Estimate, EstimateRow, counts_text
from soma.events.human import (
    clipped,
    human_bytes,
    human_ms,
    moment_text,
    one_line,
    printable,
    width,
)

__all__ = ["estimate_text"]

_HEADER = ("call", "node", "what", "what would be done", "times", "about", "bytes", "last time")
_FROM_THE_RIGHT = frozenset({"times", "about", "bytes"})
_ALWAYS = frozenset({"node", "what would be done"})
"""Columns that are never left out."""
_GUESSED = ("computed", "always", "unknown")
"""Outcomes whose time is that of another time."""


def estimate_text(estimate: Estimate) -> str:
    """Return the title, a line for each state and output, a rule, the sums, and what is to be told.

    A column in which no line has anything to say is left out.
    """
    title = f"estimate of {' and '.join(estimate.phases)}"
    if not estimate.rows:
        return f"{title}: nothing to do"
    lines = [_cells(estimate, one) for one in _groups(estimate)]
    sums = ("total", "", "", "", "", _about(estimate.known_ms), "", "")
    if len(estimate.phases) == 1:  # the first column goes
        sums = ("", "total", *sums[2:])
    columns = [
        _padded((head, *column, total), left=head not in _FROM_THE_RIGHT)
        for head, column, total in zip(_HEADER, zip(*lines, strict=True), sums, strict=True)
        if head in _ALWAYS or any(column)
    ]
    texts = ["  ".join(cells) for cells in zip(*columns, strict=True)]
    texts.insert(-1, "─" * max(map(width, texts)))
    return "\n".join([title, *(one.rstrip() for one in texts), *_told(estimate)])


def _groups(estimate: Estimate) -> Iterator[list[EstimateRow]]:
    """Yield the rows that make one line, in the order in which they appear first."""
    groups: dict[tuple[str, str, str], list[EstimateRow]] = {}
    for row in estimate.rows:
        groups.setdefault((row.phase, row.node, row.what), []).append(row)
    yield from groups.values()


def _cells(estimate: Estimate, rows: Sequence[EstimateRow]) -> tuple[str, ...]:
    first, count = rows[0], len(rows)
    counted = Counter(one.outcome for one in rows)
    found = {outcome: counted[outcome] for outcome in OUTCOME_WORDS if counted[outcome]}
    done = counts_text(found) if count > 1 and len(found) > 1 else OUTCOME_WORDS[first.outcome]
    timed = [one.ms for one in rows if one.ms is not None]
    took_ms = sum(timed, 0.0)
    since = [one.since for one in rows if one.since and one.outcome in _GUESSED]
    nbytes = rows[-1].nbytes
    return (
        first.phase if len(estimate.phases) > 1 else "",
        clipped(printable(first.node)),
        first.what,
        done,
        str(count) if count > 1 else "",
        _about(took_ms) if timed else "?",
        human_bytes(nbytes) if nbytes else "",
        moment_text(max(since), seconds=False) if since else "",
    )


def _about(ms: float) -> str:
    return human_ms(ms) if ms else ""


def _told(estimate: Estimate) -> Iterator[str]:
    if estimate.unknown_ms:
        yield (
            f"unknown until run: up to {human_ms(estimate.unknown_ms)} more, if it takes as long "
            "as the last time"
        )
    if estimate.never:
        yield f"never timed: {_listed(one.node for one in estimate.never)}"
    causes: dict[str, list[str]] = {}
    for row in estimate.rows:
        if row.why:
            causes.setdefault(row.why, []).append(row.node)
    for why, nodes in causes.items():
        yield f"computed every time: {_listed(nodes)}: {one_line(why, 500)}"
    yield from (one_line(one, 500) for one in estimate.notices)


def _listed(nodes: Iterable[str]) -> str:
    names = dict.fromkeys(map(printable, nodes))
    return ", ".join([*names][:_LISTED]) + (", ..." if len(names) > _LISTED else "")


_LISTED = 10


def _padded(cells: Sequence[str], *, left: bool) -> list[str]:
    widest = max(map(width, cells))
    gaps = [" " * (widest - width(cell)) for cell in cells]
    return [
        cell + gap if left else gap + cell for cell, gap in zip_longest(cells, gaps, fillvalue="")
    ]
