"""Tables and texts for notebooks and reports: HTML without scripts, everything escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["preformatted", "safe", "table"]

_STYLE = (
    "border-collapse:collapse;font-family:system-ui,sans-serif;font-size:13px;"
    "color:#1f2937;background:#ffffff"
)
_CELL = "padding:3px 12px 3px 4px;border-bottom:1px solid #e5e7eb;text-align:{}"
_REPLACED = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(127, 160)), "�")
"""Characters that HTML may not hold."""


def safe(text: object) -> str:
    """Return a text that a page may hold anywhere, also inside of quotes."""
    plain = str(text).translate(_REPLACED)
    return escape(plain.encode("utf-8", "replace").decode("utf-8"))


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", texts: int = 2
) -> str:
    """Return a table.

    Args:
        header: names of the columns.
        rows: a cell for each column.
        title: a line above it; empty for none.
        texts: so many columns are texts, from the left; the others are amounts, from the right.
    """
    aligned = ["left" if place < texts else "right" for place in range(len(header))]
    caption = (
        f'<caption style="text-align:left;font-weight:600;padding:4px">{safe(title)}</caption>'
        if title
        else ""
    )
    head = "".join(
        f'<th style="{_CELL.format(side)}">{safe(one)}</th>'
        for one, side in zip(header, aligned, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="{_CELL.format(side)}">{safe(one)}</td>'
            for one, side in zip(row, aligned, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<table style="{_STYLE}">{caption}<thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def preformatted(text: str) -> str:
    """Return a text that keeps its lines."""
    return f"<pre>{safe(text)}</pre>"
