"""From a value to a frame: a header and the buffers behind it, nothing large copied.

The walk is iterative: a stack of what is still to be written, so that no nesting of the value
becomes a nesting of calls. Each kind of value is one small function that appends a token and leaves
its children on the stack. Two things on the stack are not values: the mark that a container is
left, by which cycles are found, and the mark that all members of a set are written, by which they
are put in the order of their bytes.
"""

from __future__ import annotations

import enum
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import cbor2

from soma.codecs import NATIVE, find_codec, full_name
from soma.errors import CodecError, MissingCodec
from soma.frame.encode_codecs import missing_codec, write_with_codec
from soma.frame.encoded import Encoded
from soma.frame.layout import FLAG_PICKLE, MAX_NESTING, build_header, pad
from soma.frame.paths import find_path
from soma.frame.tokens import INLINE_BYTES, PACKED_ITEMS, Code
from soma.values import Opaque, States

__all__ = ["encode"]

_LIST, _TUPLE, _SET, _FROZENSET, _DICT = (
    int(Code.LIST),
    int(Code.TUPLE),
    int(Code.SET),
    int(Code.FROZENSET),
    int(Code.DICT),
)
_PLAIN = frozenset({type(None), bool, int})
_SHORT = INLINE_BYTES // 4
"""Characters of a text that surely stays in the header."""


class _Out:
    """Where tokens and buffers go: the frame, or one member of a set on its way to be sorted."""

    __slots__ = ("buffers", "tokens")

    def __init__(self) -> None:
        self.tokens: list[Any] = []
        self.buffers: list[Any] = []

    def sort_key(self) -> bytes:
        raw = list(map(bytes, self.buffers))
        return cbor2.dumps([self.tokens, list(map(len, raw))]) + b"".join(raw)


class _Leave:
    """Mark on the stack: the container is written. Keeps it alive, so that its id is its own."""

    __slots__ = ("container",)

    def __init__(self, container: Any) -> None:
        self.container = container


class _Member:
    """Mark on the stack: what comes next goes to this place."""

    __slots__ = ("out", "value")

    def __init__(self, out: _Out, value: Any) -> None:
        self.out = out
        self.value = value


class _Sort:
    """Mark on the stack: all members of a set are written."""

    __slots__ = ("members", "out")

    def __init__(self, out: _Out, members: list[_Out]) -> None:
        self.out = out
        self.members = members


class _Writer:
    """One walk over one value."""

    __slots__ = ("flags", "met", "open", "out", "rearranged", "root", "shared", "stack")

    def __init__(self, root: Any) -> None:
        self.root = root
        self.out = _Out()
        self.stack: list[Any] = [root]
        self.open: set[int] = set()
        self.flags = 0
        self.rearranged = False
        """Whether reading gives something in another order: an array, the members of a set."""
        self.shared = False
        """Whether reading gives something that lies in memory of its own: one list at two places,
        an array that cannot be written to."""
        self.met: set[int] = set()

    def run(self) -> None:
        stack, handlers = self.stack, _HANDLERS
        while stack:
            value = stack.pop()
            cls = type(value)
            if cls in _PLAIN:
                self.out.tokens.append(value)
                continue
            handler = handlers.get(cls)
            if handler is None:
                handler = _handler_of(value, cls)
            handler(self, value)

    def meet(self, value: Any) -> None:
        """Notice a mutable value that stands at two places, which a frame writes twice."""
        mark = id(value)
        if mark in self.met:
            self.shared = True
        self.met.add(mark)

    def enter(self, container: Any, children: Sequence[Any]) -> None:
        """Leave the children on the stack, the first on top."""
        mark = id(container)
        if mark in self.open:
            raise CodecError(
                f"{self.path_to(container, again=True)} contains itself; a frame holds trees. "
                "Break the cycle, or register a codec for a class that holds it"
            )
        if len(self.open) >= MAX_NESTING:
            raise CodecError(
                f"{self.path_to(container)} lies deeper than {MAX_NESTING} containers in each "
                "other. Flatten it, or register a codec for a class that holds it"
            )
        self.open.add(mark)
        self.stack.append(_Leave(container))
        self.stack.extend(reversed(children))

    def path_to(self, wanted: Any, *, again: bool = False) -> str:
        """Return where an object stands in the value: ``value['a'][3]``. Walks it anew."""
        return find_path(self.root, wanted, again=again)


