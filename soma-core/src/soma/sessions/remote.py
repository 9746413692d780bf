"""Sessions in child processes: the program, its states and what was put stay at the client too.

    fit, forward, call ──► whose turn ──► open, if this very process has not ──► call ──► answer
                                                                   store, events, messages ▲

Each call brings along what the process lacks, so a process that was lost costs the call it was in:
the next one starts another and sends everything again. What a fit kept on a filter itself, and did
not return, is lost with the process.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from soma import engine
from soma.contracts import FitReport, Ref, Rows
from soma.engine import NodeState
from soma.engine.blobs import Blob
from soma.engine.parcels import pack
from soma.events import Event
from soma.events.bus import Bus, calling_back
from soma.sessions import travel
from soma.sessions.base import BaseSession, shown_states
from soma.sessions.calls import Child
from soma.sessions.checking import check_fit_options, check_function
from soma.sessions.exchange import Exchange
from soma.sessions.local import Member, Turn
from soma.sessions.place import Current, Has, Place
from soma.sessions.program import Program
from soma.sessions.sending import SentProgram, given_field, pack_or_say_where
from soma.sessions.shelf import rows_of
from soma.sessions.wire import Message, get_parcel, put_parcel

__all__ = ["ChildSession"]

_T = TypeVar("_T")
_CAPABILITIES = frozenset({"call", "put"})


class ChildSession(BaseSession):
    """A program that is open in a child process. ``LocalRunner.open`` makes it.

    Args:
        member: the worker in whose process it is open.
        program: what ``Graph.program`` has returned.
        on_event: called with every event, on the thread that makes the call.

    Raises:
        NotSendable: something in the program cannot travel; the message names node and attribute.
    """

    CAPABILITIES: ClassVar[frozenset[str]] = _CAPABILITIES

    def __init__(
        self, member: Member, program: Program, on_event: Callable[[Event], None] | None = None
    ) -> None:
        super().__init__(member.name, program)
        self._bus = Bus()
        if on_event is not None:
            self._bus.subscribe(on_event, plain=False)
        self._sent = SentProgram(program)
        self._inside: frozenset[str] = frozenset()
        """Nodes that have kept what they learned to themselves, in the process."""
        self._place = Place(member, self.id, member.name)
        self._leave = weakref.finalize(self, self._place.leave)
        self._leave.atexit = False

    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        seed: int | None,
        init: Mapping[str, Any] | None = None,
        options: Mapping[str, Any],
    ) -> FitReport:
        """Fit every trainable node, from ``init`` where it is given."""

        def work(child: Child) -> FitReport:
            wanted, chosen = self._wanted(seed), check_fit_options(options)
            states, found = self._fit_states(init), self._shelf.find(x, "x")
            call = self._begin(child, states, self._bus)
            call.give("x", x)
            call.give("y", y)
            call.fields |= {"seed": wanted, "options": put_parcel(pack(chosen), call.blobs)}
            answer = call.request("fit", f"fit of session {self.name!r}")
            fitted = call.states(answer, self._program.store)
            call.done(fitted)
            self._inside = frozenset(
                id_
                for id_, one in fitted.items()
                if not one.shown and (id_ in self._inside or one is not states.get(id_))
            )
            brought = FitReport(
                states=shown_states(fitted),
                metrics=answer.fields["metrics"],
                rows=(rows_of(x) or 0) if found is None else found.rows,
            )
            self._states, self._seed = fitted, wanted
            return brought

        return self._alone("fit", work)

    def forward(self, x: Any, *, seed: int | None = None, run_id: str | None = None) -> Any:
        """Return the output of the leaf, or a dict of them by node id when there are several."""

        def work(child: Child) -> Any:
            report, wanted = engine.new_report("forward", run_id), self._wanted(seed)
            # Again, and unheard, where the store has let go of an output meanwhile.
            for whole, bus in ((False, self._bus), (True, Bus())):
                call = self._begin(child, self._states, bus)
                call.give("x", x)
                call.fields |= {"seed": wanted, "run_id": report.run_id, "whole": whole}
                answer = call.request("forward", f"forward of session {self.name!r}")
                leaves = answer.fields["leaves"]
                call.done(self._states)
                found = [(id_, call.parcel(told, self._program.store)) for id_, told in leaves]
                outputs = {id_: one.open() for id_, one in found if one is not None}
                if len(outputs) == len(found):
                    break
            return outputs if len(outputs) > 1 else outputs.popitem()[1]

        return self._alone("forward", work)

    def call(
        self, fn: Callable[..., Any], *args: Any, on_message: Callable[[Any], Any] | None = None
    ) -> Any:
        """Run a function in the process, and return what it returns.

        Args:
            fn: the function. ``soma.sessions.send_message`` in it reaches ``on_message``.
            args: what it is given: copies. What stands for a value that was put is that value.
            on_message: takes each message, and returns the answer to it; on this thread.

        Raises:
            InvalidInput: ``fn`` or ``on_message`` is no function, or a reference leads nowhere.
            NotSendable: the function or an argument cannot travel.
            InvalidOutput: it returned a generator or a coroutine.
            SessionCancelled: somebody has called ``cancel``.
            Exception: whatever the function or ``on_message`` raises.
        """
        check_function("fn", fn)
        if on_message is not None:
            check_function("on_message", on_message)

        def work(child: Child) -> Any:
            blobs = [travel.pack_function(fn, "The function given to call").blob]
            put = any(isinstance(one, Ref | Rows) for one in args)
            has = self._place.borrow(child) if put else Has()
            given = [
                given_field(self._shelf, one, f"argument {place}", blobs, has.puts)
                for place, one in enumerate(args, 1)
            ]
            answer = self._place.request(
                child,
                "invoke",
                {"fn": 0, "args": given, "listens": on_message is not None},
                blobs,
                during=f"call of session {self.name!r}",
                handlers={} if on_message is None else {"message": _answering(child, on_message)},
            )
            if put:
                self._place.give_back(child, has)
            return get_parcel(answer.fields["found"], answer.blobs).open()

        return self._alone("call", work)

    def load_state(self, states: Mapping[str, Any]) -> None:
        """Put states in place: forward uses them, and the next fit goes on from them."""
        self._take_turn("load_state")
        try:
            super().load_state(states)
            self._inside -= set(states)
        finally:
            self._release()

    def cancel(self) -> None:
        """Stop the call in progress, from any thread; does nothing where there is none."""
        current = self._place.current
        if current is not None:
            current.cancel()

    def close(self) -> None:
        """Close the session; a call in progress is cancelled. May be called twice."""
        super().close()
        if self._leave.alive:
            self.cancel()
            self._leave()
            if self._owner != threading.get_ident():
                self._place.tell()

    def _begin(self, child: Child, states: Mapping[str, NodeState], bus: Bus) -> Exchange:
        return Exchange(
            self._place,
            child,
            states=states,
            shelf=self._shelf,
            bus=bus,
            store=self._program.store,
            asks_us=self._sent.asks_us,
        )

    def _alone(self, method: str, work: Callable[[Child], _T]) -> _T:
        """Do something in the process when it is this call's turn, so that it can be cancelled."""
        self._check(method)
        self._take_turn(method)
        current = self._place.current = Current()
        try:
            self._check(method)  # it may have been closed meanwhile
            with Turn([self._place.member], current.is_cancelled) as child:
                if self._place.open(child, self._sent) and self._inside:
                    kept = self._states.items()  # what was learned inside is gone
                    self._states = {id_: one for id_, one in kept if id_ not in self._inside}
                    self._inside = frozenset()
                return work(child)
        finally:
            self._place.current = None
            self._release()

    def _after_fork(self) -> None:
        super()._after_fork()
        self._place.current = None


def _answering(child: Child, on_message: Callable[[Any], Any]) -> Callable[[Message], None]:
    def handle(message: Message) -> None:
        said = get_parcel(message.fields["message"], message.blobs).open()
        blobs = list[Blob]()
        with calling_back():
            answer = on_message(said)
        parcel = pack_or_say_where(answer, "the answer to a message")
        child.tell(
            "answer", {"message": put_parcel(parcel, blobs), "id": message.fields["id"]}, blobs
        )

    return handle
