"""Sessions in this process: a program, run by the engine that is here.

What differs from a graph is what a session promises: calls come one after the other, any thread may
cancel the one under way, and what is given, held and handed to functions is a copy, as it would be
in another process. Nodes that a cancelled call leaves in the middle of something go on until they
are done, and nobody takes what they make.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from contextvars import ContextVar, copy_context
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from soma import engine
from soma.contracts import FitReport, WorkerInfo
from soma.engine.values import private_copy
from soma.errors import SessionCancelled, SessionError
from soma.events.base import Event
from soma.events.bus import Bus, calling_back
from soma.sessions.base import (
    BaseSession,
    check_program,
    metrics_of,
    shown_states,
)
from soma.sessions.cancelling import Cancellable, Cancelled
from soma.sessions.checking import check_fit_options, check_function, check_returned
from soma.sessions.machine import this_machine
from soma.sessions.messages import Listener, messages_to
from soma.sessions.private import private_program
from soma.sessions.program import Program
from soma.sessions.shelf import rows_of

__all__ = ["InProcessRunner", "InProcessSession"]

_T = TypeVar("_T")
_CAPABILITIES = frozenset({"call", "put"})
_under_way: ContextVar[tuple[Cancellable, ...]] = ContextVar("soma_calls", default=())
"""The calls that the present code runs in, of whatever sessions; threads of the engine inherit."""


class InProcessSession(BaseSession):
    """A program that is open in this process. ``InProcessRunner.open`` makes it."""

    CAPABILITIES: ClassVar[frozenset[str]] = _CAPABILITIES

    def __init__(
        self, name: str, program: Program, on_event: Callable[[Event], None] | None = None
    ) -> None:
        super().__init__(name, program)
        self._engine = private_program(program)
        self._call: Cancellable | None = None
        self._bus = Bus()
        if on_event is not None:
            self._bus.subscribe(on_event, plain=False)

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

        def work() -> FitReport:
            wanted, report = self._wanted(seed), engine.new_report("fit")
            found = self._shelf.find(x, "x")
            states = engine.fit(
                self._engine,
                self._program.store,
                x if found is None else found.packed(),
                self._given(y, "y"),
                states=self._fit_states(init),
                report=report,
                bus=self._bus,
                seed=wanted,
                anywhere=True,
                **check_fit_options(options),
            )
            brought = FitReport(
                states=shown_states(states),
                metrics=metrics_of(report),
                rows=(rows_of(x) or 0) if found is None else found.rows,
            )
            self._states, self._seed = states, wanted
            return brought

        return self._alone("fit", work)

    def forward(self, x: Any, *, seed: int | None = None, run_id: str | None = None) -> Any:
        """Return the output of the leaf, or a dict of them by node id when there are several."""

        def work() -> Any:
            return engine.forward(
                self._engine,
                self._program.store,
                self._given(x, "x"),
                states=self._states,
                report=engine.new_report("forward", run_id),
                bus=self._bus,
                seed=self._wanted(seed),
                anywhere=True,
            )

        return self._alone("forward", work)

    def call(
        self, fn: Callable[..., Any], *args: Any, on_message: Callable[[Any], Any] | None = None
    ) -> Any:
        """Run a function here, on copies of its arguments, and return what it returns.

        Args:
            fn: the function. ``soma.sessions.send_message`` in it reaches ``on_message``.
            args: what it is given. What stands for a value that was put is that value.
            on_message: takes each message, and returns the answer to it.

        Raises:
            InvalidInput: ``fn`` or ``on_message`` is no function, or a reference leads nowhere.
            InvalidOutput: it returned a generator or a coroutine.
            SessionCancelled: somebody has called ``cancel``.
            Exception: whatever the function or ``on_message`` raises.
        """
        check_function("fn", fn)
        if on_message is not None:
            check_function("on_message", on_message)
        listener = None if on_message is None else _copying(on_message)

        def work() -> Any:
            given = [self._copied(one, f"argument {place}") for place, one in enumerate(args, 1)]
            with messages_to(listener):
                found = fn(*given)
            check_returned(found)
            return found

        return self._alone("call", work)

    def load_state(self, states: Mapping[str, Any]) -> None:
        """Put states in place: forward uses them, and the next fit goes on from them."""
        self._alone("load_state", lambda: super(InProcessSession, self).load_state(states))

    def cancel(self) -> None:
        """Stop the call in progress, from any thread; does nothing where there is none."""
        call = self._call
        if call is not None:
            call.cancel()

    def close(self) -> None:
        """Close the session; a call in progress is cancelled. May be called twice."""
        super().close()
        self.cancel()

    def _given(self, value: Any, what: str) -> Any:
        """Return what the engine is given for a value, or for what stands for one."""
        found = self._shelf.find(value, what)
        return value if found is None else found.packed()

    def _copied(self, value: Any, what: str) -> Any:
        """Return an argument of a function as an object of its own."""
        found = self._shelf.find(value, what)
        return private_copy(value) if found is None else found.open()

    def _alone(self, method: str, work: Callable[[], _T]) -> _T:
        """Do something when it is this call's turn, so that it can be cancelled."""
        self._check(method)
        self._take_turn(method)
        try:
            self._check(method)  # it may have been closed meanwhile
            call, context = Cancellable(), copy_context()
            context.run(_under_way.set, (*_under_way.get(), call))

            def started() -> _T:
                self._call = call  # from here on it can be cancelled
                return context.run(work)  # what it leaves set when it is stopped is gone with it

            try:
                return call.run(started)
            except Cancelled:
                raise SessionCancelled(
                    f"{method} of session {self.name!r} was cancelled. The next call starts anew"
                ) from None
            finally:
                self._call = None
        finally:
            self._release()

    def _is_within(self) -> bool:
        call = self._call  # threads of the engine are within it as well
        return call is not None and call in _under_way.get()

    def _after_fork(self) -> None:
        super()._after_fork()
        self._call = None


