"""How one type is written down, under a kind.

    codec("myproject.Reading", Reading, dump=..., load=...)

    object in hand  ──type, most derived first──►  codec  ──dump──►  bytes, beside the kind
    bytes in hand   ──kind──────────────────────►  codec  ──load──►  object

A codec is registered by importing the module that calls ``codec``, which is best the module that
defines the type; or by a plugin, which is summoned by type name or by kind when it is first
needed. Both end in one table. Values that frames write natively (numbers, text, lists, arrays, ...)
never ask for a codec.
"""

from __future__ import annotations

import pickle as pickle_module
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from soma.errors import CodecError, MissingPackage, UnknownKind, UnknownName, did_you_mean
from soma.registry import Offer, default
from soma.specs import CodecSpec
from soma.values import Opaque

__all__ = [
    "NATIVE",
    "NATIVE_BY_NAME",
    "RESERVED_KIND",
    "RegisteredCodec",
    "codec",
    "codecs_registered",
    "find_codec",
    "full_name",
    "pickle_buffers",
    "read_kind",
    "registered",
]

RESERVED_KIND = "arrow.RecordBatch"
"""What an Arrow frame weighs is Arrow's own business: asked first, not listed, not to be taken."""

NATIVE = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, bytearray),
        *(list, tuple, set, frozenset, dict, range, slice, type(...), object, Opaque),
    }
)
"""Types that a frame writes by itself; no codec may be registered for them."""

