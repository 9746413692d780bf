"""Search dimensions: which values a parameter of a filter may take.

    class Model(Filter):
        lr: float = search(1e-4, 1e-1, scale="log", default=1e-3)

A dimension is an ordinary attribute with a default: ``Model().lr`` is 0.001 until somebody sets it.
Where it may lie is no part of what the filter is; its value is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any

from soma._weak import remember_weakly
from soma.errors import InvalidInput, did_you_mean, shown

__all__ = ["Dimension", "dimensions_of", "search"]

_SCALES = ("linear", "log", "reverse_log")


class Dimension:
    """One dimension, as it stands in a class. Read from an object, it is the parameter's value."""

    def __init__(
        self, low: Any, high: Any, scale: str, choices: tuple[Any, ...], default: Any
    ) -> None:
        self.low = low
        self.high = high
        self.scale = scale
        self.choices = choices
        """Empty for a range of numbers."""
        self.default = default

    # No __set__: what an object is given lies in its own __dict__ and is found before this.
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else self.default

    @property
    def type(self) -> str:
        """``"categorical"``; ``"int"`` between whole numbers; else ``"float"``."""
        if self.choices:
            return "categorical"
        return "int" if type(self.low) is int and type(self.high) is int else "float"

    def describe(self, name: str) -> dict[str, Any]:
        """Return the dimension as plain data, under the name that a search gives it."""
        found: dict[str, Any] = {"type": self.type, "name": name}
        if self.choices:
            found["choices"] = list(self.choices)
        else:
            found |= {"low": self.low, "high": self.high, "scale": self.scale}
        if self.default is not None:
            found["default"] = self.default
        return found

    def problem_with(self, value: Any) -> str:
        """Return what is wrong with a value; empty if it may be taken."""
        if self.choices:
            if any(type(value) is type(one) and value == one for one in self.choices):
                return ""
            return f"must be one of {shown(self.choices)}"
        kind = Integral if self.type == "int" else Real
        if isinstance(value, bool) or not isinstance(value, kind):
            return f"must be {'a whole number' if self.type == 'int' else 'a number'}"
        if self.low <= value <= self.high:
            return ""
        return f"must lie between {self.low} and {self.high}"

    def plain(self, value: Any) -> Any:
        """Return a value as the dimension has it: numpy's numbers as Python's."""
        if self.choices:
            return value
        return int(value) if self.type == "int" else float(value)

    def __repr__(self) -> str:
        if self.choices:
            return f"search(choices={list(self.choices)!r})"
        return f"search({self.low!r}, {self.high!r}, scale={self.scale!r})"


def search(
    low: float | None = None,
    high: float | None = None,
    *,
    scale: str = "linear",
    choices: Any = None,
    default: Any = None,
) -> Any:
    """Declare a parameter whose value a search may choose.

    Args:
        low: smallest value, included.
        high: largest value, included. Two whole numbers give a dimension of whole numbers.
        scale: ``"linear"``, ``"log"`` (``low`` above 0) or ``"reverse_log"`` (fine near ``high``).
        choices: the values to choose from, instead of a range. With neither: True and False.
        default: the value of an object that was given none; None stays None.

    Raises:
        InvalidInput: the range, scale, choices or default make no sense together.
    """
    found = _choices(low, high, scale, choices) if low is None and high is None else None
    if found is None:
        found = _range(low, high, scale, choices)
    trouble = "" if default is None else found.problem_with(default)
    if trouble:
        raise InvalidInput(f"search(...): the default {trouble}, and it is {shown(default)}")
    found.default = default
    return found


def _choices(low: Any, high: Any, scale: str, choices: Any) -> Dimension:
    if isinstance(choices, str):
        raise InvalidInput(f"search(choices={choices!r}): choices is a list of values, not a text")
    try:
        values = (True, False) if choices is None else tuple(choices)
    except TypeError:
        raise InvalidInput(
            f"search(...): choices is a list of values, not {shown(choices)}"
        ) from None
    if not values:
        raise InvalidInput("search(choices=[]): there is nothing to choose from")
    if scale != "linear":
        raise InvalidInput(f"search(...): a scale ({scale!r}) goes with low and high, not choices")
    return Dimension(low, high, scale, values, None)


def _range(low: Any, high: Any, scale: str, choices: Any) -> Dimension:
    if choices is not None:
        raise InvalidInput("search(...) takes either low and high, or choices, not both")
    for name, value in (("low", low), ("high", high)):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value):
            raise InvalidInput(f"search(...): {name} must be a finite number, not {shown(value)}")
    if low >= high:
        raise InvalidInput(f"search(...): low ({low}) must be less than high ({high})")
    if scale not in _SCALES:
        raise InvalidInput(
            f"search(...): there is no scale {shown(scale)}.{did_you_mean(str(scale), _SCALES)}"
        )
    if scale == "log" and low <= 0:
        raise InvalidInput(f"search(...): scale='log' needs low above 0, and low is {low}")
    return Dimension(low, high, scale, (), None)


@remember_weakly
def dimensions_of(cls: Any) -> Mapping[str, Dimension]:
    """Return name -> dimension, of base classes too; a plain attribute takes one away."""
    found: dict[str, Dimension] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, Dimension):
                found[name] = value
            else:
                found.pop(name, None)
    return MappingProxyType(found)
