"""Who needs whose output: what is forwarded during a fit, and how many takers each value has.

A fit forwards only what a later node needs. So a node's output is needed where something that
learns lies below it, or a branch or loop that has to go on; the last node of a loop is needed
always, since the next pass gets what it gives.

Takers are counted for all that is certain before the run. A branch or loop counts as one taker of
what feeds it, and of the last node of its body; when it is known who really takes these, its own
share is exchanged for theirs (unfolding.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from soma.engine.scopes import Branching, Looping, Scope
from soma.nodes import Traits
from soma.plan import Branch, Execute, Loop

__all__ = ["Layout", "Needs", "Takers", "find_needs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Takers:
    """How many take what, in a fit or in a forward."""

    uses: tuple[int, ...]
    """Takers of each node's output in its own body; last, those of the input of the graph."""
    lookers: frozenset[int]
    """Nodes of whose takers one only looks: the branch that asks it, or the loop."""
    entering: tuple[int, ...]
    """Takers of what a body is given, by the number of its scope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Who needs whose output."""

    forwards: tuple[bool, ...]
    """Whether a fit needs a node's output."""
    active: tuple[bool, ...]
    """Whether a branch or loop does anything in a fit."""
    spared: tuple[tuple[int, ...], ...]
    """Nodes of each scope whose output a fit does not need in the last pass."""
    learners: tuple[tuple[int, ...], ...]
    """Nodes that learn whenever a scope runs: those in it, and in the loops in it."""
    settled: tuple[bool, ...]
    """Whether neither the node nor one above it can change while the graph trains."""
    kept: tuple[bool, ...]
    """Whether a node's output is certainly one of the graph's."""
    in_fit: Takers
    in_forward: Takers


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where everything lies, by position."""

    scopes: Sequence[Scope]
    controls: Mapping[int, Branching | Looping]
    entries: Sequence[Execute | Branch | Loop]
    traits: Sequence[Traits]
    before: Sequence[tuple[int, ...]]
    """Positions that feed a node."""
    after: Sequence[Sequence[int]]
    """Positions that wait for a node."""


class _Finder:
    def __init__(self, layout: Layout) -> None:
        self.scopes = layout.scopes
        self.controls = layout.controls
        self.entries = layout.entries
        self.traits = layout.traits
        self.before = layout.before
        self.after = layout.after
        count = len(self.entries)
        self.learns_inside = [False] * count
        self.forwards = [False] * count
        self.active = [False] * count
        self.settled = [False] * count
        self.kept = [False] * count
        self.asked = {
            place: one.condition if isinstance(one, Branching) else one.until
            for place, one in self.controls.items()
            if isinstance(one, Branching) or one.until >= 0
        }
        """Branch or loop -> the node that it asks."""
        self.scope_of = [
            number for number, one in enumerate(self.scopes) for _ in range(one.start, one.stop)
        ]

    def learners(self) -> list[tuple[int, ...]]:
        """Return the learners of each scope, and note which controls have some anywhere."""
        found: list[list[int]] = []
        for scope in self.scopes:
            places = range(scope.start, scope.stop)
            found.append([place for place in places if self.traits[place].trainable])
        for number in reversed(range(len(self.scopes))):  # inner ones first
            scope = self.scopes[number]
            places = range(scope.start, scope.stop)
            anywhere = any(self.learns_inside[one] or self.traits[one].trainable for one in places)
            if scope.control >= 0:
                self.learns_inside[scope.control] |= anywhere
                if scope.arm is None:
                    found[self.scope_of[scope.control]] += found[number]
        return [tuple(sorted(places)) for places in found]

    def forwarding(self) -> list[tuple[int, ...]]:
        """Find what a fit forwards; return the nodes of each scope that the last pass spares."""
        spared: list[tuple[int, ...]] = []
        for scope in self.scopes:  # outer ones first
            spared.append(())
            if scope.control >= 0:
                control = self.controls[scope.control]
                self._need(scope, {scope.terminal} if self._asks(scope) else set())
                if (
                    isinstance(control, Looping)
                    and control.until < 0
                    and not self.forwards[scope.control]
                ):
                    spared[-1] = self._spared(scope)
            else:
                self._need(scope, set())
        return spared

    def _asks(self, scope: Scope) -> bool:
        looping = scope.arm is None
        return self.active[scope.control] if looping else self.forwards[scope.control]

    def _need(self, scope: Scope, wanted: set[int]) -> None:
        control = self.controls.get(scope.control)
        if isinstance(control, Looping) and control.until >= 0 and self.active[scope.control]:
            wanted = {*wanted, control.until}
        for place in reversed(range(scope.start, scope.stop)):
            self.forwards[place] = place in wanted or any(
                self.active[one] or self.traits[one].trainable or self.forwards[one]
                for one in self.after[place]
            )
            if place in self.controls:
                self.active[place] = self.learns_inside[place] or self.forwards[place]

    def _spared(self, scope: Scope) -> tuple[int, ...]:
        """Return the nodes that are needed only because the terminal is."""
        needed: set[int] = set()
        found = []
        for place in reversed(range(scope.start, scope.stop)):
            if any(
                one in needed or self.traits[one].trainable or one in self.controls
                for one in self.after[place]
            ):
                needed.add(place)
            elif self.forwards[place] and place not in self.controls:
                found.append(place)
        return tuple(found)

    def settle(self, number: int, *, given: bool) -> None:
        """Find what is settled in a scope, where what it is given is or is not."""
        scope = self.scopes[number]
        for place in range(scope.start, scope.stop):
            sources = self.before[place]
            above = all(self.settled[one] for one in sources) if sources else given
            entry = self.entries[place]
            if isinstance(entry, Execute):
                self.settled[place] = above and (entry.frozen or entry.kind == "stateless")
            else:
                self.settled[place] = self._settle_control(place, above=above)

    def _settle_control(self, place: int, *, above: bool) -> bool:
        control = self.controls[place]
        for number in control.bodies:  # recurses as bodies nest
            self.settle(number, given=above)
        ends = [self.scopes[number].terminal for number in control.bodies]
        ends += [self.asked[place]] if place in self.asked else []
        found = all(self.settled[one] for one in ends)
        if isinstance(control, Looping) and above and not self.settled[ends[0]]:
            self.settle(control.body, given=False)  # what a later pass is given may change
        return found

    def keep(self) -> None:
        """Find the nodes whose outputs are the graph's. Of a loop only the last pass gives one."""
        for scope in self.scopes:
            if scope.control < 0:
                for place in range(scope.start, scope.stop):
                    self.kept[place] = not self.after[place]
            else:
                is_arm = scope.arm is not None
                self.kept[scope.terminal] = is_arm and self.kept[scope.control]

    def takers(self, takes: Sequence[int], *, fitting: bool) -> Takers:
        """Count who takes what, where each node takes what it is given so often."""
        uses = [0] * (len(self.entries) + 1)
        entering = [0] * len(self.scopes)
        for place, number in enumerate(self.scope_of):
            for source in self.before[place]:
                uses[source] += takes[place]
            if not self.before[place]:
                entering[number] += takes[place]
        for scope in self.scopes[1:]:
            uses[scope.terminal] += 1  # the branch or loop
        for place, asked in self.asked.items():
            uses[asked] += takes[place] if isinstance(self.controls[place], Branching) else 1
        uses[-1] = entering[0]
        if not fitting:
            for place in range(self.scopes[0].stop):
                uses[place] += not self.after[place]  # the caller
        return Takers(
            uses=tuple(uses), entering=tuple(entering), lookers=frozenset(self.asked.values())
        )


def find_needs(layout: Layout) -> Needs:
    """Return who needs whose output."""
    finder = _Finder(layout)
    learners = finder.learners()
    spared = finder.forwarding()
    finder.settle(0, given=True)
    finder.keep()
    in_fit = [
        finder.active[place] if place in layout.controls else one.trainable + finder.forwards[place]
        for place, one in enumerate(layout.traits)
    ]
    return Needs(
        forwards=tuple(finder.forwards),
        active=tuple(finder.active),
        spared=tuple(spared),
        learners=tuple(learners),
        settled=tuple(finder.settled),
        kept=tuple(finder.kept),
        in_fit=finder.takers(in_fit, fitting=True),
        in_forward=finder.takers([1] * len(layout.entries), fitting=False),
    )