def encode(value: Any) -> Encoded:
    """Return the frame of a value.

    Large arrays, bytes and buffers of codecs are not copied: the frame holds views of them, and is
    valid as long as they are not changed.

    Raises:
        MissingCodec: nothing says how something in the value is written down; the message says
            what and where.
        CodecError: a codec failed or returned something else than bytes, a container contains
            itself, or containers lie deeper in each other than 1,000.
    """
    whole = _WHOLE.get(type(value))
    written = None if whole is None else whole(value)
    if written is not None:
        return written
    writer = _Writer(value)
    writer.run()
    if not writer.out.buffers:
        header = build_header(writer.out.tokens, [], writer.flags)
        return Encoded(
            header,
            (),
            pickled=False,
            original=value,
            rearranged=writer.rearranged,
            shared=writer.shared,
        )
    pieces: list[memoryview] = []
    lengths: list[int] = []
    for one in writer.out.buffers:
        view = one if isinstance(one, memoryview) else memoryview(one).cast("B")
        lengths.append(len(view))
        pieces += (view, pad(len(view)))
    return Encoded(
        build_header(writer.out.tokens, lengths, writer.flags),
        tuple(pieces[:-1]),  # nothing follows the last buffer
        pickled=bool(writer.flags & FLAG_PICKLE),
        original=value,
        rearranged=writer.rearranged,
        shared=writer.shared,
    )


def _leave(writer: _Writer, mark: _Leave) -> None:
    writer.open.discard(id(mark.container))


def _member(writer: _Writer, mark: _Member) -> None:
    writer.out = mark.out
    writer.stack.append(mark.value)


def _sort(writer: _Writer, mark: _Sort) -> None:
    out = mark.out
    members = mark.members if len(mark.members) == 1 else sorted(mark.members, key=_Out.sort_key)
    for member in members:
        out.tokens += member.tokens
        out.buffers += member.buffers
    writer.out = out


def _float(writer: _Writer, value: float) -> None:
    same = value == value  # noqa: PLR0124  # only NaN differs from itself
    writer.out.tokens.append(value if same else [int(Code.NAN), struct.pack("<d", value)])


def _text(writer: _Writer, value: str) -> None:
    if len(value) < _SHORT and value.isascii():
        writer.out.tokens.append(value)
        return
    raw = value.encode("utf-8", "surrogatepass")
    if len(raw) >= INLINE_BYTES:
        _buffer(writer, Code.TEXT, raw)
        return
    try:
        value.encode()
    except UnicodeEncodeError:
        writer.out.tokens.append([int(Code.TEXT), raw])
    else:
        writer.out.tokens.append(value)


def _bytes(writer: _Writer, value: bytes) -> None:
    if len(value) < INLINE_BYTES:
        writer.out.tokens.append(value)
    else:
        _buffer(writer, Code.BYTES, value)


def _bytearray(writer: _Writer, value: bytearray) -> None:
    writer.meet(value)
    if len(value) < INLINE_BYTES:
        writer.out.tokens.append([int(Code.BYTEARRAY), bytes(value)])
    else:
        _buffer(writer, Code.BYTEARRAY, value)


def _buffer(writer: _Writer, code: Code, raw: Any) -> None:
    writer.out.tokens.append([int(code), None])
    writer.out.buffers.append(raw)


def _list(writer: _Writer, value: list[Any]) -> None:
    writer.meet(value)
    if len(value) < PACKED_ITEMS or not _packed(writer, _LIST, value):
        writer.out.tokens.append([_LIST, len(value)])
        _children(writer, value, value)


def _tuple(writer: _Writer, value: tuple[Any, ...]) -> None:
    if len(value) < PACKED_ITEMS or not _packed(writer, _TUPLE, value):
        writer.out.tokens.append([_TUPLE, len(value)])
        _children(writer, value, value)


def _packed(writer: _Writer, code: int, value: Any) -> bool:
    first = type(value[0])
    if first not in _PACKED or set(map(type, value)) != {first}:
        return False
    letter = _PACKED[first]
    try:
        items: Any = bytes(value) if letter == "?" else array(letter, value)
    except OverflowError:  # an int beyond 64 bits
        return False
    if letter != "?" and sys.byteorder == "big":
        items.byteswap()
    writer.out.tokens.append([int(Code.PACKED), code, letter])
    writer.out.buffers.append(items)
    return True


_PACKED = {float: "d", bool: "?", int: "q"}


def _dict(writer: _Writer, value: dict[Any, Any]) -> None:
    writer.meet(value)
    writer.out.tokens.append([_DICT, len(value)])
    _children(writer, value, [part for item in value.items() for part in item])


def _states(writer: _Writer, value: States) -> None:
    writer.rearranged = True  # it reads as a dict
    _dict(writer, value)


