"""What cannot travel to another process: the error that says where it stands.

    Node 'a' (Scaler): self._pool.lock is a _thread.lock, which cannot travel to another process.

The pickler knows what it could not write; this walks from the root to it, the way a pickler goes,
nearest first: through state as ``__getstate__`` gives it, items, and what code by value leads to.
Walked only where pickling has failed.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from soma.errors import NotSendable, describe_error, shown
from soma.identity.code import global_names
from soma.identity.names import local_name
from soma.values import Opaque

__all__ = ["Subject", "find_path", "not_sendable"]

_SEARCHED = 200_000
"""Objects that are looked at."""
_PATH_SHOWN = 200
"""Characters of a path that are shown."""
_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes, bytearray, type(...)})
_ORDINARY = ("cannot pickle", "can't pickle", "Can't pickle", "An Opaque exists")
"""How errors begin that say no more than our own sentence."""

_Step = tuple[str, str, Any]
"""(path, what the path begins with, the object)"""


@dataclass(frozen=True, slots=True)
class Subject:
    """One of the things that were to travel."""

    label: str
    """How the message begins."""
    roots: tuple[tuple[str, Any], ...]
    """(how paths begin, object)"""
    advice: str
    """What to do about something in it that cannot travel."""


def not_sendable(
    error: BaseException, culprit: Any, subjects: Sequence[Subject], by_value: Container[int]
) -> NotSendable:
    """Return the error for what could not be pickled.

    Args:
        error: what pickling raised.
        culprit: what it was raised for.
        subjects: what was to be sent.
        by_value: ids of the functions, classes and modules that went by value.
    """
    labels = ", ".join(one.label for one in subjects)
    if isinstance(error, RecursionError) or isinstance(error.__cause__, RecursionError):
        return NotSendable(f"{labels}: it is nested too deeply to travel to another process")
    for again in (False, True):  # a __getstate__ may make it anew each time
        for subject in subjects:
            found = find_path(subject.roots, culprit, by_value, by_type=again)
            if found is not None:
                return NotSendable(_sentence(error, culprit, subject, found))
    return NotSendable(_sentence(error, culprit, Subject(labels, (), subjects[0].advice), None))


def _sentence(
    error: BaseException, culprit: Any, subject: Subject, found: tuple[str, str] | None
) -> str:
    path, origin = found or ("something in it", "")
    where = f"{path}, where {origin}," if origin else path
    reason = describe_error(error)
    known = reason.partition(": ")[2].startswith(_ORDINARY)
    why = "" if known else f" ({reason})"
    if type(culprit) is Opaque:
        return (
            f"{subject.label}: {where} is an Opaque, and exists only in the process that made it. "
            f"{subject.advice}"
        )
    return (
        f"{subject.label}: {where} is {_kind(culprit)}, which cannot travel to another process"
        f"{why}. {subject.advice}"
    )


def _kind(culprit: Any) -> str:
    if isinstance(culprit, type | FunctionType | BuiltinFunctionType):  # not found by its name
        return f"{type(culprit).__name__} {local_name(culprit)}"
    cls = type(culprit)
    name = local_name(cls)
    if cls.__module__ not in ("builtins", "__main__"):
        name = f"{cls.__module__}.{name}"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def find_path(
    roots: Sequence[tuple[str, Any]],
    culprit: Any,
    by_value: Container[int] = (),
    *,
    by_type: bool = False,
) -> tuple[str, str] | None:
    """Return where an object, or one of its type, stands: (path, what the path begins with).

    Only so many objects are looked at; None where it was not among them.
    """
    queue: deque[_Step] = deque((path, "", root) for path, root in roots)
    met: dict[int, Any] = {}  # holds them, so that no id is given away meanwhile
    while queue and len(met) < _SEARCHED:
        path, origin, value = queue.popleft()
        if value is culprit or (by_type and type(value) is type(culprit)):
            return (path if len(path) <= _PATH_SHOWN else f"{path[:_PATH_SHOWN]}...", origin)
        if id(value) in met:
            continue
        met[id(value)] = value
        with suppress(Exception):  # somebody else's __getstate__
            for step in _parts(path, origin, value, by_value):
                if type(step[2]) not in _ATOMS:
                    queue.append(step)
    return None


def _parts(path: str, origin: str, value: Any, by_value: Container[int]) -> Iterator[_Step]:
    """Yield what lies directly in a value."""
    if isinstance(value, FunctionType):
        if id(value) in by_value:
            yield from _of_function(path, origin, value)
    elif isinstance(value, type | ModuleType):
        if id(value) in by_value:
            yield from _of_namespace(path, origin, value)
    elif type(value) in (list, tuple, set, frozenset, dict):
        yield from _items(path, origin, value)
    elif isinstance(value, functools.partial):
        yield f"{path}.func", origin, value.func
        yield from _items(f"{path}.args", origin, value.args)
        yield from _items(f"{path}.keywords", origin, value.keywords)
        yield from _attributes(path, origin, vars(value))
    elif isinstance(value, MethodType):
        yield f"{path}.__self__", origin, value.__self__
        yield path, origin, value.__func__
    elif getattr(getattr(value, "dtype", None), "hasobject", False) and hasattr(value, "flat"):
        for place, item in enumerate(value.flat):
            yield f"{path}.flat[{place}]", origin, item
    else:
        yield from _of_object(path, origin, value)


def _of_function(path: str, origin: str, fn: FunctionType) -> Iterator[_Step]:
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        yield name, _begins(f"{name} is a variable that {path} closes over", origin), cell
    for name in global_names(fn):
        if name in fn.__globals__:
            begins = _begins(f"{name} is a global that {path} uses", origin)
            yield name, begins, fn.__globals__[name]
    yield from _items(f"{path}.__defaults__", origin, fn.__defaults__ or ())
    yield from _items(f"{path}.__kwdefaults__", origin, fn.__kwdefaults__ or {})
    yield from _items(f"{path}.__annotations__", origin, fn.__annotations__)
    yield from _attributes(path, origin, vars(fn))


def _begins(sentence: str, origin: str) -> str:
    return f"{sentence}, and {origin}" if origin else sentence


def _of_namespace(path: str, origin: str, owner: Any) -> Iterator[_Step]:
    """Yield what a module by value holds; or a class, which goes under its own name."""
    if isinstance(owner, type) and path != (name := local_name(owner)):
        path, origin = name, ""
    yield from _attributes(path, origin, vars(owner))
    for base in getattr(owner, "__bases__", ()):
        yield local_name(base), "", base


def _of_object(path: str, origin: str, value: Any) -> Iterator[_Step]:
    """Yield what an object is written as: what its class says, or its attributes."""
    from cloudpickle import Pickler  # pickling has failed, so it is here

    wrapper = Pickler.dispatch_table.get(type(value))  # a property, a cell of a closure, ...
    reduced: Any = wrapper(value) if wrapper is not None else value.__reduce_ex__(5)
    if not isinstance(reduced, tuple):
        return
    make, args, state, items, pairs = (*reduced, None, None, None)[:5]
    yield from _attributes_of_state(path, origin, state)
    for place, item in enumerate(items or ()):
        yield f"{path}[{place}]", origin, item
    for key, item in pairs or ():
        yield f"{path}[{shown(key)}]", origin, item
    yield path, origin, make
    for place, one in enumerate(args):
        is_plain = wrapper is not None or isinstance(one, type)
        yield path if is_plain else f"{path}.__reduce__()[1][{place}]", origin, one


def _attributes_of_state(path: str, origin: str, state: Any) -> Iterator[_Step]:
    if isinstance(state, dict):
        yield from _attributes(path, origin, state)
    elif (
        isinstance(state, tuple)
        and len(state) == 2  # noqa: PLR2004  # of __dict__ and of __slots__
        and isinstance(state[1], dict)
    ):
        for one in state:
            yield from _attributes(path, origin, one or {})
    elif state is not None:
        yield f"{path}.__getstate__()", origin, state


def _attributes(path: str, origin: str, names: Any) -> Iterator[_Step]:
    for name, value in names.items():
        yield f"{path}.{name}" if str(name).isidentifier() else f"{path}[{name!r}]", origin, value


def _items(path: str, origin: str, value: Any) -> Iterator[_Step]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{path}[{shown(key)}]", origin, item
            yield f"a key of {path}", origin, key
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield f"{path}[{place}]", origin, item
    else:
        for item in value:
            yield f"a member of {path}", origin, item
