"""A scene as mermaid text, which GitHub, GitLab and many editors draw.

    flowchart TD
        n0["scaler<br/>Scaler, learns"]
        n1["pca<br/>Pca, learns"]
        n0 --> n1

Nodes are numbered, since an id may be a word of mermaid's own (``end``), and in labels everything
but letters, digits and spaces is written as its number: mermaid takes texts for HTML and for
markdown. Mermaid itself refuses more than 500 arrows or 50,000 characters unless it is told
otherwise by the page that it draws on.
"""

from __future__ import annotations

from collections.abc import Iterator

from soma.pictures.measure import label_text, took
from soma.pictures.overlay import Did, Overlay, did_text
from soma.pictures.scene import Body, Box, Frame, Group, Scene
from soma.pictures.style import OUTCOME_COLOURS
from soma.pictures.texts import one_line, printable

__all__ = ["mermaid"]

_LONGEST = 60
"""Characters of a line; the middle of a longer one is cut out."""
_INK = "color:#0f172a"  # on dark pages mermaid writes in white
_STYLES = {
    "default": f"fill:#fff,stroke:#94a3b8,{_INK}",
    "learns": "stroke-width:3px",
    "frame": f"fill:#f8fafc,stroke:#94a3b8,{_INK}",
    "arm": f"fill:#fff,stroke:#e2e8f0,{_INK}",
    "block": f"fill:#eef2ff,stroke:#818cf8,stroke-dasharray:5 4,{_INK}",
    "pale": "opacity:0.45",
    **{
        look: style
        for outcome, (tint, ink) in OUTCOME_COLOURS.items()
        for look, style in (
            (outcome, f"fill:{tint},stroke:{ink}"),
            (f"{outcome}Frame", f"stroke:{ink}"),
        )
    },
}
_HOLD = "#8288;"
"""An invisible character after ``\\`` and ``$``: mermaid breaks the line at a backslash and an n,
and takes what stands between dollars for a formula, also where they are written as numbers."""


def mermaid(scene: Scene, overlay: Overlay | None = None) -> str:
    """Return the scene as a flowchart; of any size."""
    return "\n".join(_Writer(overlay).chart(scene))


class _Writer:
    """Numbers what it meets, and remembers what is to look how."""

    def __init__(self, overlay: Overlay | None) -> None:
        self.overlay = overlay
        self.count = 0
        self.names: dict[str, str] = {}
        self.looks: dict[str, list[str]] = {}

    def chart(self, scene: Scene) -> Iterator[str]:
        yield "flowchart TD"
        if not scene.items:
            yield '    n0["empty graph"]'
        yield from self.scene(scene, "    ")
        for look, style in _STYLES.items():  # in this order: the later class holds
            names = self.looks.get(look, [])
            if names or look == "default":
                yield f"    classDef {look} {style}"
            if names:
                yield f"    class {','.join(names)} {look}"
        for note in scene.notes:
            said = one_line(f"{note.level}: {note.message}")
            yield f"    %% {said.replace('%', '#37;')}"  # %%{...} would be a directive

    def scene(self, scene: Scene, indent: str) -> Iterator[str]:
        for item in scene.items:
            if isinstance(item, Box):
                yield self.box(item, indent)
            elif isinstance(item, Group):
                yield from self.group(item, indent)
            else:
                yield from self.frame(item, indent)
        for arrow in scene.arrows:
            line = "-.->" if arrow.dashed else "-->"
            yield f"{indent}{self.names[arrow.source]} {line} {self.names[arrow.target]}"

    def box(self, box: Box, indent: str) -> str:
        name = self.names[box.id] = self.name()
        did = took(self.overlay, box.id)
        self.look(name, *(["learns"] if box.learns else []), *self.outcome(did))
        said = [printable(box.id), label_text(box), ", ".join(map(one_line, box.marks))]
        said += [did_text(did)] if did else []
        return f"{indent}{name}[{_label(said)}]"

    def group(self, group: Group, indent: str) -> Iterator[str]:
        name = self.name()
        self.look(name, "block")
        yield from _opened(name, [group.title], indent)
        for box in group.boxes:
            yield self.box(box, indent + "    ")
        yield f"{indent}end"

    def frame(self, frame: Frame, indent: str) -> Iterator[str]:
        name = self.names[frame.id] = self.name()
        did = took(self.overlay, frame.id)
        outcome = [look if look == "pale" else f"{look}Frame" for look in self.outcome(did)]
        self.look(name, "frame", *outcome)
        said = [printable(frame.id), frame.says]
        said += [did_text(did, of_frame=True)] if did else []
        yield from _opened(name, said, indent)
        for body in frame.bodies:
            yield from self.body(body, did, indent + "    ")
        yield f"{indent}end"

    def body(self, body: Body, did: Did | None, indent: str) -> Iterator[str]:
        if body.label is None:
            yield from self.scene(body.scene, indent)
            return
        name = self.name()
        self.look(name, "arm")
        if self.overlay and not (did and body.label in did.arms):
            self.look(name, "pale")
        yield from _opened(name, [body.label], indent)
        yield from self.scene(body.scene, indent + "    ")
        yield f"{indent}end"

    def name(self) -> str:
        self.count += 1
        return f"n{self.count - 1}"

    def look(self, name: str, *looks: str) -> None:
        for look in looks:
            self.looks.setdefault(look, []).append(name)

    def outcome(self, did: Did | None) -> list[str]:
        return [did.outcome if did else "pale"] if self.overlay else []


def _opened(name: str, said: list[str], indent: str) -> Iterator[str]:
    """Open a subgraph, with its title on one line: below a second one there is no room."""
    yield f"{indent}subgraph {name}[{_label(said, ' #183; ')}]"
    yield f"{indent}    direction TB"


def _label(lines: list[str], between: str = "<br/>") -> str:
    """Return a label in quotes."""
    shown = [_shortened(printable(line)) for line in lines if line]
    return f'"{between.join("".join(map(_written, line)) for line in shown)}"'


def _shortened(line: str) -> str:
    half = _LONGEST // 2
    return line if len(line) <= _LONGEST else f"{line[:half]}…{line[-half:]}"


def _written(char: str) -> str:
    if char.isalnum() or char in " …":
        return char
    return f"#{ord(char)};{_HOLD}" if char in "$\\" else f"#{ord(char)};"
