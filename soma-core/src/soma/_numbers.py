"""What counts as a whole number where a user gives one."""

from __future__ import annotations

TYPE_CHECKING = False  # typing alone would cost `import soma` 8 ms
if TYPE_CHECKING:
    from typing import Any

__all__ = ["whole_number"]


def whole_number(value: Any) -> int | None:
    """Return a whole number of any library as an int; None for anything else, bools included."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        return None
    try:
        return int(value.__index__())
    except TypeError:  # an array of several has the method, and no index
        return None
