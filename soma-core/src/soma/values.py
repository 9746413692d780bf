"""What may stand on an edge beside plain values."""

from __future__ import annotations

from typing import Any

__all__ = ["Opaque"]


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

    def __repr__(self) -> str:
        return f"Opaque({type(self.value).__name__})"
