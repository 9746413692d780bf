"""Why something is computed every time: what its key lacks, or who says that it is not kept."""

from __future__ import annotations

from soma.engine.run import Run
from soma.engine.states import NodeState
from soma.errors import Nameless

__all__ = ["cause"]

_NOT_CACHEABLE = "its outputs are never kept (_cacheable = False)"
_NOT_DETERMINISTIC = "its outputs are kept only with a seed (_deterministic = False)"
_NOT_SHOWN = "its fit has not returned what it learned, so nobody knows that"
_NO_STATE_HASH = "nothing says how to write down what it has learned"
_NO_START_HASH = "nothing says how to write down what it has learned before, and goes on from"
_NO_INPUT_HASH = "what it is given has no hash"
_NO_LABELS_HASH = "y has no hash"


def cause(run: Run, at: int, what: str, state: NodeState | None) -> str:
    """Return why a fit or forward is not looked up.

    Args:
        run: the run.
        at: the node.
        what: ``"state"`` or ``"output"``.
        state: of a forward what it has learned; of a fit what it goes on from, where its key has
            that.
    """
    of_output = what == "output"
    found = _of_class(run, at) if of_output else ""
    if not found and state is not None:
        if not state.shown:
            found = _NOT_SHOWN
        elif not state.hash():
            found = _NO_STATE_HASH if of_output else _NO_START_HASH
    if found:
        return found
    if not run.input_hash(at):
        return _NO_INPUT_HASH
    if not of_output and not run.given_hash(run.y):
        return _NO_LABELS_HASH
    try:
        run.program.identity(run.node[at]).read()
    except Nameless as error:
        return str(error)
    return ""


def _of_class(run: Run, at: int) -> str:
    traits = run.program.traits[run.node[at]]
    if not traits.cacheable:
        return _NOT_CACHEABLE
    if traits.deterministic or run.call.seed is not None or run.is_cached(run.node[at]):
        return ""
    return _NOT_DETERMINISTIC
