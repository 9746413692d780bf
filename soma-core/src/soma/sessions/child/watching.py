"""What a call has changed on a filter, attribute by attribute.

    Watch(node) ──► ... call ... ──► look() ──► values of what changed, as one pickle

An attribute that is another object now has changed, and so has one whose pickle is another. So a
filter without lists, arrays or objects on it costs next to nothing to watch. What ``__getstate__``
leaves out has never travelled and does not travel back. A filter that holds itself, or a method of
its own, has not changed there because it has elsewhere.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from soma.engine.blobs import Blob
from soma.frame import hash_parts

__all__ = ["Changes", "Watch"]

_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes, type(...), range})
_FIXED = frozenset({tuple, frozenset})
_DEPTH = 8


@dataclass(slots=True)
class Changes:
    """What has changed since the last look."""

    blob: Blob | None = None
    """Name -> value of what is new or different, as a pickle; None where nothing is."""
    removed: list[str] = field(default_factory=list)
    """Names of attributes that are gone."""
    stays: list[str] = field(default_factory=list)
    """Names of those that are new or different and cannot be pickled."""
    inside: bool = False
    """Whether a private attribute is new or another object, be it an equal one."""


class Watch:
    """What was on a filter when it was last looked at."""

    __slots__ = ("_node", "_seen")

    def __init__(self, node: Any) -> None:
        self._node = node
        self._seen = {name: (one, _print_of(one, node)) for name, one in _attributes(node)}

    def look(self, *, shown: bool = True) -> Changes:
        """Return what has changed.

        Args:
            shown: whether the call has returned something; else what ``__getstate__`` leaves out
                may be all that it has done, and is told of.
        """
        before, now = self._seen, dict(_attributes(self._node))
        self._seen, changed, changes = {}, dict[str, Any](), Changes()
        for name, value in now.items():
            was, print_before = before.pop(name, (_NOTHING, None))
            changes.inside |= was is not value and name[:1] == "_"
            fixed = was is value and print_before == _FIXED_PRINT
            print_now = print_before if fixed else _print_of(value, self._node)
            self._seen[name] = value, print_now
            if was is value and print_now == print_before:
                continue
            if print_now is None:
                changes.stays.append(name)
            elif was is _NOTHING or _differ(was, print_before, value, print_now):
                changed[name] = value
        changes.removed = list(before)
        if changed or changes.stays:
            self._pack(changed, changes, shown=shown)
        return changes

    def _pack(self, changed: dict[str, Any], changes: Changes, *, shown: bool) -> None:
        left_out = _left_out(self._node)
        if shown:
            changes.stays = [name for name in changes.stays if name not in left_out]
        else:
            changes.stays += [name for name in changed if name in left_out]
        sent = {name: value for name, value in changed.items() if name not in left_out}
        if sent:
            from soma.pickling import dumps

            changes.blob = Blob(*dumps(sent))


_NOTHING: Any = object()
_FIXED_PRINT = "fixed"
"""Stands for the print of an object that cannot change."""


def _attributes(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object, those in slots as well."""
    yield from dict(getattr(node, "__dict__", {})).items()
    for cls in type(node).__mro__:
        slots = vars(cls).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            private = slot.startswith("__") and not slot.endswith("__")
            name = f"_{cls.__name__.lstrip('_')}{slot}" if private else slot
            if name in {"__dict__", "__weakref__"}:
                continue
            value = getattr(node, name, _NOTHING)
            if value is not _NOTHING:
                yield name, value


def _print_of(value: Any, node: Any) -> str | None:
    """Return what tells an object from what it was; None where nothing can."""
    if _is_fixed(value):
        return _FIXED_PRINT
    views = list[memoryview]()
    file = BytesIO()
    try:
        _Pickler(node, file, views).dump(value)
        return hash_parts(file.getvalue(), views)
    except Exception:  # noqa: BLE001  # a class that goes by value, or one that cannot go at all
        return _print_by_value(value)


class _Pickler(pickle.Pickler):
    """Writes what is on a filter, the filter itself left out."""

    def __init__(self, node: Any, file: BytesIO, views: list[memoryview]) -> None:
        super().__init__(file, 5, buffer_callback=lambda buffer: views.append(buffer.raw()))
        self._node = node

    def persistent_id(self, obj: Any) -> str | None:
        return "self" if obj is self._node else None


def _print_by_value(value: Any) -> str | None:
    from soma.pickling import dumps

    try:
        return hash_parts(*dumps(value))
    except Exception:  # noqa: BLE001  # whatever somebody's class raises when it is pickled
        return None


def _is_fixed(value: Any, depth: int = _DEPTH) -> bool:
    """Say whether nothing in an object can change."""
    cls = type(value)
    if cls in _ATOMS or isinstance(value, type):
        return True
    return cls in _FIXED and depth > 0 and all(_is_fixed(one, depth - 1) for one in value)


def _differ(was: Any, print_before: str | None, value: Any, print_now: str) -> bool:
    """Say whether one object differs from another that has taken its place."""
    if print_before != print_now:
        return True
    if print_now == _FIXED_PRINT:
        return type(was) is not type(value) or pickle.dumps(was) != pickle.dumps(value)
    return False


def _left_out(node: Any) -> frozenset[str]:
    """Return the names of attributes that ``__getstate__`` leaves out."""
    own: Any = type(node).__getstate__
    if own is object.__getstate__:
        return frozenset()
    state: Any = node.__getstate__()
    kept = set[str]()
    for part in state if isinstance(state, tuple) else (state,):
        if isinstance(part, Mapping):
            kept.update(part)
    names = {name for name, _ in _attributes(node)}
    return frozenset(names - kept) if kept else frozenset()
