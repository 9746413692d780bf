"""Where an object stands in a value: the path that an error message names. Walked only for that."""

from __future__ import annotations

import enum
from typing import Any

from soma.errors import shown
from soma.frame.layout import MAX_NESTING
from soma.values import Opaque

__all__ = ["find_path"]

_PATH_SHOWN = 200
"""Characters of a path that are shown."""


def find_path(root: Any, wanted: Any, *, again: bool = False) -> str:
    """Return where an object stands in a value; with ``again``, where it stands once more."""
    stack: list[tuple[Any, str, tuple[int, ...]]] = [(root, "value", ())]
    while stack:
        value, path, above = stack.pop()
        if value is wanted and (not again or id(value) in above):
            return path if len(path) <= _PATH_SHOWN else f"{path[:_PATH_SHOWN]}..."
        if id(value) in above or len(above) > MAX_NESTING + 1:
            continue
        inside = (*above, id(value))
        for before, behind, item in reversed(_items_of(value)):
            stack.append((item, f"{before}{path}{behind}", inside))
    return "something in the value"


def _items_of(value: Any) -> list[tuple[str, str, Any]]:  # noqa: PLR0911  # one per kind
    """Return (what stands before the path, what behind it, item) of what lies in a value."""
    if isinstance(value, dict):
        items = [("", f"[{shown(key)}]", item) for key, item in value.items()]
        return items + [("a key of ", "", key) for key in value]
    if isinstance(value, list | tuple):
        return [("", f"[{place}]", item) for place, item in enumerate(value)]
    if isinstance(value, set | frozenset):
        return [("a member of ", "", item) for item in value]
    if isinstance(value, slice):
        return [("", f".{name}", getattr(value, name)) for name in ("start", "stop", "step")]
    if isinstance(value, enum.Enum | Opaque):
        return [("", ".value", value.value)]
    dtype: Any = getattr(value, "dtype", None)
    if getattr(dtype, "hasobject", False):
        if dtype.names is not None:
            return [("", f"[{name!r}]", value[name]) for name in dtype.names]
        return [("", f".flat[{place}]", item) for place, item in enumerate(value.flat)]
    return []
