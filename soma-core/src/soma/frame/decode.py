"""From the bytes of a frame to the value, believing nothing they say.

Every length is compared with what is there before anything is made of it; nothing is allocated that
the input does not pay for; the walk is iterative. Whatever is wrong is a ``FrameError``. Arrays are
views of the input: writable if it is, valid as long as it lives.
"""

from __future__ import annotations

import enum
import pickle
import struct
import sys
from array import array
from collections.abc import Callable, Collection, Sequence
from typing import Any

from soma.codecs import read_kind
from soma.errors import CodecError, FrameError, SomaError, describe_error, shown
from soma.frame.encode import encode
from soma.frame.enums import find_enum
from soma.frame.layout import FLAG_PICKLE, MAX_NESTING, Parsed, parse, parse_pieces
from soma.frame.tokens import PACKED_ITEMS, Code

__all__ = ["decode", "decode_parts"]

_MAX_DIMENSIONS = 64  # what numpy has
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


class _Open:
    """A container that waits for its children."""

    __slots__ = ("build", "items", "missing")

    def __init__(self, missing: int, build: Callable[[list[Any]], Any]) -> None:
        self.missing = missing
        self.build = build
        self.items: list[Any] = []


class _Reader:
    """One walk over one frame."""

    def __init__(self, parsed: Parsed, *, allow_pickle: bool) -> None:
        self.tokens = parsed.tokens
        self.buffers = iter(parsed.buffers)
        self.allow_pickle = allow_pickle
        self.flags = parsed.flags
        self.left = len(parsed.tokens)

    def run(self) -> Any:
        stack: list[_Open] = []
        result: list[Any] = []
        for token in self.tokens:
            self.left -= 1
            if result:
                raise FrameError("The header of the frame describes more than one value")
            made = token if type(token) in _PLAIN else self._token(token)
            if isinstance(made, _Open) and made.missing:
                if len(stack) >= MAX_NESTING:
                    raise FrameError(
                        f"The frame nests deeper than {MAX_NESTING} containers in each other"
                    )
                stack.append(made)
                continue
            self._place(made, stack, result)
        if stack or not result:
            raise FrameError("The frame was cut: values are missing at its end")
        if next(self.buffers, None) is not None:
            raise FrameError("The frame has a buffer that no value takes")
        return result[0]

    def _place(self, made: Any, stack: list[_Open], result: list[Any]) -> None:
        """Put a finished value where it belongs, and finish what it finishes."""
        while True:
            value = self._guarded(made.build, made.items) if isinstance(made, _Open) else made
            if not stack:
                result.append(value)
                return
            top = stack[-1]
            top.items.append(value)
            top.missing -= 1
            if top.missing:
                return
            made = stack.pop()

    def _token(self, token: Any) -> Any:
        code = token[0] if type(token) is list and token else None
        if type(code) is int and Code.DATE <= code < Code.ENUM and code not in _READERS:
            from soma.frame.decode_standard import READERS

            _READERS.update(READERS)
        reader = _READERS.get(code) if type(code) is int else None
        if reader is None:
            raise FrameError(
                f"The header of the frame has a token that means nothing: {shown(token)}"
            )
        return self._guarded(reader, self, *token[1:])

    def _guarded(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except SomaError:
            raise
        except Exception as error:  # made-up tokens may raise whatever a constructor can raise
            raise FrameError(
                f"The frame describes a value that cannot be: {describe_error(error)}"
            ) from error

    def buffer(self) -> memoryview:
        view = next(self.buffers, None)
        if view is None:
            raise FrameError("The frame has fewer buffers than its values take")
        return view

    def several(self, count: int) -> list[memoryview]:
        return [self.buffer() for _ in range(_count(count))]

    def opened(self, count: int, build: Callable[[list[Any]], Any]) -> _Open:
        if _count(count) > self.left:
            raise FrameError(
                f"The frame lies about a length: {count} values announced, {self.left} left"
            )
        return _Open(count, build)


def decode(raw: Any, *, allow_pickle: bool = False) -> Any:
    """Return the value in a frame.

    Args:
        raw: the frame: bytes, or anything with a contiguous buffer, such as an mmap. Arrays in
            the value are views of it, writable if it is.
        allow_pickle: read what was written with pickle, which runs code of its choice. Only for
            frames that this machine wrote itself.

    Raises:
        FrameError: it is no frame, or one that was cut, damaged or made up; or it has pickle in it
            and that is not allowed.
        UnknownKind: it was written by a codec that is not registered here.
        CodecError: a codec could not read its bytes.
    """
    return _read(parse(raw), allow_pickle=allow_pickle)


def decode_parts(header: bytes, pieces: Sequence[memoryview], *, allow_pickle: bool = False) -> Any:
    """Return the value of a frame that is in pieces, as ``encode`` gives them; copies no buffer."""
    known = _ARRAYS.get(header)
    if known is not None and [len(one) for one in pieces] == [known[-1]]:
        from soma.frame.arrays import make_array

        return make_array(*known[:-1], pieces[0])
    parsed = parse_pieces(header, pieces)
    value = _read(parsed, allow_pickle=allow_pickle)
    if _is_one_array(parsed) and len(header) <= _REMEMBERED_BYTES:
        _, dtype, shape, order = parsed.tokens[0]
        if len(_ARRAYS) >= _REMEMBERED:
            _ARRAYS.clear()
        _ARRAYS[header] = dtype, tuple(shape), order, len(pieces[0])
    return value


_REMEMBERED_BYTES = 256
_REMEMBERED = 512
_ARRAYS: dict[bytes, tuple[str, tuple[int, ...], str, int]] = {}
"""Header of a frame that is one array -> dtype, shape, order and bytes: most come again."""


def _is_one_array(parsed: Parsed) -> bool:
    if len(parsed.tokens) != 1 or parsed.flags:
        return False
    token = parsed.tokens[0]
    return type(token) is list and token[0] == Code.ARRAY


def _read(parsed: Parsed, *, allow_pickle: bool) -> Any:
    if parsed.flags & FLAG_PICKLE and not allow_pickle:
        raise FrameError(
            "Some of this frame was written with pickle (codec(..., pickle=True)), which is read "
            "only from this machine's own store"
        )
    return _Reader(parsed, allow_pickle=allow_pickle).run()


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise FrameError(f"The frame has a count that is no count: {shown(value)}")
    return value


def _tuple_from(items: list[Any]) -> tuple[Any, ...]:
    return tuple(items)


def _set_from(items: list[Any]) -> set[Any]:
    made = set(items)
    _refuse_repeats(made, len(items))
    return made


def _frozenset_from(items: list[Any]) -> frozenset[Any]:
    made = frozenset(items)
    _refuse_repeats(made, len(items))
    return made


def _dict_from(items: list[Any]) -> dict[Any, Any]:
    made = dict(zip(items[::2], items[1::2], strict=True))
    _refuse_repeats(made, len(items) // 2)
    return made


def _refuse_repeats(made: Collection[Any], count: int) -> None:
    if len(made) != count:
        raise FrameError("The frame has a set or dict in which something stands twice")


def _list(reader: _Reader, count: int) -> Any:
    return reader.opened(count, lambda items: items)


def _tuple(reader: _Reader, count: int) -> Any:
    return reader.opened(count, _tuple_from)


def _set(reader: _Reader, count: int) -> Any:
    return reader.opened(count, _set_from)


def _frozenset(reader: _Reader, count: int) -> Any:
    return reader.opened(count, _frozenset_from)


def _dict(reader: _Reader, count: int) -> Any:
    return reader.opened(2 * _count(count), _dict_from)


def _packed(reader: _Reader, container: int, letter: str) -> Any:
    raw = reader.buffer()
    if letter == "?":
        if any(byte > 1 for byte in raw):
            raise FrameError("The frame has a packed bool that is neither 0 nor 1")
        items: list[Any] = list(map(bool, raw))
    elif letter in ("d", "q"):
        numbers = array(letter)
        numbers.frombytes(raw)
        if sys.byteorder == "big":
            numbers.byteswap()
        items = numbers.tolist()
    else:
        raise FrameError(f"The frame packs items of an unknown kind: {shown(letter)}")
    if len(items) < PACKED_ITEMS:
        raise FrameError(f"The frame packs {len(items)} items, which are too few to be packed")
    if container == Code.LIST:
        return items
    if container == Code.TUPLE:
        return tuple(items)
    raise FrameError(f"The frame packs an unknown container: {shown(container)}")


def _nan(reader: _Reader, raw: bytes) -> float:  # noqa: ARG001  # every reader has this form
    (number,) = struct.unpack("<d", raw)
    if number == number:  # noqa: PLR0124  # only NaN differs from itself
        raise FrameError("The frame has a NaN that is a number")
    return float(number)


def _text(reader: _Reader, raw: bytes | None) -> str:
    return (
        (reader.buffer() if raw is None else _raw(raw)).tobytes().decode("utf-8", "surrogatepass")
    )


def _bytes(reader: _Reader, raw: bytes | None) -> bytes:
    return bytes(reader.buffer() if raw is None else _raw(raw))


def _bytearray(reader: _Reader, raw: bytes | None) -> bytearray:
    return bytearray(reader.buffer() if raw is None else _raw(raw))


def _raw(value: Any) -> memoryview:
    if type(value) is not bytes:
        raise FrameError(f"The frame has a {type(value).__name__} where bytes belong")
    return memoryview(value)


def _complex(reader: _Reader, raw: bytes) -> complex:  # noqa: ARG001  # every reader has this form
    return complex(*struct.unpack("<dd", raw))


def _ellipsis(reader: _Reader) -> Any:  # noqa: ARG001  # every reader has this form
    return ...


def _range(reader: _Reader, start: int, stop: int, step: int) -> range:  # noqa: ARG001  # as above
    return range(start, stop, step)


def _slice(reader: _Reader) -> Any:
    return reader.opened(3, lambda parts: slice(*parts))


def _enum(reader: _Reader, module: str, name: str, member: str | None) -> Any:
    if not all(type(text) is str for text in (module, name)):
        raise FrameError("The frame names an Enum by something that is no name")
    return reader.opened(1, lambda items: _member_of(module, name, member, items[0]))


def _member_of(module: str, name: str, member: str | None, value: Any) -> Any:
    """Find the member, importing nothing; its value must be what it was."""
    cls = find_enum(module, name)
    if cls is None and module not in sys.modules:
        raise FrameError(
            f"This frame holds a member of {module}.{name}, and {module} is not imported here: "
            f"import {module}, then read it again"
        )
    if not (isinstance(cls, type) and issubclass(cls, enum.Enum)):
        raise FrameError(
            f"This frame holds a member of {module}.{name}, which is no Enum here. Define it in a "
            "module that every process can import"
        )
    found = cls.__members__.get(member or "")
    if found is None and issubclass(cls, enum.Flag):
        found = cls(value)
    if found is None or encode(found.value).digest != encode(value).digest:
        raise FrameError(
            f"This frame holds {module}.{name}.{member} = {shown(value)}, and the class here has "
            "no such member: it has changed since"
        )
    return found


def _array(reader: _Reader, dtype: str, shape: list[int], order: str) -> Any:
    from soma.frame import arrays

    return arrays.make_array(dtype, _shape(shape), _order(order, "CF"), reader.buffer())


def _scalar(reader: _Reader, dtype: str, raw: bytes) -> Any:  # noqa: ARG001  # as above
    from soma.frame import arrays

    return arrays.make_scalar(dtype, bytes(_raw(raw)))


def _objects(reader: _Reader, shape: list[int], order: str) -> Any:
    from math import prod

    from soma.frame import arrays

    dimensions = _shape(shape)
    _order(order, "CF")
    return reader.opened(
        prod(dimensions), lambda items: arrays.fill_objects(dimensions, order, items)
    )


def _records(reader: _Reader, dtype: str, shape: list[int], order: str) -> Any:
    from soma.frame import arrays

    dimensions = _shape(shape)
    _order(order, "CFS")

    def build(fields: list[Any]) -> Any:
        return arrays.join_fields(dtype, dimensions, order, fields)

    return reader.opened(arrays.count_fields(dtype), build)


def _shape(value: Any) -> tuple[int, ...]:
    if type(value) is not list or len(value) > _MAX_DIMENSIONS:
        raise FrameError(f"The frame has a shape that is no shape: {shown(value)}")
    return tuple(_count(one) for one in value)


def _order(value: Any, allowed: str) -> str:
    if type(value) is not str or len(value) != 1 or value not in allowed:
        raise FrameError(f"The frame has an order that is no order: {shown(value)}")
    return value


def _codec(reader: _Reader, kind: str, raw: bytes | None, cls: str | None = None) -> Any:
    _subclass(cls)
    payload = bytes(reader.buffer() if raw is None else _raw(raw))
    codec = read_kind(_kind(kind))
    return _loaded(kind, codec.load, payload)


def _codec_buffers(reader: _Reader, kind: str, count: int, cls: str | None = None) -> Any:
    _subclass(cls)
    codec = read_kind(_kind(kind))
    buffers = reader.several(count)
    load = codec.load_buffers
    if load is None:
        raise CodecError(
            f"These bytes of kind {kind!r} were written by dump_buffers, and the codec registered "
            f"by {codec.registered_by} has no load_buffers"
        )
    return reader.opened(1, lambda items: _loaded(kind, load, items[0], buffers))


def _pickle(reader: _Reader, kind: str, count: int) -> Any:
    if not (reader.allow_pickle and reader.flags & FLAG_PICKLE):
        raise FrameError("The frame has pickle in it and does not say so")
    stream, *outside = reader.several(count)
    return _loaded(_kind(kind), lambda: pickle.loads(stream, buffers=outside))  # noqa: S301  # asked for


def _subclass(name: Any) -> None:
    """Look at the name of a subclass, which is there to tell its hash from its base's."""
    if name is not None and type(name) is not str:
        raise FrameError(f"The frame has a class that is no class: {shown(name)}")


def _kind(value: Any) -> str:
    if type(value) is not str:
        raise FrameError(f"The frame has a kind that is no kind: {shown(value)}")
    return value


def _loaded(kind: str, load: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return load(*arguments)
    except Exception as error:
        raise CodecError(
            f"The codec of kind {kind!r} could not read its bytes: {describe_error(error)}"
        ) from error


_READERS: dict[int, Callable[..., Any]] = {
    Code.LIST: _list,
    Code.TUPLE: _tuple,
    Code.SET: _set,
    Code.FROZENSET: _frozenset,
    Code.DICT: _dict,
    Code.PACKED: _packed,
    Code.NAN: _nan,
    Code.TEXT: _text,
    Code.BYTES: _bytes,
    Code.BYTEARRAY: _bytearray,
    Code.COMPLEX: _complex,
    Code.ELLIPSIS: _ellipsis,
    Code.RANGE: _range,
    Code.SLICE: _slice,
    Code.ENUM: _enum,
    Code.ARRAY: _array,
    Code.SCALAR: _scalar,
    Code.OBJECTS: _objects,
    Code.RECORDS: _records,
    Code.CODEC: _codec,
    Code.CODEC_BUFFERS: _codec_buffers,
    Code.PICKLE: _pickle,
}