def _children(writer: _Writer, container: Any, children: Sequence[Any]) -> None:
    """Write the children at once where all are plain, which most are; else leave them for later."""
    tokens = []
    for child in children:
        cls = type(child)
        if (
            cls in _PLAIN
            or (cls is float and child == child)  # noqa: PLR0124  # no NaN
            or (cls is str and len(child) < _SHORT and child.isascii())
        ):
            tokens.append(child)
        else:
            writer.enter(container, children)
            return
    if tokens and len(writer.open) >= MAX_NESTING:
        writer.enter(container, children)  # which says what is wrong
    writer.out.tokens += tokens


def _set(writer: _Writer, value: Any) -> None:
    writer.out.tokens.append([_SET if type(value) is set else _FROZENSET, len(value)])
    if type(value) is set:
        writer.meet(value)
    if value:
        writer.rearranged |= len(value) > 1
        members = [_Out() for _ in value]
        marks: list[Any] = list(map(_Member, members, value))
        writer.enter(value, [*marks, _Sort(writer.out, members)])


def _complex(writer: _Writer, value: complex) -> None:
    raw = struct.pack("<dd", value.real, value.imag)
    writer.out.tokens.append([int(Code.COMPLEX), raw])


def _range(writer: _Writer, value: range) -> None:
    writer.out.tokens.append([int(Code.RANGE), value.start, value.stop, value.step])


def _slice(writer: _Writer, value: slice) -> None:
    writer.out.tokens.append([int(Code.SLICE)])
    writer.enter(value, (value.start, value.stop, value.step))


def _ellipsis(writer: _Writer, value: Any) -> None:  # noqa: ARG001  # there is only one
    writer.out.tokens.append([int(Code.ELLIPSIS)])


def _opaque(writer: _Writer, value: Opaque) -> None:
    inner = value.value
    found = find_codec(type(inner))
    if found is None and type(inner) in NATIVE:
        raise MissingCodec(
            f"{writer.path_to(value)} is an Opaque around a {full_name(type(inner))}, which stays "
            "in this process: what an Opaque holds is never taken apart"
        )
    if found is None:
        raise missing_codec(writer, inner)
    write_with_codec(writer, inner, found)


def _handler_of(value: Any, cls: type) -> Callable[[_Writer, Any], None]:
    """Return how a type is written that is met for the first time, or by nobody's table."""
    if cls.__module__ == "numpy" or cls.__module__.startswith("numpy."):
        import numpy as np

        if cls in (np.ndarray, np.memmap) or issubclass(cls, np.generic):
            from soma.frame import encode_numpy

            _HANDLERS[np.ndarray] = encode_numpy.write_array
            _HANDLERS[np.memmap] = encode_numpy.write_mapped
            _WHOLE[np.ndarray] = encode_numpy.whole_array
            if issubclass(cls, np.generic):
                _HANDLERS[cls] = encode_numpy.write_scalar
            return _HANDLERS[cls]
    if isinstance(value, enum.Enum):
        return _enum if find_codec(cls) is None else _foreign
    from soma.frame.encode_standard import HANDLERS

    package = cls.__module__.partition(".")[0]
    standard = HANDLERS.get(f"{package}.{cls.__name__}")
    if standard is not None and getattr(sys.modules.get(package), cls.__name__, None) is cls:
        _HANDLERS[cls] = standard
        return standard
    return _foreign


def _enum(writer: _Writer, value: enum.Enum) -> None:
    cls = type(value)
    # A spawned process has its main module under a name of its own; the frame has one for both.
    module = "__main__" if cls.__module__ == "__mp_main__" else cls.__module__
    writer.out.tokens.append([int(Code.ENUM), module, cls.__qualname__, value.name])
    writer.enter(value, (value.value,))


def _foreign(writer: _Writer, value: Any) -> None:
    found = find_codec(type(value))
    if found is None:
        raise missing_codec(writer, value)
    write_with_codec(writer, value, found)


_WHOLE: dict[type, Callable[[Any], Encoded | None]] = {}
"""Type -> writes a value that is the whole frame, where that takes no walk; None where it does."""

_HANDLERS: dict[type, Callable[[_Writer, Any], None]] = {
    _Leave: _leave,
    _Member: _member,
    _Sort: _sort,
    float: _float,
    str: _text,
    bytes: _bytes,
    bytearray: _bytearray,
    complex: _complex,
    list: _list,
    tuple: _tuple,
    dict: _dict,
    States: _states,
    set: _set,
    frozenset: _set,
    range: _range,
    slice: _slice,
    type(...): _ellipsis,
    Opaque: _opaque,
}
