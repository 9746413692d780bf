"""Whether neighbours fit together, also across the borders of bodies.

What a branch gives is what one of its arms ends in; what the first nodes of a body are given is
what feeds the branch or loop, and in a loop also what its own last node gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from soma.compiler.regions import Place, Region
from soma.errors import SchemaMismatch
from soma.nodes import Traits
from soma.schemas import clash_of
from soma.topology import DeclaredBranch, DeclaredLoop, Topology

__all__ = ["check_schemas"]


def check_schemas(
    topology: Topology, regions: Mapping[Place, Region], traits: Mapping[str, Traits]
) -> None:
    """Compare neighbours. A fan-in gets a dict of its inputs, which no schema describes.

    Raises:
        SchemaMismatch: a node gives what the next does not take; the message names both.
    """
    ends = _Ends(topology, regions, traits)
    for place, region in regions.items():
        for id_, sources in region.feeding.items():
            if id_ not in traits or traits[id_].input_schema is None:
                continue
            for giver in ends.of_sources(place, sources):
                _compare(giver, id_, traits)
            if not sources and ends.goes_back(place):
                for giver in ends.of_sources(place, [region.terminal]):
                    _compare(giver, id_, traits, f" in the next pass of loop {place.control!r}")


def _compare(giver: str, taker: str, traits: Mapping[str, Traits], when: str = "") -> None:
    clash = clash_of(traits[giver].output_schema, traits[taker].input_schema)
    if clash:
        raise SchemaMismatch(
            f"{giver!r} ({traits[giver].label}) does not fit {taker!r} ({traits[taker].label})"
            f"{when}: {clash}. Put a node between them that converts, or mend _output_schema or "
            "_input_schema"
        )


class _Ends:
    """Finds the nodes whose outputs may stand on an edge."""

    def __init__(
        self,
        topology: Topology,
        regions: Mapping[Place, Region],
        traits: Mapping[str, Traits],
    ) -> None:
        self._topology = topology
        self._regions = regions
        self._traits = traits
        self._home = {id_: place for place, region in regions.items() for id_ in region.order}
        self._given: dict[str, tuple[str, ...]] = {}
        self._entering: dict[Place, tuple[str, ...]] = {}

    def of_sources(self, place: Place, sources: list[str]) -> tuple[str, ...]:
        """Return the nodes one of which gives what a node with these sources gets."""
        if len(sources) == 1:
            return self._of(sources[0])
        return () if sources else self._into(place)

    def _of(self, id_: str) -> tuple[str, ...]:
        """Return the nodes one of which gives what this one gives; recurses as bodies nest."""
        if id_ in self._traits:
            return (id_,) if self._traits[id_].output_schema is not None else ()
        if id_ not in self._given:
            ends = (self._regions[place].terminal for place in self._bodies(id_))
            found = (one for end in ends for one in self._of(end))
            self._given[id_] = self._distinct(found)
        return self._given[id_]

    def goes_back(self, place: Place) -> bool:
        """Say whether what a body gives is what it gets the next time."""
        loop = self._topology.nodes.get(place.control)
        return isinstance(loop, DeclaredLoop) and loop.max_iterations > 1

    def _distinct(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Return one node for each schema: many arms of one class are compared once."""
        by_schema: dict[str, str] = {}
        for id_ in ids:
            by_schema.setdefault(repr(self._traits[id_].output_schema), id_)
        return tuple(by_schema.values())

    def _into(self, place: Place) -> tuple[str, ...]:
        """Return the nodes one of which gives the input of a body."""
        if not place.control:
            return ()
        if place not in self._entering:
            outside = self._home[place.control]
            found = self.of_sources(outside, self._regions[outside].feeding[place.control])
            if self.goes_back(outside) and not self._regions[outside].feeding[place.control]:
                found += self._of(self._regions[outside].terminal)
            self._entering[place] = self._distinct(found)
        return self._entering[place]

    def _bodies(self, id_: str) -> Iterator[Place]:
        declared = self._topology.nodes[id_]
        if isinstance(declared, DeclaredBranch):
            yield from (Place(id_, label) for label in declared.arms)
        elif isinstance(declared, DeclaredLoop):
            yield Place(id_)
