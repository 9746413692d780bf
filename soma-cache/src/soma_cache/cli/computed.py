"""What a tracked run has computed of one node, read from its events, one row for each time.

The surprise: that something was looked up and not found does not say that it was computed. Another
process may have made it meanwhile, and then it is a hit; and a run may have ended in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

__all__ = ["Computed", "NodeHistory", "read_history"]

_At: TypeAlias = tuple[str, str, tuple[int, ...]]
"""Call, ``"state"`` or ``"output"``, and the passes of the loops around it."""
_NOTICES = ("NodeNotKept", "NodeRecomputed", "NodeNotDeterministic")


class Computed(NamedTuple):
    """One fit or forward of the node that was not known."""

    call: str
    what: str
    """``"state"`` or ``"output"``."""
    passes: tuple[int, ...]
    key: str
    """Empty where it was not looked up."""
    outcome: str
    """``"computed"``, ``"recomputed"``, ``"failed"``; ``"unfinished"`` where nothing says."""
    error: str = ""


@dataclass(slots=True)
class NodeHistory:
    """What a run has done with one node."""

    computed: list[Computed] = field(default_factory=list)
    hits: int = 0
    decides: bool = False
    """Whether it is a branch or a loop."""
    notices: list[tuple[str, str]] = field(default_factory=list)
    """(call, what a user was told of the node, or of the input of the graph)."""
    calls: set[str] = field(default_factory=set)
    """Ids of all its fits and forwards."""
    began: dict[str, float] = field(default_factory=dict)
    """Id of a fit or forward -> when it began, in seconds since the epoch."""
    refreshed: set[str] = field(default_factory=set)
    """Ids of those fits and forwards that were to compute the node anew."""
    others: set[str] = field(default_factory=set)
    """Ids of the other nodes that did something."""


def read_history(events: Iterable[Mapping[str, Any]], node: str) -> NodeHistory:
    """Return what the events of a run say of a node. Events that are damaged are passed over."""
    found = NodeHistory()
    missed: dict[_At, str] = {}
    for event in events:
        kind, id_ = event.get("event_type"), event.get("node_id")
        found.calls |= {_text(event, "run_id")} - {""}
        if kind == "RunStarted":
            _begin(found, event, node)
        if kind in _NOTICES and id_ in (node, ""):
            found.notices.append((_text(event, "run_id"), _text(event, "message")))
        if id_ == node:
            _enter(found, missed, event)
        elif isinstance(id_, str) and id_:
            found.others.add(id_)
    found.computed += [Computed(*at, key, "unfinished") for at, key in missed.items()]
    return found


def _begin(found: NodeHistory, event: Mapping[str, Any], node: str) -> None:
    call, at, refreshed = _text(event, "run_id"), event.get("ts"), event.get("refreshed")
    if isinstance(at, int | float):
        found.began[call] = at
    if isinstance(refreshed, list) and node in refreshed:
        found.refreshed.add(call)


def _enter(found: NodeHistory, missed: dict[_At, str], event: Mapping[str, Any]) -> None:
    at = _at(event)
    match event.get("event_type"):
        case "BranchTaken" | "LoopCompleted":
            found.decides = True
        case "NodeCacheMiss":
            missed[at] = _text(event, "key")
        case "NodeCacheHit":
            missed.pop(at, None)  # another has made it meanwhile
            found.hits += 1
        case "NodeCompleted":
            outcome = _text(event, "outcome")
            found.computed.append(Computed(*at, missed.pop(at, ""), outcome))
        case "NodeFailed":
            error = _text(event, "error")
            found.computed.append(Computed(*at, missed.pop(at, ""), "failed", error))


def _at(event: Mapping[str, Any]) -> _At:
    passes = event.get("passes")
    numbers = passes if isinstance(passes, list) else []
    counted = tuple(one for one in numbers if type(one) is int)
    return _text(event, "run_id"), _text(event, "what"), counted


def _text(event: Mapping[str, Any], name: str) -> str:
    value = event.get(name)
    return value if isinstance(value, str) else ""