NATIVE_BY_NAME = frozenset(
    {
        *("datetime.date", "datetime.time", "datetime.datetime", "datetime.timedelta"),
        *("datetime.timezone", "zoneinfo.ZoneInfo", "decimal.Decimal", "uuid.UUID"),
        *("pathlib.PosixPath", "pathlib.PurePosixPath"),
        *("pathlib.WindowsPath", "pathlib.PureWindowsPath"),
    }
)
"""The same, for types whose package is imported only when one is met: package and class name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredCodec:
    """One row of the table."""

    kind: str
    type: type
    type_name: str
    dump: Callable[[Any], bytes]
    load: Callable[[bytes], Any]
    dump_buffers: Callable[[Any], tuple[Any, Sequence[memoryview]]] | None = None
    load_buffers: Callable[[Any, Sequence[memoryview]], Any] | None = None
    pickle: bool = False
    """Written with pickle: for the local store only."""
    registered_by: str = ""
    """The module that called ``codec``, or the distribution of the plugin."""
    also: tuple[Any, ...] = ()
    """Further classes that it says it writes."""


_lock = threading.Lock()
_generation = 0
_by_kind: dict[str, RegisteredCodec] = {}
_by_type: dict[type, RegisteredCodec] = {}
_resolved: WeakKeyDictionary[type, RegisteredCodec | None] = WeakKeyDictionary()


def codec(
    kind: str,
    type: type,  # noqa: A002  # the word of the field, and of the contract
    *,
    dump: Callable[[Any], bytes] | None = None,
    load: Callable[[bytes], Any] | None = None,
    dump_buffers: Callable[[Any], tuple[Any, Sequence[memoryview]]] | None = None,
    load_buffers: Callable[[Any, Sequence[memoryview]], Any] | None = None,
    pickle: bool = False,
) -> None:
    """Say how objects of a type are written down.

    Args:
        kind: the name that stands beside the bytes for ever: called after the type, never after
            the run.
        type: the class. Objects of a subclass are written by the codec of the most derived class
            that has one.
        dump: ``dump(obj) -> bytes``. Equal objects give equal bytes, in every process.
        load: ``load(bytes) -> obj``.
        dump_buffers: ``dump_buffers(obj) -> (meta, [memoryview])``, used instead of ``dump``
            where given, so that nothing large is copied; ``meta`` is any value a frame can hold.
        load_buffers: ``load_buffers(meta, [memoryview]) -> obj``.
        pickle: write the type with pickle instead. Such bytes are kept in the local store only,
            are marked, and are never read from another machine. Whether equal objects have
            equal hashes is then up to pickle.

    Raises:
        CodecError: the kind is no name or is taken by another type, the type is no class or is
            written natively or has a kind already, or what should be called cannot be.
    """
    _check_kind(kind)
    _check_type(kind, type)
    _check_functions(kind, dump, load, dump_buffers, load_buffers, pickle=pickle)
    caller = sys._getframe(1).f_globals.get("__name__", "?")  # noqa: SLF001  # who registers it
    _register(
        RegisteredCodec(
            kind=kind,
            type=type,
            type_name=full_name(type),
            dump=dump if dump is not None else _no_bytes,
            load=load if load is not None else _no_bytes,
            dump_buffers=dump_buffers,
            load_buffers=load_buffers,
            pickle=pickle,
            registered_by=caller,
        )
    )


def codecs_registered() -> list[str]:
    """Return the kinds registered by ``codec`` or by a codec plugin, in order.

    A plugin's kinds appear when they are first needed.
    """
    return list(_by_kind)


def registered() -> tuple[RegisteredCodec, ...]:
    """Return the rows of the table, in order of registration."""
    return tuple(_by_kind.values())


def find_codec(cls: type) -> RegisteredCodec | None:
    """Return the codec that writes objects of a class, or None.

    The most derived class in the MRO that has a codec wins, be it registered here or offered by a
    plugin (which is loaded now).

    Raises:
        NameConflict: two plugins offer to write the type.
        BrokenPackage: the plugin that offers to does not import.
        CodecError: what it offers is no codec.
    """
    try:
        return _resolved[cls]
    except KeyError:
        pass
    generation = _generation
    found = None
    for base in cls.__mro__[:-1]:
        found = _by_type.get(base) or _summon_by_type(base)
        if found is not None:
            break
    with _lock:
        if generation == _generation:  # nobody has registered a codec meanwhile
            _resolved[cls] = found
    return found


def read_kind(kind: str) -> RegisteredCodec:
    """Return the codec of a kind; a plugin that offers it is loaded now.

    Raises:
        UnknownKind: nobody here reads that kind; the message says what to import or install.
        NameConflict: two plugins offer it.
        BrokenPackage: the plugin that offers it does not import.
    """
    known = _by_kind.get(kind)
    if known is not None:
        return known
    try:
        offer = default().find(kind, CodecSpec)
    except MissingPackage as error:
        raise UnknownKind(f"These bytes are of kind {kind!r}. {error}") from None
    except UnknownName:
        raise UnknownKind(
            f"These bytes are of kind {kind!r}, and nothing here says how to read them."
            f"{did_you_mean(kind, _by_kind)} Import the module that calls codec({kind!r}, ...), "
            "in every process that reads such values"
        ) from None
    return _register(_from_plugin(offer), from_plugin=True)


def full_name(cls: type) -> str:
    """Return module and qualified name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _register(new: RegisteredCodec, *, from_plugin: bool = False) -> RegisteredCodec:
    """Add a row, or let the codec of a plugin write one more of the types that its spec names."""
    global _generation  # noqa: PLW0603  # counts registrations, for find_codec
    # The lock is held for the tables alone: loading a plugin takes locks of its own.
    with _lock:
        old = _by_kind.get(new.kind)
        if old is not None and from_plugin:
            new, old = _widened(old, new), None
        if old is not None and old.type_name != new.type_name:
            raise CodecError(
                f"The kind {new.kind!r} belongs to {old.type_name} (registered by "
                f"{old.registered_by}), so {new.type_name} needs a kind of its own"
            )
        other = _by_type.get(new.type)
        if other is not None and other.kind != new.kind:
            raise CodecError(
                f"{new.type_name} is written under the kind {other.kind!r} already (registered by "
                f"{other.registered_by}). One type has one kind, so that equal values have one hash"
            )
        if old is not None:  # a notebook cell run twice: the class is new, its name is not
            _by_type.pop(old.type, None)
        _by_kind[new.kind] = new
        for cls in (new.type, *new.also):
            _by_type[cls] = new
        _resolved.clear()
        _generation += 1
        return new


def _widened(old: RegisteredCodec, new: RegisteredCodec) -> RegisteredCodec:
    if old.registered_by != new.registered_by:
        raise CodecError(
            f"The kind {old.kind!r} belongs to {new.registered_by}, which writes {new.type_name} "
            f"under it, and was registered by {old.registered_by} for {old.type_name}: that needs "
            "a kind of its own"
        )
    more = [cls for cls in (new.type,) if cls is not old.type and cls not in old.also]
    return replace(old, also=(*old.also, *more))


def _summon_by_type(cls: type) -> RegisteredCodec | None:
    name = full_name(cls)
    registry = default()
    if not any(name in offer.spec.aliases for offer in registry.offers(CodecSpec)):
        return None
    offer = registry.find(name, CodecSpec, by_alias=True)
    return _register(_from_plugin(offer, cls), from_plugin=True)


