"""When what was computed: a row for each node, a bar for each time that it was at work.

A hundred thousand bars make a small picture: the widest are drawn each by itself and tell what they
are, the others of a row share one path, in which those that touch are one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from soma.events.human import human_ms, times
from soma.pictures.texts import clipped, one_line, printable, text_width, xml
from soma.tracking.report.activity import Activity, Bar, CallBar
from soma.tracking.report.axis import Axis, Cut, make_axis
from soma.tracking.report.scale import Tick
from soma.tracking.report.svg import block, label, length, line, svg

__all__ = ["MAX_ROWS", "timeline_of"]

MAX_ROWS = 80
WIDTH = 1000.0
_RIGHT = 74.0
_LABELS_LEAST, _LABELS_MOST = 60.0, 200.0
_TOP, _CALLS, _ROW, _BAR = 24.0, 24.0, 19.0, 11.0
_MANY_ROWS = 25
"""Where there are more, the times are written below as well."""
_OWN, _OWN_WIDTH = 1_500, 2.0
"""So many bars are drawn by themselves, if they are so wide."""
_FINE = 10_000
"""With more bars than that, small ones that nearly touch are one as well."""
_LEAST_CUT, _LEAST_SIGN = 2.0, 8.0
"""So wide a cut is drawn, and has the sign for a break."""
_CALLS_OWN = 300
_LEGEND = {
    "computed": "computed",
    "recomputed": "recomputed",
    "hit": "hit",
    "failed": "failed",
    "open": "not ended",
}
_VERBS = {"state": "fit", "output": "forward"}
_CROSSES = 100


class _Row(NamedTuple):
    node: str
    bars: list[Bar]
    seconds: float


def timeline_of(activity: Activity) -> tuple[str, list[str]]:
    """Return the picture, and remarks on it; nothing where nothing was done."""
    if not activity.bars:
        return "", []
    rows, left_out = _rows(activity.bars)
    widest = max(text_width(printable(one.node), 12) for one in rows)
    left = min(max(widest + 14, _LABELS_LEAST), _LABELS_MOST)
    intervals = [(one.start, one.end) for one in activity.calls]
    intervals += [(one.start, one.end) for one in activity.bars]
    axis = make_axis(intervals, left, WIDTH - _RIGHT)
    bottom = _TOP + _CALLS + len(rows) * _ROW
    least = _least_width(rows, axis)
    gap = 1.0 if sum(len(one.bars) for one in rows) <= _FINE else 2.0
    parts = [
        block(0, _TOP + _CALLS + place * _ROW, WIDTH, _ROW, look="g-band")
        for place in range(0, len(rows), 2)
    ]
    parts += _axis(axis, bottom, below=len(rows) > _MANY_ROWS)
    parts += _calls(activity.calls, axis)
    parts.append(label("time", WIDTH - 6, _TOP - 8, "g-s g-e"))
    for place, row in enumerate(rows):
        parts += _row(row, axis, _TOP + _CALLS + place * _ROW, left=left, least=least, gap=gap)
    parts += (_cut(cut, bottom) for cut in axis.cuts if cut.right - cut.left >= _LEAST_CUT)
    height = bottom + (18 if len(rows) > _MANY_ROWS else 4)
    parts += _legend(rows, height + 18)
    title = f"what {times(len(rows), 'node')} did in {times(len(activity.calls), 'call')}"
    return svg(parts, WIDTH, height + 28, title), list(_remarks(axis, rows, left_out))


def _rows(bars: Iterable[Bar]) -> tuple[list[_Row], int]:
    """Return the rows in the order in which nodes appear, and how many are left out."""
    by_node: dict[str, list[Bar]] = {}
    for bar in bars:
        by_node.setdefault(bar.node, []).append(bar)
    rows = [
        _Row(node, own, sum(one.end - one.start for one in own)) for node, own in by_node.items()
    ]
    slowest = sorted(range(len(rows)), key=lambda place: -rows[place].seconds)[:MAX_ROWS]
    return [rows[place] for place in sorted(slowest)], max(len(rows) - MAX_ROWS, 0)


def _least_width(rows: list[_Row], axis: Axis) -> float:
    """Return from which width on a bar is drawn by itself."""
    widths = sorted(
        (
            width
            for row in rows
            for one in row.bars
            if (width := (one.end - one.start) * axis.per_second) >= _OWN_WIDTH
        ),
        reverse=True,
    )
    return widths[_OWN - 1] if len(widths) > _OWN else _OWN_WIDTH


def _axis(axis: Axis, bottom: float, *, below: bool) -> Iterator[str]:
    yield line(axis.stretches[0].left, _TOP, axis.stretches[-1].right, _TOP, "g-axis")
    taken = 0.0
    for tick in _ticks(axis):
        yield line(tick.value, _TOP, tick.value, bottom, "g-grid")
        half = text_width(tick.label, 11) / 2
        if tick.value - half < taken:
            continue
        taken = tick.value + half + 8
        yield label(tick.label, tick.value, _TOP - 8, "g-s g-m")
        if below:
            yield label(tick.label, tick.value, bottom + 14, "g-s g-m")


def _ticks(axis: Axis) -> Iterator[Tick]:
    if axis.is_shredded:
        yield from axis.wall_ticks()
        return
    for stretch in axis.stretches:
        found = axis.ticks(stretch)
        if len(found) > 1:  # a 0 alone says nothing
            yield from found


def _cut(cut: Cut, bottom: float) -> str:
    wide = cut.right - cut.left
    middle = (cut.left + cut.right) / 2
    said = human_ms(cut.seconds * 1e3)
    parts = [
        f"<title>{xml(f'idle for {said}, cut out')}</title>",
        block(cut.left + 0.5, _TOP - 4, wide - 1, bottom - _TOP + 4, look="g-cut"),
    ]
    if wide >= _LEAST_SIGN:
        x, y = length(middle - 4), length(_TOP + 5)
        parts.append(f'<path class="g-axis" d="M{x} {y}l4-10m0 10l4-10"/>')
    if wide >= text_width(said, 11):
        parts.append(label(said, middle, _TOP + 19, "g-s g-m"))
        parts.append(label("idle", middle, _TOP + 32, "g-s g-m"))
    return f"<g>{''.join(parts)}</g>"


def _calls(calls: list[CallBar], axis: Axis) -> Iterator[str]:
    y = _TOP + 4
    yield label("calls", 8, y + 12, "g-s")
    ordered = sorted(calls, key=lambda one: one.start - one.end)
    for one in ordered[:_CALLS_OWN]:
        x, end = axis.x(one.start), axis.x(one.end)
        phase = one.phase if one.phase in {"fit", "forward"} else "call"
        took = human_ms((one.end - one.start) * 1e3)
        ended = {"failed": ", failed", "open": ", not ended"}.get(one.outcome, "")
        yield block(
            x, y, max(end - x - 0.5, 0.8), 16, look=f"g-{phase}", tip=f"{phase}, {took}{ended}"
        )
        if end - x > text_width(phase, 11) + 10:
            yield label(phase, x + 5, y + 12, "g-w")
        if one.outcome == "failed":
            yield _crosses([end - 7 if end - x > 14 else end], y + 8)  # noqa: PLR2004  # room for it
    small = [(axis.x(one.start), axis.x(one.end)) for one in ordered[_CALLS_OWN:]]
    if small:
        tip = f"{times(len(small), 'short call')}"
        yield _path(_joined(small, 1.0), y, 16, "g-call", tip)


def _row(
    row: _Row, axis: Axis, y: float, *, left: float, least: float, gap: float
) -> Iterator[str]:
    shown = printable(row.node)
    took = human_ms(row.seconds * 1e3) if row.seconds else ""
    counts = Counter(one.outcome for one in row.bars)
    said = ", ".join(f"{count:,} {_LEGEND[outcome]}" for outcome, count in counts.items())
    tip = "\n".join((one_line(shown), f"{said}{f', {took}' if took else ''}"))
    yield label(clipped(shown, left - 14, 12), 8, y + 13.5, "g-t", tip)
    yield label(took, WIDTH - 6, y + 13.5, "g-s g-e")
    own: list[Bar] = []
    shared: dict[str, list[Bar]] = {"hit": []}  # the first: it stands out above and below others
    for one in row.bars:
        if one.outcome != "hit" and (one.end - one.start) * axis.per_second >= least:
            own.append(one)
        else:
            shared.setdefault(one.outcome, []).append(one)
    yield from (_shared(which, ones, axis, y, gap) for which, ones in shared.items() if ones)
    yield from (_bar(one, axis, y) for one in own)
    failed = [axis.x(one.end) for one in row.bars if one.outcome == "failed"]
    if failed:
        yield _crosses(failed, y + _ROW / 2)


def _bar(one: Bar, axis: Axis, y: float) -> str:
    x, end = axis.x(one.start), axis.x(one.end)
    said = f"{_VERBS.get(one.what, one.what)}, {_LEGEND[one.outcome]}"
    tip = one_line(f"{said}, {human_ms((one.end - one.start) * 1e3)}")
    top, high = _box(one.outcome)
    return block(x, y + top, end - x, high, look=f"g-{one.outcome}", tip=tip)


def _shared(outcome: str, ones: list[Bar], axis: Axis, y: float, gap: float) -> str:
    """Return bars that are too small to be told apart, as one path."""
    spans = _joined(((axis.x(one.start), axis.x(one.end)) for one in ones), gap)
    seconds = sum(one.end - one.start for one in ones)
    said = f"{len(ones):,} {_LEGEND[outcome]}"
    tip = f"{said}, {human_ms(seconds * 1e3)}" if seconds else said
    top, high = _box(outcome)
    return _path(spans, y + top, high, f"g-{outcome}", tip)


def _box(outcome: str) -> tuple[float, float]:
    """Return where in a row a bar begins, and how high it is: outcomes differ in shape, too."""
    if outcome == "hit":
        return 2.0, _ROW - 4
    high = _BAR / 2 if outcome == "recomputed" else _BAR
    return (_ROW + _BAR) / 2 - high, high


def _joined(spans: Iterable[tuple[float, float]], gap: float) -> list[tuple[float, float]]:
    """Return spans of a pixel or more, those joined that are no more than a gap apart."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        end = max(end, start + 1.0)  # noqa: PLW2901  # what is narrower is not seen
        if found and start - found[-1][1] < gap:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def _path(spans: list[tuple[float, float]], y: float, height: float, look: str, tip: str) -> str:
    high = length(height)
    steps = "".join(
        f"M{length(start)} {length(y)}h{length(end - start)}v{high}h{length(start - end)}z"
        for start, end in spans
    )
    return f'<path class="{look}" d="{steps}"><title>{xml(tip)}</title></path>'


