"""A property that is computed when it is first asked for, and then kept.

As ``functools.cached_property``, which before Python 3.12 holds one lock for all objects of a class
while it computes. A process that is forked meanwhile would have that lock for ever. Here there is
none: two threads may compute the same, and both get what was kept first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

__all__ = ["lazy_property"]

T = TypeVar("T")


class lazy_property(Generic[T]):  # noqa: N801  # a decorator, as property is
    """Keep what a method returns in the ``__dict__`` of its object, under the method's name."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, one: None, owner: type) -> lazy_property[T]: ...

    @overload
    def __get__(self, one: object, owner: type) -> T: ...

    def __get__(self, one: object | None, owner: type) -> lazy_property[T] | T:
        if one is None:
            return self
        kept: T = one.__dict__.setdefault(self._name, self._compute(one))
        return kept
