"""What happened in a run, node by node: the engine's own record.

Notices are what a user should hear of although the run goes on. They go to the report, and the
unexpected ones to stderr as well, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from soma._html import preformatted
from soma.events.human import human_ms, one_line, passes_text, printable
from soma.events.table import summarize, table_text
from soma.plan import Plan

if TYPE_CHECKING:
    from soma.pictures import Overlay

__all__ = ["Decision", "Failure", "NodeRun", "Notice", "RunReport"]


class NodeRun(NamedTuple):
    """One fit or forward of one node."""

    node: str
    what: str
    """``"state"`` for a fit, ``"output"`` for a forward."""
    outcome: str
    """``"hit"``: answered from the cache. ``"computed"``. ``"recomputed"``: known, but not kept."""
    duration_ms: float
    """What it took to compute; 0 for a hit."""
    bytes: int
    """Size of what came out, as a frame; 0 where nobody measured."""
    passes: tuple[int, ...] = ()
    """Pass numbers of the loops around it, outermost first."""
    key: str = ""
    """The key under which it was known, or was looked for; empty where it was not looked for."""
    worker: str = ""
    """Who has computed it, where that was another process."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that a user should hear of."""

    kind: str
    """``"NodeNotKept"``, ``"NodeRecomputed"``, ``"NodeNotDeterministic"`` or
    ``"LoopNotStopped"``: it came to ``max_iterations``, and its ``until`` never said stop."""
    node: str
    """Empty for the input of the graph."""
    message: str


class Decision(NamedTuple):
    """What one branch or loop did, one time that it was reached."""

    node: str
    outcome: str
    """In words: ``"took arm 'a'"``, ``"3 passes, stopped"``."""
    passes: tuple[int, ...] = ()
    """Pass numbers of the loops around it, outermost first."""
    arm: str | None = None
    """Of a branch: the arm."""
    iterations: int | None = None
    """Of a loop: how many passes it made."""
    stopped: bool | None = None
    """Of a loop: whether its ``until`` ended it; None where it has none (``until=False``)."""


class Failure(NamedTuple):
    """A node that raised."""

    node: str
    what: str
    """As of ``NodeRun``."""
    error: str
    """Type and message."""
    passes: tuple[int, ...] = ()
    """Pass numbers of the loops around it, outermost first."""


@dataclass(slots=True)
class RunReport:
    """What one ``fit`` or ``forward`` did.

    >>> report = RunReport("fit")
    >>> report.actions += [NodeRun("a", "state", "hit", 0.0, 8)]
    >>> print(report)
    fit: 1 hit, 0 computed
    """

    phase: str
    """``"fit"`` or ``"forward"``."""
    actions: list[NodeRun] = field(default_factory=list)
    """In the order in which they were finished."""
    notices: list[Notice] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    """What branches and loops did, in the order in which they decided."""
    failures: list[Failure] = field(default_factory=list)
    error: str = ""
    """Type and message of what ended it; empty where nothing did."""
    duration_ms: float = 0.0
    run_id: str = ""
    """What its events call it."""
    refreshed: frozenset[str] = frozenset()
    """Nodes that were to be computed anew although they are known."""

    @property
    def hits(self) -> int:
        """How many fits and forwards were answered from the cache."""
        return sum(one.outcome == "hit" for one in self.actions)

    @property
    def computed(self) -> tuple[str, ...]:
        """The nodes of which something had to be computed, each once, in order."""
        return tuple(self._nodes_with("computed", "recomputed"))

    @property
    def reused(self) -> tuple[str, ...]:
        """The nodes of which nothing had to be computed, in order."""
        computed = set(self.computed)
        return tuple(one for one in self._nodes_with("hit") if one not in computed)

    def to_text(self) -> str:
        """Return a table: what was done with each node, how long it took, how large it is."""
        title = f"{self.phase}, {human_ms(self.duration_ms)}"
        lines = [table_text(summarize(self.actions), title)]
        told = Counter((one.node, one.outcome) for one in self.decisions)
        lines += [
            f"{printable(node)}: {outcome}{f', {count} times' if count > 1 else ''}"
            for (node, outcome), count in told.items()
        ]
        lines += [f"{_failed(one)}: {one_line(one.error)}" for one in self.failures]
        if self.error and not self.failures:
            lines.append(f"failed: {one_line(self.error)}")
        return "\n".join(lines)

    def overlay(self, plan: Plan) -> Overlay:
        """Return what was done, as it is laid over the picture of the plan that was run."""
        from soma.events.overlay import overlay_of  # which only those who look need

        title = f"{self.phase}, {human_ms(self.duration_ms)}"
        failed = [one.node for one in self.failures]
        return overlay_of(plan, summarize(self.actions), self.decisions, failed=failed, title=title)

    def _repr_html_(self) -> str:
        return preformatted(self.to_text())

    def __str__(self) -> str:
        hits = self.hits
        count = len(self.actions) - hits
        names = f": {', '.join(self.computed)}" if count else ""
        failed = ", ".join(dict.fromkeys(printable(one.node) for one in self.failures))
        ended = f"; failed at {failed}" if failed else "; failed" if self.error else ""
        return f"{self.phase}: {hits} hit{'s' * (hits != 1)}, {count} computed{names}{ended}"

    def _nodes_with(self, *outcomes: str) -> Iterator[str]:
        return iter(dict.fromkeys(one.node for one in self.actions if one.outcome in outcomes))


def _failed(one: Failure) -> str:
    verb = "fit" if one.what == "state" else "forward"
    passes = f" ({passes_text(one.passes)})" if one.passes else ""
    return f"{printable(one.node)} failed in {verb}{passes}"
