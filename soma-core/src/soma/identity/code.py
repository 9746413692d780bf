"""What code is the same: functions and classes as they are loaded, never as they stand in a file.

Of a function its instructions count, with the constants, names and nested code that they use, its
defaults, closure and plain attributes; of a class its bases and attributes. File names, line
numbers and docstrings are no part of that. Nothing is read back from files: a file may have changed
since, a class may be defined twice, two scripts may both have a ``__main__.Scale``. Files would
answer wrongly in each of these cases.

What belongs to Python or to Soma counts by name, and what belongs to another installed package by
name and version, if that name really leads to it.
"""

from __future__ import annotations
import __future__

import dis
import enum
import functools
import types
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

from soma.identity.canonical import Canon, Step
from soma.identity.names import (
    is_foreign,
    is_library,
    is_reachable,
    local_name,
    qualified_name,
    version_of,
)
from soma.space import Dimension

__all__ = [
    "CodeIn",
    "class_members",
    "class_parts",
    "dataclass_fields",
    "global_names",
    "holds_code",
    "is_by_name",
    "is_code",
    "module_members",
    "parts_of_code",
]

_WITHOUT_MEANING = 0x4000000 | __future__.annotations.compiler_flag
"""Flags without a meaning for what runs: CO_HAS_DOCSTRING (Python 3.14), how annotations are."""
_GENERATED = "__create_fn__.<locals>."
"""Where dataclasses makes its methods: they follow from the fields, which count."""
_GENERATED_REPR = "recursive_repr.<locals>.decorating_function.<locals>.wrapper"

_IGNORED = frozenset(
    {
        *("__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__"),
        *("__slots__", "__firstlineno__", "__static_attributes__", "__abstractmethods__"),
        *("__orig_bases__", "__parameters__", "__match_args__", "__annotate__"),
        *("__dataclass_fields__", "__dataclass_params__", "__annotate_func__"),
        *("__annotations_cache__", "_abc_impl", "__type_params__", "_cache_depends", "_cache_env"),
        # They say what is kept and what fits together, and change no result.
        *("_cacheable", "_deterministic", "_uses_seed", "_input_schema", "_output_schema"),
        "_secret",  # what is not to be written down
    }
)
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


class CodeIn:
    """A code object, marked as code of a function."""

    __slots__ = ("code",)

    def __init__(self, code: types.CodeType) -> None:
        self.code = code


class Whole:
    """A module all of which counts."""

    __slots__ = ("module",)

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module


def is_code(value: Any) -> bool:
    """Say whether a value is a function, or Python's own wrapper of one."""
    return isinstance(value, _FUNCTION_LIKE)


def holds_code(value: Any) -> bool:
    """Say whether there is code in a value: a function or class, in containers and partials too."""
    stack, met = [value], 0
    while stack and met < _SEARCHED:
        one = stack.pop()
        met += 1
        if is_code(one) or isinstance(one, type):
            return True
        if isinstance(one, functools.partial):
            return True
        if isinstance(one, list | tuple | set | frozenset):
            stack += one
        elif isinstance(one, dict):
            stack += one.values()
    return False


def parts_of_code(canon: Canon, value: Any) -> Iterator[Step] | None:
    """Write a value that is code and return its parts; None if it is not code."""
    write = _BY_TYPE.get(type(value))
    if write is not None:
        return write(canon, value)
    if isinstance(value, type):
        return _class(canon, value)
    if callable(value) and not _is_called_in_python(value) and _is_named(value):
        return _by_name(canon, value)
    return None


def class_members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield (label, value) of what counts among a class's own attributes, sorted by name."""
    for name, value in sorted(vars(cls).items()):
        if name in _IGNORED or _is_generated(value) or isinstance(value, _SLOTS):
            continue
        if isinstance(value, Dimension):  # its value counts, as config; where it may lie does not
            continue
        if is_code(value):
            yield f"method {name}", value
        elif name.startswith("_"):
            # What is private may be a cache or a lock: it counts where it is fixed, or holds code.
            if _is_plain(value) or holds_code(value) or _is_descriptor(value):
                yield f"class attribute {name}", value
        else:
            yield f"class attribute {name}", value


