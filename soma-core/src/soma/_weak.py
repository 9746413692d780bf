"""A memo that keeps nothing alive: for what is found out about classes and functions.

A class that was defined in a function holds what that function held; a memo that held the class
would hold all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["remember_weakly"]

_T = TypeVar("_T")


def remember_weakly(function: Callable[[Any], _T]) -> Callable[[Any], _T]:
    """Return the function with a memo by its argument, as long as that lives."""
    known: WeakKeyDictionary[Any, _T] = WeakKeyDictionary()

    def remembered(key: Any) -> _T:
        try:
            return known[key]
        except KeyError:
            found = known[key] = function(key)
            return found
        except TypeError:  # it cannot be referred to weakly, as what is written in C
            return function(key)

    remembered.__doc__ = function.__doc__
    return remembered
