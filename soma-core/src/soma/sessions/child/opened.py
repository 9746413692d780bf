"""Programs that are open in this process, and the calls to them.

    open ──► nodes, plan, identities          once
    fit, forward ──► the engine of this process, with the states that the client says
    invoke ──► a function of the client's, and messages both ways

The client says with every call what it holds and this process does not: states, values that were
put. So it can lose this process at any time and go on with another. What comes back is the hash
alone where the client has the bytes, since its store was given them meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import replace
from types import TracebackType
from typing import Any

from soma import engine
from soma._notices import tell
from soma.contracts import ActionStore
from soma.engine import NodeState
from soma.engine.blobs import Blob
from soma.engine.parcels import Parcel, pack
from soma.errors import NotSendable, SessionError, describe_error
from soma.events.bus import Bus
from soma.nodes import traits_of
from soma.sessions import travel
from soma.sessions.base import metrics_of
from soma.sessions.checking import check_returned
from soma.sessions.child.identities import SentIdentity
from soma.sessions.child.impatient import Impatient
from soma.sessions.child.serving import Answer, Call
from soma.sessions.child.states import taken_state, told_state
from soma.sessions.child.store import ProxyStore
from soma.sessions.child.surroundings import settle, unpacked
from soma.sessions.messages import Listener, messages_to
from soma.sessions.shelf import take_rows
from soma.sessions.wire import get_parcel, put_parcel
from soma.topology import Declared, Topology

__all__ = ["Opened"]


_FLUSH_S = 10.0
"""How long a store may take to send on what it has been given."""


class _Session:
    """One program that is open."""

    def __init__(
        self,
        program: engine.Program,
        identities: Sequence[SentIdentity],
        store: ActionStore | None,
        tier: str,
    ) -> None:
        self.program = program
        self.identities = identities
        self.own_store = store
        """A store that this process has opened itself."""
        self.tier = tier
        """What the client's store is called; empty where there is none, or it is our own."""
        self.states: dict[str, NodeState] = {}
        self.values: dict[str, Parcel] = {}
        """Digest -> what was put."""

    def __enter__(self) -> None:
        """A run begins: the code has to be what it was when the last one ended."""
        for one in self.identities:
            one.check()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for one in self.identities:
            one.settle()

    def store(self, call: Call) -> ActionStore | None:
        """Return the store of one call."""
        if self.tier:
            return ProxyStore(call, self.tier)
        if self.own_store is None or call.message.fields["waits"]:
            return self.own_store
        return Impatient(self.own_store, f"a worker in process {os.getpid()}")


