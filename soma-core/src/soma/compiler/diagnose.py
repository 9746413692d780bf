"""What the compiler says about a graph that it compiles all the same.

    dangling    a node without any edge, which usually is a missing parenthesis
    condition   a branch that is fed by nothing but what it asks
    joined      a node that was declared after a branch or loop, and lies in it by an edge
    gradients   a node that is not differentiable between two that are: what lies above it learns
                nothing from what lies below, where gradients start anew. Of several ways down to
                one node that is not differentiable the first is told

Blocks that train as one end at the borders of branches and loops, so these break the flow too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from soma.compiler.regions import ROOT, Place, Region
from soma.nodes import Traits
from soma.plan import Diagnostic
from soma.topology import DeclaredBranch, DeclaredLoop, Topology

__all__ = ["diagnose"]


def diagnose(
    topology: Topology, regions: Mapping[Place, Region], traits: Mapping[str, Traits]
) -> tuple[Diagnostic, ...]:
    """Return what there is to say, without repeating itself."""
    found = [*_dangling(regions[ROOT], traits)]
    if len(regions) > 1:
        found += _fed_by_condition(topology, regions)
        found += _joined(topology, regions)
    if any(one.differentiable for one in traits.values()):
        first_inside = _first_inside(regions, traits)
        for region in regions.values():
            found += _broken_flow(region, traits, first_inside)
    return tuple(dict.fromkeys(found))


def _dangling(root: Region, traits: Mapping[str, Traits]) -> Iterator[Diagnostic]:
    conditions = {
        one for id_, sources in root.needs.items() for one in sources[len(root.feeding[id_]) :]
    }
    if len(root.order) - len(conditions) <= 1:
        return
    needed = {id_ for sources in root.needs.values() for id_ in sources}
    for id_ in root.order:
        if not root.feeding[id_] and id_ not in needed:
            hint = ". In an expression, a | b >> c means a | (b >> c)" if id_ in traits else ""
            yield Diagnostic(
                node=id_,
                level="warning",
                message=f"{id_!r} has no edges: it gets the input of the graph, and its output is "
                f"one of the graph's{hint}",
            )


def _fed_by_condition(topology: Topology, regions: Mapping[Place, Region]) -> Iterator[Diagnostic]:
    for region in regions.values():
        for id_, sources in region.feeding.items():
            declared = topology.nodes[id_]
            if isinstance(declared, DeclaredBranch) and sources == [declared.condition]:
                yield Diagnostic(
                    node=id_,
                    level="warning",
                    message=f"{id_!r} is fed by its own condition {declared.condition!r} alone, so "
                    "that its arms get what that says. Right if it is a dict with the data beside "
                    "'branch'; else feed the branch what the arms are to get",
                )


def _joined(topology: Topology, regions: Mapping[Place, Region]) -> Iterator[Diagnostic]:
    number = {id_: count for count, id_ in enumerate(topology.nodes)}
    edges = set(topology.edges)
    for place, region in regions.items():
        declared = topology.nodes.get(place.control)
        if isinstance(declared, DeclaredBranch):
            named = declared.arms[str(place.arm)]
        elif isinstance(declared, DeclaredLoop):
            named = (*declared.body, str(declared.until))
        else:
            continue
        joined: set[str] = set()
        late = (id_ for id_ in region.order if number[id_] > number[place.control])
        for id_ in late:
            source = next(iter(region.feeding[id_]), "")
            if id_ in named or (source, id_) not in edges:
                continue
            hangs = source in joined
            joined.add(id_)
            if not hangs:  # on one that was told of
                yield Diagnostic(
                    node=id_,
                    level="warning",
                    message=f"{id_!r} was declared after {place.control!r} and lies in {place}, "
                    f"since {source!r} feeds it. If it shall come after {place.control!r}, feed it "
                    f"from there instead: g.edge({place.control!r}, {id_!r}) in place of "
                    f"g.edge({source!r}, {id_!r})",
                )


def _first_inside(regions: Mapping[Place, Region], traits: Mapping[str, Traits]) -> dict[str, str]:
    """Return branch or loop -> a differentiable node somewhere in it."""
    home = {id_: place for place, region in regions.items() for id_ in region.order}
    found: dict[str, str] = {}
    for place, region in regions.items():
        inner = next(
            (one for one in region.order if one in traits and traits[one].differentiable), ""
        )
        while inner and place.control and place.control not in found:
            found[place.control] = inner
            place = home[place.control]  # noqa: PLW2901  # and in what that lies in
    return found


def _broken_flow(
    region: Region, traits: Mapping[str, Traits], first_inside: Mapping[str, str]
) -> Iterator[Diagnostic]:
    """Follow gradients down: which differentiable node lies above each, and what cuts it off."""
    above: dict[str, str] = {}
    breaks: dict[str, str] = {}
    for id_ in region.order:
        flows = id_ in traits and traits[id_].differentiable
        for one in region.feeding[id_]:
            lies_above, broken_by = above.get(one), breaks.get(one)
            if lies_above is None:
                continue
            restarts = id_ if flows else first_inside.get(id_)
            if restarts is not None and (broken_by is not None or not flows):
                yield _broken(broken_by or id_, lies_above, restarts, traits)
            if not flows and id_ not in above:
                above[id_] = lies_above
                breaks[id_] = broken_by or id_
        if flows or id_ in first_inside:
            above[id_] = id_ if flows else first_inside[id_]
            breaks.pop(id_, None)
            if not flows:
                breaks[id_] = id_


def _broken(node: str, above: str, restarts: str, traits: Mapping[str, Traits]) -> Diagnostic:
    what = (
        f"{node!r} ({traits[node].label}) is not differentiable"
        if node in traits
        else (f"{node!r} is a branch or a loop, at whose borders gradients end")
    )
    return Diagnostic(
        node=node,
        level="warning",
        message=f"{what}: {above!r} above it learns nothing from {restarts!r} below it, where "
        "gradients start anew",
    )
