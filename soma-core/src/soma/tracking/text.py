"""A run in words: what ``soma runs show`` prints, and the small table of a notebook.

What lies in a file may be anything. Nothing of it reaches a terminal or a page as it is: texts
are printed so that they stay on their line, and escaped.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

from soma.errors import InvalidInput, shown
from soma.events.human import (
    clipped,
    human_bytes,
    human_ms,
    one_line,
    outcomes_text,
    passes_span,
    passes_text,
    printable,
    times,
    width,
)
from soma.events.table import table_text
from soma.tracking.records import Call, MetricPoint, Reuse

if TYPE_CHECKING:
    from soma.tracking.view import RunView

__all__ = ["padded", "run_html", "run_text"]

_CALLS = 20
"""So many are shown one by one unasked: the last ones."""
_VALUE = 80
_SHORT = 12


def run_text(run: RunView, *, whole: bool) -> str:
    """Return all that there is to say of a run; with ``whole``, in full."""
    lines = list(_facts(run, whole=whole))
    for part in (_what_ran, _reused, _decided, _failed, _working, _told, _measured, _lost):
        try:
            found = list(part(run, whole))
        except InvalidInput as error:  # what another file says is still worth saying
            found = [one_line(str(error))]
            if found[0] in lines:
                continue
        if found:
            lines += ["", *found]
    return "\n".join(lines)


def run_html(run: RunView) -> str:
    """Return a run as a small table for notebooks."""
    rows = [line.partition("  ") for line in _facts(run, whole=False)]
    try:
        calls = [_call_line(one) for one in run.calls()]
    except InvalidInput:  # the facts say so
        calls = []
    rows += [("call", "", one) for one in calls[-_CALLS:]]
    cells = (
        f'<tr><th style="text-align:left">{_escaped(name)}</th>'
        f'<td style="text-align:left">{_escaped(text)}</td></tr>'
        for name, _, text in rows
    )
    return f"<table>{''.join(cells)}</table>"


def padded(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the cells so that they stand one below the other, the last ones as long as they are.

    There has to be a row.
    """
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    widths[-1] = 0
    return [
        [cell + " " * (most - width(cell)) for cell, most in zip(row, widths, strict=True)]
        for row in rows
    ]


def _facts(run: RunView, *, whole: bool) -> Iterator[str]:
    yield f"run       {printable(run.id)}"
    yield f"state     {run.state}"
    if run.note:
        yield f"why       {one_line(run.note, 500)}"
        return
    yield f"name      {printable(run.name)}"
    yield f"began     {run.created_at.astimezone():%Y-%m-%d %H:%M:%S %z}"
    yield f"took      {human_ms(run.duration_ms)}"
    if run.tags:
        yield f"tags      {', '.join(map(printable, run.tags))}"
    for name, value in run.params.items():
        yield f"param     {clipped(printable(name))} = {_value(value, whole=whole)}"
    manifest = run.manifest()
    git = manifest.get("git")
    if isinstance(git, dict):
        words = [str(git.get("sha") or "no commit"), str(git.get("branch") or "no branch")]
        yield f"git       {one_line(' '.join(words))}{' (changed)' if git.get('dirty') else ''}"
    if run.error:
        yield f"error     {one_line(run.error, 500)}"
    if whole:
        yield from _surroundings(manifest)
    yield f"folder    {printable(str(run.path))}"


def _surroundings(manifest: dict[str, Any]) -> Iterator[str]:
    for name in ("soma_version", "python_version", "platform", "hostname", "cwd", "argv", "seeds"):
        if name in manifest:
            said = name.removesuffix("_version")
            yield f"{said:8}  {_value(manifest[name], whole=True)}"
    versions = manifest.get("versions")
    if isinstance(versions, dict):
        for package, version in versions.items():
            yield f"version   {one_line(f'{package} {version}')}"


def _what_ran(run: RunView, whole: bool) -> Iterator[str]:  # noqa: FBT001  # one of many parts
    calls = run.calls()
    listed = calls if whole else calls[-_CALLS:]
    if not calls:
        yield "no fit and no forward"
        return
    yield from _title("calls", len(calls) - len(listed))
    yield from (f"  {_call_line(one)}" for one in listed)
    took = [one.duration_ms for one in calls if one.duration_ms is not None]
    title = calls[0].phase or "call" if len(calls) == 1 else times(len(calls), "call")
    yield ""
    yield from table_text(
        run.nodes(), f"{title}, {human_ms(sum(took))}" if took else f"{title}, not ended"
    ).split("\n")


def _call_line(one: Call) -> str:
    did = outcomes_text(one.hits, one.computed, one.recomputed)
    took = human_ms(one.duration_ms) if one.duration_ms is not None else ""
    ended = {"completed": f"completed in {took}", "failed": f"failed after {took}"}
    why = f": {one_line(one.error)}" if one.error else ""
    phase = printable(one.phase) if one.phase else "call"
    return f"{phase} {_short(one.run_id)} {ended.get(one.outcome, one.outcome)}, {did}{why}"


