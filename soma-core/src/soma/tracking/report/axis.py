"""A time axis from which long idle times are cut out.

    calls  ███  ██                 ████        ██
    axis   ├────────┤⫽├─────┤⫽├──┤              one scale for all stretches, 0 at each beginning

Short pauses stay: those that together make up no more than a fifth of the time that was worked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from soma.tracking.report.scale import Tick, TimeStep, time_step

__all__ = ["Axis", "Cut", "Stretch", "make_axis"]

_IDLE_SHARE = 0.2
_CUT, _CUTS_SHARE = 46.0, 0.25
"""Pixels of a cut, and the share of all pixels that many of them take at most."""
_LEAST, _LEAST_SHARE = 3.0, 0.1
"""The same of a stretch, however short it is."""
_TICK_EVERY = 80.0
_SHORTEST = 1e-6
"""Seconds that there are at least, so that there is a scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A time without a cut, and its place."""

    start: float
    end: float
    left: float
    """Pixels, like ``right``."""
    right: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """An idle time that is left out, and its place."""

    seconds: float
    left: float
    right: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Moments -> pixels."""

    stretches: tuple[Stretch, ...]
    cuts: tuple[Cut, ...]
    per_second: float
    """Pixels."""
    step: TimeStep
    _starts: tuple[float, ...]

    def x(self, moment: float) -> float:
        """Return the place of a moment; one in a cut is at the end of what was before."""
        stretch = self.stretches[max(bisect_right(self._starts, moment) - 1, 0)]
        inside = stretch.left + (moment - stretch.start) * self.per_second
        return min(max(inside, stretch.left), stretch.right)

    @property
    def is_shredded(self) -> bool:
        """Whether no stretch is so long that it could have times of its own."""
        longest = max(one.right - one.left for one in self.stretches)
        return len(self.stretches) > 1 and longest < _TICK_EVERY

    def wall_ticks(self) -> list[Tick]:
        """Return round times since the beginning of all, at their places; values are pixels."""
        first, last = self.stretches[0], self.stretches[-1]
        room = last.right - first.left
        step = time_step((last.end - first.start) * _TICK_EVERY / room)
        count = int((last.end - first.start) / step.seconds)
        return [
            Tick(self.x(first.start + place * step.seconds), step.label(place))
            for place in range(count + 1)
        ]

    def ticks(self, stretch: Stretch) -> list[Tick]:
        """Return the round times of a stretch, from its beginning on; the values are pixels."""
        count = int((stretch.right - stretch.left) / (self.step.seconds * self.per_second))
        return [
            Tick(stretch.left + place * self.step.seconds * self.per_second, self.step.label(place))
            for place in range(count + 1)
        ]


def make_axis(intervals: Iterable[tuple[float, float]], left: float, right: float) -> Axis:
    """Return the axis on which intervals are seen; there has to be one.

    Args:
        intervals: start and end in s, in any order.
        left: where it begins, in pixels.
        right: where it ends.
    """
    merged = _joined(_merged((start, max(start, end)) for start, end in intervals))
    room, count = right - left, len(merged)
    cut = min(_CUT, _CUTS_SHARE * room / max(count - 1, 1))
    least = min(_LEAST, _LEAST_SHARE * room / count)
    seconds = max(sum(end - start for start, end in merged), _SHORTEST)
    per_second = (room - cut * (count - 1) - least * count) / seconds
    stretches: list[Stretch] = []
    cuts: list[Cut] = []
    x = left
    for start, end in merged:
        if stretches:
            cuts.append(Cut(seconds=start - stretches[-1].end, left=x, right=x + cut))
            x += cut
        width = least + (end - start) * per_second
        stretches.append(Stretch(start=start, end=end, left=x, right=x + width))
        x += width
    return Axis(
        stretches=tuple(stretches),
        cuts=tuple(cuts),
        per_second=per_second,
        step=time_step(_TICK_EVERY / per_second),
        _starts=tuple(one.start for one in stretches),
    )


def _merged(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the times in which something was going on."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def _joined(busy: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Join what only short pauses part."""
    left = _IDLE_SHARE * sum(end - start for start, end in busy)
    pauses = sorted(range(1, len(busy)), key=lambda place: busy[place][0] - busy[place - 1][1])
    cut = set(pauses)
    for place in pauses:
        left -= busy[place][0] - busy[place - 1][1]
        if left < 0:
            break
        cut.discard(place)
    found = busy[:1]
    for place in range(1, len(busy)):
        if place in cut:
            found.append(busy[place])
        else:
            found[-1] = found[-1][0], busy[place][1]
    return found
