"""Every type of event that Soma itself emits, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from soma.events import runs, studies, training
from soma.events.base import Event

__all__ = ["EVENT_TYPES"]

EVENT_TYPES: Mapping[str, type[Event]] = MappingProxyType(
    {name: getattr(room, name) for room in (runs, studies, training) for name in room.__all__}
)
"""``event_type`` -> class. A ``UserEvent`` is not among them: its type is what its user says."""
