"""States that a user puts in place."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from soma.engine.program import Program
from soma.engine.states import NodeState
from soma.errors import InvalidInput, StateWarning, UnknownNode, did_you_mean, shown

__all__ = ["load_states"]


def load_states(
    program: Program, present: Mapping[str, NodeState], given: Any, *, strict: bool
) -> dict[str, NodeState]:
    """Return the states of a graph after some were loaded. What was given stays the caller's.

    Raises:
        UnknownNode: there is no node of that id (strict).
        InvalidInput: it is no mapping, or a node learns nothing (strict).
    """
    if not isinstance(given, Mapping):
        raise InvalidInput(
            f"load_state takes a dict of node id and state, as g.state() returns it, not "
            f"{shown(given)}"
        )
    learners = {program.ids[place] for place in program.learners}
    unknown = [id_ for id_ in given if id_ not in program.places]
    needless = [id_ for id_ in given if id_ in program.places and id_ not in learners]
    if strict and unknown:
        near = did_you_mean(str(unknown[0]), program.ids)
        raise UnknownNode(f"load_state: {', '.join(map(shown, unknown))} not in this graph.{near}")
    if strict and needless:
        raise InvalidInput(
            f"load_state: {', '.join(map(repr, needless))} learns nothing and takes no state. "
            "With strict=False it is left out"
        )
    if unknown or needless:
        _warn(f"states left out, not in this graph or without use: {_listed(unknown + needless)}")
    loaded = {id_: NodeState.of(given[id_], loaded=True) for id_ in given if id_ in learners}
    found = {**present, **loaded}
    left = [id_ for id_ in program.ids if id_ in learners and id_ not in found]
    if left and not strict:
        _warn(f"nodes without state: {_listed(left)}")
    return found


def _listed(ids: list[Any]) -> str:
    return ", ".join(map(shown, ids))


def _warn(message: str) -> None:
    warnings.warn(f"load_state: {message}", StateWarning, stacklevel=4)
