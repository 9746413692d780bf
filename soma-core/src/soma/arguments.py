"""What a filter was constructed with, kept although its class does not ask for it.

    Filter.__new__(cls, 3, cb=f) ──► kept in the object ──bound()──► {"n": 3}

Only plain values are kept, and anything else by the name of its type alone: a callback or a
connection that the class chose not to store must not be kept alive, or pickled, by us. The
arguments are bound to the signature when they are first asked for, which costs nothing to those
who never ask.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from soma._weak import remember_weakly
from soma.values import States

__all__ = [
    "ATTRIBUTE",
    "NotPlain",
    "bound",
    "capture",
    "is_captured",
    "own_kwargs",
    "parameter_names",
]

ATTRIBUTE = "_soma_arguments"
"""Where an object keeps them."""

_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
_DEPTH = 20


@dataclass(frozen=True, slots=True)
class NotPlain:
    """Stands for an argument that is no plain value."""

    type_name: str


def capture(instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Keep the arguments of a constructor call in the object."""
    if args or kwargs:
        # Bound to names when they are first asked for: it then becomes a dict.
        instance.__dict__[ATTRIBUTE] = (
            tuple(map(_plain, args)),
            {name: _plain(value) for name, value in kwargs.items()},
        )


def is_captured(node: Any) -> bool:
    """Say whether the arguments of this object's construction are known."""
    return getattr(type(node), "_soma_captures", False) is True


def bound(node: Any) -> dict[str, Any]:
    """Return parameter name -> argument, defaults filled in; ``NotPlain`` for some."""
    kept = node.__dict__.get(ATTRIBUTE, ((), {}))
    if type(kept) is dict:
        return dict(kept)
    found = _bind(node, *kept)
    node.__dict__[ATTRIBUTE] = found
    return dict(found)


def parameter_names(node: Any) -> tuple[str, ...] | None:
    """Return the names of the constructor's parameters; None where there may be any others."""
    return _names(type(node).__init__)


@remember_weakly
def _names(init: Any) -> tuple[str, ...] | None:
    signature = _signature(init)
    if signature is None:
        return None
    parameters = list(signature.parameters.values())[1:]
    if any(one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) for one in parameters):
        return None
    return tuple(one.name for one in parameters)


def _bind(node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    signature = _signature(type(node).__init__)
    if signature is None:
        return dict(kwargs)
    try:
        found = signature.bind(node, *args, **kwargs)
    except TypeError:  # made without its constructor: unpickled, or by a __new__ of its own
        return dict(kwargs)
    found.apply_defaults()
    named: dict[str, Any] = {}
    for parameter in list(signature.parameters.values())[1:]:
        value = found.arguments[parameter.name]
        if parameter.kind is parameter.VAR_KEYWORD:
            named |= value
        elif parameter.kind is not parameter.VAR_POSITIONAL or value:
            named[parameter.name] = _plain(value)
    return named


def own_kwargs(node: Any) -> bool:
    """Say whether the class overrides ``kwargs()``, and so says itself what it was made with."""
    return not getattr(getattr(type(node), "kwargs", None), "_soma_default", False)


def _plain(value: Any) -> Any:
    if type(value) is States:
        value = dict(value)
    return value if _is_plain(value, _DEPTH) else NotPlain(type(value).__qualname__)


def _is_plain(value: Any, depth: int) -> bool:
    cls = type(value)
    if cls in _ATOMS:
        return True
    if not depth:
        return False
    if cls is tuple or cls is list:
        return all(_is_plain(one, depth - 1) for one in value)
    if cls is dict:
        return all(
            _is_plain(key, depth - 1) and _is_plain(one, depth - 1) for key, one in value.items()
        )
    return False


@remember_weakly
def _signature(init: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(init)
    except (TypeError, ValueError):  # written in C
        return None
