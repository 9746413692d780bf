"""One child and the calls to it: what is asked, what comes in between, and how a call ends.

    request ──► send ──► events, messages, questions to the store, in order ──► "done" or "failed"

All of that happens on the thread that calls, so that a callback runs where it would run without a
child. Whoever leaves in the middle of a call (Ctrl-C, a callback that raises) leaves at once: the
child is told to stop, and whoever is next finds it idle or gone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

from soma.engine import Action, Done
from soma.engine.blobs import Blob
from soma.errors import NotSendable, SessionCancelled, SessionLost, SessionTimeout
from soma.sessions import travel
from soma.sessions.failures import raise_error
from soma.sessions.home import take_home
from soma.sessions.paths import foreign_path
from soma.sessions.process import ChildProcess
from soma.sessions.settings import Settings
from soma.sessions.wire import Message, get_parcel, put_parcel

__all__ = ["Child", "Handlers"]

GRACE_S = 2.0
"""How long a child may take to stop once it was told to; then it is killed."""
_LOOK_S = 0.25
"""How often somebody who waits looks whether to go on waiting."""
_incarnations = count(1)

Handlers = Mapping[str, Callable[[Message], None]]


class Child:
    """A process that runs, and what it is known to have.

    Args:
        process: the process, which has said that it is ready.
        settings: what holds for calls to it.
    """

    def __init__(self, process: ChildProcess, settings: Settings) -> None:
        self._process = process
        self._timeout_s = settings.timeout_s
        self._same_python = settings.python is None
        self.incarnation = next(_incarnations)
        """Unique in this process: another child under the same name has another."""
        self.known: dict[Any, Any] = {}
        """What this very process has, entered by whoever has sent it."""
        self._numbers = count(1)
        self._call = 0
        self._stop_by: float | None = None

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
    def unsettled(self) -> bool:
        """Whether somebody has left in the middle of a call."""
        return self._call != 0

    def request(
        self,
        kind: str,
        fields: Mapping[str, Any],
        blobs: Sequence[Blob] = (),
        *,
        during: str,
        handlers: Handlers | None = None,
    ) -> Message:
        """Ask for something, serve what comes in between, and return the answer.

        Args:
            kind: the request.
            fields: what belongs to it.
            blobs: what goes with it.
            during: what an error says it was lost in: ``"fit of node 'a'"``.
            handlers: kind of message -> what takes it, on this thread.

        Raises:
            SessionLost: the process has ended.
            SessionTimeout: it took longer than ``timeout_s``.
            SessionCancelled: somebody has called ``cancel``.
            Exception: whatever the request raised there.
        """
        self._call = call = next(self._numbers)
        self._stop_by = None
        deadline = None if self._timeout_s is None else monotonic() + self._timeout_s
        try:
            self._process.send(kind, {**fields, "call": call}, blobs)
            answer = self._serve(call, deadline, handlers or {}, during)
        except SessionLost as error:
            self._call = 0
            raise type(error)(_lost(error, during)) from None
        except BaseException:
            self._doubt()
            if self._call:
                self.cancel()
            raise
        self._call = 0
        self._process.drain_output()
        if answer.kind == "failed":
            self._doubt()
            raise_error(answer, f"{self.name}, pid {self.pid}")
        return answer

    def _doubt(self) -> None:
        """It may not have taken in what came with a call: it is told again with the next one."""
        self.known.pop("surroundings", None)
        self.known.pop("codecs", None)

    def _serve(self, call: int, deadline: float | None, handlers: Handlers, during: str) -> Message:
        timed_out = False
        while True:
            until = monotonic() + _LOOK_S
            message = self._process.receive(until if deadline is None else min(until, deadline))
            if message is not None:
                if message.fields.get("call") == call and message.kind in {"done", "failed"}:
                    if timed_out and message.kind == "failed":
                        self._call = 0
                        self._raise_late(during, killed=False)
                    return message
                handler = handlers.get(message.kind)
                if handler is not None:
                    handler(message)
            now = monotonic()
            if deadline is not None and now >= deadline and not timed_out:
                timed_out, deadline = True, None
                self.cancel()
            if self._stop_by is not None and now >= self._stop_by:
                self._call = 0
                self._kill(f"did not stop within {GRACE_S:g} s of being told to")
                if timed_out:
                    self._raise_late(during, killed=True)
                raise SessionCancelled(
                    f"{self.name} was cancelled during {during}, did not stop within "
                    f"{GRACE_S:g} s and was killed"
                )

    def _raise_late(self, during: str, *, killed: bool) -> NoReturn:
        ended = " It did not stop when it was told to, and was killed." if killed else ""
        raise SessionTimeout(
            f"{self.name} was still in the {during} after {self._timeout_s:g} s, which is its "
            f"timeout_s.{ended} Give add_worker a larger timeout_s if that is not too long"
        )

    def tell(self, kind: str, fields: dict[str, Any], blobs: Sequence[Blob] = ()) -> None:
        """Say something in the middle of a call, from any thread.

        Raises:
            SessionLost: the process has ended.
        """
        self._process.send(kind, fields, blobs)

    def cancel(self) -> None:
        """Tell the process to stop what it does; from any thread. It is killed if it does not."""
        call = self._call
        if call and self._stop_by is None:
            self._stop_by = monotonic() + GRACE_S
            with suppress(SessionLost):  # whoever waits for it hears of that
                self._process.send("cancel", {"call": call})

    def _kill(self, reason: str) -> None:
        self._process.kill(reason)
        self._process.close()  # which waits for its end: whoever is next must not find it alive

    def settle(self) -> None:
        """Wait until the call that somebody has left is over; kill the process if it goes on."""
        call, stop_by = self._call, self._stop_by or monotonic() + GRACE_S
        try:
            while call and self._process.alive:
                message = self._process.receive(stop_by)
                if message is None:
                    self._kill("did not stop when it was told to")
                    break
                if message.fields.get("call") == call and message.kind in {"done", "failed"}:
                    break
        except SessionLost:
            pass  # it is gone, which is as good
        self._call = 0
        self._process.drain_output()

    def run(self, owner: str, action: Action) -> Done:
        """Run one node of a graph.

        Args:
            owner: which graph.
            action: what to run.

        Raises:
            Exception: as ``soma.engine.Seat.run``.
        """
        blobs: list[Blob] = []
        fields = self.surroundings(blobs)
        key = (owner, action.node)
        token, fields["filter"] = self._filter(key, action, blobs)
        fields |= {"owner": owner, "node": action.node, "token": token, **_values(action, blobs)}
        self.known.pop(key, None)  # until it is known what became of it
        answer = self.request("act", fields, blobs, during=f"{action.what} of node {action.node!r}")
        self.known[key] = token
        found = answer.fields
        _check_stays(self.name, action, found)
        if found["attributes"] >= 0:
            take_home(action.filter, travel.unpack(answer.blobs[found["attributes"]]))
        take_home(action.filter, {}, found["removed"])
        made = found["made"]
        return Done(
            parcel=None if made is None else get_parcel(made, answer.blobs),
            empty=found["empty"],
            summary=found["summary"],
            took_ms=found["took_ms"],
        )

    def _filter(self, key: tuple[str, str], action: Action, blobs: list[Blob]) -> tuple[str, int]:
        """Return what the filter is called, and where it stands if the process needs it."""
        packed = travel.pack_node(action.node, action.filter)
        if self.known.get(key) == packed.token:
            return packed.token, -1
        blobs.append(packed.blob)
        return packed.token, len(blobs) - 1

    def surroundings(self, blobs: list[Blob]) -> dict[str, Any]:
        """Return where this process stands, as far as it has changed since it was told last."""
        now: dict[str, Any] = {"cwd": _working_folder()}
        if self._same_python:
            now["path"] = list(sys.path)
        else:  # it has libraries of its own
            now["more_path"] = list(foreign_path())
        told = self.known.get("surroundings", {})
        fields = {name: value for name, value in now.items() if told.get(name) != value}
        self.known["surroundings"] = now
        fields["codecs"] = -1
        codecs = travel.pack_codecs()
        if codecs is not None and self.known.get("codecs") != codecs.token:
            blobs.append(codecs.blob)
            fields["codecs"] = len(blobs) - 1
            self.known["codecs"] = codecs.token
        return fields

    def close(self) -> None:
        """End the process. May be called twice."""
        self._process.close()


def _working_folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed
        return ""


def _values(action: Action, blobs: list[Blob]) -> dict[str, Any]:
    x: dict[str, Any]
    if isinstance(action.x, Mapping):
        parcels = [put_parcel(one, blobs) for one in action.x.values()]
        x = {"names": list(action.x), "parcels": parcels}
    else:
        x = put_parcel(action.x, blobs)
    return {
        "what": action.what,
        "x": x,
        "y": None if action.y is None else put_parcel(action.y, blobs),
        "state": None if action.state is None else put_parcel(action.state, blobs),
        "takes": sorted(action.takes),
        "options": dict(action.options),
        "rng": action.rng,
        "is_function": action.is_function,
        "hashed": action.hashed,
    }


def _check_stays(name: str, action: Action, found: Mapping[str, Any]) -> None:
    """Refuse a fit that has kept what it learned in something that cannot leave the child."""
    if action.what == "fit" and found["stays"] and (found["made"] is None or found["empty"]):
        raise NotSendable(
            f"fit of node {action.node!r} keeps what it learned in "
            f"self.{', self.'.join(found['stays'])}, which cannot travel back from {name}. Return "
            "what is learned from fit, or let the node run here: target='local'"
        )


def _lost(error: SessionLost, during: str) -> str:
    return f"{error}. It was lost in the {during}. The next call starts another process"
