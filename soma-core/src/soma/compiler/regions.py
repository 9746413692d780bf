"""Which nodes lie in which body: the graph itself, each arm of a branch, the body of each loop.

A body holds the nodes that were named for it and all that edges lead to from there. Each node lies
in one body and no other, and no edge leads into a body or out of it: what a body is given comes
from its branch or loop, and so does what follows get. A branch that lies in a body is one node
there; its arms are bodies of their own.

A condition that has no edges of its own stands beside its branch and is fed what the branch is fed;
an ``until`` without edges gets the output of the last node of the body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from soma.compiler.order import sort_nodes
from soma.errors import GraphError
from soma.plan import MAX_NESTED
from soma.topology import DeclaredBranch, DeclaredLoop, Topology

__all__ = ["ROOT", "Place", "Region", "find_regions"]


class Place(NamedTuple):
    """Where a body hangs: the branch or loop, and the label of the arm."""

    control: str
    arm: str | None = None

    def __str__(self) -> str:
        if not self.control:
            return "the graph itself"
        if self.arm is None:
            return f"the body of loop {self.control!r}"
        return f"arm {self.arm!r} of branch {self.control!r}"


ROOT = Place("")
"""The graph itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """One body, or the graph itself."""

    order: list[str]
    """Its nodes, each after all that it needs."""
    feeding: Mapping[str, list[str]]
    """Node -> what feeds it; none: it gets the input of the body."""
    needs: Mapping[str, list[str]]
    """Node -> what must be done before: what feeds it, and the condition of a branch."""
    terminal: str = ""
    """The node whose output is the body's; empty for the graph itself."""
    until: str | None = None
    """The node that says whether a loop stops, where one does."""


def find_regions(topology: Topology) -> dict[Place, Region]:
    """Return every body by its place.

    Raises:
        GraphError: there are no nodes, a node would lie in two bodies, an edge leads into one, or
            its nodes do not end in a single one.
        CycleError: edges go round; the message draws the path.
    """
    if not topology.nodes:
        raise GraphError("The graph is empty. Add a node first: g.node(MyFilter())")
    feeding = topology.predecessors()
    branches = {id_: one for id_, one in topology.nodes.items() if isinstance(one, DeclaredBranch)}
    loops = {id_: one for id_, one in topology.nodes.items() if isinstance(one, DeclaredLoop)}
    if not branches and not loops:
        return {ROOT: Region(order=sort_nodes(feeding), feeding=feeding, needs=feeding)}
    claims = _Claims(topology, feeding, branches, loops)
    claims.check_nesting()
    claims.check_edges()
    return {place: _region(claims, place, ids) for place, ids in claims.members().items()}


