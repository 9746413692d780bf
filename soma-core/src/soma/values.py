"""What may stand on an edge beside plain values, and the states of a graph."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

__all__ = ["Opaque", "States", "summary"]


class Opaque:
    """Marks a value that exists only in this process: a connection, a tokenizer, a live model.

    Nodes receive the value itself. It is never taken apart: it can be kept or sent only if a codec
    is registered for its type, and otherwise passes through the process as it is.

    >>> Opaque({"a": 1}).value
    {'a': 1}
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        raise TypeError("An Opaque exists only in the process that made it, and is not pickled")

    def __deepcopy__(self, memo: dict[int, Any]) -> Opaque:
        return self  # it is never taken apart

    def __copy__(self) -> Opaque:
        return self

    def __repr__(self) -> str:
        return f"Opaque({type(self.value).__name__})"


class States(dict[str, Any]):
    """Node id -> what it learned: a dict that a notebook shows as a table.

    Where it is kept or hashed it counts as the dict that it is.
    """

    def _repr_html_(self) -> str:
        from soma._html import table  # which only notebooks need

        rows = [(id_, _described(state)) for id_, state in self.items()]
        return table(("node", "state"), rows, title=f"{len(self)} states")


def _described(value: Any) -> str:
    """Return type and size in words; of a dict with names, those of its items."""
    if type(value) is dict and value and len(value) <= _NAMED and all(map(_is_text, value)):
        return ", ".join(f"{name}: {_shown(one)}" for name, one in value.items())
    return _shown(value)


_NAMED = 20


def _is_text(value: object) -> bool:
    return type(value) is str


def _shown(value: Any) -> str:
    scalar = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    if scalar or type(value) in (bool, int, float):
        with suppress(ValueError):  # an int may be so large that Python does not write it
            return str(value)
    return summary(value)


def summary(made: Any) -> str:
    """Return type and size in words, and no value: an event may be written down anywhere."""
    name = type(made).__name__
    if type(made) in _SCALARS:
        return name
    try:
        shape = getattr(made, "shape", None)
        if isinstance(shape, tuple):
            dtype = getattr(made, "dtype", "")
            return f"{name} {dtype} {tuple(shape)}" if dtype else f"{name} {tuple(shape)}"
        return f"{name} of {len(made)}" if hasattr(type(made), "__len__") else name
    except Exception:  # noqa: BLE001  # somebody else's class
        return name


_SCALARS = frozenset((type(None), bool, int, float, complex))
