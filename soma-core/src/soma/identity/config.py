"""The config of a node: what it was set to, read when it runs.

    public attributes
    + search dimensions, by their values
    + plain constructor arguments that the class keeps under no public name

or what its ``__soma_config__()`` returns. Names that start with an underscore are the object's own
business, and so is what a cached property keeps. An argument whose name is a public attribute
counts as that attribute, so that setting the attribute later gives the config of an object that was
constructed so.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from soma._weak import remember_weakly
from soma.arguments import NotPlain, bound, is_captured, own_kwargs, parameter_names
from soma.space import dimensions_of

__all__ = ["config_items", "has_plain_config"]


def config_items(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of a node's config, in no particular order.

    Attributes in ``__slots__`` count as well; those without a value do not.
    """
    if getattr(type(node), "__soma_config__", None) is not None:
        yield "__soma_config__()", node.__soma_config__()
        return
    public = dict(_attributes(node))
    yield from public.items()
    for name in dimensions_of(type(node)):
        if name not in public:
            yield name, getattr(node, name)
    if not is_captured(node):
        return
    arguments = node.kwargs() if own_kwargs(node) else _plain_arguments(node)
    for name, value in arguments.items():
        if name not in public:
            yield name, value


def _attributes(node: Any) -> Iterator[tuple[str, Any]]:
    cached = _cached_names(type(node))
    for name, value in dict(getattr(node, "__dict__", {})).items():  # it may change meanwhile
        if isinstance(name, str) and not name.startswith("_") and name not in cached:
            yield name, value
    for cls in type(node).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("_") and hasattr(node, name):
                yield name, getattr(node, name)


def _plain_arguments(node: Any) -> dict[str, Any]:
    return {name: one for name, one in bound(node).items() if not isinstance(one, NotPlain)}


@remember_weakly
def _cached_names(cls: Any) -> frozenset[str]:
    """Return the names under which cached properties keep what they computed."""
    return frozenset(
        name
        for base in cls.__mro__
        for name, value in vars(base).items()
        if isinstance(value, functools.cached_property)
    )


def has_plain_config(node: Any) -> bool:
    """Say whether the config is the public part of the node's ``__dict__`` and nothing else."""
    cls = type(node)
    return (
        hasattr(node, "__dict__")
        and not hasattr(cls, "__soma_config__")
        and not any(vars(base).get("__slots__") for base in cls.__mro__)
        and not _cached_names(cls)
        and not dimensions_of(cls)
        and all(type(name) is str for name in dict(vars(node)))
        and (not is_captured(node) or _arguments_are_public(node))
    )


def _arguments_are_public(node: Any) -> bool:
    names = parameter_names(node)
    if names is None:
        names = tuple(_plain_arguments(node))
    return not own_kwargs(node) and all(name in vars(node) for name in names)
