"""What a call has changed on a filter, attribute by attribute.

An attribute has changed when it is another object, or when it can change in place and its pickle
is another. Pickles are compared with those of the same object before the call: two objects that
are equal may well have different ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from soma.arguments import ATTRIBUTE
from soma.engine.values import IMMUTABLE
from soma.errors import NotSendable
from soma.sessions import travel
from soma.sessions.travel import Packed

__all__ = ["Attributes", "Changes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is different now."""

    packed: Packed | None
    """Name -> value of what is new or another, as one pickle; None where nothing is."""
    removed: list[str]
    stays: list[str]
    """Names of what is new or another and cannot travel."""


class Attributes:
    """The attributes of one filter, as they were after the last look."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self._known = {name: (one, self._token(name, one)) for name, one in _attributes(node)}

    def changes(self, node_id: str) -> Changes:
        """Return what has changed since the last look, and look anew."""
        now = {name: (one, self._token(name, one)) for name, one in _attributes(self._node)}
        changed = {
            name: one for name, (one, token) in now.items() if not self._is_known(name, one, token)
        }
        removed = [name for name in self._known if name not in now]
        self._known = now
        stays = [name for name in changed if now[name][1] is None and not _is_plain(changed[name])]
        for name in stays:
            del changed[name]
        packed = travel.pack_value(changed, f"Node {node_id!r}") if changed else None
        return Changes(packed=packed, removed=removed, stays=stays)

    def _is_known(self, name: str, one: Any, token: str | None) -> bool:
        if name not in self._known:
            return False
        before, its_token = self._known[name]
        return before is one and its_token == token

    def _token(self, name: str, value: Any) -> str | None:
        """Return what stands for a value that can change in place; None where nothing does."""
        if _is_plain(value):
            return None
        try:
            return travel.pack_value(value, name).token
        except NotSendable:
            return None


def _is_plain(value: Any) -> bool:
    return type(value) in IMMUTABLE


def _attributes(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object has of its own, by name; functions have nothing that counts here."""
    if callable(node) and not hasattr(node, "forward"):
        return
    own = dict(getattr(node, "__dict__", ()))
    for cls in type(node).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(node, name):
                own[name] = getattr(node, name)
    own.pop(ATTRIBUTE, None)  # Soma's own
    yield from own.items()
