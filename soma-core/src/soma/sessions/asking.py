"""How a child is asked: what is sent, what comes in between, and how a call ends.

    request ──► send ──► events, messages, questions to the store, in order ──► "done" or "failed"

All of that happens on the thread that calls, so that a callback runs where it would run without a
child. Whoever leaves in the middle of a call (Ctrl-C, a callback that raises) leaves at once: the
child is told to stop, and whoever is next finds it idle or gone. The surprise is that a callback
may lose a child of its own: only what this very process is asked or says counts as its loss.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

from soma.engine.blobs import Blob
from soma.errors import SessionCancelled, SessionError, SessionLost, SessionTimeout
from soma.sessions.failures import raise_error
from soma.sessions.process import ChildProcess
from soma.sessions.underway import GRACE_S, UnderWay
from soma.sessions.wire import Message

__all__ = ["Asking", "Handlers"]

_LOOK_S = 0.25
"""How often somebody who waits looks whether to go on waiting."""
_HOUSEKEEPING_S = {"close": 5.0, "forget": 5.0}
"""What nobody has asked for must not take longer, whatever ``timeout_s`` is."""
_LARGER = " Give the worker a larger timeout_s if that is not too long"

Handlers = Mapping[str, Callable[[Message], None]]


class Asking:
    """The calls to one process, one after the other.

    Args:
        process: the process, which has said that it is ready.
        timeout_s: how long a call may take; None for as long as it takes.
    """

    def __init__(self, process: ChildProcess, timeout_s: float | None) -> None:
        self._process = process
        self._timeout_s = timeout_s
        self.known: dict[Any, Any] = {}
        """What this very process has, entered by whoever has sent it."""
        self.calls = 0
        """How many calls there were; the number of the latest."""
        self._under_way: UnderWay | None = None
        self._unwanted = False
        """Whether whoever holds it was cancelled between two calls."""
        self._losses: list[SessionLost] = []
        """What was raised in this call when this process, and no other, was found to be gone."""
        self._lock = threading.RLock()  # a signal handler may cancel

    @property
    def name(self) -> str:
        """What its worker is called."""
        return self._process.name

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.alive

    @property
    def call(self) -> int:
        """Number of the call that is under way; 0 where none is."""
        under_way = self._under_way
        return 0 if under_way is None else under_way.number

    @property
    def unsettled(self) -> bool:
        """Whether a call is under way; once it is left, whether somebody left in the middle."""
        return self._under_way is not None

    def held(self) -> None:
        """Somebody holds it from now on: what was cancelled before is none of theirs."""
        self._unwanted = False

    def request(
        self,
        kind: str,
        fields: Mapping[str, Any],
        blobs: Sequence[Blob] = (),
        *,
        during: str,
        handlers: Handlers | None = None,
        stopped: Callable[[], bool] | None = None,
    ) -> Message:
        """Ask for something, serve what comes in between, and return the answer.

        Args:
            kind: the request.
            fields: what belongs to it.
            blobs: what goes with it.
            during: what an error says it was lost in: ``"fit of node 'a'"``.
            handlers: kind of message -> what takes it, on this thread.
            stopped: says whether nobody waits for it any more; asked before, and now and then.

        Raises:
            SessionLost: the process has ended.
            SessionTimeout: it took longer than ``timeout_s``.
            SessionCancelled: somebody has called ``cancel``, or ``stopped`` said so.
            Exception: whatever the request raised there, or a handler here.
        """
        now = self._begin(kind, during, stopped)
        try:
            self._send(kind, {**fields, "call": now.number}, blobs, now)
            answer = self._serve(now, handlers or {}, stopped)
        except BaseException as error:
            self._doubt()
            if any(error is one for one in self._losses):
                self._under_way = None
                raise self._ended(now, error) from None
            self.cancel(now.number)
            raise
        self._under_way = None
        self._process.drain_output()
        if answer.kind == "failed":
            self._doubt()
            if now.timed_out:
                raise self._late(now)
            raise_error(answer, f"{self.name}, pid {self.pid}")
        return answer

    def _begin(self, kind: str, during: str, stopped: Callable[[], bool] | None) -> UnderWay:
        limits = [one for one in (self._timeout_s, _HOUSEKEEPING_S.get(kind)) if one is not None]
        with self._lock:
            if self._unwanted or (stopped is not None and stopped()):
                self._doubt()  # what it would have been told now
                raise SessionCancelled(f"{self.name} was cancelled before the {during} began")
            self._losses = []
            self.calls += 1
            now = UnderWay(self.calls, during, min(limits, default=None))
            self._under_way = now
        return now

    def _doubt(self) -> None:
        """It may not have taken in what came with a call: it is told again with the next one."""
        self.known.pop("surroundings", None)
        self.known.pop("codecs", None)

    def _serve(
        self, now: UnderWay, handlers: Handlers, stopped: Callable[[], bool] | None
    ) -> Message:
        while True:
            if now.is_out_of_time() or (stopped is not None and stopped()):
                self.cancel(now.number)
            self._say_stop(now)
            message = self._receive(now.wait_until(_LOOK_S))
            if message is not None:
                if self._answers(message, now):
                    return message
                handler = handlers.get(message.kind)
                if handler is not None:
                    began = monotonic()
                    handler(message)
                    now.was_away(began)
            if now.is_stuck():
                raise self._killed(f"did not stop within {GRACE_S:g} s of being told to")

    def _send(
        self, kind: str, fields: dict[str, Any], blobs: Sequence[Blob], now: UnderWay | None
    ) -> None:
        give_up = None if now is None else now.gives_up
        try:
            self._process.send(kind, fields, blobs, give_up=give_up)
        except TimeoutError:
            raise self._killed("did not take in time what it was sent") from None
        except SessionLost as error:
            self._losses.append(error)
            raise

    def _receive(self, until: float) -> Message | None:
        try:
            return self._process.receive(until)
        except SessionLost as error:
            self._losses.append(error)
            raise

    def _killed(self, reason: str) -> SessionLost:
        """Kill the process in the middle of a call, and return what to raise."""
        now = self._under_way
        if now is not None:
            now.killed = True
        self._kill(reason)
        error = SessionLost(f"Process {self.name} (pid {self.pid}) {self._process.ended()}")
        self._losses.append(error)
        return error

    def _ended(self, now: UnderWay, error: BaseException) -> SessionError:
        """Return what a call says that has lost its process."""
        if not now.killed:
            return type(error)(  # type: ignore[return-value]  # which is a SessionLost
                f"{error}. It was lost in the {now.during}. The next call starts another process"
            )
        if now.timed_out or now.is_out_of_time():
            return self._late(now)
        return SessionCancelled(
            f"{self.name} was cancelled during {now.during}, did not stop within {GRACE_S:g} s and "
            "was killed"
        )

    def _late(self, now: UnderWay) -> SessionTimeout:
        is_own = now.limit_s == self._timeout_s
        return SessionTimeout(
            f"{self.name} was still in the {now.during} after {now.limit_s:g} s"
            f"{', which is its timeout_s' if is_own else ''}."
            f"{' It did not stop when it was told to, and was killed.' if now.killed else ''}"
            f"{_LARGER if is_own else ''}"
        )

    def tell(self, kind: str, fields: dict[str, Any], blobs: Sequence[Blob] = ()) -> None:
        """Say something in the middle of a call, from any thread.

        Raises:
            SessionLost: the process has ended.
        """
        self._send(kind, fields, blobs, self._under_way)

    def cancel(self, call: int = 0) -> None:
        """Tell the process to stop what it does; from any thread. It is killed if it does not.

        Args:
            call: only if it does that. 0: whatever it does, or is about to do for its holder.
        """
        with self._lock:
            now = self._under_way
            if now is None or call not in {0, now.number}:
                self._unwanted = self._unwanted or call == 0
                return
            now.stop()
        self._say_stop(now)

    def _say_stop(self, now: UnderWay) -> None:
        """Pass it on that a call has to stop; later, where others are sending."""
        if now.stop_by is None or now.told:
            return
        now.told = True
        try:
            self._process.send("cancel", {"call": now.number}, give_up=_at_once)
        except TimeoutError:
            now.told = False
        except SessionLost:
            pass  # whoever waits for it hears of that

    def _kill(self, reason: str) -> None:
        self._process.kill(reason)
        self._process.close()  # which waits for its end: whoever is next must not find it alive

    def settle(self) -> None:
        """Wait until the call that somebody has left is over; kill the process if it goes on."""
        now = self._under_way
        if now is not None:
            now.stop()
            with suppress(SessionLost):  # it is gone, which is as good
                self._wait_for_end(now)
        self._under_way = None
        self._process.drain_output()

    def _wait_for_end(self, now: UnderWay) -> None:
        while self._process.alive:
            self._say_stop(now)
            message = self._process.receive(monotonic() + _LOOK_S)
            if message is not None and self._answers(message, now):
                return
            if now.is_stuck():
                self._kill("did not stop when it was told to")

    def _answers(self, message: Message, now: UnderWay) -> bool:
        """Say whether a message ends a call; where it ends the process too, wait for that."""
        if message.kind not in {"done", "failed"} or message.fields.get("call") != now.number:
            return False
        if message.fields.get("ends"):  # whoever is next must not find it alive
            self._process.close()
        return True

    def close(self) -> None:
        """End the process. May be called twice."""
        self._process.close()


def _at_once() -> bool:
    """Say that nobody waits until something can be sent."""
    return True
