"""The bytes of a SOMA1 frame, before anything is known about values.

    0      5         6       8               16              16+H       aligned to 64
    SOMA1  version   flags   H, little end.  header (CBOR)   zeros      buffer, zeros, buffer ...

The header is ``[tokens, lengths]``: a flat list that describes the value in pre-order, and the
length of each buffer. Where a buffer lies follows from the lengths. The whole specification, with
test vectors, is docs/formats/soma1.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cbor2

from soma.errors import CodecError, FrameError
from soma.frame.tokens import Code

__all__ = [
    "ALIGNMENT",
    "FLAG_PICKLE",
    "MAX_NESTING",
    "Parsed",
    "build_header",
    "is_pickled",
    "names_codec",
    "pad",
    "parse",
    "parse_pieces",
    "split",
]

MAGIC = b"SOMA1"
VERSION = 1
ALIGNMENT = 64
"""Every buffer starts at a multiple of this many bytes."""
FLAG_PICKLE = 1
"""Some of it was written with pickle."""
MAX_NESTING = 1000
"""How deep containers may lie in each other, included."""

_START = struct.Struct("<5sBHQ")
_PREAMBLE = _START.size
_CBOR_DEPTH = 6  # what our own headers need; a value's nesting does not show in the header's
_ZEROS = bytes(ALIGNMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A frame taken apart: nothing of it is a value yet."""

    flags: int
    tokens: list[Any]
    buffers: tuple[memoryview, ...]
    """Views of the input: nothing was copied."""


def pad(length: int) -> memoryview:
    """Return the zeros that follow ``length`` bytes up to the next aligned place."""
    return memoryview(_ZEROS)[: -length % ALIGNMENT]


def build_header(tokens: list[Any], lengths: list[int], flags: int) -> bytes:
    """Return preamble, header and padding; without buffers there is no padding."""
    try:
        body = cbor2.dumps([tokens, lengths])
    except UnicodeEncodeError as error:  # the name of a time zone or of an Enum's member
        raise CodecError(f"A name in the value cannot be written in UTF-8: {error}") from None
    whole = _START.pack(MAGIC, VERSION, flags, len(body)) + body
    return whole + bytes(pad(len(whole))) if lengths else whole


def parse(raw: Any) -> Parsed:
    """Take a frame apart without copying a buffer.

    Args:
        raw: bytes, or anything with a contiguous buffer: a bytearray, a memoryview, an mmap.

    Raises:
        FrameError: it is not a whole frame.
    """
    try:
        view = memoryview(raw).cast("B")
    except (TypeError, ValueError):
        raise FrameError(
            f"A frame is bytes, or something with a contiguous buffer, not a {type(raw).__name__}"
        ) from None
    flags, length = _read_preamble(view)
    if length > len(view) - _PREAMBLE:
        raise FrameError(
            f"The frame was cut: its header has {length} bytes, {len(view) - _PREAMBLE} are here"
        )
    tokens, lengths = _read_header(bytes(view[_PREAMBLE : _PREAMBLE + length]))
    buffers = tuple(_slices(view, _PREAMBLE + length, lengths))
    return Parsed(flags=flags, tokens=tokens, buffers=buffers)


def parse_pieces(header: bytes, pieces: Sequence[memoryview]) -> Parsed:
    """Take a frame apart that is in pieces: a header, then buffer, padding, buffer, ..., buffer.

    Raises:
        FrameError: the pieces are not those of one frame.
    """
    flags, tokens, lengths = (
        _remembered(header) if len(header) <= _REMEMBERED_BYTES else _read_start(header)
    )
    buffers = tuple(pieces[::2])
    if [len(one) for one in buffers] != lengths:
        raise FrameError("The pieces of the frame are not those that its header describes")
    return Parsed(flags=flags, tokens=tokens, buffers=buffers)


def split(raw: Any) -> tuple[bytes, list[memoryview]]:
    """Return the header of a frame and its pieces as ``parse_pieces`` takes them: all views.

    Args:
        raw: a whole frame: bytes, or anything with a contiguous buffer.

    Raises:
        FrameError: its header cannot be read, or the lengths in it are not those of the frame.
    """
    view = memoryview(raw).cast("B")
    end = _PREAMBLE + _read_preamble(view)[1]
    if end > len(view):
        raise FrameError(f"The frame was cut: {len(view)} bytes do not hold its header")
    if end < len(view):
        end += -end % ALIGNMENT
    header = bytes(view[:end])
    read = _remembered if len(header) <= _REMEMBERED_BYTES else _read_start
    lengths = read(header)[2]
    pieces: list[memoryview] = []
    for one in lengths:
        if pieces:
            pieces.append(pad(end))
            end += len(pieces[-1])
        pieces.append(view[end : end + one])
        end += one
    if end != len(view):
        raise FrameError(f"The frame has {len(view)} bytes, and its header describes {end}")
    return header, pieces


