"""One fit or forward of a session, as the client makes it.

    give x, y ──► request ──► store and listeners are served ──► parcel, state ──► done

What a process has is known again only when all of it succeeded: ``done`` is what says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from soma._notices import tell_once
from soma.contracts import ActionStore
from soma.engine import NodeState
from soma.engine.blobs import Blob
from soma.engine.parcels import Parcel
from soma.engine.values import read_frame
from soma.errors import describe_error
from soma.events import (
    Event,
    NodeCompleted,
    NodeFailed,
    NodeStarted,
    RunCompleted,
    RunFailed,
    RunStarted,
    make_event,
)
from soma.events.bus import Bus
from soma.sessions.calls import Child
from soma.sessions.place import Place
from soma.sessions.sending import given_field, told_states
from soma.sessions.shelf import Shelf
from soma.sessions.store_server import StoreServer, may_wait
from soma.sessions.wire import Message, get_parcel

__all__ = ["Exchange"]


class Exchange:
    """One fit or forward.

    Args:
        place: where the session is.
        child: the process.
        states: what the call starts with.
        shelf: what was put into the session.
        bus: who hears of it.
        store: the store of the program.
        asks_us: whether the process asks us for what is in there; else it has opened it itself.
    """

    def __init__(
        self,
        place: Place,
        child: Child,
        *,
        states: Mapping[str, NodeState],
        shelf: Shelf,
        bus: Bus,
        store: ActionStore | None,
        asks_us: bool,
    ) -> None:
        self._place = place
        self._child = child
        self._shelf = shelf
        self._bus = bus
        self._before = states
        self._has = place.borrow(child)
        self._server = None
        if store is not None and asks_us:
            self._server = StoreServer(store, child.tell, child.name)
        self._announced = _Announced()
        self._received: list[Blob] = []
        self.blobs: list[Blob] = []
        for id_, state in states.items():
            state.settle(id_)  # no call makes it again
        self.fields: dict[str, Any] = {
            "listening": bus.listening,
            "waits": store is None or may_wait(store),
            **told_states(states, self._has.states, self.blobs),
        }

    def give(self, what: str, given: Any) -> None:
        """Add x or y: a value, or what stands for one."""
        self.fields[what] = given_field(self._shelf, given, what, self.blobs, self._has.puts)

    def request(self, kind: str, during: str) -> Message:
        """Make the call."""
        server = self._server
        handlers: dict[str, Callable[[Message], None]] = {"event": self._heard}
        if server is not None:
            handlers |= server.handlers
        try:
            answer = self._place.request(
                self._child, kind, self.fields, self.blobs, during=during, handlers=handlers
            )
        except BaseException as error:
            self._announced.fail(self._bus, error)
            raise
        finally:
            if server is not None:
                server.close()
                for text in server.errors:
                    tell_once(("store", text), f"a result could not be kept: {text}")
        self._received = answer.blobs
        return answer

    def done(self, states: Mapping[str, NodeState]) -> None:
        """Note what the process has now."""
        self._has.states = states
        self._place.give_back(self._child, self._has)

    def parcel(self, told: Mapping[str, Any], store: ActionStore | None) -> Parcel | None:
        """Return what the process tells of; None where a store had it and it is gone."""
        if "blob" in told:
            return get_parcel(dict(told), self._received)
        digest = told["digest"]
        if self._server is not None:
            blob = self._server.blob(digest)
        else:
            frame = None if store is None else read_frame(store, digest)
            blob = None if frame is None else Blob(bytes(frame[0]), frame[1])
        return None if blob is None else Parcel("frame", blob, digest)

    def states(self, answer: Message, store: ActionStore | None) -> dict[str, NodeState]:
        """Return all states as they are after a fit."""
        told: list[tuple[str, dict[str, Any]]] = answer.fields["states"]
        parcels = {
            id_: self.parcel(one.get("parcel", one), store)
            for id_, one in told
            if not one["same"] and one["shown"]
        }
        gone = [id_ for id_, parcel in parcels.items() if parcel is None]
        if gone:  # the store has let go of them already
            again = self._place.request(
                self._child, "recall", {"ids": gone}, [], during="fit, at its end"
            )
            parcels |= {id_: get_parcel(one, again.blobs) for id_, one in again.fields["states"]}
        return {id_: self._state(id_, one, parcels.get(id_)) for id_, one in told}

    def _state(self, id_: str, told: Mapping[str, Any], parcel: Parcel | None) -> NodeState:
        if told["same"]:
            return self._before[id_]
        if parcel is None:
            return NodeState.unshown({} if told["empty"] else None)
        return NodeState.packed(parcel, loaded=told["loaded"])

    def _heard(self, message: Message) -> None:
        event = make_event(message.fields["event"], {})
        self._announced.add(event)
        self._bus.emit(event)


class _Announced:
    """What listeners have heard of a run and its nodes, so that it has an end in any case."""

    def __init__(self) -> None:
        self._run = ""
        """The run that has begun and not ended."""
        self._nodes: dict[tuple[Any, ...], NodeStarted] = {}
        """What has begun and not ended."""

    def add(self, event: Event) -> None:
        """Note what has begun, and what has ended."""
        if isinstance(event, RunStarted):
            self._run = event.run_id
        elif isinstance(event, RunCompleted | RunFailed):
            self._run = ""
        elif isinstance(event, NodeStarted):
            self._nodes[event.node_id, event.what, event.passes] = event
        elif isinstance(event, NodeCompleted | NodeFailed):
            self._nodes.pop((event.node_id, event.what, event.passes), None)

    def fail(self, bus: Bus, error: BaseException) -> None:
        """Say that what has begun has failed: the process is in no state to say it any more."""
        run, self._run = self._run, ""
        if not run or not bus.listening:
            return
        text = describe_error(error)
        for one in self._nodes.values():
            bus.emit(
                NodeFailed(
                    run_id=run, node_id=one.node_id, what=one.what, error=text, passes=one.passes
                )
            )
        bus.emit(RunFailed(run_id=run, error=text))
