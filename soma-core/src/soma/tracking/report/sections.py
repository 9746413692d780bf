"""What follows the pictures: tables of nodes, reuse, decisions, failures and notices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from soma._html import safe
from soma.events.human import (
    human_bytes,
    human_ms,
    one_line,
    passes_span,
    printable,
    times,
)
from soma.tracking.records import Call, Reuse
from soma.tracking.report.tables import Html, folded, rest, table
from soma.tracking.view import RunView

__all__ = [
    "calls_of",
    "decisions_of",
    "failures_of",
    "nodes_of",
    "notices_of",
    "reuse_of",
]

_ROWS = 1_000
_CALLS, _FAILURES = 200, 200
_MESSAGE = 4_000
_SHORT = 12
_VERBS = {"state": "fit", "output": "forward"}


def nodes_of(view: RunView) -> Iterator[str]:
    """Yield what was done with each node."""
    found = view.nodes()
    if not found:
        yield "<p>No node has come to an end.</p>"
        return
    every = sum(one.duration_ms for one in found)
    rows = [
        (
            printable(one.node),
            *(_count(n) for n in (one.fits, one.forwards)),
            *(_count(n) for n in (one.hits, one.computed, one.recomputed)),
            human_ms(one.duration_ms) if one.duration_ms else "",
            _share(one.duration_ms / every if every else 0.0),
            human_bytes(one.bytes) if one.bytes else "",
        )
        for one in found
    ]
    header = ("node", "fits", "forwards", "hits", "computed", "recomputed", "time", "", "bytes")
    total = (
        "total",
        *(_count(sum(getattr(one, name) for one in found)) for name in _COUNTS),
        human_ms(every),
        "",
        human_bytes(sum(one.bytes for one in found)),
    )
    shown = table(header, rows[:_ROWS], amounts=range(1, len(header)), total=total)
    yield folded(shown, len(rows), f"all {min(len(rows), _ROWS):,} nodes")
    yield rest(len(rows), _ROWS, "nodes")


_COUNTS = ("fits", "forwards", "hits", "computed", "recomputed")


def calls_of(view: RunView) -> Iterator[str]:
    """Yield the fits and forwards of the graph."""
    found = view.calls()
    if not found:
        yield "<p>No fit and no forward has begun.</p>"
        return
    first = view.created_at.timestamp()
    shown = found[-_CALLS:]
    header = ("call", "began after", "took", "ended", "hits", "computed", "recomputed", "seed")
    rows = [_call(one, first) for one in shown]
    yield folded(
        table(header, rows, amounts=(1, 2, 4, 5, 6, 7)), len(rows), times(len(rows), "call")
    )
    if len(found) > len(shown):
        yield f'<p class="note">The first {len(found) - len(shown):,} calls are left out.</p>'


def _call(one: Call, first: float) -> tuple[object, ...]:
    return (
        f"{printable(one.phase) if one.phase else 'call'} {printable(one.run_id[:_SHORT])}",
        human_ms((one.started - first) * 1e3),
        human_ms(one.duration_ms) if one.duration_ms is not None else "",
        f"{one.outcome}: {one_line(one.error)}" if one.error else one.outcome,
        *(_count(n) for n in (one.hits, one.computed, one.recomputed)),
        "" if one.seed is None else one.seed,
    )


def reuse_of(view: RunView) -> Iterator[str]:
    """Yield what was known and not computed, folded by node."""
    found: dict[tuple[str, str], list[Reuse]] = {}
    for one in view.reused():
        found.setdefault((one.node, one.what), []).append(one)
    if not found:
        return
    header = ("node", "of", "hits", "calls", "passes", "found in", "lookups took", "bytes", "key")
    rows = [_reuse(node, what, ones) for (node, what), ones in found.items()]
    shown = table(header, rows[:_ROWS], amounts=(2, 3, 6, 7))
    yield folded(shown, len(rows), f"all {min(len(rows), _ROWS):,} reuses")
    yield rest(len(rows), _ROWS, "reuses")


def _reuse(node: str, what: str, ones: list[Reuse]) -> tuple[object, ...]:
    keys = {one.key for one in ones}
    tiers = dict.fromkeys(one_line(one.tier) for one in ones)
    key = printable(ones[0].key[:_SHORT]) if len(keys) == 1 else f"{len(keys):,} keys"
    return (
        printable(node),
        _verb(what),
        f"{len(ones):,}",
        f"{len({one.call for one in ones}):,}",
        passes_span(one.passes for one in ones),
        ", ".join(tiers),
        human_ms(sum(one.load_time for one in ones)),
        human_bytes(size) if (size := ones[-1].bytes) else "",
        key,
    )


def decisions_of(view: RunView) -> Iterator[str]:
    """Yield what branches and loops did."""
    counts = Counter((one.node, one.outcome) for one in view.decisions())
    if not counts:
        return
    rows = [
        (printable(node), one_line(outcome), times(count, "time"))
        for (node, outcome), count in counts.items()
    ]
    shown = table(("branch or loop", "what it did", "how often"), rows[:_ROWS])
    yield folded(shown, len(rows), times(min(len(rows), _ROWS), "decision"))
    yield rest(len(rows), _ROWS, "decisions")


def failures_of(view: RunView) -> Iterator[str]:
    """Yield what raised, and what had not ended when nothing more was heard."""
    failures, working = view.failures(), view.working()
    if not failures and not working:
        return
    phases = {one.run_id: one.phase for one in view.calls()}
    rows: list[tuple[object, ...]] = [
        (
            printable(one.node),
            _verb(one.what),
            passes_span([one.passes]),
            printable(phases.get(one.call) or "call"),
            _message(one.error),
        )
        for one in failures
    ]
    left = "not ended yet" if view.state == "running" else "had not ended"
    rows += [
        (
            printable(one.node),
            _verb(one.what),
            passes_span([one.passes]),
            printable(phases.get(one.call) or "call"),
            left,
        )
        for one in working
    ]
    yield table(("node", "in its", "pass", "in a", "what happened"), rows[:_FAILURES])
    yield rest(len(rows), _FAILURES, "failures")


def notices_of(view: RunView) -> Iterator[str]:
    """Yield what a user should hear of although the run went on."""
    counts = Counter((one.kind, one.node, one.message) for one in view.notices())
    if not counts:
        return
    rows = [
        (printable(node), one_line(kind), _message(message), times(count, "time"))
        for (kind, node, message), count in counts.items()
    ]
    shown = table(("node", "what", "message", "how often"), rows[:_FAILURES])
    yield folded(shown, len(rows), times(min(len(rows), _FAILURES), "notice"))
    yield rest(len(rows), _FAILURES, "notices")


def _verb(what: str) -> str:
    return _VERBS.get(what) or printable(what)


def _count(count: int) -> str:
    return f"{count:,}" if count else ""


def _message(text: str) -> Html:
    shown = text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]}…"
    return Html(safe(shown), "pre")


def _share(share: float) -> Html:
    """Return a bar as long as the share of the time."""
    bar = f'<i style="width:{share * 100:.1f}%"></i>' if share > 0.001 else ""  # noqa: PLR2004  # is seen
    return Html(bar, "share")
