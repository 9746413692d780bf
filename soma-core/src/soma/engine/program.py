"""What runs: a plan with its filters, as tuples that are addressed by position.

Frozen, and made once per version of a graph. Positions follow the plan: each node comes after all
that feed it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from soma.identity import NodeIdentity
from soma.nodes import Traits
from soma.plan import Execute, Plan
from soma.topology import Topology

__all__ = ["Program", "build_program"]


@dataclass(frozen=True, kw_only=True)
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
    """Positions that feed a node, in the order of their ids: so they stand in the dict that a
    fan-in is handed, and so they count in its key."""
    after: tuple[tuple[int, ...], ...]
    """Positions that a node feeds."""
    leaves: tuple[int, ...]
    """Nodes that feed nobody, in the order of declaration."""
    feeds_learner: tuple[bool, ...]
    """Whether some trainable node lies below: only these forward during a fit."""
    settled: tuple[bool, ...]
    """Whether neither the node nor one above it can change while the graph trains."""
    slow: set[int] = field(default_factory=set)
    """Nodes that were once slow; grows from run to run."""

    def identity(self, place: int) -> NodeIdentity:
        """Return what reads the identity of a node."""
        id_ = self.ids[place]
        found = self.identities.get(id_)
        if found is None:
            found = self.identities[id_] = NodeIdentity(id_, self.filters[place])
        return found

    @cached_property
    def learners(self) -> tuple[int, ...]:
        """Nodes that learn."""
        return tuple(place for place, one in enumerate(self.traits) if one.trainable)

    @cached_property
    def placed(self) -> tuple[Execute, ...]:
        """Nodes that shall run somewhere else."""
        return tuple(one for one in self.entries if one.target not in (None, "local"))

    @cached_property
    def cached(self) -> tuple[int, ...]:
        """Nodes every output of which is kept."""
        return tuple(place for place, one in enumerate(self.entries) if one.cached)

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """Nodes that get the input of the graph."""
        return tuple(place for place, sources in enumerate(self.before) if not sources)

    @cached_property
    def waiting(self) -> tuple[int, ...]:
        """How many nodes each one waits for."""
        return tuple(map(len, self.before))

    @cached_property
    def uses_in_fit(self) -> tuple[int, ...]:
        """How many takers the output of each node has in a fit; last, the input of the graph."""
        return self._uses([one.trainable for one in self.traits], self.feeds_learner)

    @cached_property
    def uses_in_forward(self) -> tuple[int, ...]:
        """How many takers the output of each node has in a forward; last, the input of the graph.

        The caller is one of a leaf's.
        """
        nobody = [False] * len(self.ids)
        counts = list(self._uses(nobody, [True] * len(self.ids)))
        for leaf in self.leaves:
            counts[leaf] += 1
        return tuple(counts)

    def _uses(self, fits: Sequence[bool], forwards: Sequence[bool]) -> tuple[int, ...]:
        counts = [0] * (len(self.ids) + 1)
        for place, sources in enumerate(self.before):
            for source in sources or (len(self.ids),):
                counts[source] += fits[place] + forwards[place]
        return tuple(counts)


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
    before = tuple(tuple(places[one] for one in sorted(entry.waits_for)) for entry in entries)
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
