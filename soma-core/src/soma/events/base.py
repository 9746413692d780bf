"""What an event is: a small frozen record that becomes plain data when somebody wants it so.

    NodeProgress(run_id="r", node_id="a", progress=0.5)
    {"event_type": "NodeProgress", "run_id": "r", "node_id": "a", "progress": 0.5}

The surprise: nothing is checked when an event is built, as the engine builds them while it works.
What comes from a user goes through ``make_event`` (making.py), which checks everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, ClassVar, Protocol, TypeVar, cast, dataclass_transform

__all__ = ["Event", "Metric", "UserEvent", "event"]

_SCALARS = frozenset((type(None), bool, int, float, str))
_LISTS = (list, tuple)
_NESTED = ("dict", "tuple", "Metric")
"""How the annotations start that say a field is not a scalar."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured number. A part of events, and no event itself."""

    name: str
    value: float
    """May be NaN or infinite."""
    step: int | None = None
    """Step at which it was measured; None where there are no steps."""
    timestamp: float | None = None
    """Seconds since the epoch."""


class _Reader(Protocol):
    """Read all fields of an event at once: an ``attrgetter``, which no class binds to itself."""

    def __call__(self, event: Any, /) -> tuple[Any, ...]: ...


class Event:
    """Something that happened. Two events are equal when they say the same."""

    __slots__ = ()

    event_type: ClassVar[str]
    """The name of the class: ``"NodeStarted"``. Of a ``UserEvent`` it is the user's own name."""
    # Written by the decorator below, once per class:
    _names: ClassVar[tuple[str, ...]]
    _read: ClassVar[_Reader]
    _nested: ClassVar[tuple[str, ...]]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that belongs to the caller: ``"event_type"``, then every field.

        Tuples become lists and a ``Metric`` a dict; nothing in it is shared with the event.
        """
        found = dict(zip(self._names, self._read(self), strict=True))
        for name in self._nested:
            value = found[name]
            found[name] = [] if value == () else _fresh(value)  # no passes: nearly always
        return found

    # Written once for all: what dataclasses generates for each class takes a millisecond.

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._read(self) == self._read(other)

    def __hash__(self) -> int:
        return hash(self._read(self))

    def __repr__(self) -> str:
        pairs = zip(self._names[1:], self._read(self)[1:], strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in pairs)})"


_E = TypeVar("_E", bound=Event)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def event(kind: type[_E]) -> type[_E]:
    """Make a class of events: a frozen dataclass with slots, all of whose fields have names."""
    made = dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)(kind)
    found = fields(cast("Any", made))
    names = tuple(one.name for one in found)
    made.event_type = made.__name__
    made._names = ("event_type", *names)  # noqa: SLF001  # the decorator completes the class
    made._read = attrgetter("event_type", *names)  # noqa: SLF001  # as above
    made._nested = tuple(one.name for one in found if str(one.type).startswith(_NESTED))  # noqa: SLF001  # as above
    return made


@dataclass(frozen=True, slots=True)
class UserEvent(Event):
    """An event of a user's own: any name, any plain data."""

    name: str
    fields: Mapping[str, Any]

    @property
    def event_type(self) -> str:  # type: ignore[override]  # here each event has one of its own
        """The name."""
        return self.name

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"event_type": name, **fields}`` as plain data that belongs to the caller."""
        return {"event_type": self.name, **_fresh(self.fields)}


def _fresh(value: Any) -> Any:
    """Return a copy as plain data; what is neither plain nor known is passed on as it is."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, _LISTS):
        return [_fresh(one) for one in value]
    if isinstance(value, Mapping):
        return {name: _fresh(one) for name, one in value.items()}
    if isinstance(value, Metric):
        return {
            "name": value.name,
            "value": value.value,
            "step": value.step,
            "timestamp": value.timestamp,
        }
    return value
