"""What code is the same: functions and classes as they are loaded, never as they stand in a file.

Of a code object everything counts but file name, line numbers and a function's own docstring; of a
function also defaults and closure; of a class its bases and attributes. Nothing is read back from
files: a file may have changed since, a class may be defined twice, two scripts may both have a
``__main__.Scale``. Files would answer wrongly in each of these cases.
"""

from __future__ import annotations

import dis
import enum
import functools
import os
import sys
import types
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

from soma.identity.canonical import Canon, Step

__all__ = [
    "CodeIn",
    "class_members",
    "class_parts",
    "dataclass_fields",
    "global_names",
    "is_by_name",
    "is_code",
    "is_foreign",
    "parts_of_code",
    "qualified_name",
    "version_of",
]

_DOCSTRING_FLAG = 0x4000000  # CO_HAS_DOCSTRING, Python 3.14
_GENERATED = "__create_fn__.<locals>."
"""Where dataclasses makes its methods: they follow from the fields, which count."""

_IGNORED = frozenset(
    {
        *("__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__"),
        *("__slots__", "__firstlineno__", "__static_attributes__", "__abstractmethods__"),
        *("__orig_bases__", "__parameters__", "__match_args__", "__annotate__"),
        *("__dataclass_fields__", "__dataclass_params__", "__annotate_func__"),
        *("__annotations_cache__", "_abc_impl", "__type_params__", "_cache_depends"),
    }
)
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


class CodeIn:
    """A code object, and the function it belongs to."""

    __slots__ = ("code", "owner")

    def __init__(self, code: types.CodeType, owner: types.FunctionType) -> None:
        self.code = code
        self.owner = owner


def qualified_name(entity: Any) -> str:
    """Return module and qualified name of a class or function."""
    module = getattr(entity, "__module__", None)
    name = getattr(entity, "__qualname__", None) or getattr(entity, "__name__", "?")
    return f"{module}.{name}"


def is_code(value: Any) -> bool:
    """Say whether a value counts as code: a function, a method, or something that wraps one."""
    return isinstance(value, _FUNCTION_LIKE) or callable(getattr(value, "__wrapped__", None))


def parts_of_code(canon: Canon, value: Any) -> Iterator[Step] | None:
    """Write a value that is code and return its parts; None if it is not code."""
    write = _BY_TYPE.get(type(value))
    if write is not None:
        return write(canon, value)
    if isinstance(value, type):
        return _class(canon, value)
    if callable(getattr(value, "__wrapped__", None)):
        return _wrapper(canon, value)
    if _is_named(value):
        return _by_name(canon, value)
    return None


def class_members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield (label, value) of what counts among a class's own attributes, sorted by name."""
    for name, value in sorted(vars(cls).items()):
        if name in _IGNORED or _is_generated(value):
            continue
        if is_code(value):
            yield f"method {name}", value
        elif name.startswith("__") and name.endswith("__"):
            continue  # what Python keeps there is no code
        elif isinstance(value, _SLOTS):
            continue
        elif not name.startswith("_") or _is_plain(value):
            yield f"class attribute {name}", value


def global_names(function: types.FunctionType) -> list[str]:
    """Return the names that a function's code looks up in its module, each once, in order."""
    found: dict[str, None] = {}
    stack = [function.__code__]
    while stack:
        code = stack.pop()
        for instruction in dis.get_instructions(code):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"):
                found[instruction.argval] = None
        stack += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return list(found)


