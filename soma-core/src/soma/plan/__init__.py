"""What the compiler makes of a graph: frozen, plain data that goes to JSON and back.

    Plan.root      Sequence( Execute | Composite | Branch | Loop | Parallel( ... ), ... )
    Plan.entries   the same without the nesting, each after what it waits for

Sequence and Parallel are how a plan is shown and sent. What holds when it runs is ``waits_for``:
an entry starts as soon as the entries that it names are done. A plan has no objects in it: filters
are found by their ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from soma._lazy import lazy_property
from soma.errors import SomaError
from soma.plan.data import FORMAT, plan_from_data, plan_to_data
from soma.plan.entries import (
    MAX_NESTED,
    Arm,
    Branch,
    Composite,
    Diagnostic,
    Entry,
    Execute,
    Loop,
    Parallel,
    Sequence,
    Unit,
    nodes_of,
    units_of,
)

if TYPE_CHECKING:
    from soma.pictures import Overlay

__all__ = [
    "FORMAT",
    "MAX_NESTED",
    "SHOWN_NODES",
    "Arm",
    "Branch",
    "Composite",
    "Diagnostic",
    "Entry",
    "Execute",
    "Loop",
    "Parallel",
    "Plan",
    "Sequence",
    "Unit",
    "units_of",
]

SHOWN_NODES = 150
"""A notebook shows larger graphs as text."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A compiled graph."""

    root: Sequence
    diagnostics: tuple[Diagnostic, ...] = ()

    @lazy_property
    def entries(self) -> tuple[Unit, ...]:
        """What runs, each after what it waits for; what lies in branches and loops is in these."""
        return tuple(units_of(self.root))

    @lazy_property
    def nodes(self) -> tuple[Execute, ...]:
        """Every node, each after what it waits for, those in branches and loops at their place."""
        return tuple(nodes_of(self.root))

    @lazy_property
    def leaves(self) -> tuple[str, ...]:
        """The ids that feed nobody: their outputs are what a forward returns."""
        feeding = {id_ for entry in self.entries for one in _parts(entry) for id_ in one.needs}
        return tuple(id_ for entry in self.entries for id_ in entry.ids if id_ not in feeding)

    @property
    def parallel_branches(self) -> int:
        """How many entries lie side by side at the widest place; 1 for a chain."""
        widest, bodies = 1, [self.root]
        for body in bodies:  # which grows meanwhile
            for step in body.steps:
                if isinstance(step, Parallel):
                    widest = max(widest, len(step.branches))
            bodies += [
                one
                for unit in units_of(body)
                if isinstance(unit, Branch | Loop)
                for one in unit.bodies
            ]
        return widest

    def to_json(self) -> str:
        """Return the plan as JSON; ``Plan.from_json`` gives an equal plan."""
        return plan_to_data(self.root, self.diagnostics)

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """Return the plan that was written by ``to_json``.

        Raises:
            PlanError: the text is no such plan; the message says where.
        """
        root, diagnostics = plan_from_data(text)
        return cls(root=root, diagnostics=diagnostics)

    def to_svg(self, overlay: Overlay | None = None) -> str:
        """Return a picture: SVG that needs nothing else.

        Args:
            overlay: what a run did, laid over it.

        Raises:
            InvalidInput: there is too much for a picture; the message says how much would do.
        """
        from soma.pictures import draw  # which only those who look need
        from soma.plan.picture import scene_of

        return draw(scene_of(self), overlay)

    def to_mermaid(self, overlay: Overlay | None = None) -> str:
        """Return the text of a flowchart, as GitHub and others draw it (mermaid).

        Args:
            overlay: what a run did, laid over it.
        """
        from soma.pictures import mermaid  # as above
        from soma.plan.picture import scene_of

        return mermaid(scene_of(self), overlay)

    def _repr_html_(self) -> str | None:
        try:
            return self.to_svg() if len(self.nodes) <= SHOWN_NODES else None
        except SomaError:
            return None  # then its repr is shown

    def __repr__(self) -> str:
        return f"<Plan: nodes={len(self.nodes)}, parallel_branches={self.parallel_branches}>"


def _parts(entry: Unit) -> tuple[Execute | Branch | Loop, ...]:
    return entry.nodes if isinstance(entry, Composite) else (entry,)
