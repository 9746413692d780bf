"""``Scaler() >> (HeadA() | HeadB()) >> Vote()``: what is written before there is a graph.

    a >> b          b comes after a                    a.to(b), a.to([b, c]), fork.collect(f)
    a | b           both, side by side                 binds less tightly than >>
    a.named("id").cached().frozen().at("gpu-0")        what a node is told beside its place

An expression only remembers what was written. ``expand`` makes nodes and edges of it: each object
written is one node, and the same object written twice is two. Nothing here recurses, since a chain
may be ten thousand long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from soma.errors import InvalidFilter, shown

__all__ = ["NO_MARKS", "Chain", "Composable", "Fork", "Marked", "Marks", "expand"]


@dataclass(frozen=True, slots=True)
class Marks:
    """What a node is told beside its place. None: it was not told."""

    name: str | None = None
    cached: bool | None = None
    frozen: bool | None = None
    target: str | None = None

    def within(self, outer: Marks) -> Marks:
        """Return these marks, those of an expression around them where these say nothing."""
        return Marks(
            name=self.name,
            cached=outer.cached if self.cached is None else self.cached,
            frozen=outer.frozen if self.frozen is None else self.frozen,
            target=outer.target if self.target is None else self.target,
        )


NO_MARKS = Marks()


class Composable:
    """Whatever may stand in an expression."""

    __array_ufunc__ = None  # an array on the left must not take ``>>`` for a shift of its items

    def __rshift__(self, other: object) -> Chain:
        """Return the chain in which ``other`` comes after this."""
        return Chain(self, other)

    def __rrshift__(self, other: object) -> Chain:
        """Return the chain in which ``other``, an object of any class, comes before this."""
        return Chain(other, self)

    def __or__(self, other: object) -> Fork:
        """Return the fork of this and ``other``, side by side."""
        return Fork(self, other)

    def __ror__(self, other: object) -> Fork:
        """Return the fork of ``other``, an object of any class, and this."""
        return Fork(other, self)

    def to(self, other: Any) -> Chain:
        """Return the chain to ``other``; a list is a fork: ``a.to([b, c])`` is ``a >> (b | c)``."""
        if not isinstance(other, list | tuple):
            return Chain(self, other)
        if not other:
            raise InvalidFilter("to([]) leads nowhere: give at least one filter")
        fork = other[0]
        for one in other[1:]:
            fork = Fork(fork, one)
        return Chain(self, fork)

    def collect(self, other: Any) -> Chain:
        """Return the chain in which ``other`` gets what all branches give, as a dict by node id."""
        return Chain(self, other)

    def named(self, name: str) -> Marked:
        """Give the node this id.

        Raises:
            InvalidFilter: this is an expression of several nodes, which cannot share one id.
        """
        inner: Any = self.inner if isinstance(self, Marked) else self
        if isinstance(inner, Chain | Fork):
            raise InvalidFilter(
                f"{inner!r} is an expression of several nodes, which cannot all be called "
                f"{shown(name)}: name the filters in it"
            )
        return Marked(self, Marks(name=name))

    def cached(self) -> Marked:
        """Keep every output of the node, however large, also while the graph trains.

        Sound only where nothing above it can change: see ``Unsettled``.
        """
        return Marked(self, Marks(cached=True))

    def frozen(self) -> Marked:
        """Let the node keep a state that was loaded; without one it fits, from scratch."""
        return Marked(self, Marks(frozen=True))

    def at(self, target: str) -> Marked:
        """Run the node at a place: the name or a tag of a worker, or ``"local"``."""
        return Marked(self, Marks(target=target))


class Marked(Composable):
    """An expression, and what its nodes are told."""

    def __init__(self, inner: Any, marks: Marks) -> None:
        self.inner: Any = inner
        self.marks: Marks = marks
        if isinstance(inner, Marked):  # of one expression, what is said last holds
            self.inner = inner.inner
            self.marks = replace(marks.within(inner.marks), name=marks.name or inner.marks.name)

    def __repr__(self) -> str:
        said = "".join(
            f".{verb}({value!r})" if value is not True else f".{verb}()"
            for verb, value in (
                ("named", self.marks.name),
                ("cached", self.marks.cached),
                ("frozen", self.marks.frozen),
                ("at", self.marks.target),
            )
            if value is not None
        )
        inner = f"({self.inner!r})" if isinstance(self.inner, Chain | Fork) else _name(self.inner)
        return f"{inner}{said}"


class _Pair(Composable):
    """Two things in a row or side by side, each of which may be such a pair itself."""

    _sign = ""

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
            if type(one) is type(self):
                stack += (one.then, one.first)
            else:
                found.append(one)
        return tuple(found)

    def __repr__(self) -> str:
        return _shown(self, _SHOWN_DEPTH)


class Chain(_Pair):
    """Things in a row."""

    _sign = " >> "


class Fork(_Pair):
    """Things side by side."""

    _sign = " | "


_SHOWN_DEPTH = 10
"""How deep expressions lie in each other that are written out."""


def _shown(pair: _Pair, depth: int) -> str:
    return pair._sign.join(  # noqa: SLF001  # of the same family
        (f"({_shown(part, depth - 1)})" if depth else "(...)")
        if isinstance(part, _Pair)
        else _name(part)
        for part in pair.parts
    )


def _name(part: Any) -> str:
    if isinstance(part, Marked):
        return repr(part)
    return getattr(part, "__name__", None) or type(part).__name__


_Ends = tuple[list[str], list[str]]
"""(ids of the nodes where an expression begins, of those where it ends)"""


def expand(
    expression: Any,
    add: Callable[[Any, Marks], str],
    connect: Callable[[str, str], None],
) -> None:
    """Make nodes and edges of an expression.

    Args:
        expression: a filter, a function, a chain, a fork, or one of these with marks.
        add: makes a node and returns its id; called in the order in which filters are written.
        connect: makes an edge between two ids.
    """
    stack: list[Any] = [(expression, NO_MARKS)]
    done: list[_Ends] = []
    while stack:
        job = stack.pop()
        if isinstance(job, _Joint):
            pieces = done[-job.count :]
            del done[-job.count :]
            done.append(job.join(pieces, connect))
            continue
        one, outer = job
        marks = outer
        if isinstance(one, Marked):
            marks, one = one.marks.within(outer), one.inner
        if isinstance(one, _Pair):
            parts = one.parts
            stack.append(_Joint(len(parts), row=isinstance(one, Chain)))
            stack += [(part, marks) for part in reversed(parts)]
        else:
            id_ = add(one, marks)
            done.append(([id_], [id_]))


class _Joint:
    """Mark on the stack: the parts of a chain or fork are made."""

    __slots__ = ("count", "row")

    def __init__(self, count: int, *, row: bool) -> None:
        self.count = count
        self.row = row

    def join(self, pieces: list[_Ends], connect: Callable[[str, str], None]) -> _Ends:
        if not self.row:
            heads = [head for piece in pieces for head in piece[0]]
            tails = [tail for piece in pieces for tail in piece[1]]
            return heads, tails
        for (_, tails), (heads, _) in pairwise(pieces):
            for tail in tails:
                for head in heads:
                    connect(tail, head)
        return pieces[0][0], pieces[-1][1]
