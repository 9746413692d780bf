"""How each kind of value is written: tables from type to a small function.

A function writes what can be written at once and returns an iterator over the parts; see canonical.
"""

from __future__ import annotations

import enum
import functools
import logging
import operator
import re
import struct
import types
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from soma.arguments import is_captured
from soma.codecs import find_codec
from soma.errors import shown
from soma.values import States

if TYPE_CHECKING:
    from soma.identity.canonical import Canon, Step

__all__ = ["CONTAINERS", "OBJECTS", "PLAIN", "configured", "write_numpy_scalar"]

_PACKED_ITEMS = 32
"""Items from which a list of numbers is written in one piece."""


def _int(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _nothing(value: Any) -> bytes:  # noqa: ARG001  # one value per type
    return b""


PLAIN: dict[type, Callable[[Any], bytes]] = {
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
    if len(value) >= _PACKED_ITEMS and _packed(canon, value):
        return iter(())
    _count(canon, type(value).__name__, len(value))
    return ((f"[{place}]", item) for place, item in enumerate(value))


def _packed(canon: Canon, value: Any) -> bool:
    """Write many floats, or many small ints, in one piece."""
    first = type(value[0])
    letter = {float: "d", int: "q"}.get(first)
    if letter is None or set(map(type, value)) != {first}:
        return False
    try:
        items = array(letter, value)
    except OverflowError:  # an int beyond 64 bits
        return False
    canon.emit(f"{type(value).__name__} of {letter}", items.tobytes())
    return True


def _dict(canon: Canon, value: Any) -> Iterator[Step]:
    canon.volatile = True
    _count(canon, type(value).__name__, len(value))
    if set(map(type, value)) <= {str}:
        ordered = sorted(value)
    else:
        written = sorted(((canon.sub(key), place) for place, key in enumerate(value)))
        keys = list(value)
        ordered = [keys[place] for _, place in written]
    for key in ordered:
        yield f"[{shown(key, 40)}]", key
        yield f"[{shown(key, 40)}]", value[key]


def _ordered_dict(canon: Canon, value: Any) -> Iterator[Step]:
    canon.volatile = True
    _count(canon, "OrderedDict", len(value))
    for key, item in value.items():
        yield f"[{shown(key, 40)}]", key
        yield f"[{shown(key, 40)}]", item


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


def _dataclass(canon: Canon, value: Any) -> Iterator[Step]:
    from soma.identity.config import config_items

    names = {one.name: getattr(value, one.name) for one in fields(value)}
    return _with_config(canon, value, dict(config_items(value)) | names)


def _with_config(canon: Canon, value: Any, config: dict[str, Any]) -> Iterator[Step]:
    canon.volatile = True
    around = canon.open.get(id(value))
    if around is not None:  # a part that refers to the whole it is in
        canon.emit("around", around.to_bytes(8, "little"))
        return iter(())
    return _object(canon, value, config)


def _object(canon: Canon, value: Any, config: dict[str, Any]) -> Iterator[Step]:
    canon.emit("object")
    yield "", type(value)
    for name, item in sorted(config.items()):
        canon.emit("attribute", name.encode("utf-8", "surrogatepass"))
        yield f".{name}", item


def _by_codec(canon: Canon, value: Any) -> Iterator[Step]:
    """Write what has a codec of its own: its class, whose methods a filter may call, and bytes."""
    canon.emit("coded")
    yield "", type(value)
    canon.by_frame(value, type(value))


def _counter(canon: Canon, value: Any) -> Iterator[Step]:
    canon.emit("Counter")
    yield "", dict(value)


def _deque(canon: Canon, value: Any) -> Iterator[Step]:
    canon.volatile = True
    canon.emit("deque")
    yield ".maxlen", value.maxlen
    yield "", list(value)


def _namespace(canon: Canon, value: Any) -> Iterator[Step]:
    canon.emit("namespace")
    yield "", vars(value)


def _fraction(canon: Canon, value: Any) -> Iterator[Step]:
    canon.emit("Fraction")
    yield "", (value.numerator, value.denominator)


def _pattern(canon: Canon, value: Any) -> Iterator[Step]:
    canon.emit("pattern")
    yield "", (value.pattern, value.flags)


def _getter(canon: Canon, value: Any) -> Iterator[Step]:
    canon.emit("getter")
    yield "", value.__reduce__()


def _dtype(canon: Canon, value: Any) -> Iterator[Step]:
    from soma.frame.arrays import describe_dtype

    canon.emit("dtype", describe_dtype(value).encode())
    return iter(())


def _acts_in_python(value: Any, cls: type) -> bool:  # noqa: ARG001  # its form
    """Say whether a class says in Python what calling its object, or reading it, does."""
    methods = (getattr(cls, name, None) for name in ("__call__", "__get__"))
    return any(isinstance(method, types.FunctionType) for method in methods)


def write_numpy_scalar(canon: Canon, value: Any) -> bool:
    """Write a numpy scalar, of which a list may have many; False if the value is none."""
    import numpy as np

    if not isinstance(value, np.generic) or value.dtype.hasobject or isinstance(value, np.void):
        return False
    from soma.frame.arrays import describe_scalar

    dtype, raw = describe_scalar(value)
    canon.emit(f"scalar {dtype}", raw)
    return True


def _is_dtype(value: Any, cls: type) -> bool:
    return cls.__module__.startswith("numpy") and hasattr(value, "isalignedstruct")


def _has_codec(value: Any, cls: type) -> bool:  # noqa: ARG001  # its form
    # A plugin's codec too, loaded or not: an identity may not depend on what ran before.
    return find_codec(cls) is not None


def _module(canon: Canon, value: types.ModuleType) -> Iterator[Step]:
    canon.emit("module", value.__name__.encode())
    return iter(())


def _logger(canon: Canon, value: logging.Logger) -> Iterator[Step]:
    canon.emit("logger", value.name.encode())
    return iter(())


def configured(canon: Canon, value: Any) -> Iterator[Step]:
    """Write an object as its class and its config."""
    from soma.identity.config import config_items

    return _with_config(canon, value, dict(config_items(value)))


def _nested(canon: Canon, value: Any) -> Iterator[Step]:
    """Write a node that another one holds: a filter by its config, anything else whole."""
    return configured(canon, value) if is_captured(value) else _whole(canon, value)


def _whole(canon: Canon, value: Any) -> Iterator[Step]:
    """Write an object as its class and all that it holds, under whatever names.

    A filter keeps to the rule that private attributes change no result; a spline or a module
    that is called does not.
    """
    return _with_config(canon, value, dict(_held_by(value)))


def _held_by(value: Any) -> Iterator[tuple[str, Any]]:
    cls = type(value)
    yield from dict(getattr(value, "__dict__", {})).items()  # which may change meanwhile
    slots = 0
    for base in cls.__mro__:
        for name, member in vars(base).items():
            if isinstance(member, types.MemberDescriptorType):
                slots += 1
                with suppress(AttributeError):  # it has no value
                    yield name, member.__get__(value)
    for plain in _BASES:
        if isinstance(value, plain):
            yield f"({plain.__name__})", plain(value)
            return
    if cls.__basicsize__ > object.__basicsize__ + _POINTER * (slots + _OWN_POINTERS):
        raise TypeError(f"a {cls.__qualname__} holds something that only C code can read")


_BASES: tuple[type, ...] = (bool, int, float, str, bytes, list, tuple, dict, set, frozenset)
_POINTER = struct.calcsize("P")
_OWN_POINTERS = 2
"""What an object of a Python class has beside its slots: __dict__ and __weakref__."""


CONTAINERS: dict[type, Callable[[Canon, Any], Iterator[Step]]] = {
    list: _sequence,
    tuple: _sequence,
    dict: _dict,
    States: lambda canon, value: _dict(canon, dict(value)),
    types.MappingProxyType: _dict,
    OrderedDict: _ordered_dict,
    defaultdict: _default_dict,
    set: _set,
    frozenset: _set,
    bytearray: _bytearray,
    range: _range,
    slice: _slice,
    functools.partial: _partial,
    Counter: _counter,
    deque: _deque,
    types.SimpleNamespace: _namespace,
    Fraction: _fraction,
    re.Pattern: _pattern,
    operator.itemgetter: _getter,
    operator.attrgetter: _getter,
    operator.methodcaller: _getter,
    functools.partialmethod: _partial,
}

OBJECTS: tuple[tuple[Callable[[Any, type], bool], Callable[[Canon, Any], Iterator[Step]]], ...] = (
    (lambda value, cls: isinstance(value, types.ModuleType), _module),  # noqa: ARG005  # its form
    (lambda value, cls: isinstance(value, logging.Logger), _logger),  # noqa: ARG005  # its form
    (lambda value, cls: isinstance(value, enum.Enum), _enum),  # noqa: ARG005  # its form
    (lambda value, cls: hasattr(cls, "__soma_config__"), configured),  # noqa: ARG005  # its form
    (_has_codec, _by_codec),
    (lambda value, cls: isinstance(value, tuple) and hasattr(cls, "_fields"), _named_tuple),
    (lambda value, cls: callable(getattr(cls, "forward", None)), _nested),  # noqa: ARG005  # its form
    (lambda value, cls: is_dataclass(cls), _dataclass),  # noqa: ARG005  # its form
    (_acts_in_python, _whole),
    (_is_dtype, _dtype),
)
"""(whether it is one, how it is written), asked in order."""
