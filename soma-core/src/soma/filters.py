"""The filter: a node that learns and transforms.

    fit(x, y) -> state            what was learned, returned, never kept on the object
    forward(x, state) -> value    the same input and state give the same value

Learning into the return value is what lets Soma keep, send and restore what was learned.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from soma.dsl import Chain, Composable
from soma.errors import InvalidFilter

__all__ = ["Filter", "check_filter", "is_trainable"]


class Filter(Composable):
    """Base class for nodes: gives ``>>``. Any object that defines the methods is a node as well.

    A subclass defines ``forward(self, x, state)``, and ``fit(self, x, y=None)`` if it learns.
    ``fit`` returns the state, which ``forward`` is handed; ``{}`` means that nothing was learned.
    Without ``fit`` the state is None.
    """

    _kind: ClassVar[str | None] = None
    """``"trainable"`` or ``"stateless"``; unset, a class that defines ``fit`` is trainable."""


def is_trainable(node: Any) -> bool:
    """Say whether the node has to be fitted before it can forward."""
    kind = getattr(node, "_kind", None)
    return callable(getattr(node, "fit", None)) if kind is None else kind == "trainable"


def check_filter(node: object) -> None:
    """Refuse what cannot be a node.

    Raises:
        InvalidFilter: it is a class rather than an object, it has no ``forward`` or is an
            effectful step (has ``poll``), its ``_kind`` is neither of the two words, it says that
            it learns and has no ``fit``, or a method cannot be called with its two values.
    """
    name = node.__name__ if isinstance(node, type) else type(node).__name__
    if isinstance(node, Chain):
        raise InvalidFilter(f"{node!r} is an expression of several nodes: Graph.somatize({node!r})")
    if isinstance(node, type):
        raise InvalidFilter(f"{name} is a class; a node is an object of it: {name}(...)")
    if callable(getattr(node, "poll", None)):
        raise InvalidFilter(
            f"{name} has poll(ctx), which makes it an effectful step, and steps cannot run in this "
            "release. A filter has forward(x, state) and no poll"
        )
    if not callable(getattr(node, "forward", None)):
        raise InvalidFilter(
            f"An object of class {name} cannot be a node: it has no forward(x, state) method. "
            "Define one, or wrap it in a class that does"
        )
    kind = getattr(node, "_kind", None)
    if kind not in (None, "trainable", "stateless"):
        raise InvalidFilter(
            f"{name}._kind is {kind!r}; it must be 'trainable' or 'stateless', or be left out"
        )
    if kind == "trainable" and not callable(getattr(node, "fit", None)):
        raise InvalidFilter(f"{name} says _kind = 'trainable' and has no fit(x, y) method")
    _check_takes(name, node, "forward", "(x, state)", "state is None where there is no fit")
    if is_trainable(node):
        _check_takes(name, node, "fit", "(x, y)", "y is None where there are no labels")


def _check_takes(name: str, node: Any, method: str, wanted: str, remark: str) -> None:
    """Refuse a method that cannot be called with two values."""
    try:
        signature = inspect.signature(getattr(node, method))
    except (TypeError, ValueError):  # written in C: it will show when it is called
        return
    try:
        signature.bind(None, None)
    except TypeError:
        raise InvalidFilter(
            f"{name}.{method} takes {signature}, and a node's {method} is called with {wanted}; "
            f"{remark}"
        ) from None
