"""What a node is to the engine: how its methods are called, and what its class says of itself.

    traits_of(Scaler()) ──► Traits(label="Scaler", trainable=True, fit_takes={"rng"}, ...)

An object is a node if it has ``forward``; a function is one that has no state. What does not depend
on the single object (signatures) is looked at once per class.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from soma.dsl import Chain, Fork, Marked
from soma.errors import InvalidFilter, did_you_mean, shown
from soma.masking.declared import check_secret
from soma.schemas import check_schema

__all__ = ["Traits", "check_node", "label_of", "traits_of"]

_KINDS = (None, "trainable", "stateless")
_STREAM_MODES = ("fixed", "fixed_state", "evolving", "barrier")
FIT_EXTRAS = frozenset({"rng", "state", "epochs", "batch_size", "shuffle"})
"""What a fit may name beyond x and y."""
FORWARD_EXTRAS = frozenset({"rng"})
"""What a forward may name beyond x and state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What the engine has to know of a node."""

    label: str
    """Name of its class or function."""
    is_function: bool
    trainable: bool
    has_fit: bool
    differentiable: bool
    needs_y: bool
    """Its fit has no default for y."""
    fit_takes: frozenset[str]
    """What its fit names beyond x and y, of what there is to be had."""
    forward_takes: frozenset[str]
    cacheable: bool
    deterministic: bool
    uses_seed: bool
    input_schema: str | Mapping[str, Any] | None
    output_schema: str | Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class _Signatures:
    fit_takes: frozenset[str] = frozenset()
    forward_takes: frozenset[str] = frozenset()
    needs_y: bool = False


def label_of(node: Any) -> str:
    """Return the name of a node's class, or of the function."""
    if _is_function(node):
        inner = getattr(node, "func", node)  # a partial is called like what it wraps
        return str(getattr(inner, "__name__", None) or type(node).__name__)
    return type(node).__name__


def traits_of(node: Any) -> Traits:
    """Return what the engine has to know of a node. Objects of one class have one.

    Raises:
        InvalidFilter: as ``check_node``.
    """
    cls = type(node)
    known = _traits.get(cls)
    if known is not None and known[0] == _looks_like(node, cls):
        return known[1]
    signatures = check_node(node)
    found = _traits_of(node, signatures)
    if not found.is_function:
        _traits[cls] = (_looks_like(node, cls), found)
    return found


_traits: WeakKeyDictionary[type, tuple[Any, Traits]] = WeakKeyDictionary()


def _traits_of(node: Any, signatures: _Signatures) -> Traits:
    kind = getattr(node, "_kind", None)
    function = _is_function(node)
    has_fit = not function and callable(getattr(node, "fit", None))
    trainable = not function and _is_trainable(node, kind)
    stated = getattr(node, "_differentiable", None)
    learns_by_gradient = kind == "trainable" and not has_fit
    return Traits(
        label=label_of(node),
        is_function=function,
        trainable=trainable,
        has_fit=has_fit and trainable,
        differentiable=learns_by_gradient if stated is None else bool(stated),
        needs_y=signatures.needs_y,
        fit_takes=signatures.fit_takes,
        forward_takes=signatures.forward_takes,
        cacheable=bool(getattr(node, "_cacheable", True)),
        deterministic=bool(getattr(node, "_deterministic", True)),
        uses_seed=bool(getattr(node, "_uses_seed", True)),
        input_schema=getattr(node, "_input_schema", None),
        output_schema=getattr(node, "_output_schema", None),
    )


def check_node(node: Any) -> _Signatures:
    """Refuse what cannot be a node, and return what its methods take.

    Raises:
        InvalidFilter: it is a class rather than an object, it is neither callable nor has a
            ``forward``, it is an effectful step (has ``poll``), a class attribute has a value that
            means nothing, or a method cannot be called with its two values.
    """
    cls = type(node)
    known = _checked.get(cls)
    if known is not None and known[0] == _looks_like(node, cls):
        return known[1]
    found = _check(node)
    if not _is_function(node):
        _checked[cls] = (_looks_like(node, cls), found)
    return found


_checked: WeakKeyDictionary[type, tuple[Any, _Signatures]] = WeakKeyDictionary()


def _looks_like(node: Any, cls: type) -> Any:
    """Return what the check of a class depends on; equal to nothing where the object differs."""
    own = getattr(node, "__dict__", None)
    if own and not own.keys().isdisjoint(_ASKED):
        return object()  # checked every time
    return [id(getattr(cls, name, None)) for name in _ASKED]  # ids: it must hold no class alive


_ASKED = (
    *("forward", "fit", "poll", "build_module", "_kind", "_stream_mode", "_differentiable"),
    *("_cacheable", "_deterministic", "_uses_seed", "_input_schema", "_output_schema", "_secret"),
)
"""What is asked of a class; an object may have its own."""