def _code(canon: Canon, value: CodeIn) -> Iterator[Step]:
    code = value.code
    canon.emit("code", code.co_qualname.encode("utf-8", "surrogatepass"))
    numbers = (
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_stacksize,
        code.co_flags & ~_DOCSTRING_FLAG,
    )
    yield "", numbers
    yield "", code.co_code
    yield "", code.co_exceptiontable
    yield "", (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    hidden = _docstring_place(code), _first_line_place(code)
    for place, const in enumerate(code.co_consts):
        if place in hidden:
            canon.emit("hidden")
        else:
            yield "", CodeIn(const, value.owner) if isinstance(const, types.CodeType) else const


def _docstring_place(code: types.CodeType) -> int | None:
    """Return which constant is the docstring: a def may have one, a comprehension never."""
    if sys.version_info >= (3, 14):
        return 0 if code.co_flags & _DOCSTRING_FLAG else None
    is_def = code.co_flags & (0x01 | 0x02) == 0x03 and not code.co_name.startswith("<")  # noqa: PLR2004  # CO_OPTIMIZED and CO_NEWLOCALS
    has = is_def and code.co_consts and isinstance(code.co_consts[0], str | type(None))
    return 0 if has else None


def _first_line_place(code: types.CodeType) -> int | None:
    """Return which constant of a class body is its line number, which Python 3.13 keeps there."""
    if "__firstlineno__" not in code.co_names:
        return None
    previous = None
    for instruction in dis.get_instructions(code):
        if instruction.argval == "__firstlineno__" and previous is not None:
            return previous.arg if previous.opname == "LOAD_CONST" else None
        previous = instruction
    return None


def _function(canon: Canon, function: types.FunctionType) -> Iterator[Step]:
    if not canon.mark(function):
        return
    if is_foreign(function.__module__) and _is_reachable(function):
        canon.emit("named", qualified_name(function).encode("utf-8", "surrogatepass"))
        return
    canon.emit("function")
    canon.functions.append(function)
    yield "", CodeIn(function.__code__, function)
    yield ".__defaults__", function.__defaults__
    if function.__kwdefaults__:
        yield ".__kwdefaults__", tuple(sorted(function.__kwdefaults__.items()))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield f" (variable {name})", cell
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        yield ".__wrapped__", wrapped


def _cell(canon: Canon, cell: Any) -> Iterator[Step]:
    try:
        inside = cell.cell_contents
    except ValueError:  # a variable that has no value yet
        canon.emit("empty cell")
        return
    yield "", inside


def _method(canon: Canon, method: types.MethodType) -> Iterator[Step]:
    canon.emit("method")
    yield ".__func__", method.__func__
    yield ".__self__", method.__self__


def _class(canon: Canon, cls: type) -> Iterator[Step]:
    if not canon.mark(cls):
        return
    name = qualified_name(cls).encode("utf-8", "surrogatepass")
    if is_by_name(cls):
        canon.emit("named class", name)
        canon.emit("version", version_of(cls.__module__).encode())
        return
    canon.emit("class", cls.__qualname__.encode("utf-8", "surrogatepass"))
    if not is_by_name(type(cls)):
        yield "", type(cls)
    for base in cls.__bases__:
        yield "", base
    yield from class_parts(canon, cls)


def is_by_name(cls: type) -> bool:
    """Say whether a class counts by name: it is Python's, or Soma's, or has no Python code."""
    return (is_foreign(cls.__module__) and _is_reachable(cls)) or any(
        isinstance(value, _FROM_C)
        and cls in (_home(value, "__objclass__"), _home(value, "__self__"))
        for value in vars(cls).values()
    )


def _home(value: Any, attribute: str) -> Any:
    return getattr(value, attribute, None)


def class_parts(canon: Canon, cls: type) -> Iterator[Step]:
    """Write the own attributes of a class, one after another."""
    canon.classes.append(cls)
    if "__dataclass_fields__" in vars(cls):
        yield " (fields)", dataclass_fields(cls)
    if issubclass(cls, enum.Enum):
        yield " (members)", tuple((name, one.value) for name, one in cls.__members__.items())
    for label, value in class_members(cls):
        if issubclass(cls, enum.Enum) and not is_code(value):
            continue
        canon.emit(label)
        yield f" ({label})", value


def dataclass_fields(cls: type) -> tuple[Any, ...]:
    """Return what counts of a dataclass's fields, as values."""
    own = vars(cls)["__dataclass_fields__"].values()
    params = vars(cls).get("__dataclass_params__")
    marks = ("init", "compare", "hash", "repr", "kw_only")
    return (
        *(
            (one.name, str(one.type), _default(one.default), _default(one.default_factory))
            for one in own
        ),
        *(tuple(getattr(one, mark) for mark in marks) for one in own),
        *(getattr(params, name, None) for name in ("frozen", "eq", "order", "unsafe_hash")),
    )


def _default(value: Any) -> Any:
    import dataclasses

    return "(missing)" if value is dataclasses.MISSING else (value,)


def _by_name(canon: Canon, value: Any) -> Iterator[Step]:
    owner = getattr(value, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType | type):
        canon.emit("bound", value.__name__.encode())
        yield ".__self__", owner
        return
    canon.emit("named", qualified_name(value).encode("utf-8", "surrogatepass"))
    canon.emit("version", version_of(value.__module__).encode())
    if owner is not None and isinstance(owner, type):
        canon.emit("of", qualified_name(owner).encode("utf-8", "surrogatepass"))


def _attributes(canon: Canon, value: Any) -> Iterator[Step]:
    canon.emit(type(value).__name__)
    for name in _WRAPPERS[type(value)]:
        yield f".{name}", getattr(value, name, None)


def _wrapper(canon: Canon, value: Any) -> Iterator[Step]:
    canon.emit("wrapper", qualified_name(type(value)).encode())
    yield ".__wrapped__", value.__wrapped__


def _is_named(value: Any) -> bool:
    """Say whether a callable from C can be found again by module and name."""
    if isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
        return True
    return callable(value) and getattr(value, "__name__", None) is not None and _is_reachable(value)


def _is_reachable(entity: Any) -> bool:
    """Say whether module and qualified name lead to this very object.

    A class made by exec may say that it comes from builtins.
    """
    name = getattr(entity, "__qualname__", None) or entity.__name__
    # A numpy ufunc has a name and no module of its own.
    found: Any = sys.modules.get(getattr(entity, "__module__", None) or type(entity).__module__)
    for part in name.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found is entity


def _is_generated(value: Any) -> bool:
    inner = value
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    code = getattr(inner, "__code__", None)
    return code is not None and code.co_qualname.startswith(_GENERATED)


def _is_plain(value: Any) -> bool:
    """Say whether a value is immutable and plain all the way down."""
    stack = [value]
    while stack:
        one = stack.pop()
        if type(one) in (tuple, frozenset):
            stack += one
        elif type(one) not in _PLAIN:
            return False
    return True


@functools.cache
def is_foreign(module: str | None) -> bool:
    """Say whether a module belongs to Python itself or to Soma, whose names are enough."""
    top = (module or "").partition(".")[0]
    if top in ("soma", "somatize", "builtins"):
        return True
    if top not in sys.stdlib_module_names:
        return False
    origin = getattr(getattr(sys.modules.get(top), "__spec__", None), "origin", None)
    # A script of the user's may be called like a module of Python's, and stand before it.
    return origin in (None, "built-in", "frozen") or str(origin).startswith(_STDLIB)


@functools.cache
def version_of(module: str | None) -> str:
    """Return the version of the distribution that a module belongs to; empty if it has none."""
    top = (module or "").partition(".")[0]
    if is_foreign(module):
        return ""
    stated = getattr(sys.modules.get(top), "__version__", None)
    if isinstance(stated, str):
        return stated
    from importlib.metadata import packages_distributions, version

    owners = packages_distributions().get(top, ())
    return ",".join(version(owner) for owner in sorted(set(owners)))


_STDLIB = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120  # compared as text
_FROM_C = (types.MethodDescriptorType, types.WrapperDescriptorType, types.BuiltinFunctionType)
_WRAPPERS: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    functools.cached_property: ("func",),
    functools.singledispatchmethod: ("func",),
    types.GenericAlias: ("__origin__", "__args__"),
}
_SLOTS = (
    *(types.MemberDescriptorType, types.GetSetDescriptorType),
    type(vars(namedtuple("_Example", "field"))["field"]),  # noqa: PYI024  # its field is wanted
)
_FUNCTION_LIKE = (
    *(types.FunctionType, property, staticmethod, classmethod),
    *(functools.cached_property, functools.singledispatchmethod, functools.partialmethod),
)

_BY_TYPE: dict[type, Callable[[Canon, Any], Iterator[Step]]] = {
    CodeIn: _code,
    types.FunctionType: _function,
    types.MethodType: _method,
    types.CellType: _cell,
    types.GenericAlias: _attributes,
    **dict.fromkeys(_WRAPPERS, _attributes),
}
