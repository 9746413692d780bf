"""What a call has changed on a filter in another process, changed on ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MemberDescriptorType
from typing import Any

__all__ = ["take_home"]


def take_home(node: Any, attributes: Mapping[str, Any], removed: Iterable[str] = ()) -> None:
    """Set attributes on a filter, and remove others, past whatever guards it has."""
    own = getattr(node, "__dict__", None)
    for name, value in attributes.items():
        if own is not None and not _is_slot(node, name):
            own[name] = value
        else:
            object.__setattr__(node, name, value)
    for name in removed:
        if own is not None and name in own:
            del own[name]
        else:
            with suppress(AttributeError):
                object.__delattr__(node, name)


def _is_slot(node: Any, name: str) -> bool:
    return any(isinstance(vars(cls).get(name), MemberDescriptorType) for cls in type(node).__mro__)
