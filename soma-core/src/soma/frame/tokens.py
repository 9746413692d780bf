"""The words of the header: what the first number of a token means.

A token is either a plain value (None, bool, int, float other than NaN, text, short bytes), which
stands for itself, or a list that starts with one of these codes. Tokens come in pre-order: a
container says how many children follow it. A token that has a buffer takes the next one.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["INLINE_BYTES", "PACKED_ITEMS", "Code"]

INLINE_BYTES = 1024
"""Text and bytes of at least this many bytes go to a buffer."""
PACKED_ITEMS = 32
"""Lists and tuples of at least this many floats, bools or int64 go to a buffer, packed."""


class Code(IntEnum):
    """First number of a token."""

    LIST = 1  # n; n children
    TUPLE = 2  # n; n children
    SET = 3  # n; n children, sorted by their bytes
    FROZENSET = 4  # n; n children, sorted by their bytes
    DICT = 5  # n; n times key, value, in order
    PACKED = 6  # LIST or TUPLE, "d" | "q" | "?"; a buffer
    NAN = 7  # 8 bytes, as in memory, little end first
    TEXT = 8  # utf-8 with surrogates, or None and a buffer
    BYTES = 9  # None and a buffer
    BYTEARRAY = 10  # bytes, or None and a buffer
    COMPLEX = 11  # 16 bytes
    ELLIPSIS = 12
    RANGE = 13  # start, stop, step
    SLICE = 14  # start, stop, step as children
    DATE = 20  # year, month, day
    TIME = 21  # hour, minute, second, microsecond, fold; time zone as child
    DATETIME = 22  # date, then time; time zone as child
    TIMEDELTA = 23  # days, seconds, microseconds
    TIMEZONE = 24  # days, seconds, microseconds, name or None
    ZONEINFO = 25  # key
    DECIMAL = 26  # text
    UUID = 27  # 16 bytes, is_safe: 0, -1 or None
    PATH = 28  # class name, utf-8 with surrogates
    ENUM = 29  # module, qualified name, member or None; its value as child
    ARRAY = 40  # dtype, shape, "C" | "F"; a buffer
    SCALAR = 41  # dtype, bytes
    OBJECTS = 42  # shape, "C" | "F"; every element as child, in C order
    RECORDS = 43  # dtype, shape, "C" | "F"; every field as child
    CODEC = 50  # kind, bytes or None and a buffer
    CODEC_BUFFERS = 51  # kind, n; n buffers; meta as child
    PICKLE = 52  # kind, n; n buffers
