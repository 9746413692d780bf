"""What is said to a child that has to run one node, and what is refused of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soma.engine import Action
from soma.engine.blobs import Blob
from soma.errors import NotSendable
from soma.sessions.wire import put_parcel

__all__ = ["act_fields", "check_stays"]


def act_fields(action: Action, blobs: list[Blob]) -> dict[str, Any]:
    """Return what a message says of an action, apart from its filter; append to ``blobs``."""
    x: dict[str, Any]
    if isinstance(action.x, Mapping):
        parcels = [put_parcel(one.abroad(), blobs) for one in action.x.values()]
        x = {"names": list(action.x), "parcels": parcels}
    else:
        x = put_parcel(action.x.abroad(), blobs)
    return {
        "node": action.node,
        "what": action.what,
        "x": x,
        "y": None if action.y is None else put_parcel(action.y.abroad(), blobs),
        "state": None if action.state is None else put_parcel(action.state.abroad(), blobs),
        "takes": sorted(action.takes),
        "options": dict(action.options),
        "rng": action.rng,
        "is_function": action.is_function,
        "hashed": action.hashed,
    }


def check_stays(name: str, action: Action, found: Mapping[str, Any]) -> None:
    """Refuse a fit that has kept what it learned in something that cannot leave the child.

    Args:
        name: what the child is called.
        action: what it has run.
        found: what its answer says.

    Raises:
        NotSendable: it has; the message names the attributes.
    """
    if action.what == "fit" and found["stays"] and (found["made"] is None or found["empty"]):
        raise NotSendable(
            f"fit of node {action.node!r} keeps what it learned in "
            f"self.{', self.'.join(found['stays'])}, which cannot travel back from {name}. Return "
            "what is learned from fit, or let the node run here: target='local'"
        )