class _Claims:
    """Which body each node lies in."""

    def __init__(
        self,
        topology: Topology,
        feeding: dict[str, list[str]],
        branches: Mapping[str, DeclaredBranch],
        loops: Mapping[str, DeclaredLoop],
    ) -> None:
        self.topology = topology
        self.feeding = feeding
        self.branches = branches
        self.loops = loops
        self.after: dict[str, list[str]] = {id_: [] for id_ in feeding}
        for source, target in topology.edges:
            self.after[source].append(target)
        self.alone = {id_ for id_ in feeding if not feeding[id_] and not self.after[id_]}
        """Nodes without any edge."""
        self.asked_by: dict[str, list[str]] = {}
        """Condition -> the branches that ask it."""
        for id_, branch in branches.items():
            self.asked_by.setdefault(branch.condition, []).append(id_)
        self.owner: dict[str, Place] = {}
        for place, ids in self.bodies():
            self._claim(place, ids)

    def bodies(self) -> Iterator[tuple[Place, tuple[str, ...]]]:
        """Yield every body and what was named for it."""
        for id_, branch in self.branches.items():
            for label, members in branch.arms.items():
                yield Place(id_, label), members
        for id_, loop in self.loops.items():
            yield Place(id_), loop.body + ((loop.until,) if loop.until in self.alone else ())

    def place_of(self, id_: str) -> Place:
        """Return the body that a node lies in."""
        return self.owner.get(id_, ROOT)

    def _claim(self, place: Place, ids: tuple[str, ...]) -> None:
        stack = list(reversed(ids))
        while stack:
            one = stack.pop()
            owner = self.owner.get(one)
            if owner == place:
                continue
            if owner is not None:
                raise GraphError(_claimed_twice(one, owner, place))
            self.owner[one] = place
            stack += reversed(self.after[one])
            branch = self.branches.get(one)
            if branch is not None and branch.condition in self.alone:
                stack.append(branch.condition)

    def check_edges(self) -> None:
        """Refuse edges into a body, and conditions that lie elsewhere than what asks them.

        Raises:
            GraphError: there is one; the message names the nodes.
        """
        for source, target in self.topology.edges:
            place = self.place_of(target)
            if source == place.control:
                raise GraphError(self._fed_by_own(target, place))
            if self.place_of(source) != place:
                raise GraphError(
                    f"{source!r} feeds {target!r}, which lies in {place}, from outside. Into a "
                    f"body goes only what its branch or loop is given: g.edge({source!r}, "
                    f"{place.control!r}), and let what {target!r} needs be part of that"
                )
        for id_, branch in self.branches.items():
            lies, place = self.place_of(branch.condition), self.place_of(id_)
            if lies != place:
                raise GraphError(
                    f"{branch.condition!r}, the condition of {id_!r}, lies in {lies}, and the "
                    f"branch in {place}. A condition lies beside its branch"
                )
        for id_, loop in self.loops.items():
            if loop.until and self.place_of(loop.until) != Place(id_):
                raise GraphError(
                    f"{loop.until!r}, the until of {id_!r}, lies in {self.place_of(loop.until)} "
                    f"and must lie in {Place(id_)}: outside of it, it would say the same every time"
                )

    def _fed_by_own(self, target: str, place: Place) -> str:
        """Return what is wrong with an edge from a branch or loop to a node in it."""
        source = place.control
        inside = [one for one in self.feeding[target] if self.place_of(one) == place]
        if not inside:
            return (
                f"{source!r} feeds {target!r}, which lies in {place}. What is named for a body is "
                f"fed by itself: take the edge {source!r} -> {target!r} away, or name another node"
            )
        return (
            f"{target!r} is fed by {source!r} and by {inside[0]!r}, which lies in {place}. What "
            f"{source!r} gives is what that ends in: take the edge {inside[0]!r} -> {target!r} away"
        )

    def check_nesting(self) -> None:
        """Refuse bodies that lie in themselves, or too deep.

        Raises:
            GraphError: there is one; the message names the branch or loop.
        """
        for control in (*self.branches, *self.loops):
            inside, around = self.place_of(control), {control}
            while inside.control:
                if inside.control in around:
                    raise GraphError(
                        f"{inside.control!r} lies in itself: it is reached from {inside}"
                    )
                around.add(inside.control)
                if len(around) > MAX_NESTED:
                    raise GraphError(
                        f"{control!r} lies deeper in branches and loops than {MAX_NESTED}"
                    )
                inside = self.place_of(inside.control)

    def members(self) -> dict[Place, list[str]]:
        """Return the nodes of each body, in the order of declaration."""
        found: dict[Place, list[str]] = {ROOT: []}
        found.update((place, []) for place, _ in self.bodies())
        for id_ in self.topology.nodes:
            found[self.place_of(id_)].append(id_)
        return found


def _claimed_twice(id_: str, owner: Place, place: Place) -> str:
    told = f"{id_!r} would lie in {owner} and in {place}"
    if owner.control == place.control:
        return (
            f"{told}. What comes after a branch is fed by the branch itself, whichever arm was "
            f"taken: g.edge({place.control!r}, {id_!r})"
        )
    return f"{told}. A node lies in one of them: declare another, or take an edge away"


