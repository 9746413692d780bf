"""One call of one node: the filter as the client has it, its values, and what became of both.

    "act" ──► filter (sent when it is not known) ──► fit or forward ──► result, and what the call
                                                                        has changed on the filter

A filter is kept for as long as calls succeed. After an error nobody knows what the call has left
on it, so it is dropped, and the client sends its own again.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

from soma.engine.blobs import Blob
from soma.engine.calls import refuse_once_only
from soma.engine.keys import rng_for
from soma.engine.parcels import Parcel, pack
from soma.errors import NotSendable, SessionError
from soma.nodes import label_of
from soma.sessions import travel
from soma.sessions.child.identities import check_code
from soma.sessions.child.serving import Answer, Call
from soma.sessions.child.surroundings import settle, unpacked
from soma.sessions.child.watching import Watch
from soma.sessions.wire import get_parcel, put_parcel
from soma.values import summary

__all__ = ["Acting"]


class _Node:
    """A filter or function that was sent."""

    __slots__ = ("node", "token", "watch")

    def __init__(self, node: Any, token: str, *, is_function: bool) -> None:
        self.node = node
        self.token = token
        self.watch = None if is_function else Watch(node)


class Acting:
    """The nodes that this process knows, for the graphs that place some here."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[str, str], _Node] = {}

    def forget(self, call: Call) -> Answer:
        """A graph is gone: let go of its nodes."""
        owner = call.message.fields["owner"]
        for key in [key for key in self._nodes if key[0] == owner]:
            del self._nodes[key]
        return {}, ()

    def act(self, call: Call) -> Answer:
        """Fit or forward one node."""
        fields, blobs = call.message.fields, call.message.blobs
        settle(fields, blobs)
        key = (fields["owner"], fields["node"])
        known = self._known(key, fields, blobs)
        x = _given(fields["x"], blobs)
        made, took_ms = _called(known.node, x, fields, blobs)
        del x
        refuse_once_only(fields["node"], label_of(known.node), fields["what"], made)
        sent: list[Blob] = []
        parcel = _packed(known.node, made, fields)
        answer = {
            "made": None if parcel is None else put_parcel(parcel, sent),
            "why": "" if parcel is None else parcel.why,
            "empty": type(made) is dict and not made,
            "summary": summary(made),
            "took_ms": took_ms,
            **_changes(known.watch, sent, shown=made is not None),
        }
        self._nodes[key] = known
        return answer, sent

    def _known(self, key: tuple[str, str], fields: Mapping[str, Any], blobs: list[Blob]) -> _Node:
        known = self._nodes.pop(key, None)
        if fields["filter"] >= 0:
            node = unpacked(blobs[fields["filter"]], travel.unpack)
            if fields["identity"] is not None:
                check_code(fields["node"], node, fields["identity"])
            return _Node(node, fields["token"], is_function=fields["is_function"])
        if known is None or known.token != fields["token"]:
            raise SessionError(
                f"Node {fields['node']!r} was asked for by what the process has of it, and the "
                "process does not have that: please report this. The next call sends it again"
            )
        return known


def _called(node: Any, x: Any, fields: Mapping[str, Any], blobs: list[Blob]) -> tuple[Any, float]:
    """Return what the node gives and how long its code took, in milliseconds."""
    extras: dict[str, Any] = dict(fields["options"])
    state = _opened(fields["state"], blobs)
    if "rng" in fields["takes"]:
        extras["rng"] = rng_for(fields["rng"])
    if fields["what"] == "fit":
        y = _opened(fields["y"], blobs)
        if "state" in fields["takes"]:
            extras["state"] = state
        began = perf_counter()
        made = node.fit(x, y, **extras)
    elif fields["is_function"]:
        began = perf_counter()
        made = node(x, **extras)
    else:
        began = perf_counter()
        made = node.forward(x, state, **extras)
    return made, (perf_counter() - began) * 1e3


def _given(field: Mapping[str, Any], blobs: list[Blob]) -> Any:
    if "names" not in field:
        return get_parcel(dict(field), blobs).open()
    parcels = [get_parcel(one, blobs) for one in field["parcels"]]
    return {name: one.open() for name, one in zip(field["names"], parcels, strict=True)}


def _opened(field: dict[str, Any] | None, blobs: list[Blob]) -> Any:
    return None if field is None else get_parcel(field, blobs).open()


def _packed(node: Any, made: Any, fields: Mapping[str, Any]) -> Parcel | None:
    if made is None and fields["what"] == "fit":
        return None
    try:
        return pack(made, hashed=fields["hashed"])
    except NotSendable as error:
        raise NotSendable(
            f"What {fields['what']} of node {fields['node']!r} ({label_of(node)}) has returned "
            f"cannot leave its process: {error}. Or let the node run with the graph: "
            "target='local'"
        ) from error.__cause__


def _changes(watch: Watch | None, sent: list[Blob], *, shown: bool) -> dict[str, Any]:
    """Return what the call has changed on the filter."""
    if watch is None:
        return {"attributes": -1, "removed": [], "stays": [], "inside": False}
    changes = watch.look(shown=shown)
    if changes.blob is not None:
        sent.append(changes.blob)
    return {
        "attributes": -1 if changes.blob is None else len(sent) - 1,
        "removed": changes.removed,
        "stays": changes.stays,
        "inside": changes.inside,
    }
