"""Values of users as plain data: None, bool, int, float, text, and lists and dicts of these.

    (1, np.float32(2.5), {"a": Word.YES})   ──►   [1, 2.5, {"a": "yes"}]

Whatever comes out was made here, so that nothing the user changes later shows in it, and every
scalar is of exactly its built-in type. Scalars of numpy and of other libraries are known by their
``item`` and their empty ``shape``, so that no such library is imported for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soma.errors import shown

__all__ = ["MAX_DEPTH", "MAX_VALUES", "Wrong", "came", "copy_plain", "unwrapped"]

MAX_DEPTH = 50
"""Levels of lists and dicts, included."""
MAX_VALUES = 100_000
"""Values in one field: fifty levels of a list that holds one list twice would have no end."""

_PLAIN = "plain data (None, bool, int, float, text, or lists, tuples and dicts of these)"
_SCALARS = frozenset((type(None), bool, int, float, str))


class Wrong(Exception):
    """A value is not what it has to be; whoever knows event and field makes a sentence of it."""

    def __init__(self, expected: str, came: str, path: str = "") -> None:
        super().__init__(expected, came, path)
        self.expected = expected
        self.came = came
        self.path = path
        """Where in the field: ``"['a'][3]"``; empty for the field itself."""


def came(value: object) -> str:
    """Return what a message says of a value. Containers are not shown: they may be endless."""
    name = type(value).__name__
    if isinstance(value, list | tuple | set | frozenset | Mapping):
        return f"a {name}"
    return "None" if value is None else f"{shown(value)} ({name})"


def unwrapped(value: Any) -> Any:
    """Return a scalar as exactly its built-in type, and everything else as it is."""
    if type(value) in _SCALARS:
        return value
    # The methods of the built-in types: those of a subclass may say anything.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    try:
        found = value.item() if value.shape == () else value
    except Exception:  # noqa: BLE001  # no such thing, or somebody else's methods
        return value
    return found if type(found) in _SCALARS else value


def copy_plain(value: Any) -> Any:
    """Return a copy as plain data.

    Raises:
        Wrong: something in it is not plain, or it contains itself, or is too deep or too large.
    """
    return _Copy().of(value)


class _Copy:
    """One value on its way: where we are, and how much has been seen."""

    def __init__(self) -> None:
        self._path: list[object] = []
        self._open: set[int] = set()
        self._seen = 0

    def of(self, value: Any) -> Any:
        self._seen += 1
        if self._seen > MAX_VALUES:
            raise self._wrong(f"at most {MAX_VALUES} values", "more")
        value = unwrapped(value)
        if type(value) in _SCALARS:
            return value
        if not isinstance(value, list | tuple | Mapping):
            raise self._wrong(_PLAIN, came(value))
        if id(value) in self._open:
            raise self._wrong(_PLAIN, f"a {type(value).__name__} that contains itself")
        if len(self._path) >= MAX_DEPTH:
            raise self._wrong(f"plain data of at most {MAX_DEPTH} levels", "more")
        self._open.add(id(value))
        copied = self._dict(value) if isinstance(value, Mapping) else self._list(value)
        self._open.discard(id(value))
        return copied

    def _list(self, value: list[Any] | tuple[Any, ...]) -> list[Any]:
        return [self._inside(place, one) for place, one in enumerate(value)]

    def _dict(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        copied = {}
        for given, one in list(value.items()):
            key = unwrapped(given)
            if not isinstance(key, str):
                raise self._wrong("a dict whose keys are texts", f"the key {came(given)}")
            copied[key] = self._inside(key, one)
        return copied

    def _inside(self, step: object, value: Any) -> Any:
        self._path.append(step)
        copied = self.of(value)
        self._path.pop()
        return copied

    def _wrong(self, expected: str, what: str) -> Wrong:
        return Wrong(expected, what, "".join(f"[{shown(step)}]" for step in self._path))
