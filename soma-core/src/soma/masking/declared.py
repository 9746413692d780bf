"""What a class says is secret, and its constructor arguments without that."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable
from contextlib import suppress
from types import MemberDescriptorType
from typing import Any

from soma._weak import remember_weakly
from soma.arguments import NotPlain, bound, is_captured, parameter_names
from soma.errors import InvalidFilter, did_you_mean, shown
from soma.masking.mask import HIDDEN

__all__ = ["arguments_of", "attributes_of", "check_secret", "holds_secrets", "secret_names"]

_LONGEST_TEXT = 200
_MOST_ITEMS = 20
_ATOMS = (type(None), bool, int, float)
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, range, type(...)})
_MOST_LOOKED_AT = 1000
_DEEPEST = 20
_NONE: frozenset[str] = frozenset()


def secret_names(node: Any) -> frozenset[str]:
    """Return the names that an object, its class and the bases of that call secret."""
    cls = type(node)
    own = attributes_of(
        node.func if cls is functools.partial else node
    )  # of a function, its attributes
    found: list[Any] = []
    for names in (own.get("_secret"), *[base.__dict__.get("_secret") for base in cls.__mro__]):
        if names and isinstance(names, tuple | list):
            found += names
    return frozenset([name for name in found if isinstance(name, str)]) if found else _NONE


def holds_secrets(value: Any) -> bool:
    """Say whether something in a value has secrets of its own; objects in objects are looked at.

    What lies deeper than anybody writes, or among thousands of others, counts as such.
    """
    stack, left = [(value, 0)], _MOST_LOOKED_AT
    while stack:
        one, depth = stack.pop()
        if type(one) in _PLAIN or isinstance(one, type):
            continue
        left -= 1
        if secret_names(one) or not left or depth > _DEEPEST:
            return True
        stack += [(inner, depth + 1) for inner in _held(one)]
    return False


def _held(one: Any) -> Iterable[Any]:
    """Return what an object holds, as far as it is seen without running code of its class."""
    if type(one) in (list, tuple, set, frozenset):
        return list(one)
    if type(one) is dict:
        return list(one.values())
    if type(one) is functools.partial:
        return [one.func, *one.args, *one.keywords.values()]
    if inspect.isroutine(one) or inspect.ismodule(one):
        return ()
    return list(attributes_of(one).values())


def check_secret(node: Any) -> None:
    """Refuse a ``_secret`` that hides nothing, as a misspelt one would.

    Raises:
        InvalidFilter: it is no tuple of names, or there is no such argument or attribute.
    """
    cls = type(node)
    label = getattr(node, "__name__", cls.__name__)
    for base in cls.__mro__:
        stated = vars(base).get("_secret", ())
        if not isinstance(stated, tuple | list) or not all(isinstance(n, str) for n in stated):
            raise InvalidFilter(
                f"{base.__name__}._secret is {type(stated).__name__} and must be a tuple of the "
                'names of constructor arguments: _secret = ("token",)'
            )
    names = secret_names(node)
    known = _nameable(node) if names else None
    if known is None:
        return
    for name in names:
        if name not in known:
            raise InvalidFilter(
                f"{label}._secret names {shown(name)}, which is no argument of it, so that nothing "
                f"would be hidden.{did_you_mean(name, known)}"
            )


def _nameable(node: Any) -> frozenset[str] | None:
    """Return what ``_secret`` may name; None where there may be any arguments."""
    if isinstance(node, functools.partial) or inspect.isroutine(node):
        inner = node.func if isinstance(node, functools.partial) else node
        try:
            return frozenset(inspect.signature(inner).parameters)
        except (TypeError, ValueError):  # written in C
            return None
    own = {
        spelt
        for name in attributes_of(node)
        for spelt in (name, name.lstrip("_").rpartition("__")[2])
    }
    if not is_captured(node):
        return frozenset(own)
    parameters = parameter_names(node)
    return None if parameters is None else frozenset({*parameters, *own})


def arguments_of(node: Any) -> dict[str, Any]:
    """Return name -> constructor argument as plain data, secret ones hidden.

    Where the object has a public attribute of that name, its present value. Of an object whose
    construction nobody saw, its public attributes; of a partial, what it binds by name.
    """
    own, hidden = attributes_of(node), secret_names(node)
    if isinstance(node, functools.partial):
        given = node.keywords
    elif is_captured(node):
        given = bound(node)
    else:
        given = {name: value for name, value in own.items() if name[:1] != "_"}
    return {
        name: HIDDEN if name in hidden else _described(own.get(name, value))
        for name, value in given.items()
    }


def attributes_of(node: Any) -> dict[str, Any]:
    """Return the attributes of an object, those in slots included."""
    own = getattr(node, "__dict__", None)
    found = own if isinstance(own, dict) else {}
    for name, slot in _slots(type(node)):
        with suppress(AttributeError):  # it has no value yet
            found = {name: slot.__get__(node), **found}
    return found


@remember_weakly
def _slots(cls: type) -> tuple[tuple[str, MemberDescriptorType], ...]:
    return tuple(
        (name, one)
        for base in reversed(cls.__mro__)
        if "__slots__" in vars(base)
        for name, one in vars(base).items()
        if isinstance(one, MemberDescriptorType)
    )


def _described(value: Any) -> Any:
    """Return plain data as it is where it is short, and in words what is not."""
    if isinstance(value, NotPlain):
        return f"<{value.type_name.rpartition('.')[2]}>"
    if type(value) in _ATOMS:
        return value
    if type(value) is str:
        return value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}…"
    if type(value) in (list, tuple) and len(value) <= _MOST_ITEMS and _is_flat(value):
        return list(value)
    if type(value) in (list, tuple, dict, set, frozenset, bytes):
        return f"<{type(value).__name__} of {len(value)}>"
    return f"<{type(value).__name__}>"


def _is_flat(values: Iterable[Any]) -> bool:
    return all(
        type(one) in _ATOMS or (type(one) is str and len(one) <= _LONGEST_TEXT) for one in values
    )