def _read_start(header: bytes) -> tuple[int, list[Any], list[int]]:
    """Return (flags, tokens, lengths) of a header in one piece."""
    flags, length = _read_preamble(memoryview(header))
    tokens, lengths = _read_header(header[_PREAMBLE : _PREAMBLE + length])
    return flags, tokens, lengths


# Values of one kind have one header, and a cache reads the same few again and again.
_REMEMBERED_BYTES = 512
_remembered = lru_cache(maxsize=1024)(_read_start)


def names_codec(header: bytes) -> bool:
    """Say whether a frame needs codecs to be read: whether some value in it was written by one.

    Args:
        header: the header of a frame, as ``Encoded.header``.

    Raises:
        FrameError: it is no header.
    """
    tokens = (_remembered(header) if len(header) <= _REMEMBERED_BYTES else _read_start(header))[1]
    return any(type(one) is list and one[:1] and one[0] in _BY_CODEC for one in tokens)


def is_pickled(raw: Any) -> bool:
    """Say whether some of a frame was written with pickle.

    Args:
        raw: a frame, or its header.

    Raises:
        FrameError: it does not begin as a frame does.
    """
    return bool(_read_preamble(memoryview(raw).cast("B"))[0] & FLAG_PICKLE)


_BY_CODEC = frozenset({int(Code.CODEC), int(Code.CODEC_BUFFERS), int(Code.PICKLE)})


def _read_preamble(view: memoryview) -> tuple[int, int]:
    """Return (flags, length of the header)."""
    start = bytes(view[: len(MAGIC)])
    if not start:
        raise FrameError("There is nothing here: a frame has at least a header")
    if not MAGIC.startswith(start):
        raise FrameError(f"These bytes are no SOMA1 frame: they start with {start!r}")
    if len(view) < _PREAMBLE:
        raise FrameError(f"The frame was cut: {len(view)} bytes are here, {_PREAMBLE} are needed")
    version = view[5]
    if version != VERSION:
        raise FrameError(
            f"This frame has version {version} and this release of Soma reads version {VERSION}: "
            "upgrade soma-core"
        )
    flags = int.from_bytes(view[6:8], "little")
    if flags & ~FLAG_PICKLE:
        raise FrameError(f"This frame has flags that this release of Soma does not know: {flags}")
    return flags, int.from_bytes(view[8:_PREAMBLE], "little")


def _read_header(body: bytes) -> tuple[list[Any], list[int]]:
    try:
        found = cbor2.loads(body, max_depth=_CBOR_DEPTH, allow_indefinite=False)
    except Exception as error:  # hostile bytes may raise whatever a decoder can raise
        raise FrameError(f"The header of the frame cannot be read: {error}") from error
    try:
        exact = cbor2.dumps(found) == body
    except Exception as error:  # whatever it is, we did not write it
        raise FrameError(f"The header of the frame cannot be read: {error}") from error
    if not exact:  # trailing bytes, tags, numbers in a longer or shorter form than ours
        raise FrameError("The header of the frame is not written as a frame's header is")
    right = isinstance(found, list) and len(found) == 2 and all(type(one) is list for one in found)  # noqa: PLR2004  # tokens, lengths
    if not right:
        raise FrameError("The header of the frame is not [tokens, lengths]")
    tokens, lengths = found
    if any(type(one) is not int or not 0 <= one < 1 << 63 for one in lengths):
        raise FrameError("The header of the frame has a length that is no length")
    return tokens, lengths


def _slices(view: memoryview, header_end: int, lengths: list[int]) -> Iterator[memoryview]:
    end = header_end
    for length in lengths:
        start = end + (-end % ALIGNMENT)
        if any(view[end : min(start, len(view))]):
            raise FrameError(f"The padding of the frame at byte {end} is not zero")
        end = start + length
        if end > len(view):
            raise FrameError(
                f"The frame was cut, or lies about a length: a buffer of {length} bytes starts at "
                f"byte {start}, and the frame has {len(view)} bytes"
            )
        yield view[start:end]
    if end != len(view):
        raise FrameError(f"The frame ends at byte {end}, and is followed by more")
