"""Texts as a picture can show them: readable, escaped, and about as wide as is said here.

An SVG cannot measure text, and nobody knows which font the viewer has. Widths are those of
Helvetica with some room to spare, which Inter, Segoe UI and Arial stay within.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from html import escape

from soma._texts import one_line, printable

__all__ = ["clipped", "one_line", "printable", "text_width", "wrapped", "xml"]

_ROOM = 1.09
"""Inter is a little wider than Helvetica."""
_BOLD = 1.06
"""Semi-bold over regular."""
_EM = 1000
"""The widths below are thousandths of the font size."""
_BY_WIDTH = {
    222: "ijl'",
    270: " !,./:;I[\\]ft|",
    335: '"()-`r{}',
    430: "*^",
    500: "Jckvsxyz",
    560: "#$0123456789?L_abdeghnopqu",
    600: "+<=>~FTZ",
    670: "&ABEKPSVXY",
    722: "CDHNRUw",
    780: "GOQ",
    833: "Mm",
    900: "%W",
    1015: "@",
}
_ASCII = {char: width for width, chars in _BY_WIDTH.items() for char in chars}
_LONGEST = 400
"""More characters than that are never on one line, however narrow: marks that pile up have no
width at all."""


def xml(text: str) -> str:
    """Return a printable text as it is written in XML, in attributes as well."""
    return escape(text, quote=True)


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return about how many pixels a printable text of this font size takes."""
    return sum(map(_glyph, text)) / _EM * size * _ROOM * (_BOLD if bold else 1.0)


@lru_cache(maxsize=4096)
def _glyph(char: str) -> int:
    known = _ASCII.get(char)
    if known is not None:
        return known
    if unicodedata.category(char) in {"Mn", "Me"}:
        return 0
    if unicodedata.east_asian_width(char) in {"W", "F"}:  # emoji too
        return 1120
    return 640 if char.isalnum() and not char.isupper() else 800


def clipped(text: str, limit: float, size: float, *, bold: bool = False) -> str:
    """Return a text of at most so many pixels, the middle of a longer one cut out.

    Names that a program made differ at their ends.
    """
    if len(text) <= _LONGEST and text_width(text, size, bold=bold) <= limit:
        return text
    left = limit - text_width("…", size, bold=bold)
    ends = (text[: _LONGEST // 2], text[: -_LONGEST // 2 - 1 : -1])
    taken = [0, 0]
    for turn in range(_LONGEST):
        side = turn % 2
        left -= text_width(ends[side][taken[side]], size, bold=bold)
        if left < 0:
            break
        taken[side] += 1
    return f"{ends[0][: taken[0]]}…{ends[1][: taken[1]][::-1]}"


def wrapped(text: str, limit: float, size: float) -> list[str]:
    """Return the lines of a text, none of them wider than so many pixels."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if text_width(longer, size) <= limit:
            lines[-1] = longer
        else:
            lines.append(clipped(word, limit, size))
    return [line for line in lines if line]
