"""How hard a scene is to lay out, so that one is refused that would take too long.

Measured with the quick settings of layered.py: time grows with the places at which arrows pass a
layer, and with the square of the arrows between two layers. An effort of 1 is some seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from soma.pictures.scene import Frame, Scene, boxes_of

__all__ = ["effort_of"]

_PASSING = 4_000
_BETWEEN = 3_000_000


def effort_of(scenes: Iterable[Scene]) -> float:
    """Return how hard it is to lay out all of these."""
    return sum(map(_effort, scenes))


def _effort(scene: Scene) -> float:
    layers = _layers(scene)
    gaps: dict[int, _Gap] = defaultdict(_Gap)
    passing = 0
    for arrow in scene.arrows:
        above, below = layers.get(arrow.source, 0), layers.get(arrow.target, 0)
        passing += max(below - above - 1, 0)
        gap = gaps[above]
        gap.arrows += 1
        gap.sources.add(arrow.source)
        gap.targets.add(arrow.target)
    return passing / _PASSING + sum(gap.effort() for gap in gaps.values()) / _BETWEEN


@dataclass(slots=True)
class _Gap:
    """What begins in one layer; arrows that only pass are counted as such."""

    arrows: int = 0
    sources: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)

    def effort(self) -> float:
        """Return the square of the arrows; a fan, which nothing crosses, is much easier."""
        few, many = sorted((len(self.sources), len(self.targets)))
        return self.arrows**2 * few / many


def _layers(scene: Scene) -> dict[str, int]:
    """Return the layer of each box and frame: the longest way that leads to it."""
    waiting: dict[str, int] = {box.id: 0 for box in boxes_of(scene)}
    waiting |= {item.id: 0 for item in scene.items if isinstance(item, Frame)}
    after: dict[str, list[str]] = defaultdict(list)
    for arrow in scene.arrows:
        after[arrow.source].append(arrow.target)
        waiting[arrow.target] = waiting.get(arrow.target, 0) + 1
    ready = [id_ for id_, count in waiting.items() if not count]
    layers = dict.fromkeys(ready, 0)
    for id_ in ready:  # which grows meanwhile
        for one in after[id_]:
            layers[one] = max(layers.get(one, 0), layers[id_] + 1)
            waiting[one] -= 1
            if not waiting[one]:
                ready.append(one)
    return layers
