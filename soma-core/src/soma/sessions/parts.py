"""Which nodes of a program stay together wherever they run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from soma.engine import Program
from soma.errors import GraphError
from soma.plan import Branch, Composite, Execute, Loop, Sequence, units_of

__all__ = ["Part", "parts_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Nodes that run at one worker."""

    ids: tuple[str, ...]
    target: str | None
    """Name or tag of a worker; None: any."""


def parts_of(program: Program) -> tuple[Part | None, ...]:
    """Return the part of each position of a program; None for what runs in this process.

    Nodes follow each other simply where the first feeds nobody else and nothing else feeds the
    second, and both have the same target.

    Raises:
        GraphError: nodes that train as one block have different targets.
    """
    targets = _targets(program)
    home = list(range(len(program.ids)))
    block = {
        program.places[id_]: program.places[ids[0]]
        for ids in _blocks(program.plan.root)
        for id_ in ids
    }
    for place, sources in enumerate(program.before):
        if block.get(place, place) != place:
            home[place] = home[block[place]]
        elif len(sources) == 1 and _follows(program, place, targets):
            home[place] = home[sources[0]]
    members: dict[int, list[str]] = {}
    for place, first in enumerate(home):
        members.setdefault(first, []).append(program.ids[place])
    parts = {
        first: Part(tuple(ids), targets[first])
        for first, ids in members.items()
        if isinstance(program.entries[first], Execute) and targets[first] != "local"
    }
    return tuple(parts.get(home[place]) for place in range(len(home)))


def _follows(program: Program, place: int, targets: list[str | None]) -> bool:
    source = program.before[place][0]
    both = isinstance(program.entries[place], Execute) and isinstance(
        program.entries[source], Execute
    )
    return both and program.after[source] == (place,) and targets[source] == targets[place]


def _targets(program: Program) -> list[str | None]:
    """Return where each node shall run; a block goes where one of its nodes says."""
    found = [one.target if isinstance(one, Execute) else None for one in program.entries]
    for block in _blocks(program.plan.root):
        places = [program.places[id_] for id_ in block]
        stated = {found[place]: program.ids[place] for place in places if found[place] is not None}
        if len(stated) > 1:
            told = " and ".join(f"{id_!r} at {target!r}" for target, id_ in stated.items())
            raise GraphError(
                f"{told}: these nodes train as one block, which cannot be at two places. Give them "
                "one target"
            )
        for place in places:
            found[place] = next(iter(stated), None)
    return found


def _blocks(body: Sequence) -> Iterator[tuple[str, ...]]:
    """Yield the ids of each block, also of those in bodies."""
    for unit in units_of(body):
        if isinstance(unit, Composite):
            yield unit.ids
        elif isinstance(unit, Branch | Loop):
            for inner in unit.bodies:  # which nest a few deep
                yield from _blocks(inner)
