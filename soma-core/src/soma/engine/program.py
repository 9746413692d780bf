"""What runs: a plan with its filters, as tuples that are addressed by position.

Frozen, and made once per version of a graph. Positions go body by body, the graph itself first, and
in each body every node comes after all that feed it. A plan without branches and loops has one
body. How a body becomes nodes of a run, once or many times, is unfolding.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from soma._lazy import lazy_property
from soma.engine.needs import Layout, Needs, find_needs
from soma.engine.scopes import Branching, Looping, Scope, lay_scopes
from soma.identity import NodeIdentity
from soma.nodes import Traits
from soma.plan import Branch, Execute, Loop, Plan
from soma.topology import Topology

__all__ = ["Branching", "Looping", "Program", "Scope", "build_program"]

ProgramEntry: TypeAlias = Execute | Branch | Loop


@dataclass(frozen=True, kw_only=True)
class Program:
    """A plan with its filters."""

    plan: Plan
    ids: tuple[str, ...]
    places: Mapping[str, int]
    """Node id -> its position."""
    entries: tuple[ProgramEntry, ...]
    filters: tuple[Any, ...]
    """None for branches and loops."""
    traits: tuple[Traits, ...]
    identities: dict[str, NodeIdentity]
    """Node id -> its identity, made when it is first asked for and kept for later versions."""
    scopes: tuple[Scope, ...]
    """The graph itself, then the bodies, each after the one that it lies in."""
    scope_of: tuple[int, ...]
    controls: Mapping[int, Branching | Looping]
    """Position of a branch or loop -> what there is to decide."""
    before: tuple[tuple[int, ...], ...]
    """Positions that feed a node, in the order of their ids: so they stand in the dict that a
    fan-in is handed, and so they count in its key."""
    names: tuple[tuple[str, ...], ...]
    """Their ids."""
    after: tuple[tuple[int, ...], ...]
    """Positions that wait for a node."""
    waiting: tuple[int, ...]
    """How many nodes each one waits for."""
    leaves: tuple[int, ...]
    """Nodes of the graph itself that feed nobody, in the order of declaration."""
    needs: Needs
    """Who needs whose output."""
    slow: set[int] = field(default_factory=set)
    """Nodes that were once slow; grows from run to run."""

    def identity(self, place: int) -> NodeIdentity:
        """Return what reads the identity of a node."""
        id_ = self.ids[place]
        found = self.identities.get(id_)
        if found is None:
            found = self.identities[id_] = NodeIdentity(id_, self.filters[place])
        return found

    @property
    def size(self) -> int:
        """How many nodes the graph itself has, without those in bodies."""
        return self.scopes[0].stop

    @lazy_property
    def learners(self) -> tuple[int, ...]:
        """Nodes that learn."""
        return tuple(place for place, one in enumerate(self.traits) if one.trainable)

    @lazy_property
    def placed(self) -> tuple[Execute, ...]:
        """Nodes that shall run somewhere else."""
        return tuple(
            one
            for one in self.entries
            if isinstance(one, Execute) and one.target not in (None, "local")
        )

    @lazy_property
    def cached(self) -> tuple[int, ...]:
        """Nodes every output of which is kept."""
        return tuple(
            place
            for place, one in enumerate(self.entries)
            if isinstance(one, Execute) and one.cached
        )

    @lazy_property
    def fed_by_control(self) -> frozenset[int]:
        """Nodes that get what a branch or loop gives."""
        return frozenset(
            place
            for place, sources in enumerate(self.before)
            if any(source in self.controls for source in sources)
        )

    @lazy_property
    def roots(self) -> tuple[tuple[int, ...], ...]:
        """Nodes of each scope that wait for nothing, the last first."""
        return tuple(
            tuple(
                place
                for place in reversed(range(scope.start, scope.stop))
                if not self.waiting[place]
            )
            for scope in self.scopes
        )

    def loops_around(self, place: int) -> tuple[str, ...]:
        """Return the ids of the loops that a node lies in, outermost first."""
        found: list[str] = []
        scope = self.scopes[self.scope_of[place]]
        while scope.control >= 0:
            if isinstance(self.controls[scope.control], Looping):
                found.append(self.ids[scope.control])
            scope = self.scopes[self.scope_of[scope.control]]
        return tuple(reversed(found))


def build_program(
    plan: Plan,
    topology: Topology,
    traits: Mapping[str, Traits],
    identities: dict[str, NodeIdentity],
) -> Program:
    """Return the program of a plan."""
    entries, scopes, controls = lay_scopes(plan)
    ids = tuple(entry.node for entry in entries)
    places = {id_: place for place, id_ in enumerate(ids)}
    filters = topology.filters
    names = tuple(tuple(sorted(entry.waits_for)) for entry in entries)
    before = tuple(tuple(places[one] for one in sources) for sources in names)
    after: list[list[int]] = [[] for _ in ids]
    for place, entry in enumerate(entries):
        for one in entry.needs:
            after[places[one]].append(place)
    all_traits = tuple(traits.get(id_, _CONTROL) for id_ in ids)
    leaves = (places[id_] for id_ in topology.nodes if not after[places[id_]])
    size = scopes[0].stop
    return Program(
        plan=plan,
        ids=ids,
        places=places,
        entries=entries,
        filters=tuple(filters[id_].filter if id_ in filters else None for id_ in ids),
        traits=all_traits,
        identities=identities,
        scopes=scopes,
        scope_of=_scope_of(scopes),
        controls=controls,
        before=before,
        names=names,
        after=tuple(map(tuple, after)),
        waiting=tuple(len(entry.needs) for entry in entries),
        leaves=tuple(leaf for leaf in leaves if leaf < size),
        needs=find_needs(
            Layout(
                scopes=scopes,
                controls=controls,
                entries=entries,
                traits=all_traits,
                before=before,
                after=after,
            )
        ),
    )


def _scope_of(scopes: Iterable[Scope]) -> tuple[int, ...]:
    return tuple(number for number, one in enumerate(scopes) for _ in range(one.start, one.stop))


_CONTROL = Traits(
    label="",
    is_function=False,
    trainable=False,
    has_fit=False,
    differentiable=False,
    needs_y=False,
    fit_takes=frozenset(),
    forward_takes=frozenset(),
    cacheable=False,
    deterministic=True,
    uses_seed=False,
    input_schema=None,
    output_schema=None,
)
"""Stands for a branch or loop among the traits of nodes."""