def _crosses(places: list[float], y: float) -> str:
    """Return a cross at each place: a failure is not to be overlooked."""
    steps = "".join(
        f"M{length(x - 3.5)} {length(y - 3.5)}l7 7m0-7l-7 7"
        for x in sorted({round(place) for place in places})[:_CROSSES]
    )
    return f'<path class="g-cross" d="{steps}"/>'


def _legend(rows: list[_Row], y: float) -> Iterator[str]:
    found = {one.outcome for row in rows for one in row.bars}
    x = 8.0
    for outcome, said in _LEGEND.items():
        if outcome not in found:
            continue
        top, high = _box(outcome)
        wide = 2.0 if outcome == "hit" else 16.0
        yield block(x, y - 14 + top, wide, high, look=f"g-{outcome}")
        if outcome == "failed":
            yield _crosses([x + wide], y - 14 + _ROW / 2)
        yield label(said, x + wide + 7, y, "g-s")
        x += wide + 7 + text_width(said, 11) + 20


def _remarks(axis: Axis, rows: list[_Row], left_out: int) -> Iterator[str]:
    count = len(axis.cuts)
    if count:
        idle = human_ms(sum(one.seconds for one in axis.cuts) * 1e3)
        cut = "An idle time is" if count == 1 else f"{count:,} idle times are"
        since = (
            "times are since the first call"
            if axis.is_shredded
            else "after a cut, time counts from 0 again"
        )
        yield f"{cut} cut out ({idle}{' in all' if count > 1 else ''}); {since}."
    pixel = 1 / axis.per_second
    if any(
        one.end - one.start < pixel and one.outcome != "hit" for row in rows for one in row.bars
    ):
        yield f"What took less than {human_ms(pixel * 1e3)} is drawn as if it had taken that."
    if left_out:
        took = f"{left_out:,} {'node' if left_out == 1 else 'nodes'} that took less time"
        yield f"{took} {'is' if left_out == 1 else 'are'} left out."