def _from_plugin(offer: Offer, cls: type | None = None) -> RegisteredCodec:
    """Turn the object behind a plugin's spec into a row."""
    found: Any = default().load(offer)
    kind = offer.spec.name
    where = f"The codec {kind!r} of {offer.dist} {offer.version}"
    for part in ("kind", "type_name", "dump", "load"):
        if not hasattr(found, part) or isinstance(found, type):
            raise CodecError(f"{where} is no codec object with {part!r}. See soma.contracts.Codec")
    if found.kind != kind:
        raise CodecError(f"{where} calls itself {found.kind!r}")
    own = cls if cls is not None else _class_named(found.type_name, where)
    return RegisteredCodec(
        kind=kind,
        type=own,
        type_name=full_name(own),
        dump=found.dump,
        load=found.load,
        dump_buffers=getattr(found, "dump_buffers", None),
        load_buffers=getattr(found, "load_buffers", None),
        registered_by=f"{offer.dist} {offer.version}",
    )


def _class_named(name: str, where: str) -> type:
    from importlib import import_module

    module, _, qualified = name.rpartition(".")
    while module:
        try:
            found: Any = import_module(module)
        except ModuleNotFoundError:
            module, _, outer = module.rpartition(".")
            qualified = f"{outer}.{qualified}"
            continue
        for part in qualified.split("."):
            found = getattr(found, part, None)
        if isinstance(found, type):
            return found
        break
    raise CodecError(f"{where} writes {name!r}, which is no class that can be imported")


def _check_kind(kind: object) -> None:
    if not (isinstance(kind, str) and kind and kind == kind.strip() and kind.isprintable()):
        raise CodecError(
            f"A kind is a text without surrounding blanks, called after the type "
            f"('myproject.Reading'), not {kind!r}"
        )
    if kind == RESERVED_KIND:
        raise CodecError(
            f"The kind {kind!r} is reserved: an Arrow frame is written by soma-arrow. "
            "Name yours after your type"
        )


def _check_type(kind: str, cls: object) -> None:
    if not isinstance(cls, type):
        raise CodecError(f"codec({kind!r}, ...): the type must be a class, not {cls!r}")
    if cls in NATIVE or _is_native_by_name(cls):
        raise CodecError(
            f"codec({kind!r}, ...): {full_name(cls)} is written natively and never asks for a "
            "codec. Register a class of your own"
        )


def _is_native_by_name(cls: type) -> bool:
    package = cls.__module__.partition(".")[0]
    if package == "numpy":
        own = cls.__name__ in ("ndarray", "memmap")
        return own or any(base.__name__ == "generic" for base in cls.__mro__)
    return f"{package}.{cls.__name__}" in NATIVE_BY_NAME


def _check_functions(kind: str, *functions: object, pickle: bool) -> None:
    dump, load, dump_buffers, load_buffers = functions
    names = ("dump", "load", "dump_buffers", "load_buffers")
    for name, function in zip(names, functions, strict=True):
        if function is not None and not callable(function):
            raise CodecError(f"codec({kind!r}, ...): {name} must be a function, not {function!r}")
    if (dump_buffers is None) != (load_buffers is None):
        raise CodecError(
            f"codec({kind!r}, ...): dump_buffers and load_buffers come together or not at all"
        )
    if pickle and any(function is not None for function in functions):
        raise CodecError(f"codec({kind!r}, ...): with pickle=True there is nothing to give it")
    whole = (dump is not None and load is not None) or (
        dump is None and load is None and dump_buffers is not None
    )
    if not pickle and not whole:
        raise CodecError(f"codec({kind!r}, ...): give dump=(obj -> bytes) and load=(bytes -> obj)")


def _no_bytes(_: Any) -> Any:
    raise CodecError("This codec writes buffers only")  # a frame never calls it


PICKLE_PROTOCOL = 5
"""Fixed, so that the bytes do not change with the interpreter's default."""


def pickle_buffers(obj: Any) -> list[memoryview]:
    """Return the pickle of an object: the stream, then its large buffers, uncopied."""
    outside: list[pickle_module.PickleBuffer] = []
    stream = pickle_module.dumps(obj, protocol=PICKLE_PROTOCOL, buffer_callback=outside.append)
    return [memoryview(stream), *(one.raw() for one in outside)]