class InProcessRunner:
    """Opens programs in this process.

    >>> from soma import Graph
    >>> def double(x):
    ...     return 2 * x
    >>> g = Graph()
    >>> g.node(double)
    'double'
    >>> with InProcessRunner() as runner:
    ...     runner.open(g.program()).forward(21)
    42

    Args:
        name: what it is called; its sessions have that name too.
    """

    def __init__(self, name: str = "local") -> None:
        self.name = name
        self._shut = False
        self._sessions: weakref.WeakSet[InProcessSession] = weakref.WeakSet()

    def open(
        self, program: Program, *, on_event: Callable[[Event], None] | None = None
    ) -> InProcessSession:
        """Open a program and return the session that takes its calls.

        Args:
            program: what ``Graph.program`` returns.
            on_event: called with every event of its runs, in order.

        Raises:
            InvalidInput: it is no program, or ``on_event`` no function.
            SessionError: the runner was shut down.
        """
        if self._shut:
            raise SessionError(f"Runner {self.name!r} was shut down, and opens no more programs")
        session = InProcessSession(self.name, check_program(program), on_event)
        self._sessions.add(session)
        return session

    def info(self) -> WorkerInfo:
        """Say what this place is and has."""
        return this_machine(self.name, capabilities=_CAPABILITIES)

    def shutdown(self) -> None:
        """Close every session. May be called twice."""
        self._shut = True
        for session in list(self._sessions):
            session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"<InProcessRunner {self.name!r}{', shut down' if self._shut else ''}>"


def _copying(on_message: Callable[[Any], Any]) -> Listener:
    """Return a listener that gives each side a copy, as it would come from another process."""

    def listen(message: Any) -> Any:
        said = private_copy(message)
        with calling_back():
            answer = on_message(said)
        return private_copy(answer)

    return listen
