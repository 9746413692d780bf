"""What is printed: facts one below the other, tables, short names, times.

A record may come from anywhere and say anything. Nothing of it reaches a terminal as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from soma.contracts import ActionRecord
from soma.events.human import clipped, human_ms, one_line, printable
from soma.tracking.text import padded

__all__ = [
    "human_age",
    "human_compute",
    "human_moment",
    "named",
    "origin_of",
    "print_facts",
    "print_json",
    "print_table",
    "short",
    "told_unread",
    "unread_of",
]

_SHORT = 12
_DAYS_FROM_S = 48 * 3600.0


def print_json(data: Any) -> None:
    """Print plain data."""
    click.echo(json.dumps(data, indent=2))


def print_facts(rows: Iterable[tuple[str, str]]) -> None:
    """Print what is known, a line for each name; what is empty is left out."""
    print_table([row for row in rows if row[1]])


def print_table(rows: Sequence[Sequence[str]], *, err: bool = False) -> None:
    """Print cells one below the other, on standard error with ``err``."""
    if rows:
        click.echo("\n".join("  ".join(cells).rstrip() for cells in padded(rows)), err=err)


def unread_of(found: object) -> list[dict[str, str]]:
    """Return what could not be read, as plain data."""
    return [{"name": name, "why": why} for name, why in getattr(found, "unreadable", ())]


def told_unread(unread: Sequence[Mapping[str, str]]) -> str:
    """Return how much could not be read, and the first of it; empty where all could."""
    if not unread:
        return ""
    more = f", and {len(unread) - 1:,} more" if len(unread) > 1 else ""
    return f"{printable(unread[0]['name'])}: {one_line(unread[0]['why'])}{more}"


def short(digest: str) -> str:
    """Return so much of a key or digest that it is unique, as good as always."""
    return digest[:_SHORT]


def human_age(seconds: float) -> str:
    """Return how long ago something was.

    >>> [human_age(one) for one in (0.5, 3600, 86400 * 3)]
    ['500 ms', '1 h 00 min', '3 days']
    """
    if seconds < _DAYS_FROM_S:
        return human_ms(seconds * 1e3)
    return f"{one_line(f'{seconds / 86_400:,.0f}', 20)} days"


def human_compute(ms: float) -> str:
    """Return how long something took, also where a record says that it was for ever."""
    return one_line(human_ms(ms), 40)


def human_moment(seconds: float) -> str:
    """Return a time of the epoch as the clocks here show it; empty where it is none."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):  # of the year 10,000, say
        return ""


def named(record: ActionRecord) -> str:
    """Return what a record is of: ``"scaler state (pipeline.Scaler)"``."""
    node = record.origin.get("node", "")
    words = [clipped(printable(node))] if node else []
    words += [clipped(", ".join(map(printable, record.outputs)))]
    words += [f"({clipped(printable(record.name))})"] if record.name else []
    return " ".join(words)


def origin_of(origin: Mapping[str, str], name: str) -> str:
    """Return what a record says of who made it."""
    text = origin.get(name, "")
    return one_line(text) if text else ""