def _check(node: Any) -> _Signatures:
    _check_kind_of_thing(node)
    name = type(node).__name__
    if _is_function(node):
        return _check_function(node)
    if not callable(getattr(node, "forward", None)):
        raise InvalidFilter(
            f"An object of class {name} cannot be a node: it has no forward(x, state) method. "
            "Define one, or wrap it in a class that does"
        )
    kind = getattr(node, "_kind", None)
    if kind not in _KINDS:
        raise InvalidFilter(
            f"{name}._kind is {kind!r}; it must be 'trainable' or 'stateless', or be left out"
        )
    mode = getattr(node, "_stream_mode", "fixed_state")
    if mode not in _STREAM_MODES:
        raise InvalidFilter(
            f"{name}._stream_mode is {shown(mode)}.{did_you_mean(str(mode), _STREAM_MODES)}"
        )
    check_secret(node)
    for attribute in ("_input_schema", "_output_schema"):
        check_schema(f"{name}.{attribute}", getattr(node, attribute, None))
    forward = _takes(name, node, "forward", "(x, state)", "state is None where there is no fit")
    if not (_is_trainable(node, kind) and callable(getattr(node, "fit", None))):
        return _Signatures(forward_takes=forward & FORWARD_EXTRAS)
    fit = _takes(name, node, "fit", "(x, y)", "y is None where there are no labels")
    return _Signatures(
        fit_takes=fit & FIT_EXTRAS,
        forward_takes=forward & FORWARD_EXTRAS,
        needs_y=_needs_second(node.fit),
    )


def _check_kind_of_thing(node: Any) -> None:
    """Refuse what is no object that could run."""
    name = node.__name__ if isinstance(node, type) else type(node).__name__
    if isinstance(node, Chain | Fork | Marked):
        raise InvalidFilter(f"{node!r} is an expression of several nodes: Graph.somatize({node!r})")
    if isinstance(node, list | tuple):
        raise InvalidFilter(
            f"A {name} is no node. For branches side by side: a.to([b, c]), or b | c"
        )
    if isinstance(node, type):
        raise InvalidFilter(f"{name} is a class; a node is an object of it: {name}(...)")
    if callable(getattr(node, "poll", None)):
        raise InvalidFilter(
            f"{name} has poll(ctx), which makes it an effectful step, and steps cannot run in this "
            "release. A filter has forward(x, state) and no poll"
        )


def _is_function(node: Any) -> bool:
    return callable(node) and not callable(getattr(node, "forward", None))


def _is_trainable(node: Any, kind: str | None) -> bool:
    if kind is not None:
        return kind == "trainable"
    return callable(getattr(node, "fit", None)) or callable(getattr(node, "build_module", None))


def _check_function(node: Any) -> _Signatures:
    name = label_of(node)
    check_secret(node)
    if callable(getattr(node, "fit", None)):
        raise InvalidFilter(
            f"An object of class {name} cannot be a node: it has fit and no forward(x, state) "
            "method. Define one, or wrap it in a class that does"
        )
    signature = _signature(node)
    if signature is None:
        return _Signatures()
    extras = frozenset(signature.parameters) & FORWARD_EXTRAS
    try:
        signature.bind(None, **dict.fromkeys(extras))
    except TypeError:
        raise InvalidFilter(
            f"The function {name} takes {signature}, and a node's function is called with its "
            "input alone: f(x). Bind the rest with functools.partial, or write a Filter"
        ) from None
    return _Signatures(forward_takes=extras)


def _takes(name: str, node: Any, method: str, wanted: str, remark: str) -> frozenset[str]:
    """Return the names that a method takes; refuse one that cannot be called with two values."""
    signature = _signature(getattr(node, method))
    if signature is None:
        return frozenset()
    extras = FIT_EXTRAS if method == "fit" else FORWARD_EXTRAS
    found = _beyond_two(signature)
    try:
        signature.bind(None, None, **dict.fromkeys(found & extras))
    except TypeError:
        known = ", ".join(sorted(extras))
        raise InvalidFilter(
            f"{name}.{method} takes {signature}, and a node's {method} is called with {wanted}; "
            f"{remark}. It may also name: {known}"
        ) from None
    return found


def _beyond_two(signature: inspect.Signature) -> frozenset[str]:
    """Return the parameters that can be given by name beside the two values."""
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = list(signature.parameters.values())
    return frozenset(
        one.name
        for place, one in enumerate(parameters)
        if one.kind in by_name and (place >= 2 or one.kind is one.KEYWORD_ONLY)  # noqa: PLR2004  # x and y or state
    )


def _needs_second(method: Any) -> bool:
    signature = _signature(method)
    parameters = list(signature.parameters.values())[1:2] if signature is not None else []
    return any(
        one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD for one in parameters
    )


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # written in C: it will show when it is called
        return None
