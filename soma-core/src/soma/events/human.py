"""Amounts and names as people read them in a terminal: ``1.2 ms``, ``4.1 KiB``, ``3 hits``.

An id may hold anything. It is kept on its line, and in its column as far as ``unicodedata`` knows
how wide a character is drawn; terminals do not agree about all of them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime
from math import isfinite

from soma._texts import one_line, printable

__all__ = [
    "ID_WIDTH",
    "clipped",
    "human_bytes",
    "human_ms",
    "moment_text",
    "one_line",
    "outcomes_text",
    "passes_span",
    "passes_text",
    "printable",
    "times",
    "width",
]

ID_WIDTH = 40
"""Longer ids are cut in the middle: names that a program made differ at their ends."""
_SECOND, _MINUTE, _HOUR = 1_000.0, 60_000.0, 3_600_000.0


def human_ms(ms: float) -> str:
    """Return a duration in the unit that suits it.

    >>> [human_ms(ms) for ms in (0.008, 1.24, 3400, 125_000, 3_720_000)]
    ['8 µs', '1.2 ms', '3.4 s', '2 min 05 s', '1 h 02 min']
    """
    if not isfinite(ms):
        return "?"
    ms = max(ms, 0.0)
    # Each limit is where the unit below it would be rounded up to the next one.
    if ms < 0.9995:  # noqa: PLR2004  # 999.5 µs
        return f"{ms * 1000:.0f} µs"
    if ms < 999.5:  # noqa: PLR2004  # as above
        return f"{_three_digits(ms)} ms"
    if ms < _MINUTE - 50:
        return f"{ms / _SECOND:.1f} s"
    if ms < _HOUR - 500:
        minutes, seconds = divmod(round(ms / _SECOND), 60)
        return f"{minutes} min {seconds:02} s"
    hours, minutes = divmod(round(ms / _MINUTE), 60)
    return f"{hours} h {minutes:02} min"


def human_bytes(n: int) -> str:
    """Return a size in powers of 1024.

    >>> [human_bytes(n) for n in (812, 4200, 1_600_000_000)]
    ['812 B', '4.1 KiB', '1.5 GiB']
    """
    if n < 1024:  # noqa: PLR2004  # what a KiB is
        return f"{n} B"
    for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB", "PiB"), start=1):
        amount = n / 1024**power
        if amount < 1023.5:  # noqa: PLR2004  # more would be rounded up to 1024
            return f"{_three_digits(amount)} {unit}"
    return f"{_three_digits(n / 1024**6)} EiB"


def _three_digits(amount: float) -> str:
    """Return one decimal where it says something."""
    return f"{amount:.1f}" if amount < 99.95 else f"{amount:.0f}"  # noqa: PLR2004  # 100 from there


def moment_text(at: float, *, seconds: bool = True) -> str:
    """Return a time on this machine's clock; what is no time of ours as the number that it is.

    Args:
        at: seconds since the epoch.
        seconds: whether to say them.
    """
    try:
        then = datetime.fromtimestamp(at, UTC).astimezone()
    except (OverflowError, ValueError, OSError):
        return f"{at:g} s"
    return f"{then:%Y-%m-%d %H:%M:%S}" if seconds else f"{then:%Y-%m-%d %H:%M}"


def times(count: int, noun: str) -> str:
    """Return ``"1 hit"``, ``"2 hits"``, ``"2 passes"``."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{ending}"


def outcomes_text(hits: int, computed: int, recomputed: int) -> str:
    """Return what was answered and what was worked out, without what did not happen."""
    said = [times(hits, "hit")] if hits else []
    said += [f"{computed} computed"] if computed else []
    said += [f"{recomputed} recomputed"] if recomputed else []
    return ", ".join(said) or "nothing to do"


def passes_text(passes: Iterable[int]) -> str:
    """Return the passes of the loops around a node, the outermost first: ``"pass 2.3"``."""
    return f"pass {'.'.join(map(str, passes))}"


def passes_span(found: Iterable[tuple[int, ...]]) -> str:
    """Return the passes of several things that were done, each once; empty outside of loops.

    >>> passes_span([(3,), (1,), (2,), (1,)])
    '1 to 3'
    >>> passes_span([(1, 2), (1, 4), ()])
    '1.2, 1.4'
    """
    every = sorted({one for one in found if one})
    texts = [".".join(map(str, one)) for one in every]
    if len(every) > 1:
        first, last = every[0], every[-1]
        if len(first) == len(last) == 1 and last[0] - first[0] == len(every) - 1:
            return f"{texts[0]} to {texts[-1]}"
    more = len(every) - _PASSES
    return ", ".join(texts[:_PASSES]) + (f" and {more:,} more" if more > 0 else "")


_PASSES = 3
"""More than these that are not in a row are not told one by one."""


def width(text: str) -> int:
    """Return how many cells of a terminal a printable text takes."""
    return len(text) if text.isascii() else sum(map(_cell, text))


def _cell(char: str) -> int:
    if unicodedata.category(char) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def clipped(text: str, limit: int = ID_WIDTH) -> str:
    """Return a text of at most so many cells, the middle of a longer one cut out."""
    if width(text) <= limit and len(text) <= 2 * limit:
        return text
    head = (limit - 1) // 2
    return f"{_start(text, head)}…{_start(text[::-1], limit - 1 - head)[::-1]}"


def _start(text: str, limit: int) -> str:
    """Return as much of the start as fits; so much of it that marks pile up is not shown either."""
    cells = 0
    for place, char in enumerate(text[: 2 * limit]):
        cells += _cell(char)
        if cells > limit:
            return text[:place]
    return text[: 2 * limit]
