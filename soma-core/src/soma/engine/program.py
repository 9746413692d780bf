"""What runs: a plan with its filters, as tuples that are addressed by position.

Frozen, and made once per version of a graph. Positions follow the plan: each node comes after all
that feed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from soma.identity import NodeIdentity
from soma.nodes import Traits
from soma.plan import Execute, Plan
from soma.topology import Topology

__all__ = ["Program", "build_program"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A plan with its filters."""

    plan: Plan
    ids: tuple[str, ...]
    places: Mapping[str, int]
    """Node id -> its position."""
    entries: tuple[Execute, ...]
    filters: tuple[Any, ...]
    traits: tuple[Traits, ...]
    identities: dict[str, NodeIdentity]
    """Node id -> its identity, made when it is first asked for and kept for later versions."""
    before: tuple[tuple[int, ...], ...]
    """Positions that feed a node, in the order of the edges."""
    after: tuple[tuple[int, ...], ...]
    """Positions that a node feeds."""
    leaves: tuple[int, ...]
    """Nodes that feed nobody, in the order of declaration."""
    feeds_learner: tuple[bool, ...]
    """Whether some trainable node lies below: only these forward during a fit."""
    settled: tuple[bool, ...]
    """Whether neither the node nor one above it can change while the graph trains."""

    def identity(self, place: int) -> NodeIdentity:
        """Return what reads the identity of a node."""
        id_ = self.ids[place]
        found = self.identities.get(id_)
        if found is None:
            found = self.identities[id_] = NodeIdentity(id_, self.filters[place])
        return found

    def uses(self, *, fitting: bool) -> list[int]:
        """Return how many takers the output of each node may have."""
        counts = [0] * len(self.ids)
        for place, sources in enumerate(self.before):
            takers = 1
            if fitting:
                takers = self.traits[place].trainable + self.feeds_learner[place]
            for source in sources:
                counts[source] += takers
        if not fitting:
            for leaf in self.leaves:
                counts[leaf] += 1
        return counts

    def root_uses(self, *, fitting: bool) -> int:
        """Return how many takers the input of the graph may have."""
        return sum(
            (self.traits[place].trainable + self.feeds_learner[place]) if fitting else 1
            for place, sources in enumerate(self.before)
            if not sources
        )


def build_program(
    plan: Plan,
    topology: Topology,
    traits: Mapping[str, Traits],
    identities: dict[str, NodeIdentity],
) -> Program:
    """Return the program of a plan."""
    entries = plan.nodes
    ids = tuple(entry.node for entry in entries)
    places = {id_: place for place, id_ in enumerate(ids)}
    before = tuple(tuple(places[one] for one in entry.waits_for) for entry in entries)
    after: list[list[int]] = [[] for _ in ids]
    for place, sources in enumerate(before):
        for source in sources:
            after[source].append(place)
    feeds_learner = [False] * len(ids)
    for place in reversed(range(len(ids))):
        feeds_learner[place] = any(
            feeds_learner[one] or traits[ids[one]].trainable for one in after[place]
        )
    settled: list[bool] = []
    for place, entry in enumerate(entries):
        own = entry.frozen or entry.kind == "stateless"
        settled.append(own and all(settled[one] for one in before[place]))
    return Program(
        plan=plan,
        ids=ids,
        places=places,
        entries=entries,
        filters=tuple(topology.nodes[id_].filter for id_ in ids),
        traits=tuple(traits[id_] for id_ in ids),
        identities=identities,
        before=before,
        after=tuple(map(tuple, after)),
        leaves=tuple(places[id_] for id_ in topology.nodes if not after[places[id_]]),
        feeds_learner=tuple(feeds_learner),
        settled=tuple(settled),
    )
