"""One writing for each value, so that what is the same hashes the same, in every process.

Every value is written with its type and its length: 1, 1.0, True and "1" differ, and no two values
have one writing. Members of dicts and sets are put in the order of their own writings. The walk is
iterative: each kind of value is a small generator that yields its parts, and a loop drives them, so
nesting costs no recursion.

Functions and classes are written as code (identity.code). What code has been met in this writing is
written as its position: functions and classes refer to each other in circles.
"""

from __future__ import annotations

import enum
import functools
import logging
import struct
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from blake3 import blake3

from soma.errors import CacheConfigError, CodecError

__all__ = ["MAX_NESTING", "Canon", "Step", "Unhashable"]

MAX_NESTING = 1000
"""How deep values may lie in each other, included."""

Step = tuple[str, Any]
"""(where it stands in its container, the value)"""

_SHOWN = 8
"""Steps of a path that a message shows."""


class Unhashable(CacheConfigError):
    """A value without a hash, and the path to it; caught by whoever knows what it belongs to."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class Canon:
    """The writing of one value."""

    def __init__(self, roots: tuple[type, ...] = ()) -> None:
        self.out = bytearray()
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []
        """What was met, kept so that no id is used twice."""
        self.volatile = False
        """Whether something was met that may change without becoming another object."""
        self.functions: list[types.FunctionType] = []
        """Functions whose code was written, in order: their names lead to other code."""
        self.classes: list[type] = []
        """Classes whose attributes were written."""
        for root in roots:
            self.mark(root)

    def digest(self) -> bytes:
        """Return the hash of what was written: 32 bytes."""
        return blake3(self.out).digest()

    def emit(self, tag: str, raw: bytes = b"") -> None:
        """Write one atom."""
        self.out += b"%b\0%b" % (tag.encode(), len(raw).to_bytes(8, "little"))
        self.out += raw

    def mark(self, entity: Any) -> bool:
        """Say whether the entity is new here; if it is not, write its position."""
        place = self.seen.get(id(entity))
        if place is not None:
            self.emit("seen", place.to_bytes(8, "little"))
            return False
        self.seen[id(entity)] = len(self.seen)
        self.kept.append(entity)
        return True

    def write(self, value: Any, where: str = "") -> Canon:
        """Write a value and everything in it.

        Raises:
            Unhashable: something in it has no hash; the path starts with ``where``.
        """
        stack: list[tuple[str, Iterator[Step]]] = []
        step: Step | None = (where, value)
        while step is not None:
            try:
                parts = self._parts(step[1])
                if parts is not None:
                    stack.append((step[0], parts))
                if len(stack) > MAX_NESTING:
                    raise Unhashable("", f"it nests deeper than {MAX_NESTING} values")
                step = _following(stack)
            except (CacheConfigError, CodecError) as error:
                raise _located(error, stack, step) from None
        return self

    def sub(self, value: Any) -> bytes:
        """Return the writing of a value on its own, for putting members in order."""
        canon = Canon()
        try:
            canon.write(value)
        except RecursionError:
            raise Unhashable("", "sets or keys nest too deep in each other") from None
        self.volatile |= canon.volatile
        self.functions += canon.functions
        self.classes += canon.classes
        self.kept += canon.kept
        return bytes(canon.out)

    def _parts(self, value: Any) -> Iterator[Step] | None:
        """Write what can be written at once; return the parts of what has some."""
        cls = type(value)
        plain = _PLAIN.get(cls)
        if plain is not None:
            self.emit(cls.__name__, plain(value))
            return None
        container = _CONTAINERS.get(cls)
        if container is not None:
            return container(self, value)
        return self._object(value, cls)

    def _object(self, value: Any, cls: type) -> Iterator[Step] | None:
        from soma.identity import code

        written = code.parts_of_code(self, value)
        if written is not None:
            return written
        for fits, write in _OBJECTS:
            if fits(value, cls):
                return write(self, value)
        self._by_frame(value, cls)
        return None

    def _by_frame(self, value: Any, cls: type) -> None:
        """Write the content hash: arrays, dates, paths, and whatever has a codec."""
        from soma.errors import MissingCodec
        from soma.frame import encode

        try:
            digest = encode(value).digest
        except MissingCodec:
            name = f"{cls.__module__}.{cls.__qualname__}"
            raise Unhashable("", f"it is a {name}, which has no hash") from None
        top = cls.__module__.partition(".")[0]
        if top not in _FIXED_TYPES and not (top == "numpy" and cls.__name__ != "ndarray"):
            self.volatile = True
        self.emit("content", bytes.fromhex(digest))


_FIXED_TYPES = frozenset({"datetime", "decimal", "pathlib", "uuid", "zoneinfo"})
"""Modules whose values never change."""


def _following(stack: list[tuple[str, Iterator[Step]]]) -> Step | None:
    """Return the next value to write, leaving what is finished."""
    while stack:
        step = next(stack[-1][1], None)
        if step is not None:
            return step
        stack.pop()
    return None


def _located(
    error: Exception, stack: list[tuple[str, Iterator[Step]]], step: Step | None
) -> Unhashable:
    """Say where in the whole value the trouble lies."""
    labels = [label for label, _ in stack]
    if step is not None and (not labels or labels[-1] != step[0]):
        labels.append(step[0])
    if len(labels) > _SHOWN:
        labels = [*labels[:_SHOWN], "..."]
    path = "".join(labels)
    if isinstance(error, Unhashable):
        return Unhashable(path + error.path, error.why)
    return Unhashable(path, str(error))


def _int(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _nothing(value: Any) -> bytes:  # noqa: ARG001  # one value per type
    return b""


_PLAIN: dict[type, Callable[[Any], bytes]] = {
    type(None): _nothing,
    type(...): _nothing,
    type(NotImplemented): _nothing,
    bool: lambda value: b"\1" if value else b"\0",
    int: _int,
    float: struct.Struct("<d").pack,
    complex: lambda value: struct.pack("<dd", value.real, value.imag),
    str: lambda value: value.encode("utf-8", "surrogatepass"),
    bytes: bytes,
}


def _count(canon: Canon, tag: str, count: int) -> None:
    canon.emit(tag, count.to_bytes(8, "little"))


def _sequence(canon: Canon, value: Any) -> Iterator[Step]:
    if type(value) is list:
        canon.volatile = True
    _count(canon, type(value).__name__, len(value))
    return ((f"[{place}]", item) for place, item in enumerate(value))


def _dict(canon: Canon, value: Any) -> Iterator[Step]:
    canon.volatile = True
    _count(canon, "dict", len(value))
    keyed = sorted((canon.sub(key), key) for key in value) if not _all_text(value) else None
    ordered = [key for _, key in keyed] if keyed is not None else sorted(value)
    for key in ordered:
        yield f"[{key!r:.40}]", key
        yield f"[{key!r:.40}]", value[key]


def _all_text(value: Any) -> bool:
    return set(map(type, value)) <= {str}


def _ordered_dict(canon: Canon, value: Any) -> Iterator[Step]:
    canon.volatile = True
    _count(canon, "OrderedDict", len(value))
    for key, item in value.items():
        yield f"[{key!r:.40}]", key
        yield f"[{key!r:.40}]", item


def _default_dict(canon: Canon, value: Any) -> Iterator[Step]:
    canon.emit("defaultdict")
    yield ".default_factory", value.default_factory
    yield "", dict(value)


def _set(canon: Canon, value: Any) -> Iterator[Step]:
    if type(value) is set:
        canon.volatile = True
    _count(canon, type(value).__name__, len(value))
    for raw in sorted(map(canon.sub, value)):
        canon.out += raw
    return iter(())


def _bytearray(canon: Canon, value: bytearray) -> Iterator[Step]:
    canon.volatile = True
    canon.emit("bytearray", bytes(value))
    return iter(())


def _range(canon: Canon, value: range) -> Iterator[Step]:
    canon.emit("range")
    return iter((("", value.start), ("", value.stop), ("", value.step)))


def _slice(canon: Canon, value: slice) -> Iterator[Step]:
    canon.emit("slice")
    return iter((("", value.start), ("", value.stop), ("", value.step)))


def _partial(canon: Canon, value: Any) -> Iterator[Step]:
    canon.emit(type(value).__name__)
    yield ".func", value.func
    yield ".args", value.args
    yield ".keywords", value.keywords


def _enum(canon: Canon, value: enum.Enum) -> Iterator[Step]:
    canon.emit("enum", str(value.name).encode())
    yield "", type(value)
    yield ".value", value.value


def _named_tuple(canon: Canon, value: Any) -> Iterator[Step]:
    _count(canon, "namedtuple", len(value))
    yield "", type(value)
    for name, item in zip(type(value)._fields, value, strict=True):
        yield f".{name}", item


def _with_config(canon: Canon, value: Any, config: Any) -> Iterator[Step]:
    canon.volatile = True
    canon.emit("object")
    yield "", type(value)
    yield "", config


def _dataclass(canon: Canon, value: Any) -> Iterator[Step]:
    canon.volatile = True
    canon.emit("dataclass")
    yield "", type(value)
    for one in fields(value):
        canon.emit("field", one.name.encode())
        yield f".{one.name}", getattr(value, one.name)


_CONTAINERS: dict[type, Callable[[Canon, Any], Iterator[Step]]] = {
    list: _sequence,
    tuple: _sequence,
    dict: _dict,
    types.MappingProxyType: _dict,
    OrderedDict: _ordered_dict,
    defaultdict: _default_dict,
    set: _set,
    frozenset: _set,
    bytearray: _bytearray,
    range: _range,
    slice: _slice,
    functools.partial: _partial,
    functools.partialmethod: _partial,
}


def _module(canon: Canon, value: types.ModuleType) -> Iterator[Step]:
    canon.emit("module", value.__name__.encode())
    return iter(())


def _logger(canon: Canon, value: logging.Logger) -> Iterator[Step]:
    canon.emit("logger", value.name.encode())
    return iter(())


def _configured(canon: Canon, value: Any) -> Iterator[Step]:
    from soma.identity.config import config_items

    return _with_config(canon, value, dict(config_items(value)))


_OBJECTS: tuple[tuple[Callable[[Any, type], bool], Callable[[Canon, Any], Iterator[Step]]], ...] = (
    (lambda value, cls: isinstance(value, types.ModuleType), _module),  # noqa: ARG005  # its form
    (lambda value, cls: isinstance(value, logging.Logger), _logger),  # noqa: ARG005
    (lambda value, cls: isinstance(value, enum.Enum), _enum),  # noqa: ARG005
    (lambda value, cls: isinstance(value, tuple) and hasattr(cls, "_fields"), _named_tuple),
    (lambda value, cls: hasattr(cls, "__soma_config__"), _configured),  # noqa: ARG005
    (lambda value, cls: callable(getattr(cls, "forward", None)), _configured),  # noqa: ARG005
    (lambda value, cls: is_dataclass(cls), _dataclass),  # noqa: ARG005
)
"""(whether it is one, how it is written), asked in order."""