def _reused(run: RunView, whole: bool) -> Iterator[str]:  # noqa: FBT001  # as above
    found = run.reused()
    if not found:
        return
    yield "reused"
    if whole:
        yield from (f"  {_reuse_line(one)}" for one in found)
        return
    folded: dict[tuple[str, str], list[Reuse]] = {}
    for one in found:
        folded.setdefault((one.node, one.what), []).append(one)
    yield from (f"  {_folded_line(ones)}" for ones in folded.values())


def _reuse_line(one: Reuse) -> str:
    said = [f"{_what(one.node, one.what, one.passes)}: {printable(one.key)}"]
    said += [printable(one.tier), f"looked up in {human_ms(one.load_time)}"]
    said += [human_bytes(one.bytes)] if one.bytes else []
    return ", ".join([*said, f"call {_short(one.call)}"])


def _folded_line(ones: list[Reuse]) -> str:
    first = ones[0]
    span = passes_span(one.passes for one in ones)
    about = [f"pass {span}" if span else ""]
    calls = len({one.call for one in ones})
    about += [f"in {calls} calls"] if calls > 1 else []
    said = ", ".join(filter(None, about))
    tiers = ", ".join(dict.fromkeys(printable(one.tier) for one in ones))
    counted = f"{times(len(ones), 'hit')}{f' ({said})' if said else ''}"
    return f"{_what(first.node, first.what)}: {counted}, {tiers}"


def _decided(run: RunView, _whole: bool) -> Iterator[str]:  # noqa: FBT001  # as above
    counts: dict[tuple[str, str], int] = {}
    for one in run.decisions():
        counts[one.node, one.outcome] = counts.get((one.node, one.outcome), 0) + 1
    if counts:
        yield "decided"
    for (node, outcome), count in counts.items():
        yield f"  {_node(node)}: {one_line(outcome)}{f', {count} times' if count > 1 else ''}"


def _failed(run: RunView, _whole: bool) -> Iterator[str]:  # noqa: FBT001  # as above
    found = run.failures()
    if found:
        yield "failed"
    phases = {one.run_id: one.phase for one in run.calls()} if found else {}
    for one in found:
        phase = printable(phases[one.call]) if phases.get(one.call) else "call"
        yield f"  {_what(one.node, one.what, one.passes)}, in {phase}: {one_line(one.error)}"


def _working(run: RunView, _whole: bool) -> Iterator[str]:  # noqa: FBT001  # as above
    found = run.working()
    if found:
        yield "working on" if run.state == "running" else "was working on"
    yield from (f"  {_what(one.node, one.what, one.passes)}" for one in found)


def _told(run: RunView, _whole: bool) -> Iterator[str]:  # noqa: FBT001  # as above
    counts: dict[tuple[str, str, str], int] = {}
    for one in run.notices():
        what = one.kind, one.node, one.message
        counts[what] = counts.get(what, 0) + 1
    if counts:
        yield "to be known"
    for (kind, node, message), count in counts.items():
        often = f" ({count} times)" if count > 1 else ""
        yield f"  {kind} {_node(node)}: {one_line(message, 400)}{often}"


def _measured(run: RunView, _whole: bool) -> Iterator[str]:  # noqa: FBT001  # as above
    found = run.metrics()
    if found:
        rows: list[Sequence[str]] = [("  metric", "values", "first", "last", "min", "max")]
        rows += [_metric_row(name, points) for name, points in found.items()]
        yield from ("  ".join(cells).rstrip() for cells in padded(rows))


def _metric_row(name: str, points: list[MetricPoint]) -> tuple[str, ...]:
    real = [one for one in points if not isnan(one.value)] or points
    low, high = (best(real, key=lambda one: one.value) for best in (min, max))
    first, last = points[0], points[-1]
    return (
        f"  {clipped(printable(name))}",
        str(len(points)),
        *(_number(one.value) for one in (first, last)),
        *(f"{_number(one.value)}{_step(one)}" for one in (low, high)),
    )


def _lost(run: RunView, _whole: bool) -> Iterator[str]:  # noqa: FBT001  # as above
    if run.lost_events:
        yield f"{times(run.lost_events, 'event')} lost: what is said above may lack something"
    if run.damaged_lines:
        yield f"{times(run.damaged_lines, 'line')} damaged and passed over"


def _title(text: str, left_out: int) -> Iterator[str]:
    yield text if left_out <= 0 else f"{text}, without the first {left_out:,} (--all)"


def _what(node: str, what: str, passes: tuple[int, ...] = ()) -> str:
    return f"{_node(node)} {printable(what)}{f' ({passes_text(passes)})' if passes else ''}"


def _node(node: str) -> str:
    return clipped(printable(node))


def _short(run_id: str) -> str:
    return printable(run_id[:_SHORT])


def _value(value: Any, *, whole: bool) -> str:
    return one_line(shown(value, 10_000 if whole else _VALUE), 20_000)


def _number(value: float) -> str:
    return f"{value:.6g}"


def _step(point: MetricPoint) -> str:
    return f" (step {point.step})" if point.step is not None else ""


def _escaped(text: str) -> str:
    return html.escape(text.strip())