def module_members(module: types.ModuleType) -> Iterator[str]:
    """Yield the names in a module that are its own: not what it imported from others."""
    for name, value in sorted(vars(module).items()):
        if name.startswith("__") and name.endswith("__"):
            continue
        is_definition = isinstance(value, type | types.FunctionType | types.BuiltinFunctionType)
        if isinstance(value, types.ModuleType):
            continue
        if not is_definition or value.__module__ == module.__name__:
            yield name


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
    yield (
        "",
        (
            code.co_argcount,
            code.co_posonlyargcount,
            code.co_kwonlyargcount,
            code.co_stacksize,
            code.co_flags & ~_WITHOUT_MEANING,
        ),
    )
    yield "", (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    yield "", code.co_exceptiontable
    instructions = list(dis.get_instructions(code))
    numbers: list[int] = []
    constants: list[Any] = []
    for place, one in enumerate(instructions):
        if one.opcode not in dis.hasconst:
            numbers += (one.opcode, one.arg or 0)
            continue
        # A constant is written where it is used: which number it has depends on the docstring.
        following = instructions[place + 1].argval if place + 1 < len(instructions) else None
        hidden = following == "__firstlineno__"  # a class body's line number, Python 3.13
        constants.append(_HIDDEN if hidden else code.co_consts[one.arg or 0])
        numbers += (one.opcode, 0)
    canon.emit("instructions", b"".join(number.to_bytes(5, "little") for number in numbers))
    for const in constants:
        yield "", CodeIn(const) if isinstance(const, types.CodeType) else const


def _function(canon: Canon, function: types.FunctionType) -> Iterator[Step]:
    if not canon.mark(function):
        return
    if _counts_by_name(canon, function):
        yield from _by_name(canon, function)
        return
    canon.emit("function")
    canon.functions.append(function)
    yield "", CodeIn(function.__code__)
    yield ".__defaults__", function.__defaults__
    if function.__kwdefaults__:
        yield ".__kwdefaults__", tuple(sorted(function.__kwdefaults__.items()))
    registry = getattr(function, "registry", None)
    if isinstance(registry, types.MappingProxyType) and hasattr(function, "dispatch"):
        yield (
            ".registry",
            _registered(registry),
        )  # functools.singledispatch, whose closure is a cache
    else:
        names = function.__code__.co_freevars
        for name, cell in zip(names, function.__closure__ or (), strict=True):
            yield f" (variable {name})", cell
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        yield ".__wrapped__", wrapped
    yield from _plain_attributes(function)


def _plain_attributes(function: types.FunctionType) -> Iterator[Step]:
    for name, value in sorted(vars(function).items()):
        if _is_plain(value) and not name.startswith("_"):
            yield f".{name}", (name, value)


def _registered(registry: Any) -> tuple[Any, ...]:
    return tuple(sorted(registry.items(), key=lambda item: qualified_name(item[0])))


def _dispatch_method(canon: Canon, method: Any) -> Iterator[Step]:
    canon.emit("singledispatchmethod")
    yield ".func", method.func
    yield ".registry", _registered(method.dispatcher.registry)


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
    if is_by_name(cls) or _counts_by_name(canon, cls):
        yield from _by_name(canon, cls)
        return
    canon.emit("class", local_name(cls).encode("utf-8", "surrogatepass"))
    if "_cache_version" in vars(cls):
        canon.classes.append(cls)
        yield "._cache_version", vars(cls)["_cache_version"]
        return
    if not is_by_name(type(cls)):
        yield "", type(cls)
    for base in cls.__bases__:
        yield "", base
    yield from class_parts(canon, cls)


def is_by_name(cls: type) -> bool:
    """Say whether a class counts by name: it is Python's, or Soma's, or has no Python code."""
    return (is_foreign(cls.__module__) and is_reachable(cls)) or any(
        isinstance(value, _FROM_C)
        and cls in (getattr(value, "__objclass__", None), getattr(value, "__self__", None))
        for value in vars(cls).values()
    )


def _counts_by_name(canon: Canon, entity: Any) -> bool:
    """Say whether a function or class is somebody else's, and its name leads to it."""
    module = entity.__module__
    if isinstance(entity, types.FunctionType):
        home = str(entity.__globals__.get("__name__"))
        if home.partition(".")[0] != str(module).partition(".")[0]:
            return False  # a wrapper that took over the name of what it wraps
    if not (is_foreign(module) or is_library(module, canon.home)):
        return False
    return is_reachable(entity)


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
    for one in vars(cls).get("_cache_depends", ()):
        yield " (dependency)", Whole(one) if isinstance(one, types.ModuleType) else one


def _whole(canon: Canon, whole: Whole) -> Iterator[Step]:
    canon.volatile = True
    canon.emit("whole module", whole.module.__name__.encode())
    for name in module_members(whole.module):
        canon.emit("name", name.encode())
        yield f" ({name})", vars(whole.module)[name]


def dataclass_fields(cls: type) -> tuple[Any, ...]:
    """Return what counts of a dataclass's fields, as values. Annotations do not."""
    own = vars(cls)["__dataclass_fields__"].values()
    params = vars(cls).get("__dataclass_params__")
    marks = ("init", "compare", "hash", "repr", "kw_only")
    return (
        *((one.name, str(one._field_type), _default(one)) for one in own),  # noqa: SLF001  # its kind
        *(tuple(_mark(getattr(one, mark)) for mark in marks) for one in own),
        *(getattr(params, name, None) for name in ("frozen", "eq", "order", "unsafe_hash")),
    )


def _default(field: Any) -> tuple[Any, ...]:
    import dataclasses

    # By type: a class that came by value from another process has a MISSING of its own.
    missing = type(dataclasses.MISSING).__name__
    both = (field.default, field.default_factory)
    return tuple("(missing)" if type(one).__name__ == missing else (one,) for one in both)


def _mark(value: Any) -> Any:
    return value if isinstance(value, bool) else None


def _by_name(canon: Canon, value: Any) -> Iterator[Step]:
    owner = getattr(value, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType | type):
        canon.emit("bound", value.__name__.encode())
        yield ".__self__", owner
        return
    canon.emit("named", qualified_name(value).encode("utf-8", "surrogatepass"))
    owner = getattr(value, "__objclass__", owner)  # that of str.upper, which has no module
    home = owner if isinstance(owner, type) else value
    module = getattr(home, "__module__", None) or type(home).__module__  # that of a ufunc
    canon.emit("version", version_of(module).encode())
    if isinstance(owner, type):
        canon.emit("of", qualified_name(owner).encode("utf-8", "surrogatepass"))


def _attributes(canon: Canon, value: Any) -> Iterator[Step]:
    canon.emit(type(value).__name__)
    for name in _WRAPPERS[type(value)]:
        yield f".{name}", getattr(value, name, None)


def _is_called_in_python(value: Any) -> bool:
    """Say whether calling the value runs a method that its class defines in Python."""
    return isinstance(getattr(type(value), "__call__", None), types.FunctionType)  # noqa: B004  # which one


def _is_named(value: Any) -> bool:
    """Say whether a callable from C can be found again by module and name."""
    if isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
        return True
    return isinstance(getattr(value, "__name__", None), str) and is_reachable(value)


def _is_descriptor(value: Any) -> bool:
    """Say whether reading the attribute runs a method that its class defines in Python."""
    return isinstance(getattr(type(value), "__get__", None), types.FunctionType)


def _is_generated(value: Any) -> bool:
    """Say whether dataclasses made this method."""
    if not isinstance(value, types.FunctionType):
        return False
    if value.__code__.co_qualname == _GENERATED_REPR:
        value = getattr(value, "__wrapped__", value)
    code = getattr(value, "__code__", None)
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


_HIDDEN = "(the number of a line)"
_SEARCHED = 10_000
"""Values among which code is looked for."""
_FROM_C = (types.MethodDescriptorType, types.WrapperDescriptorType, types.BuiltinFunctionType)
_WRAPPERS: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    functools.cached_property: ("func",),
    functools._lru_cache_wrapper: ("__wrapped__",),  # noqa: SLF001  # the type of a cached function
    types.GenericAlias: ("__origin__", "__args__"),
    types.UnionType: ("__args__",),
}
_SLOTS = (
    *(types.MemberDescriptorType, types.GetSetDescriptorType),
    type(vars(namedtuple("_Example", "field"))["field"]),  # noqa: PYI024  # its field is wanted
)
_FUNCTION_LIKE = (
    *(types.FunctionType, property, staticmethod, classmethod),
    *(functools.cached_property, functools.singledispatchmethod, functools.partialmethod),
    functools._lru_cache_wrapper,  # noqa: SLF001  # the type of a cached function
)

_BY_TYPE: dict[type, Callable[[Canon, Any], Iterator[Step]]] = {
    CodeIn: _code,
    Whole: _whole,
    types.FunctionType: _function,
    types.MethodType: _method,
    types.CellType: _cell,
    functools.singledispatchmethod: _dispatch_method,
    **dict.fromkeys(_WRAPPERS, _attributes),
}
