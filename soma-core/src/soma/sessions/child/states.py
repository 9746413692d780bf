"""States of nodes on their way between a client and its child.

One that a fit has made goes home as its hash alone where the client has the bytes by now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soma.contracts import ActionStore
from soma.engine import NodeState
from soma.engine.blobs import Blob
from soma.engine.values import is_found_by_hash
from soma.errors import NotSendable
from soma.sessions.wire import get_parcel, put_parcel

__all__ = ["taken_state", "told_state"]


def taken_state(told: Mapping[str, Any], blobs: list[Blob]) -> NodeState:
    """Return a state that the client has told of."""
    if not told["shown"]:
        return NodeState.unshown({} if told["empty"] else None)
    return NodeState.packed(get_parcel(told["parcel"], blobs), loaded=told["loaded"])


def told_state(
    id_: str, state: NodeState, store: ActionStore | None, sent: list[Blob]
) -> tuple[NodeState, dict[str, Any]]:
    """Return a state that a fit has made as we keep it, and what the client is told of it."""
    told = {"same": False, "loaded": state.loaded, "shown": state.shown}
    if not state.shown:
        return state, {**told, "empty": state.take() is not None}
    try:
        parcel = state.pack()
    except NotSendable as error:
        raise NotSendable(
            f"What node {id_!r} has learned cannot leave this process: {error}"
        ) from error.__cause__
    kept = state if parcel.form == "pickle" else NodeState.packed(parcel, loaded=state.loaded)
    if (
        parcel.digest
        and store is not None
        and is_found_by_hash(store, parcel.digest, parcel.nbytes)
    ):
        return kept, {**told, "digest": parcel.digest}
    return kept, {**told, "parcel": put_parcel(parcel, sent)}