class Opened:
    """The sessions of this process."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}

    def open(self, call: Call) -> Answer:
        """Take over a program."""
        fields, blobs = call.message.fields, call.message.blobs
        settle(fields, blobs)
        nodes = unpacked(blobs[fields["nodes"]], travel.unpack_together)
        rest = unpacked(blobs[fields["rest"]], travel.unpack)
        identities = {
            id_: SentIdentity(id_, nodes[id_], sent) for id_, sent in rest["identities"].items()
        }
        self._sessions[fields["session"]] = _Session(
            _program(nodes, rest, identities),
            tuple(identities.values()),
            _opened_store(rest["store"]),
            fields["tier"],
        )
        return {}, ()

    def close(self, call: Call) -> Answer:
        """Let go of programs. This process may end at any time now."""
        for session in call.message.fields["sessions"]:
            found = self._sessions.pop(session, None)
            flush = None if found is None else getattr(found.own_store, "flush", None)
            if flush is not None:
                flush(_FLUSH_S)
        return {}, ()

    def fit(self, call: Call) -> Answer:
        """Fit every node that learns."""
        fields, blobs = call.message.fields, call.message.blobs
        session = self._session(call)
        x, y = _given(session, fields["x"], blobs), _given(session, fields["y"], blobs)
        store, report = session.store(call), engine.new_report("fit")
        before = session.states
        with session:
            fitted = engine.fit(
                session.program,
                store,
                x,
                y,
                states=before,
                report=report,
                bus=_bus(call),
                seed=fields["seed"],
                anywhere=True,
                **get_parcel(fields["options"], blobs).open(),
            )
        sent: list[Blob] = []
        told, kept = [], {}
        for id_, state in fitted.items():
            if before.get(id_) is state:
                kept[id_] = state
                told.append([id_, {"same": True}])
            else:
                state.settle(id_)  # the fit that has made it is over
                kept[id_], one = told_state(id_, state, store, sent)
                told.append([id_, one])
        session.states = kept
        return {"states": told, "metrics": metrics_of(report)}, sent

    def forward(self, call: Call) -> Answer:
        """Run every node, and return the outputs of the leaves."""
        fields = call.message.fields
        session = self._session(call)
        x = _given(session, fields["x"], call.message.blobs)
        report = engine.new_report("forward", fields["run_id"])
        with session:
            found: dict[str, Any] = engine.forward(
                session.program,
                session.store(call),
                x,
                states=session.states,
                report=report,
                bus=_bus(call),
                seed=fields["seed"],
                anywhere=True,
                wants="objects" if fields["whole"] else "parcels",
            )
        if fields["whole"]:
            leaves = [session.program.ids[leaf] for leaf in session.program.leaves]
            values = found if len(leaves) > 1 else dict.fromkeys(leaves, found)
            found = {leaf: _packed(values[leaf], f"The output of node {leaf!r}") for leaf in leaves}
        sent: list[Blob] = []
        told = [
            [id_, {"digest": one} if isinstance(one, str) else put_parcel(one, sent)]
            for id_, one in found.items()
        ]
        return {"leaves": told}, sent

    def recall(self, call: Call) -> Answer:
        """Return states of which the client has been told the hash alone."""
        fields = call.message.fields
        session, sent = self._found(call), list[Blob]()
        told = [[id_, put_parcel(session.states[id_].pack(), sent)] for id_ in fields["ids"]]
        return {"states": told}, sent

    def invoke(self, call: Call) -> Answer:
        """Run a function."""
        fields, blobs = call.message.fields, call.message.blobs
        settle(fields, blobs)
        fn = unpacked(blobs[fields["fn"]], travel.unpack)
        session = self._found(call)
        args = [_given(session, one, blobs).open() for one in fields["args"]]
        listener = _listener(call) if fields["listens"] else None
        found = copy_context().run(_run, listener, fn, args)
        del args
        check_returned(found)
        sent: list[Blob] = []
        return {"found": put_parcel(_packed(found, "What the function returned"), sent)}, sent

    def _session(self, call: Call) -> _Session:
        """Return the session of a call, with the values and states that the client has sent."""
        fields, blobs = call.message.fields, call.message.blobs
        settle(fields, blobs)
        session = self._found(call)
        session.states = {
            id_: session.states[id_] if told["same"] else taken_state(told, blobs)
            for id_, told in fields["states"]
        }
        return session

    def _found(self, call: Call) -> _Session:
        session = self._sessions.get(call.message.fields["session"])
        if session is None:
            raise SessionError("This process does not have the program: please report this")
        return session


def _program(
    nodes: Mapping[str, Any], rest: Mapping[str, Any], identities: dict[str, SentIdentity]
) -> engine.Program:
    declared: Topology = rest["topology"]
    topology = replace(
        declared,
        nodes={
            id_: replace(one, filter=nodes[id_]) if isinstance(one, Declared) else one
            for id_, one in declared.nodes.items()
        },
    )
    return engine.build_program(
        rest["plan"],
        topology,
        {id_: traits_of(node) for id_, node in nodes.items()},
        dict(identities),
    )


def _opened_store(source: tuple[str, Mapping[str, Any]] | None) -> ActionStore | None:
    if source is None:
        return None
    from soma.registry import default
    from soma.specs import ActionStoreSpec

    name, options = source
    try:
        store: ActionStore = default().get(name, ActionStoreSpec)(**options)
    except Exception as error:  # noqa: BLE001  # nothing kept is worth a failed session
        text = " ".join(describe_error(error).split())
        tell(f"process {os.getpid()} cannot open the cache, and goes on without it: {text}")
        return None
    return store


def _given(session: _Session, field: Mapping[str, Any], blobs: list[Blob]) -> Parcel:
    """Return what was given as x or y, as bytes."""
    if "put" not in field:
        return get_parcel(field["parcel"], blobs)
    if "parcel" in field:
        session.values[field["put"]] = get_parcel(field["parcel"], blobs)
    whole = session.values[field["put"]]
    if field["start"] is None:
        return whole
    return take_rows(whole, field["start"], field["stop"])


def _run(listener: Listener | None, fn: Callable[..., Any], args: list[Any]) -> Any:
    """Run a function, in a context of its own: a cancel may come where it leaves one."""
    with messages_to(listener):
        return fn(*args)


def _bus(call: Call) -> Bus | None:
    """Return a bus that brings events to the client; None where nobody listens there."""
    if not call.message.fields["listening"]:
        return None
    bus = Bus()
    bus.subscribe(lambda event: call.tell("event", {"event": event}), plain=True, name="client")
    return bus


def _listener(call: Call) -> Listener:
    def ask(message: Any) -> Any:
        sent: list[Blob] = []
        field = put_parcel(_packed(message, "The message"), sent)
        reply = call.ask("message", {"message": field}, sent)
        return get_parcel(reply.fields["message"], reply.blobs).open()

    return ask


def _packed(value: Any, what: str) -> Parcel:
    try:
        return pack(value)
    except NotSendable as error:
        raise NotSendable(f"{what} cannot leave this process: {error}") from error.__cause__
