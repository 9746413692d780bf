"""What is in a frame, told without making anything of it: no codec is asked, nothing imported."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from blake3 import blake3

from soma.errors import FrameError, describe_error, shown
from soma.frame.layout import FLAG_PICKLE, MAX_NESTING, Parsed, parse
from soma.frame.tokens import Code

__all__ = ["FrameInfo", "Line", "describe_frame"]

_SHOWN = 60
"""Characters of a plain value that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One value in the frame, in pre-order."""

    depth: int
    """How many containers it lies in."""
    what: str
    """``"dict, 2 items"``, ``"array <f8 (3, 4) C"``, ``"codec my.Reading"``, ``"'text'"``."""
    bytes: int | None
    """Size of its buffers in bytes; None where it has none of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameInfo:
    """What ``soma frame show`` prints."""

    digest: str
    """The content hash, in hexadecimal."""
    bytes: int
    """Size of the whole frame."""
    header_bytes: int
    pickled: bool
    """Whether some of it was written with pickle."""
    kinds: tuple[str, ...]
    """Kinds of the codecs that wrote parts of it, sorted."""
    lines: tuple[Line, ...]


def describe_frame(raw: Any) -> FrameInfo:
    """Return what is in a frame.

    Args:
        raw: bytes, or anything with a contiguous buffer, such as an mmap.

    Raises:
        FrameError: it is no whole frame.
    """
    parsed = parse(raw)
    view = memoryview(raw).cast("B")
    kinds = {
        shown(token[1]).strip("'")
        for token in parsed.tokens
        if type(token) is list
        and len(token) > 1
        and token[0] in (Code.CODEC, Code.CODEC_BUFFERS, Code.PICKLE)
    }
    return FrameInfo(
        digest=blake3(view, max_threads=blake3.AUTO).hexdigest(),
        bytes=len(view),
        header_bytes=int.from_bytes(view[8:16], "little"),
        pickled=bool(parsed.flags & FLAG_PICKLE),
        kinds=tuple(sorted(kinds)),
        lines=tuple(_lines(parsed)),
    )


def _lines(parsed: Parsed) -> Iterator[Line]:
    buffers = iter(parsed.buffers)
    missing: list[int] = []  # children that the open containers still wait for
    complete = False
    for token in parsed.tokens:
        depth = len(missing)
        if depth > MAX_NESTING:
            raise FrameError(f"The frame nests deeper than {MAX_NESTING} containers in each other")
        if complete:
            raise FrameError("The header of the frame describes more than one value")
        try:
            what, children, taken = _read(token)
            children = _count(children)
            sizes = [len(next(buffers)) for _ in range(taken)]
        except FrameError:
            raise
        except Exception as error:  # made-up tokens may raise whatever an index can raise
            why = describe_error(error)
            raise FrameError(f"The frame has a token that means nothing: {why}") from error
        yield Line(depth=depth, what=_printable(what), bytes=sum(sizes) if taken else None)
        if missing:
            missing[-1] -= 1
        missing.append(children)
        while missing and not missing[-1]:
            missing.pop()
        complete = not missing
    if not complete or next(buffers, None) is not None:
        raise FrameError("The frame was cut, or has buffers that no value takes")


def _printable(text: str) -> str:
    """Write out what would move the cursor of a terminal."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise FrameError(f"The frame has a count that is no count: {shown(value)}")
    return value


def _read(token: Any) -> tuple[str, int, int]:
    """Return (what it is, how many children follow, how many buffers it takes)."""
    if type(token) is not list:
        return shown(token, _SHOWN), 0, 0
    code, arguments = Code(token[0]), token[1:]
    describe = _DESCRIBERS.get(code)
    if describe is not None:
        return describe(code.name.lower(), *arguments)
    children = {Code.SLICE: 3, Code.TIME: 1, Code.DATETIME: 1, Code.ENUM: 1}.get(code, 0)
    inside = ", ".join(map(shown, arguments))
    return f"{code.name.lower()} {inside}".strip()[: 2 * _SHOWN], children, 0


def _container(name: str, count: int) -> tuple[str, int, int]:
    return f"{name}, {count} items", count, 0


def _dict(name: str, count: int) -> tuple[str, int, int]:
    return f"{name}, {count} items", 2 * count, 0


def _packed(name: str, container: int, letter: str) -> tuple[str, int, int]:
    kind = {"d": "floats", "?": "bools", "q": "ints"}[letter]
    return f"{Code(container).name.lower()} of {kind}, {name}", 0, 1


def _raw(name: str, inline: bytes | None) -> tuple[str, int, int]:
    return name, 0, int(inline is None)


def _array(name: str, dtype: str, shape: list[int], order: str) -> tuple[str, int, int]:
    return f"{name} {dtype} {tuple(shape)} {order}", 0, 1


def _scalar(name: str, dtype: str, raw: bytes) -> tuple[str, int, int]:  # noqa: ARG001  # its form
    return f"{name} {dtype}", 0, 0


def _objects(name: str, shape: list[int], order: str) -> tuple[str, int, int]:
    return f"array of {name} {tuple(shape)} {order}", prod(shape), 0


def _records(name: str, dtype: str, shape: list[int], order: str) -> tuple[str, int, int]:
    return f"{name} {dtype} {tuple(shape)} {order}", len(json.loads(dtype)["names"]), 0


def _codec(name: str, kind: str, inline: bytes | None, *_: str) -> tuple[str, int, int]:
    return f"{name} {kind}", 0, int(inline is None)


def _codec_buffers(name: str, kind: str, count: int, *_: str) -> tuple[str, int, int]:  # noqa: ARG001  # its form
    return f"codec {kind}, {count} buffers", 1, count


def _pickle(name: str, kind: str, count: int) -> tuple[str, int, int]:
    return f"{name} {kind}", 0, count


_DESCRIBERS: dict[Code, Callable[..., tuple[str, int, int]]] = {
    Code.LIST: _container,
    Code.TUPLE: _container,
    Code.SET: _container,
    Code.FROZENSET: _container,
    Code.DICT: _dict,
    Code.PACKED: _packed,
    Code.TEXT: _raw,
    Code.BYTES: _raw,
    Code.BYTEARRAY: _raw,
    Code.ARRAY: _array,
    Code.SCALAR: _scalar,
    Code.OBJECTS: _objects,
    Code.RECORDS: _records,
    Code.CODEC: _codec,
    Code.CODEC_BUFFERS: _codec_buffers,
    Code.PICKLE: _pickle,
}
