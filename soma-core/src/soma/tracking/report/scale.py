"""Round numbers for axes: steps of 1, 2 or 5 times a power of ten, and of minutes and hours.

A step is kept as two whole numbers, so that 3 steps of 0.1 are 0.3.
"""

from __future__ import annotations

from math import ceil, floor, isfinite, log10
from typing import NamedTuple

__all__ = ["Tick", "TimeStep", "number_text", "place_in", "ticks", "time_step"]

_MOST = 30
"""Where there would be more ticks, the numbers are finer than floats can say."""
_PLAIN_FROM, _PLAIN_TO = -4, 6
"""Powers of ten between which a number is written without an exponent."""
_MANTISSAS = (1, 2, 5)
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_UNITS = (("s", 0), ("ms", 3), ("µs", 6))
"""Names, and powers of ten that make them of seconds."""
_LONGEST_SHORT = 20
_LONG_STEPS = (
    30,
    *(one * _MINUTE for one in (1, 2, 5, 10, 20, 30)),
    *(one * _HOUR for one in (1, 2, 5, 10)),
)


class Tick(NamedTuple):
    """A place on an axis, and what stands there."""

    value: float
    label: str


def ticks(low: float, high: float, about: int, *, whole: bool = False) -> list[Tick]:
    """Return some round numbers between two; just the two where there is no room for any.

    >>> [one.label for one in ticks(0.13, 0.52, 4)]
    ['0.2', '0.3', '0.4', '0.5']

    Args:
        low: where the axis begins.
        high: where it ends.
        about: how many are wanted, more or less.
        whole: only whole numbers.
    """
    span = high - low
    if not isfinite(span) or span <= 0:
        ends = (low,) if low == high else (low, high)
        return [Tick(one, number_text(one)) for one in ends]
    mantissa, power = _round_step(span / about)
    if whole and power < 0:
        mantissa, power = 1, 0
    first, last = (
        rounded(_scaled(one, mantissa, power)) for rounded, one in ((ceil, low), (floor, high))
    )
    if not 0 < last - first < _MOST:
        return [Tick(one, number_text(one)) for one in (low, high)]
    most = max(abs(low), abs(high))
    values = [_times(place * mantissa, power) for place in range(first, last + 1)]
    labels = [_text(value, most, power) for value in values]
    if len({*labels}) < len(labels):  # finer than digits can say
        return [Tick(one, number_text(one)) for one in (low, high)]
    return [Tick(*one) for one in zip(values, labels, strict=True)]


def number_text(value: float) -> str:
    """Return a number in up to 5 digits."""
    return _short(f"{value:.5g}") if isfinite(value) else {"nan": "NaN"}.get(str(value), str(value))


def place_in(value: float, low: float, high: float) -> float:
    """Return where a number lies between two: 0 to 1, also where their difference overflows."""
    if isfinite(high - low):
        return (value - low) / (high - low)
    return (value / 2 - low / 2) / (high / 2 - low / 2)


class TimeStep(NamedTuple):
    """A round duration: ``mantissa`` times ten to the ``power``, in s."""

    mantissa: int
    power: int

    @property
    def seconds(self) -> float:
        """How long it is."""
        return _times(self.mantissa, self.power)

    def label(self, count: int) -> str:
        """Return how long so many of it are, in the unit that suits the step.

        >>> time_step(0.3).label(3), time_step(0.002).label(2), time_step(200.0).label(1)
        ('1.5 s', '4 ms', '5 min')
        """
        whole = count * self.mantissa
        if not whole:
            return "0"
        seconds = _times(whole, self.power)
        if self.power >= 0 and seconds >= _MINUTE:
            return _long_text(int(seconds))
        unit, shift = next(one for one in _UNITS if self.power + one[1] >= -1 or one == _UNITS[-1])
        power = self.power + shift
        return f"{_times(whole, power):,.{max(-power, 0)}f} {unit}"


def time_step(at_least: float) -> TimeStep:
    """Return the next round duration, in s."""
    if at_least > _LONGEST_SHORT:
        for step in _LONG_STEPS:
            if step >= at_least:
                return TimeStep(step, 0)
        return TimeStep(max(_next_round(at_least / _DAY), 1) * _DAY, 0)
    mantissa, power = _round_step(max(at_least, 1e-9))
    return TimeStep(mantissa, power)


def _next_round(days: float) -> int:
    mantissa, power = _round_step(max(days, 1.0))
    return int(mantissa * 10**power)


def _long_text(seconds: int) -> str:
    days, rest = divmod(seconds, _DAY)
    hours, rest = divmod(rest, _HOUR)
    minutes, rest = divmod(rest, _MINUTE)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{amount} {unit}" for amount, unit in parts if amount)


def _round_step(at_least: float) -> tuple[int, int]:
    """Return mantissa and power of the smallest round step that is no less."""
    power = floor(log10(at_least)) if at_least > 0 else -323
    for raised in (power, power + 1):
        for mantissa in _MANTISSAS:
            # A quotient such as 0.3 / 3 comes out a hair above what it means.
            if _times(mantissa, raised) >= at_least * (1 - 1e-9):
                return mantissa, raised
    return 1, power + 1


def _times(whole: int, power: int) -> float:
    """Return a whole number times a power of ten, rounded once."""
    return whole / 10**-power if power < 0 else float(whole * 10**power)


def _scaled(value: float, mantissa: int, power: int) -> float:
    """Return how many steps a value is."""
    step = _times(mantissa, power)
    found = value / step if step else 0.0
    return found if isfinite(found) else 0.0


def _text(value: float, most: float, power: int) -> str:
    magnitude = floor(log10(most)) if most > 0 else 0
    if power >= _PLAIN_FROM and magnitude < _PLAIN_TO:
        return f"{value or 0.0:,.{max(-power, 0)}f}"
    return _short(f"{value:.{min(max(magnitude - power + 1, 1), 17)}g}") if value else "0"


def _short(written: str) -> str:
    """Return ``1e+06`` as ``1e6``."""
    mantissa, has_power, power = written.partition("e")
    return f"{mantissa}e{int(power)}" if has_power else mantissa
