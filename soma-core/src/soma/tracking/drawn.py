"""The graph of a run as text and pictures, with what was done laid over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from soma.compiler.text import plan_text
from soma.errors import InvalidInput
from soma.events.human import human_ms
from soma.events.overlay import overlay_of
from soma.pictures import Overlay
from soma.plan import Plan

if TYPE_CHECKING:
    from soma.tracking.view import RunView

__all__ = ["graph_text", "mermaid_of", "overlay_of_run", "svg_of"]


def overlay_of_run(view: RunView) -> Overlay | None:
    """Return what a run did, all its fits and forwards together; None where there is no plan."""
    plan = view.plan()
    return None if plan is None else _overlay(view, plan)


def svg_of(view: RunView, *, overlay: bool) -> str:
    """Return the picture.

    Raises:
        InvalidInput: the graph did not compile, or is too large for a picture.
    """
    plan = _compiled(view)
    return plan.to_svg(_overlay(view, plan) if overlay else None)


def mermaid_of(view: RunView, *, overlay: bool) -> str:
    """Return the text of a flowchart.

    Raises:
        InvalidInput: the graph did not compile.
    """
    plan = _compiled(view)
    return plan.to_mermaid(_overlay(view, plan) if overlay else None)


def graph_text(view: RunView) -> str:
    """Return the drawing in text.

    Raises:
        InvalidInput: the graph did not compile.
    """
    return plan_text(_compiled(view))


def _overlay(view: RunView, plan: Plan) -> Overlay:
    working = [one.node for one in view.working()]
    runs = view.state == "running"
    return overlay_of(
        plan,
        view.nodes(),
        view.decisions(),
        failed=view.failing(),
        running=working if runs else (),
        unfinished=() if runs else working,
        title=f"{view.name}, {human_ms(view.duration_ms)}",
    )


def _compiled(view: RunView) -> Plan:
    plan = view.plan()
    if plan is None:
        raise InvalidInput(f"The graph of {view.id} cannot be drawn: {view.graph().get('error')}")
    return plan
