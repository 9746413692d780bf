"""What a picture shows, without where it stands: frozen, plain data that knows nothing of plans.

    Scene    items, and the arrows between them
    Box      one node                         Frame   a loop or a branch, with bodies in it
    Group    boxes that belong together       Body    a scene of its own, in a frame

Arrows name boxes and frames of their own scene. One may end at a box in a group, whose border it
crosses; none leads into a frame or out of it, so that a frame is laid out by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = [
    "Arrow",
    "Body",
    "Box",
    "Frame",
    "Group",
    "Item",
    "Note",
    "Scene",
    "boxes_of",
    "scenes_of",
    "starts_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One node."""

    id: str
    """May hold anything, like every text here; it is made readable where it is drawn."""
    label: str = ""
    """Name of its class or function, below the id."""
    learns: bool = False
    marks: tuple[str, ...] = ()
    """What else is to be known of it, a word or two each: ``"cached"``, ``"at gpu-0"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Boxes within one border, which arrows may cross."""

    boxes: tuple[Box, ...]
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What lies in a frame."""

    scene: Scene
    label: str | None = None
    """Of an arm: what takes it."""
    gives: str | None = None
    """Of a loop: the id of the node that gives what comes out, and what is carried round."""
    asks: str | None = None
    """Of a loop: the id of the node that says whether to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A node with bodies in it."""

    id: str
    kind: Literal["loop", "branch"]
    says: str
    """What it does, in words: ``"loop until is_settled, at most 100 times"``."""
    bodies: tuple[Body, ...]
    """One of a loop; the arms of a branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """From one box or frame to another of the same scene."""

    source: str
    target: str
    dashed: bool = False
    """It decides and feeds nothing: the condition of a branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A remark below the picture."""

    level: str
    """``"warning"`` or ``"error"``."""
    message: str


Item: TypeAlias = Box | Group | Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a picture shows."""

    items: tuple[Item, ...] = ()
    arrows: tuple[Arrow, ...] = ()
    notes: tuple[Note, ...] = ()


def scenes_of(scene: Scene) -> Iterator[Scene]:
    """Yield the scene and all that lie in its frames, which nest a few deep."""
    yield scene
    for item in scene.items:
        if isinstance(item, Frame):
            for body in item.bodies:
                yield from scenes_of(body.scene)


def boxes_of(scene: Scene) -> Iterator[Box]:
    """Yield the boxes of this scene, those in groups too, those in frames not."""
    for item in scene.items:
        if isinstance(item, Box):
            yield item
        elif isinstance(item, Group):
            yield from item.boxes


def starts_of(scene: Scene) -> list[str]:
    """Return the ids that no arrow leads to: in a body they get what the frame gets."""
    frames = (item.id for item in scene.items if isinstance(item, Frame))
    fed = {arrow.target for arrow in scene.arrows if not arrow.dashed}
    ids = (*(box.id for box in boxes_of(scene)), *frames)
    return [id_ for id_ in ids if id_ not in fed]
