"""``Scaler() >> Pca() >> Classifier()``: what is written before there is a graph.

An expression only remembers what was written and in which order. It becomes nodes and edges in
``Graph.somatize``, where ids are given: each object written is one node, the same object written
twice is two.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Chain", "Composable"]


class Composable:
    """Whatever may stand beside ``>>``."""

    def __rshift__(self, other: object) -> Chain:
        """Return the chain in which ``other`` comes after this."""
        return Chain(*_parts(self), *_parts(other))

    def __rrshift__(self, other: object) -> Chain:
        """Return the chain in which ``other``, an object of any class, comes before this."""
        return Chain(*_parts(other), *_parts(self))


class Chain(Composable):
    """Objects in a row: the output of each is the input of the next."""

    def __init__(self, *parts: Any) -> None:
        self.parts: tuple[Any, ...] = parts

    def __repr__(self) -> str:
        return " >> ".join(type(part).__name__ for part in self.parts)


def _parts(one: object) -> tuple[Any, ...]:
    return one.parts if isinstance(one, Chain) else (one,)
