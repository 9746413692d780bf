"""From what was declared to what runs.

    Topology ──► order (or the circle) ──► schemas ──► blocks ──► shape ──► Plan

Every step is one pass over nodes and edges: nothing grows faster than the graph.
"""

from __future__ import annotations

from collections.abc import Mapping

from soma.compiler.blocks import find_blocks
from soma.compiler.shape import lay_out
from soma.errors import SchemaMismatch
from soma.nodes import Traits, traits_of
from soma.plan import Composite, Diagnostic, Execute, Plan
from soma.schemas import clash_of
from soma.topology import Topology

__all__ = ["compile_topology", "traits_by_id"]


def traits_by_id(topology: Topology) -> dict[str, Traits]:
    """Return node id -> what the engine has to know of it."""
    return {id_: traits_of(one.filter) for id_, one in topology.nodes.items()}


def compile_topology(topology: Topology, traits: Mapping[str, Traits]) -> Plan:
    """Return the plan of what was declared.

    Raises:
        GraphError: there are no nodes.
        CycleError: the edges go round; the message draws the path.
        SchemaMismatch: a node gives what the next does not take; the message names both.
    """
    feeding = topology.predecessors()
    order = topology.order(feeding)
    _check_schemas(feeding, traits)
    entries = {
        id_: Execute(
            node=id_,
            label=traits[id_].label,
            kind="trainable" if traits[id_].trainable else "stateless",
            waits_for=tuple(sorted(feeding[id_])),
            target=topology.nodes[id_].target,
            cached=topology.nodes[id_].cached,
            frozen=topology.nodes[id_].frozen,
        )
        for id_ in order
    }
    blocks = find_blocks(order, feeding, {id_ for id_ in order if traits[id_].differentiable})
    units = [
        Composite(nodes=tuple(entries[id_] for id_ in block))
        if traits[block[0]].differentiable
        else entries[block[0]]
        for block in blocks
    ]
    return Plan(root=lay_out(units), diagnostics=tuple(_diagnose(order, feeding)))


def _check_schemas(feeding: Mapping[str, list[str]], traits: Mapping[str, Traits]) -> None:
    """Compare neighbours. A fan-in gets a dict of its inputs, which no schema describes."""
    for id_, sources in feeding.items():
        taken = traits[id_].input_schema
        if taken is None or len(sources) != 1:
            continue
        clash = clash_of(traits[sources[0]].output_schema, taken)
        if clash:
            raise SchemaMismatch(
                f"{sources[0]!r} ({traits[sources[0]].label}) does not fit {id_!r} "
                f"({traits[id_].label}): {clash}. Put a node between them that converts, or mend "
                "_output_schema or _input_schema"
            )


def _diagnose(order: list[str], feeding: Mapping[str, list[str]]) -> list[Diagnostic]:
    if len(order) == 1:
        return []
    linked = {id_ for sources in feeding.values() for id_ in sources}
    return [
        Diagnostic(
            node=id_,
            level="warning",
            message=f"{id_!r} has no edges: it gets the input of the graph, and its output is one "
            "of the graph's. In an expression, a | b >> c means a | (b >> c)",
        )
        for id_ in order
        if not feeding[id_] and id_ not in linked
    ]
