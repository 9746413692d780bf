"""The bodies of a program: which positions lie in each, and what hangs on what.

The graph itself is the first; each body comes after the one that its branch or loop lies in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from soma.plan import Branch, Composite, Execute, Loop, Plan, Sequence, units_of

__all__ = ["Branching", "Looping", "Scope", "lay_scopes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One body, or the graph itself."""

    start: int
    stop: int
    """Its nodes are at the positions from start to stop."""
    control: int = -1
    """Position of the branch or loop; -1 for the graph itself."""
    arm: str | None = None
    terminal: int = -1
    """Position of the node whose output is the body's; -1 for the graph itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branching:
    """What a branch has to decide."""

    condition: int
    arms: Mapping[str, int]
    """Label -> number of the scope."""

    @property
    def bodies(self) -> tuple[int, ...]:
        """Numbers of the scopes in it."""
        return tuple(self.arms.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Looping:
    """What a loop has to decide."""

    body: int
    """Number of the scope."""
    until: int
    """Position of the node that says whether to stop; -1: nobody does."""
    max_iterations: int

    @property
    def bodies(self) -> tuple[int, ...]:
        """Numbers of the scopes in it."""
        return (self.body,)


@dataclass(slots=True, kw_only=True)
class _Body:
    """A body that has not been laid out yet."""

    body: Sequence
    scope: Scope
    terminal: str = ""


def lay_scopes(
    plan: Plan,
) -> tuple[tuple[Execute | Branch | Loop, ...], tuple[Scope, ...], dict[int, Branching | Looping]]:
    """Return the entries of all bodies one after the other, the scopes, and the controls."""
    entries: list[Execute | Branch | Loop] = []
    bodies = [_Body(body=plan.root, scope=Scope(start=0, stop=0))]
    scopes: list[Scope] = []
    inside: dict[int, list[int]] = {}
    for body in bodies:  # which grows meanwhile
        start = len(entries)
        for unit in units_of(body.body):
            if isinstance(unit, Branch | Loop):
                place = len(entries)
                inside[place] = list(range(len(bodies), len(bodies) + len(unit.bodies)))
                bodies += _bodies_of(unit, place)
                entries.append(unit)
            else:
                entries += unit.nodes if isinstance(unit, Composite) else (unit,)
        own = {entries[place].node: place for place in range(start, len(entries))}
        scopes.append(
            replace(body.scope, start=start, stop=len(entries), terminal=own.get(body.terminal, -1))
        )
    places = {entry.node: place for place, entry in enumerate(entries)}
    controls = {
        place: _control(entries[place], numbers, places) for place, numbers in inside.items()
    }
    return tuple(entries), tuple(scopes), controls


def _bodies_of(unit: Branch | Loop, place: int) -> list[_Body]:
    if isinstance(unit, Loop):
        scope = Scope(start=0, stop=0, control=place)
        return [_Body(body=unit.body, scope=scope, terminal=unit.terminal)]
    return [
        _Body(
            body=arm.body,
            scope=Scope(start=0, stop=0, control=place, arm=arm.label),
            terminal=arm.terminal,
        )
        for arm in unit.arms
    ]


def _control(
    unit: Execute | Branch | Loop, numbers: list[int], places: Mapping[str, int]
) -> Branching | Looping:
    if isinstance(unit, Branch):
        labels = (arm.label for arm in unit.arms)
        return Branching(
            condition=places[unit.condition], arms=dict(zip(labels, numbers, strict=True))
        )
    assert isinstance(unit, Loop)  # noqa: S101  # for the type checker
    return Looping(
        body=numbers[0],
        until=-1 if unit.until is None else places[unit.until],
        max_iterations=unit.max_iterations,
    )
