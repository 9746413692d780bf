"""Whether a producer has kept what it returned, so that handing it on would share it.

A filter may return an array that it goes on holding: a table, a buffer, its last result. The next
node may write into what it is given, and would write into the filter. CPython counts references, so
a returned object that somebody else holds shows itself; a view shows what it is a view of. Wrong
guesses cost a copy and nothing else. Looked at are the object and, in a list, tuple or dict, its
members: what lies deeper is the filter's own affair.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any

__all__ = ["is_held"]


def is_held(made: Any, given: Any) -> bool:
    """Say whether somebody besides the caller holds a returned object, or what it is a view of.

    Args:
        made: what the call returned; the caller holds it in one variable, and gave it to us.
        given: what the call was given, which is nobody else's: to return that, or a view of it, is
            fine.
    """
    if made is given:
        return False
    if getrefcount(made) > _FRESH or _is_view(made, given):
        return True
    if type(made) not in (list, tuple, dict):
        return False
    members = made.values() if type(made) is dict else made
    return any(_is_held_member(one, given) for one in members if _is_array(one))


def _is_held_member(one: Any, given: Any) -> bool:
    return getrefcount(one) > _FRESH_MEMBER or _is_view(one, given)


def _is_array(value: Any) -> bool:
    return hasattr(type(value), "__array_interface__")


def _is_view(made: Any, given: Any) -> bool:
    """Say whether an array shows memory that is neither its own nor the input's."""
    base = made.base if _is_array(made) else None
    if base is None:
        return False
    inputs = given.values() if type(given) is dict else (given,)
    return not any(base is one or base is getattr(one, "base", None) for one in inputs) and (
        _is_array(base) and getrefcount(base) > _FRESH_BASE
    )


# What the counts are where nobody else holds anything, as this interpreter counts them.


def _returned() -> list[Any]:
    return [[]]


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
    made = _returned()
    fresh, member = _count(made), _count_in_loop(made)
    view = _View([])
    return fresh, member, _count_base(view)


_FRESH, _FRESH_MEMBER, _FRESH_BASE = _measure()
