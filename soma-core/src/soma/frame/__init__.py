"""SOMA1 frames: the bytes of a value, and its name.

    value ──encode──► Encoded(header, buffers) ──digest──► the content hash
    value ◄──decode── bytes, or a map of a file

A frame is at once what a cache keeps, what travels and what a data store holds; its BLAKE3 is the
content hash of the value. Equal values of equal types have equal bytes, in every process.
"""

from __future__ import annotations

from typing import Any

from soma.frame.decode import decode, decode_parts
from soma.frame.encode import encode
from soma.frame.encoded import Encoded, hash_parts
from soma.frame.layout import is_pickled, names_codec, split

__all__ = [
    "NATIVE_TYPES",
    "Encoded",
    "content_hash",
    "decode",
    "decode_parts",
    "encode",
    "hash_parts",
    "is_pickled",
    "names_codec",
    "split",
]

NATIVE_TYPES = (
    *("None", "bool", "int", "float", "complex", "str", "bytes", "bytearray", "Ellipsis"),
    *("list", "tuple", "set", "frozenset", "dict", "range", "slice"),
    *("datetime.date", "datetime.time", "datetime.datetime", "datetime.timedelta"),
    *("datetime.timezone", "zoneinfo.ZoneInfo", "decimal.Decimal", "uuid.UUID"),
    *("pathlib.Path", "enum.Enum", "numpy.ndarray", "numpy.generic"),
)
"""What a frame writes without a codec. Exact types: a subclass needs a codec, Enums aside."""


def content_hash(value: Any) -> str:
    """Return the content hash of a value: the BLAKE3 of its frame, 64 hexadecimal digits.

    Raises:
        MissingCodec: nothing says how something in the value is written down.
        CodecError: a codec failed, or the value contains itself.
    """
    return encode(value).digest
