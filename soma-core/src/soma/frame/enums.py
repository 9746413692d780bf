"""Enums by module and name, as frames name their members.

Reading a frame imports nothing: whoever reads one that another has written would import what the
other likes. A child process reads what its parent has written, whose code it runs in any case, and
says so (``may_import``). Classes that came by value stand in no module, and are noted here.
"""

from __future__ import annotations

import enum
import sys
from typing import Any
from weakref import WeakValueDictionary

__all__ = ["find_enum", "note_enum", "trust"]


class _Trust:
    may_import = False


_noted: WeakValueDictionary[tuple[str, str], type] = WeakValueDictionary()


def trust() -> None:
    """From now on modules that frames name are imported: for who runs the writer's code anyway."""
    _Trust.may_import = True


def note_enum(cls: type) -> None:
    """Let members of a class be found that came from elsewhere; nothing for other classes."""
    if issubclass(cls, enum.Enum):
        _noted[cls.__module__, cls.__qualname__] = cls


def find_enum(module: str, name: str) -> Any:
    """Return what stands under a name; None where the module is not imported and may not be."""
    noted = _noted.get((module, name))
    if noted is not None:
        return noted
    found: Any = sys.modules.get(module)
    if found is None and _Trust.may_import:
        from importlib import import_module

        try:
            found = import_module(module)
        except Exception:  # noqa: BLE001  # somebody else's module: whoever reads says what is missing
            return None
    for part in name.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found
