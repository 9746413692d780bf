"""Sessions in this process: a program, run by the engine that is here.

What differs from a graph is what a session promises: calls come one after the other, any thread may
cancel the one under way, and what is given, held and handed to functions is a copy, as it would be
in another process. Nodes that a cancelled call leaves in the middle of something go on until they
are done, and nobody takes what they make.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from contextvars import ContextVar, copy_context
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from soma import engine
from soma.contracts import FitReport, WorkerInfo
from soma.engine.calls import is_read_once
from soma.engine.values import private_copy
from soma.errors import InvalidInput, InvalidOutput, SessionCancelled, SessionError, shown
from soma.events.base import Event
from soma.events.bus import Bus, in_callback
from soma.sessions.base import (
    BaseSession,
    check_fit_options,
    check_program,
    metrics_of,
    shown_states,
)
from soma.sessions.cancelling import Cancellable, Cancelled
from soma.sessions.machine import this_machine
from soma.sessions.messages import Listener, messages_to
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
        self._turn = threading.Lock()
        self._call: Cancellable | None = None
        self._bus = Bus()
        if on_event is not None:
            self._bus.subscribe(on_event, plain=False)
        _all.add(self)

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
                self._program.engine,
                self._program.store,
                x if found is None else found.packed(),
                self._given(y, "y"),
                states=self._fit_states(init),
                report=report,
                bus=self._bus,
                seed=wanted,
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
                self._program.engine,
                self._program.store,
                self._given(x, "x"),
                states=self._states,
                report=engine.new_report("forward", run_id),
                bus=self._bus,
                seed=self._wanted(seed),
            )

        return self._alone("forward", work)

    def call(
        self, fn: Callable[..., Any], *args: Any, on_message: Callable[[Any], Any] | None = None
    ) -> Any:
        """Run a function here, on copies of its arguments, and return what it returns.

        Args:
            fn: the function. ``soma.sessions.send_message`` in it reaches ``on_message``.
            args: what it is given.
            on_message: takes each message, and returns the answer to it.

        Raises:
            InvalidInput: ``fn`` or ``on_message`` is no function.
            InvalidOutput: it returned a generator or a coroutine.
            SessionCancelled: somebody has called ``cancel``.
            Exception: whatever the function or ``on_message`` raises.
        """
        _check_function("fn", fn)
        if on_message is not None:
            _check_function("on_message", on_message)
        listener = None if on_message is None else _copying(on_message)

        def work() -> Any:
            with messages_to(listener):
                found = fn(*map(private_copy, args))
            if is_read_once(type(found)):
                raise InvalidOutput(
                    f"The function of a call returned a {type(found).__name__}, which can be read "
                    "only once. Return its items in a list or an array"
                )
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
            self._turn.release()

    def _take_turn(self, method: str) -> None:
        call = self._call
        if call is not None and call in _under_way.get():
            raise SessionError(
                f"Session {self.name!r} is in the middle of a call, and {method} was called from "
                "within that very call: do it when that is done, or open a second session"
            )
        if not self._turn.acquire(blocking=not in_callback()):
            raise SessionError(
                f"Session {self.name!r} is busy, and a callback cannot wait for its turn, as "
                "others wait for the callback. Do it after the run"
            )

    def _after_fork(self) -> None:
        self._turn = threading.Lock()
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
    return lambda message: private_copy(on_message(private_copy(message)))


def _check_function(name: str, given: Any) -> None:
    if not callable(given):
        raise InvalidInput(f"{name} must be a function, not {shown(given)}")


_all: weakref.WeakSet[InProcessSession] = weakref.WeakSet()


def _after_fork() -> None:
    """Forget whose turn it was: those threads did not come along."""
    for session in list(_all):
        session._after_fork()  # noqa: SLF001  # the room's own


os.register_at_fork(after_in_child=_after_fork)
