"""Which nodes feed a node, as the plan of a tracked run says; nothing where that is not certain.

The surprise: in the plan, a node that waits for none gets the input of the graph, or of the body
that it lies in. So in the body of a branch or loop that says nothing: what the body is given comes
from elsewhere, and of a loop from the pass before.
"""

from __future__ import annotations

from collections.abc import Sequence

from soma.errors import InvalidInput, PlanError
from soma.plan import Composite, Execute
from soma.tracking.view import RunView

__all__ = ["sources_of"]


def sources_of(view: RunView, node: str) -> Sequence[str] | None:
    """Return the ids that feed a node; none where it gets the input of the graph.

    Args:
        view: the run.
        node: the id.

    Returns:
        None where the record of the run does not say it.
    """
    try:
        plan = view.plan()
    except (InvalidInput, PlanError):  # what else there is to say is said without it
        return None
    if plan is None:
        return None
    outside = {
        one.node
        for unit in plan.entries
        if isinstance(unit, Execute | Composite)
        for one in unit.nodes
    }
    for one in plan.nodes:
        if one.node == node and (one.waits_for or node in outside):
            return one.waits_for
    return None
