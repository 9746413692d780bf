"""The config of a node: what it was set to, read when it runs.

Public attributes of the object, or what its ``__soma_config__()`` returns. Names that start with an
underscore are the object's own business, and so is what a cached property keeps.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

__all__ = ["config_items", "has_plain_config"]


def config_items(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of a node's config, in no particular order.

    Attributes in ``__slots__`` count as well; those without a value do not.
    """
    if getattr(type(node), "__soma_config__", None) is not None:
        yield "__soma_config__()", node.__soma_config__()
        return
    cached = _cached_names(type(node))
    for name, value in getattr(node, "__dict__", {}).items():
        if isinstance(name, str) and not name.startswith("_") and name not in cached:
            yield name, value
    for cls in type(node).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("_") and hasattr(node, name):
                yield name, getattr(node, name)


def _cached_names(cls: type) -> frozenset[str]:
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
        and all(type(name) is str for name in vars(node))
    )
