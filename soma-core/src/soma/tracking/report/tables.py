"""Tables of the page: everything escaped, long ones folded, very long ones cut."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from soma._html import safe

__all__ = ["Html", "folded", "rest", "table"]

_FOLDED = 30
"""Longer tables are folded."""


class Html(NamedTuple):
    """A cell that is HTML already."""

    text: str
    look: str = ""


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    amounts: Collection[int] = (),
    total: Sequence[object] = (),
) -> str:
    """Return a table whose first column names its rows; columns that say nothing are left out.

    Args:
        header: names of the columns.
        rows: a cell for each column.
        amounts: places of the columns that are set to the right.
        total: a last row of sums.
    """
    listed = [*rows]
    kept = [place for place in range(len(header)) if any(row[place] != "" for row in listed)]
    looks = [' class="n"' if place in amounts else "" for place in kept]
    head = "".join(
        f'<th scope="col"{look}>{safe(header[place])}</th>'
        for place, look in zip(kept, looks, strict=True)
    )
    body = "".join(_row([row[place] for place in kept], looks) for row in listed)
    foot = f"<tfoot>{_row([total[place] for place in kept], looks)}</tfoot>" if total else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody>{foot}</table>"


def _row(row: Sequence[object], looks: list[str]) -> str:
    first, *others = row
    cells = "".join(_cell(one, look) for one, look in zip(others, looks[1:], strict=True))
    return f'<tr><th scope="row">{safe(first)}</th>{cells}</tr>'


def _cell(one: object, look: str) -> str:
    if not isinstance(one, Html):
        return f"<td{look}>{safe(one)}</td>"
    own = f' class="{one.look}"' if one.look else look
    return f"<td{own}>{one.text}</td>"


def folded(html: str, rows: int, summary: str) -> str:
    """Return what is long so that a reader has to ask for it."""
    if rows <= _FOLDED:
        return html
    return f"<details><summary>{safe(summary)}</summary>{html}</details>"


def rest(count: int, shown: int, what: str) -> str:
    """Return how much is left out."""
    if count <= shown:
        return ""
    return f'<p class="note">{count - shown:,} more {safe(what)} are left out.</p>'
