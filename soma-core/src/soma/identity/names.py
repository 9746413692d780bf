"""Names of classes and functions, and whether a name is enough to say what one does.

What belongs to Python or to Soma counts by name; what belongs to an installed package by name and
version; both only where the name really leads to the object.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

__all__ = [
    "is_foreign",
    "is_library",
    "is_reachable",
    "local_name",
    "module_name",
    "qualified_name",
    "version_of",
]

_STDLIB = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120  # compared as text


def module_name(entity: Any) -> str:
    """Return the module of a class or function; that of a spawned child's main is the main one."""
    name = getattr(entity, "__module__", None)
    return "__main__" if name == "__mp_main__" else str(name)


def qualified_name(entity: Any) -> str:
    """Return module and qualified name of a class or function."""
    return f"{module_name(entity)}.{local_name(entity)}"


def local_name(entity: Any) -> str:
    """Return a name from where it is local on: what travels by value loses the rest."""
    name = getattr(entity, "__qualname__", None) or getattr(entity, "__name__", "?")
    return str(name).rpartition("<locals>.")[2]


def is_reachable(entity: Any) -> bool:
    """Say whether module and qualified name lead to this very object.

    A class made by exec may say that it comes from builtins.
    """
    name = getattr(entity, "__qualname__", None) or entity.__name__
    # A numpy ufunc has a name and no module of its own.
    found: Any = sys.modules.get(getattr(entity, "__module__", None) or type(entity).__module__)
    for part in name.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found is entity


@functools.cache
def is_foreign(module: str | None) -> bool:
    """Say whether a module belongs to Python itself or to Soma, whose names are enough."""
    top = (module or "").partition(".")[0]
    if top in ("soma", "somatize", "builtins"):
        return True
    if top not in sys.stdlib_module_names:
        return False
    origin = getattr(getattr(sys.modules.get(top), "__spec__", None), "origin", None)
    # A script of the user's may be called like a module of Python's, and stand before it.
    return origin in (None, "built-in", "frozen") or str(origin).startswith(_STDLIB)


@functools.cache
def is_library(module: str | None, home: str) -> bool:
    """Say whether a module is part of an installed package other than ``home``."""
    top = (module or "").partition(".")[0]
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    installed = any(part in file for part in ("site-packages", "dist-packages"))
    return top != home and installed and bool(version_of(module))


@functools.cache
def version_of(module: str | None) -> str:
    """Return the version of the distribution that a module belongs to; empty if it has none."""
    top = (module or "").partition(".")[0]
    if is_foreign(module) or not top:
        return ""
    stated = getattr(sys.modules.get(top), "__version__", None)
    if isinstance(stated, str):
        return stated
    from importlib.metadata import packages_distributions, version

    owners = packages_distributions().get(top, ())
    return ",".join(version(owner) for owner in sorted(set(owners)))
