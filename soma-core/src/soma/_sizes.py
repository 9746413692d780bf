"""Sizes in bytes as people write them: ``"500M"``, ``"1.5G"``, ``"20GiB"``, or a plain number.

A ``K`` is 1,024 bytes whether or not an ``i`` follows it, as in ``ls`` and ``du``. The surprise:
no float is involved, so that a size of many digits comes back exactly, and one of 400 digits is
refused in a sentence instead of overflowing.
"""

from __future__ import annotations

import re
from typing import Any

from soma._numbers import whole_number
from soma.errors import InvalidInput, shown

__all__ = ["parse_bytes"]

# ASCII digits: "²" is a digit to \d, and int() refuses it. So many at most, since int() takes ever
# longer, and none of more is a size.
_SIZE = re.compile(
    r"\s*(\d{1,30})(?:\.(\d{1,30}))?\s*([KMGTPE]?)(?:i?B)?\s*", re.IGNORECASE | re.ASCII
)
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}
"""Letter -> the power of two that it stands for."""
_MOST = (1 << 63) - 1
"""What a file offset can say; SQLite holds no larger number either."""


def parse_bytes(name: str, size: Any, *, least: int = 1) -> int:
    """Return a size in bytes: a whole number, or a text such as ``"500M"`` or ``"1.5G"``.

    Args:
        name: what the size is of, for the message: an argument, an option or a variable.
        size: the size as it was given.
        least: the smallest that makes sense, in bytes.

    Raises:
        InvalidInput: it is no size, or a smaller one, or above 8 EiB.
    """
    number = whole_number(size)
    found = number if number is not None else _written(size)
    if found is None or not least <= found <= _MOST:
        above = f" of {least:,} bytes or more" if least > 1 else " above 0" if least else ""
        raise InvalidInput(
            f"{name} is a size{above}, as bytes or as a text such as '500M' or '8G', "
            f"not {shown(size)}"
        )
    return found


def _written(size: Any) -> int | None:
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None:
        return None
    whole, fraction, unit = match[1], match[2] or "", match[3].upper()
    if fraction and not unit:
        return None  # half a byte is a forgotten letter
    tenths: int = 10 ** len(fraction)
    return (int(whole + fraction) << _UNITS[unit]) // tenths
