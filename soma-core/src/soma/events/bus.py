"""One bus per graph: whoever subscribed hears every event, in one order, before ``emit`` returns.

    emit(event) ──► 1st subscription ──► 2nd ──► ... ──► back to the emitter
                        └── emits another: it waits until everybody has heard the present one

One thread delivers at a time, and the others wait for it. The surprise: a callback that emits does
not go down into the next delivery. Its event is queued, so that all listeners see the same order,
and it is delivered before the outermost ``emit`` returns.

A callback must not wait for another thread that emits, as that thread waits for the callback.
Subscribing and cancelling wait for nobody, so they are free to any thread at any time.
"""

from __future__ import annotations

import inspect
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar, Token
from functools import partial
from types import TracebackType
from typing import Any, Self

from soma._notices import tell
from soma.errors import InvalidInput, describe_error, shown
from soma.events.base import Event

__all__ = ["MAX_GENERATIONS", "Bus", "Subscription", "calling_back", "in_callback"]

MAX_GENERATIONS = 100
"""How long a chain of events may be that callbacks emit in answer to events, included."""


class Subscription:
    """One callback on one bus. Call it, or leave its ``with`` block, to hear no more."""

    __slots__ = ("_bus", "_callback", "_name", "_plain", "_told", "active")

    def __init__(
        self, bus: Bus, callback: Callable[[Any], object], name: str, *, plain: bool
    ) -> None:
        self._bus = bus
        self._callback = callback
        self._name = name
        self._plain = plain
        self._told = False
        self.active = True
        """Whether it hears events; False for ever once it was cancelled."""

    def cancel(self) -> None:
        """Hear no more, from now on; does nothing the second time.

        A call that is going on in another thread is not waited for.
        """
        self.active = False
        self._bus._remove(self)  # noqa: SLF001  # the two are one piece

    def __call__(self) -> None:
        """Hear no more, as ``cancel`` does."""
        self.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()

    def __repr__(self) -> str:
        what = "dicts" if self._plain else "events"
        return f"<Subscription: {self._name} hears {what if self.active else 'nothing any more'}>"

    def _hear(self, event: Event) -> None:
        """Call the callback; what it raises is told once and stops nobody."""
        if not self.active:
            return
        try:
            self._callback(event.to_dict() if self._plain else event)
        except Exception as error:  # noqa: BLE001  # somebody else's code
            if not self._told:
                self._told = True
                with suppress(Exception):  # stderr may be closed, and the run goes on all the same
                    tell(_failure(self._name, event, error))


class _Delivery:
    """One event on its way."""

    __slots__ = ("event", "generation", "left")

    def __init__(
        self, event: Event, generation: int, left: Iterator[Subscription] | None = None
    ) -> None:
        self.event = event
        self.generation = generation
        self.left = left
        """Who has not heard it yet; None before the first does."""


class _Here(threading.local):
    depth = 0


_here = _Here()
"""How many callbacks the present thread is in, of whatever bus."""
_answering: ContextVar[bool] = ContextVar("soma_answering", default=False)
"""Whether this is a callback of something else than a bus."""


def in_callback() -> bool:
    """Say whether this thread is in a callback: then others may wait for it, and it for nobody."""
    return _here.depth > 0 or _answering.get()


