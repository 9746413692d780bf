"""From what was declared to what runs.

    Topology ──► bodies ──► order (or the circle) ──► schemas ──► blocks ──► shape ──► Plan

Every step is one pass over nodes and edges: nothing grows faster than the graph.
"""

from __future__ import annotations

from collections.abc import Mapping

from soma.compiler.blocks import find_blocks
from soma.compiler.diagnose import diagnose
from soma.compiler.regions import ROOT, Place, Region, find_regions
from soma.compiler.schema_check import check_schemas
from soma.compiler.shape import lay_out
from soma.nodes import Traits, traits_of
from soma.plan import Arm, Branch, Composite, Execute, Loop, Plan, Sequence, Unit
from soma.topology import Declared, DeclaredBranch, DeclaredLoop, Topology

__all__ = ["compile_topology", "traits_by_id"]


def traits_by_id(topology: Topology) -> dict[str, Traits]:
    """Return node id -> what the engine has to know of it; branches and loops have no such."""
    return {id_: traits_of(one.filter) for id_, one in topology.filters.items()}


def compile_topology(topology: Topology, traits: Mapping[str, Traits]) -> Plan:
    """Return the plan of what was declared.

    Raises:
        GraphError: there are no nodes, or a body is not well formed.
        CycleError: the edges go round; the message draws the path.
        SchemaMismatch: a node gives what the next does not take; the message names both.
    """
    regions = find_regions(topology)
    check_schemas(topology, regions, traits)
    root = _Bodies(topology, regions, traits).body(ROOT, None)
    return Plan(root=root, diagnostics=diagnose(topology, regions, traits))


class _Bodies:
    """Makes entries of the nodes of each body; recurses as bodies nest."""

    def __init__(
        self,
        topology: Topology,
        regions: Mapping[Place, Region],
        traits: Mapping[str, Traits],
    ) -> None:
        self._nodes = topology.nodes
        self._regions = regions
        self._traits = traits

    def body(self, place: Place, target: str | None) -> Sequence:
        """Return what lies at a place; ``target`` is what the branch or loop around it says."""
        region = self._regions[place]
        traits = self._traits
        flowing = {id_ for id_ in region.order if id_ in traits and traits[id_].differentiable}
        units: list[Unit] = []
        for block in find_blocks(region.order, region.needs, flowing):
            if block[0] in flowing:
                units.append(
                    Composite(nodes=tuple(self._execute(id_, region, target) for id_ in block))
                )
            else:
                units.append(self._unit(block[0], region, target))
        return lay_out(units)

    def _unit(self, id_: str, region: Region, target: str | None) -> Execute | Branch | Loop:
        declared = self._nodes[id_]
        waits_for = tuple(sorted(region.feeding[id_]))
        if isinstance(declared, DeclaredBranch):
            target = declared.target or target
            arms = (
                Arm(
                    label=label,
                    body=self.body(Place(id_, label), target),
                    terminal=self._regions[Place(id_, label)].terminal,
                )
                for label in declared.arms
            )
            return Branch(
                node=id_, condition=declared.condition, arms=tuple(arms), waits_for=waits_for
            )
        if isinstance(declared, DeclaredLoop):
            inside = self._regions[Place(id_)]
            return Loop(
                node=id_,
                body=self.body(Place(id_), declared.target or target),
                terminal=inside.terminal,
                until=inside.until,
                max_iterations=declared.max_iterations,
                waits_for=waits_for,
            )
        return self._execute(id_, region, target)

    def _execute(self, id_: str, region: Region, target: str | None) -> Execute:
        declared, traits = self._nodes[id_], self._traits[id_]
        assert isinstance(declared, Declared)  # noqa: S101  # for the type checker: it has traits
        return Execute(
            node=id_,
            label=traits.label,
            kind="trainable" if traits.trainable else "stateless",
            waits_for=tuple(sorted(region.feeding[id_])),
            target=declared.target if declared.target is not None else target,
            cached=declared.cached,
            frozen=declared.frozen,
        )
