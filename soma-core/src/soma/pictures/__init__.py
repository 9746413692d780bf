"""Pictures of graphs: SVG, and mermaid text.

    Scene --layout--> Area --svg--> "<svg ..."        Scene --> "flowchart TD ..."

A scene is what a picture shows, an overlay what a run did with it. Neither knows of plans: whoever
has something to show makes a scene of it. An SVG needs nothing else, and mermaid is drawn by others
(GitHub, say), who find places of their own and set limits of their own.
"""

from __future__ import annotations

from soma.pictures.layout import MAX_ARROWS, MAX_NODES
from soma.pictures.mermaid import mermaid
from soma.pictures.overlay import Did, Overlay
from soma.pictures.scene import Arrow, Body, Box, Frame, Group, Item, Note, Scene
from soma.pictures.svg import svg

__all__ = [
    "MAX_ARROWS",
    "MAX_NODES",
    "Arrow",
    "Body",
    "Box",
    "Did",
    "Frame",
    "Group",
    "Item",
    "Note",
    "Overlay",
    "Scene",
    "draw",
    "mermaid",
]

draw = svg
"""``draw(scene, overlay=None)``: the picture as a text that begins with ``<svg``."""
