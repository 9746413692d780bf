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

    __array_ufunc__ = None  # an array on the left must not take ``>>`` for a shift of its items

    def __rshift__(self, other: object) -> Chain:
        """Return the chain in which ``other`` comes after this."""
        return Chain(self, other)

    def __rrshift__(self, other: object) -> Chain:
        """Return the chain in which ``other``, an object of any class, comes before this."""
        return Chain(other, self)


class Chain(Composable):
    """Two things in a row, each of which may be a chain itself."""

    def __init__(self, first: Any, then: Any) -> None:
        self.first = first
        self.then = then

    @property
    def parts(self) -> tuple[Any, ...]:
        """The objects in the order in which they were written."""
        found = []
        stack: list[Any] = [self]
        while stack:  # no recursion: a chain may be long
            one = stack.pop()
            if isinstance(one, Chain):
                stack += (one.then, one.first)
            else:
                found.append(one)
        return tuple(found)

    def __repr__(self) -> str:
        return " >> ".join(type(part).__name__ for part in self.parts)
