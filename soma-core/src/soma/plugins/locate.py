"""Where a module lies, without importing it or its parents."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from typing import Any

__all__ = ["locate"]


def locate(name: str) -> ModuleSpec | None:
    """Return the spec of a module, or None where there is none.

    ``importlib.util.find_spec`` imports the parents on the way; here each parent is only looked at.
    """
    if name in sys.modules:
        return sys.modules[name].__spec__
    path: Any = None
    found: ModuleSpec | None = None
    so_far = ""
    for part in name.split("."):
        so_far = f"{so_far}.{part}" if so_far else part
        found = _ask_finders(so_far, path)
        if found is None:
            return None
        real = getattr(found.loader, "real", None)  # a second name of the family
        if real is not None:
            return locate(real + name[len(so_far) :])
        path = found.submodule_search_locations
        if path is None and so_far != name:
            return None  # a plain module has no submodules
    return found


def _ask_finders(name: str, path: Any) -> ModuleSpec | None:
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, path)
        except Exception:  # noqa: BLE001, S112  # a finder that fails has not found it
            continue
        if spec is not None:
            return spec
    return None
