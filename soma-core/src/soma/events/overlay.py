"""What a run did, as it is laid over the picture of its graph.

    rows, decisions, failures ──► Overlay: node id -> outcome, and a few words

A branch or a loop has done what the worst of the nodes in it has: where one failed, it failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from soma.events.human import human_ms, times
from soma.events.table import NodeSummary
from soma.pictures.overlay import OUTCOMES, Did, Outcome, Overlay
from soma.plan import Branch, Loop, Plan, Sequence, units_of

__all__ = ["overlay_of"]


class Decided(Protocol):
    """What a branch or loop did: what ``soma.engine.Decision`` looks like."""

    @property
    def node(self) -> str:
        """Its id."""

    @property
    def outcome(self) -> str:
        """In words."""

    @property
    def arm(self) -> str | None:
        """Of a branch: the arm."""

    @property
    def iterations(self) -> int | None:
        """Of a loop: how many passes it made."""


def overlay_of(
    plan: Plan,
    summaries: Iterable[NodeSummary],
    decisions: Iterable[Decided],
    *,
    failed: Iterable[str] = (),
    running: Iterable[str] = (),
    unfinished: Iterable[str] = (),
    title: str = "",
) -> Overlay:
    """Return what was done with each node, branch and loop that was reached.

    Args:
        plan: the plan of the graph.
        summaries: what was done with nodes.
        decisions: what branches and loops did, in order.
        failed: ids of nodes that raised.
        running: ids of nodes that have begun and not ended.
        unfinished: ids of nodes that were running when all of it ended.
        title: what the run was.
    """
    nodes = {one.node: Did(outcome=_outcome(one), text=_words(one)) for one in summaries}
    nodes |= {id_: Did(outcome="running") for id_ in running}
    nodes |= {id_: Did(outcome="unfinished") for id_ in unfinished}
    nodes |= {id_: Did(outcome="failed") for id_ in failed}
    told: dict[str, list[Decided]] = {}
    for one in decisions:
        told.setdefault(one.node, []).append(one)
    for unit, inside in _controls(plan.root):
        reached = [nodes[id_].outcome for id_ in inside if id_ in nodes]
        own = told.get(unit.node, [])
        if reached or own:
            nodes[unit.node] = _control(own, reached)
    return Overlay(nodes=nodes, title=title)


def _outcome(one: NodeSummary) -> Outcome:
    if one.computed:
        return "computed"
    return "recomputed" if one.recomputed else "hit"


def _words(one: NodeSummary) -> str:
    """Return counts where there is more than one of a kind, and the time that was spent."""
    once = one.fits <= 1 and one.forwards <= 1
    counts: Mapping[str, int] = {"computed": one.computed, "recomputed": one.recomputed}
    said = [name if once else f"{count} {name}" for name, count in counts.items() if count]
    if one.hits and (said or not once):
        said.append(times(one.hits, "hit"))
    elif one.hits:
        said.append("hit")
    return ", ".join([*said, *([human_ms(one.duration_ms)] if one.duration_ms else [])])


def _controls(body: Sequence) -> Iterator[tuple[Branch | Loop, list[str]]]:
    """Yield every branch and loop, the inner ones first, with the ids that lie in it."""
    for unit in units_of(body):
        if isinstance(unit, Branch | Loop):
            for inner in unit.bodies:
                yield from _controls(inner)
            yield unit, [id_ for one in unit.bodies for each in units_of(one) for id_ in each.ids]


def _control(own: list[Decided], reached: list[Outcome]) -> Did:
    return Did(
        outcome=max(reached, key=OUTCOMES.index, default="computed"),
        text=_decided(own),
        arms=tuple(dict.fromkeys(one.arm for one in own if one.arm is not None)),
    )


def _decided(own: list[Decided]) -> str:
    """Return in a few words how a branch or loop went, each time that it was reached."""
    counts = Counter(one.outcome for one in own)
    if len(counts) <= 1:
        again = f", {len(own)} times" if len(own) > 1 else ""
        return f"{own[0].outcome}{again}" if own else ""
    passes = [one.iterations for one in own if one.iterations is not None]
    if passes:
        least, most = min(passes), max(passes)
        return f"{least} to {times(most, 'pass')}, {len(own)} times"
    arms = Counter(one.arm for one in own)
    return ", ".join(f"{arm!r} {times(count, 'time')}" for arm, count in arms.items())
