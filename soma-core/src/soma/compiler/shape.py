"""How a plan is shown: rows of steps, and what lies side by side.

Entries that can only follow each other are a run; runs that wait equally long lie side by side.
It is a reading of ``waits_for``, for people and for the wire, and decides nothing.
"""

from __future__ import annotations

from soma.plan import Entry, Parallel, Sequence, Unit

__all__ = ["lay_out"]


def lay_out(units: list[Unit]) -> Sequence:
    """Return the sequence that shows the units, which come each after what it waits for."""
    place_of = {id_: place for place, unit in enumerate(units) for id_ in unit.ids}
    before = [tuple(dict.fromkeys(place_of[id_] for id_ in unit.needs)) for unit in units]
    followers = [0] * len(units)
    for places in before:
        for place in places:
            followers[place] += 1
    runs: list[list[int]] = []
    run_of: list[int] = []
    level: list[int] = []
    for place, places in enumerate(before):
        if len(places) == 1 and followers[places[0]] == 1:
            run_of.append(run_of[places[0]])
            runs[run_of[place]].append(place)
            continue
        run_of.append(len(runs))
        runs.append([place])
        level.append(max((level[run_of[one]] + 1 for one in places), default=0))
    rows: dict[int, list[Entry]] = {}
    for run, height in zip(runs, level, strict=True):
        steps = tuple(units[place] for place in run)
        rows.setdefault(height, []).append(steps[0] if len(steps) == 1 else Sequence(steps=steps))
    return Sequence(steps=tuple(_joined(rows)))


def _joined(rows: dict[int, list[Entry]]) -> list[Entry]:
    """Return one step per row; a run that is alone in its row needs no nesting."""
    found: list[Entry] = []
    for height in sorted(rows):
        row = rows[height]
        if len(row) > 1:
            found.append(Parallel(branches=tuple(row)))
        elif isinstance(row[0], Sequence):
            found += row[0].steps
        else:
            found.append(row[0])
    return found
