"""Whether a producer has kept what it returned, so that handing it on would share it.

A filter may return an object that it goes on holding: a table, a buffer that it writes into at
every call, its input. The next node may write into what it is given, and the filter may write into
what it gave. CPython counts references, so an object that somebody else holds shows itself; a view
shows what it is a view of. Wrong guesses cost a copy and nothing else. Looked at are the object
and, in a list, tuple or dict, its members: what lies deeper is the filter's own affair.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any

from soma.engine.values import IMMUTABLE
from soma.values import States

__all__ = ["NOTHING_GIVEN", "Given", "is_held"]


_DICTS = (dict, States)


class Given:
    """What a call is given, and how often each part of it is held before the call.

    To return that, or a view of it, is fine, unless the filter holds on to it as well.
    """

    __slots__ = ("_before", "_parts")

    def __init__(self, given: Any) -> None:
        members = given.values() if type(given) in _DICTS else ()
        parts = [one for one in (given, *members) if type(one) not in IMMUTABLE]
        parts += [one for one in map(_base, parts) if one is not None]
        self._parts = {id(one): one for one in parts}
        self._before = 0

    def count(self) -> Given:
        """Count now; not in the constructor, whose own variables would count as well."""
        self._before = self._total()
        return self

    def holds(self, one: Any) -> bool:
        """Say whether an object is a part of what was given."""
        return id(one) in self._parts

    def is_kept(self, allowed: int) -> bool:
        """Say whether, all together, the parts are held more often than that by now."""
        return self._total() > self._before + allowed

    def _total(self) -> int:
        return sum(_count(one) for one in self._parts.values())


def is_held(made: Any, given: Given) -> bool:
    """Say whether somebody besides the caller holds a returned object, or what it is a view of.

    Args:
        made: what the call returned; the caller holds it in one variable, and gave it to us.
        given: what the call was given.
    """
    if given.holds(made):
        return given.is_kept(_FRESH - 1)
    if getrefcount(made) > _FRESH or _is_view_of_held(made, given):
        return True
    if type(made) not in (list, tuple, *_DICTS):
        return False
    members = made.values() if type(made) in _DICTS else made
    return any(_is_held_member(one, given) for one in members if type(one) not in IMMUTABLE)


def _is_held_member(one: Any, given: Given) -> bool:
    if given.holds(one):
        return given.is_kept(_FRESH_MEMBER - 1)
    return getrefcount(one) > _FRESH_MEMBER or _is_view_of_held(one, given)


def _is_view_of_held(made: Any, given: Given) -> bool:
    """Say whether an array shows memory that somebody besides it holds."""
    base = _base(made)
    if base is None:
        return False
    if given.holds(base):
        return given.is_kept(_FRESH_BASE - 1)
    return getrefcount(base) > _FRESH_BASE


def _base(made: Any) -> Any:
    """Return what an array shows the memory of; None where that is its own."""
    base = made.base if hasattr(type(made), "__array_interface__") else None
    return base.obj if type(base) is memoryview else base


# What the counts are where nobody else holds anything, as this interpreter counts them.


def _count(made: Any) -> int:
    return getrefcount(made)


def _count_in_loop(made: Any) -> int:
    return next(_count(one) for one in made)


class _View:
    __slots__ = ("base",)

    def __init__(self, base: Any) -> None:
        self.base = base


def _count_base(view: Any) -> int:
    base = view.base if view is not None else None
    return getrefcount(base)


def _measure() -> tuple[int, int, int]:
    made: list[Any] = [[]]
    fresh, member = _count(made), _count_in_loop(made)
    return fresh, member, _count_base(_View([]))


_FRESH, _FRESH_MEMBER, _FRESH_BASE = _measure()

NOTHING_GIVEN = Given(None)
"""For what is given that may be shared by everybody."""