class calling_back:  # noqa: N801  # used as a statement: with calling_back()
    """While it lasts, this thread is in a callback, though no bus calls it.

    Of the context and not of the thread: what is stopped in the middle leaves nothing behind where
    it ran in a context of its own.
    """

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before: Token[bool] = _answering.set(True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _answering.reset(self._before)


class Bus:
    """Brings events to subscriptions, in order and without loss. Safe for threads.

    When a callback raises what is no ``Exception``, such as a KeyboardInterrupt, it goes through
    ``emit`` at once. What was not delivered by then is kept for those who were subscribed, and
    comes first at the next ``emit``.
    """

    def __init__(self) -> None:
        self.listening = False
        """Whether anybody is subscribed. Ask it before an event is built."""
        self._subscriptions: tuple[Subscription, ...] = ()
        self._queue: deque[_Delivery] = deque()
        self._generation: int | None = None  # of the event that is being delivered
        self._deliverer = 0  # the thread that delivers it
        self._make_locks()
        _all.add(self)

    def _make_locks(self) -> None:
        self._changing = threading.Lock()  # never held while a callback runs
        self._delivering = threading.RLock()

    def _after_fork(self) -> None:
        """Forget what another thread was about: it did not come along."""
        self._make_locks()
        if self._deliverer != threading.get_ident():
            self._queue.clear()
            self._generation = None

    def subscribe(
        self, callback: Callable[[Any], object], *, plain: bool, name: str = ""
    ) -> Subscription:
        """Call ``callback(event)`` for every event from the next one on, after earlier callbacks.

        What it raises is told on stderr, once, and it goes on hearing later events.

        Args:
            callback: takes one argument; what it returns is dropped.
            plain: whether it gets a dict of its own instead of the ``Event``, which all share.
            name: what notices call it; empty takes the name that it has in its module.

        Raises:
            InvalidInput: it cannot be called, or calling it would only make a coroutine or a
                generator that nobody runs.
        """
        _check_callback(callback)
        made = Subscription(self, callback, name or _name_of(callback), plain=plain)
        with self._changing:
            self._subscriptions = (*self._subscriptions, made)
            self.listening = True
        return made

    def emit(self, event: Event) -> None:
        """Bring an event to every subscription; returns when all have heard it.

        From inside a callback it returns at once, and the event follows the present one.

        Raises:
            InvalidInput: it answers an event that answers an event, and so on, for more than
                ``MAX_GENERATIONS`` times.
        """
        if not self.listening:
            return
        with self._delivering:
            if self._generation is None:
                if self._queue:  # left by somebody who was interrupted
                    self._queue.append(_Delivery(event, 0))
                else:
                    self._deliver_one(event)
                if self._queue:
                    self._deliver()
            elif self._generation < MAX_GENERATIONS:
                self._queue.append(_Delivery(event, self._generation + 1))
            else:
                raise InvalidInput(
                    f"The event {shown(event.event_type)} was not emitted: callbacks have answered "
                    f"events with events {MAX_GENERATIONS} times in a row, which looks endless. "
                    "Emit only in answer to some types of events"
                )

    def _deliver_one(self, event: Event) -> None:
        """Bring an event that nothing is before: what nearly every event is."""
        listeners, depth = iter(self._subscriptions), _here.depth
        try:
            self._generation, self._deliverer = 0, threading.get_ident()
            _here.depth = depth + 1
            for subscription in listeners:
                subscription._hear(event)  # noqa: SLF001  # the two are one piece
        except BaseException:
            self._queue.appendleft(_Delivery(event, 0, listeners))
            self._keep_listeners()
            raise
        finally:
            self._generation, self._deliverer = None, 0
            _here.depth = depth

    def _keep_listeners(self) -> None:
        """Say of each event who hears it: who subscribes from now on is not to hear the past."""
        for one in self._queue:
            if one.left is None:
                one.left = iter(self._subscriptions)

    def _deliver(self) -> None:
        depth = _here.depth
        try:
            self._deliverer = threading.get_ident()
            _here.depth = depth + 1
            while self._queue:
                first = self._queue[0]
                self._generation = first.generation
                if first.left is None:
                    first.left = iter(self._subscriptions)
                for subscription in first.left:
                    subscription._hear(first.event)  # noqa: SLF001  # the two are one piece
                self._queue.popleft()
        except BaseException:
            self._keep_listeners()
            raise
        finally:
            self._generation, self._deliverer = None, 0
            _here.depth = depth

    def _remove(self, subscription: Subscription) -> None:
        with self._changing:
            self._subscriptions = tuple(
                one for one in self._subscriptions if one is not subscription
            )
            self.listening = bool(self._subscriptions)


_all: weakref.WeakSet[Bus] = weakref.WeakSet()


def _after_fork() -> None:
    for bus in _all:
        bus._after_fork()  # noqa: SLF001  # the room's own


os.register_at_fork(after_in_child=_after_fork)


def _check_callback(callback: object) -> None:
    if not callable(callback):
        raise InvalidInput(
            f"A callback is a function that takes an event, not {shown(callback)}: "
            "g.on_event(lambda event: ...)"
        )
    for one in (callback, type(callback).__call__):
        if inspect.iscoroutinefunction(one) or inspect.isgeneratorfunction(one):
            raise InvalidInput(
                f"{_name_of(callback)} is an async function or a generator, and the plain call "
                "that delivers an event would run nothing of it. Subscribe a plain function, which "
                "may put events into a queue"
            )


def _name_of(callback: Any) -> str:
    """Return what people know a callback by, whatever its own attributes do."""
    while isinstance(callback, partial):
        callback = callback.func
    for one in (callback, type(callback)):
        with suppress(Exception):  # no such attribute, or somebody else's __getattr__
            name, module = one.__qualname__, one.__module__
            if isinstance(name, str) and isinstance(module, str):
                return f"{module}.{name}"
    return "a callback"


def _failure(name: str, event: Event, error: Exception) -> str:
    said = (
        f"{name} failed at the event {shown(event.event_type)}: {describe_error(error)} "
        f"({_where(error)}). The run goes on; further errors of it are not shown"
    )
    return " ".join(said.split())


def _where(error: BaseException) -> str:
    """Return file and line of the innermost frame that is not core's own, if there is one."""
    found = own = "where nobody knows"
    trace = error.__traceback__
    while trace is not None:
        own = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] != "soma":
            found = own
        trace = trace.tb_next
    return own if found == "where nobody knows" else found
