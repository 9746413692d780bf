"""A plan as a scene: what ``soma.pictures`` draws."""

from __future__ import annotations

from soma.pictures import Arrow, Body, Box, Frame, Group, Item, Note, Scene
from soma.pictures.texts import printable
from soma.plan import Branch, Composite, Execute, Loop, Plan, Sequence, units_of

__all__ = ["scene_of"]


def scene_of(plan: Plan) -> Scene:
    """Return what a picture of a plan shows."""
    notes = tuple(Note(level=one.level, message=one.message) for one in plan.diagnostics)
    return _scene(plan.root, notes)


def _scene(body: Sequence, notes: tuple[Note, ...] = ()) -> Scene:
    """Return one body; those within it nest a few deep."""
    items: list[Item] = []
    arrows: list[Arrow] = []
    for unit in units_of(body):
        if isinstance(unit, Composite):
            boxes = tuple(_box(one) for one in unit.nodes)
            items.append(Group(boxes=boxes, title="trains as one"))
            arrows += [arrow for one in unit.nodes for arrow in _feeding(one)]
        else:
            items.append(_box(unit) if isinstance(unit, Execute) else _frame(unit))
            arrows += _feeding(unit)
        if isinstance(unit, Branch):
            arrows.append(Arrow(source=unit.condition, target=unit.node, dashed=True))
    return Scene(items=tuple(items), arrows=tuple(arrows), notes=notes)


def _feeding(one: Execute | Branch | Loop) -> list[Arrow]:
    return [Arrow(source=id_, target=one.node) for id_ in one.waits_for]


def _box(one: Execute) -> Box:
    marks = [
        *(["cached"] if one.cached else []),
        *(["frozen"] if one.frozen else []),
        *([f"at {one.target}"] if one.target is not None else []),
    ]
    learns = one.kind == "trainable"
    return Box(id=one.node, label=one.label, learns=learns, marks=tuple(marks))


def _frame(one: Branch | Loop) -> Frame:
    if isinstance(one, Loop):
        count = f"{one.max_iterations} time{'s' * (one.max_iterations != 1)}"
        how = count if one.until is None else f"until {printable(one.until)}, at most {count}"
        scene = _scene(one.body)
        body = Body(scene=scene, gives=one.terminal, asks=one.until)
        return Frame(id=one.node, kind="loop", says=f"loop {how}", bodies=(body,))
    arms = tuple(Body(scene=_scene(arm.body), label=arm.label) for arm in one.arms)
    says = f"branch on {printable(one.condition)}"
    return Frame(id=one.node, kind="branch", says=says, bodies=arms)