def _region(claims: _Claims, place: Place, ids: list[str]) -> Region:
    feeding = {id_: claims.feeding[id_] for id_ in ids}
    loop = claims.loops.get(place.control)
    if not place.control:
        return _sorted(claims, feeding)
    until = None if loop is None or loop.until is False else loop.until
    checks = _only_checking(claims, until, () if loop is None else loop.body)
    terminal = _terminal(claims, place, feeding, checks)
    if until in checks and until in claims.alone:
        feeding[until] = [terminal]
    if loop is not None and loop.until is None:
        until = terminal
    return _sorted(claims, feeding, terminal=terminal, until=until)


def _sorted(
    claims: _Claims,
    feeding: dict[str, list[str]],
    *,
    terminal: str = "",
    until: str | None = None,
) -> Region:
    """Return a region whose conditions are fed as well."""
    alone = {
        id_: claims.asked_by[id_]
        for id_ in feeding
        if id_ in claims.asked_by and id_ in claims.alone and id_ != terminal
    }
    askers = {id_: [one for one in asked if one in alone] for id_, asked in alone.items()}
    for id_ in sort_nodes(askers):  # a condition may be a branch that has one itself
        if not feeding[id_]:
            feeding[id_] = _feeding_of_condition(feeding, id_, alone[id_])
    needs = {
        id_: [*sources, claims.branches[id_].condition] if id_ in claims.branches else sources
        for id_, sources in feeding.items()
    }
    hint = ": a loop leads its last node back to its first by itself" if until else ""
    return Region(
        order=sort_nodes(needs, hint),
        feeding=feeding,
        needs=needs,
        terminal=terminal,
        until=until,
    )


def _feeding_of_condition(
    feeding: Mapping[str, list[str]], condition: str, asked_by: list[str]
) -> list[str]:
    """Return what feeds the branches that ask a condition without edges."""
    first, *others = asked_by
    for other in others:
        if sorted(feeding[other]) != sorted(feeding[first]):
            raise GraphError(
                f"{condition!r} is the condition of {first!r} and of {other!r}, which are fed "
                "differently, and it has no edges of its own. Give it an edge, or each branch its "
                "own"
            )
    return list(feeding[first])


def _only_checking(claims: _Claims, until: str | None, named: tuple[str, ...]) -> set[str]:
    """Return the node that does nothing but say when to stop, and the conditions it asks."""
    if until is None or claims.after[until] or until in claims.asked_by or (until,) == named:
        return set()
    found = {until}
    asked = claims.branches.get(until)
    while asked is not None and asked.condition in claims.alone.difference(named, found):
        found.add(asked.condition)
        asked = claims.branches.get(asked.condition)
    return found


def _terminal(
    claims: _Claims, place: Place, feeding: Mapping[str, list[str]], checks: set[str]
) -> str:
    """Return the node that a body ends in; one that only says when to stop is none."""
    feeds: set[str] = set()
    feeds_checks: set[str] = set()
    for id_, sources in feeding.items():
        found = feeds_checks if id_ in checks else feeds
        found.update(sources)
        if id_ in claims.branches:
            found.add(claims.branches[id_].condition)
    ends = [id_ for id_ in feeding if id_ not in feeds and id_ not in checks]
    # What prepares for a check ends the body only where nothing else does.
    ends = [id_ for id_ in ends if id_ not in feeds_checks] or ends
    if len(ends) == 1:
        return ends[0]
    if not ends:
        _sorted(
            claims, dict(feeding), until=place.control if place.arm is None else None
        )  # which says where it goes round
    names = ", ".join(map(repr, ends))
    if place.arm is not None:
        raise GraphError(
            f"{place} ends in several nodes: {names}. A branch gives one value: join them in a "
            "node after them"
        )
    raise GraphError(
        f"{place} ends in several nodes: {names}. The next pass gets the output of one: join them "
        "in a node after them (filters in a row are written a >> b). A node that says when to stop "
        "is named by until="
    )
