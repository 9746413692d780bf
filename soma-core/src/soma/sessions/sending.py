"""What a client sends to open a program in a child and to call it there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from soma.engine import NodeState
from soma.engine.blobs import Blob
from soma.engine.parcels import Parcel, pack
from soma.errors import NotSendable
from soma.sessions import travel
from soma.sessions.child.identities import pack_identity
from soma.sessions.program import Program
from soma.sessions.shelf import Shelf
from soma.sessions.wire import put_parcel
from soma.topology import Declared

__all__ = ["SentProgram", "given_field", "pack_or_say_where", "told_states"]


class SentProgram:
    """A program as bytes, to be sent as often as a process has to be started.

    Args:
        program: the program.

    Raises:
        NotSendable: something in it cannot travel; the message names node and attribute.
    """

    def __init__(self, program: Program) -> None:
        nodes = {
            id_: node
            for id_, node in zip(program.engine.ids, program.engine.filters, strict=True)
            if node is not None
        }
        source = program.store_source if program.store is not None else None
        topology = program.topology
        bare = {
            id_: replace(one, filter=None) if isinstance(one, Declared) else one
            for id_, one in topology.nodes.items()
        }
        rest = {
            "plan": program.engine.plan,
            "topology": replace(topology, nodes=bare),
            "identities": {
                id_: pack_identity(program.engine.identity(program.engine.places[id_]))
                for id_ in nodes
            },
            "store": source,
        }
        self._nodes = travel.pack_together(nodes).blob
        self._rest = travel.pack_value(rest, "The program").blob
        self.asks_us = program.store is not None and source is None
        """Whether the process asks us for what is kept."""
        self._tier = getattr(program.store, "tier", "Local") if self.asks_us else ""

    def put(self, blobs: list[Blob]) -> dict[str, Any]:
        """Append the bytes to ``blobs``; return the fields that stand for them."""
        blobs += [self._nodes, self._rest]
        return {"nodes": len(blobs) - 2, "rest": len(blobs) - 1, "tier": self._tier}


def given_field(
    shelf: Shelf, given: Any, what: str, blobs: list[Blob], puts: set[str]
) -> dict[str, Any]:
    """Return what stands for an x or y in the fields of a call.

    Args:
        shelf: what was put into the session.
        given: a value, or what stands for one.
        what: which of them, for messages: ``"x"``.
        blobs: where its bytes are appended.
        puts: digests that the process has; what is sent now is added.

    Raises:
        InvalidInput: it is a reference that leads nowhere.
        NotSendable: it cannot travel.
    """
    found = shelf.find(given, what)
    if found is None:
        return {"parcel": put_parcel(pack_or_say_where(given, what), blobs)}
    digest = found.parcel.digest
    field: dict[str, Any] = {"put": digest, "start": found.start, "stop": found.stop}
    if digest not in puts:
        puts.add(digest)
        field["parcel"] = put_parcel(found.parcel, blobs)
    return field


def pack_or_say_where(given: Any, what: str) -> Parcel:
    """Return a value as bytes.

    Raises:
        NotSendable: something in it cannot travel; the message says where.
    """
    try:
        return pack(given)
    except NotSendable as error:
        travel.pack_value(given, f"What was given as {what}", what)  # which names the culprit
        raise NotSendable(f"What was given as {what} cannot travel: {error}") from error.__cause__


def told_states(
    states: Mapping[str, NodeState], known: Mapping[str, NodeState], blobs: list[Blob]
) -> dict[str, Any]:
    """Return the fields that bring a process from the states that it has to those it shall have.

    All of them are named, and the process keeps no other: it may have made some that never arrived.

    Raises:
        NotSendable: one of them cannot travel.
    """
    told = []
    for id_, state in states.items():
        if known.get(id_) is state:
            told.append([id_, {"same": True}])
            continue
        if not state.shown:
            told.append([id_, {"same": False, "shown": False, "empty": state.take() is not None}])
            continue
        try:
            parcel = state.pack()
        except NotSendable as error:
            raise NotSendable(
                f"The state of node {id_!r} cannot travel to another process: {error}"
            ) from error.__cause__
        field = {"same": False, "shown": True, "loaded": state.loaded}
        told.append([id_, {**field, "parcel": put_parcel(parcel, blobs)}])
    return {"states": told}
