"""What a child does from when it is ready to when its connection ends.

    reader (a thread)   requests ──► queue ──► main thread: one after the other, user code included
                        cancel, answers to what the main thread asks: at once

The main thread serves, since only there can a signal stop what runs, and since much code of users
wants to be on the main thread. The process ends with its connection, in the middle of whatever.
It ends as well when a call is stopped in the middle of an import: libraries in C can often not be
imported a second time.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from queue import SimpleQueue
from time import monotonic
from typing import Any, TypeAlias

from soma.sessions.child.guard import (
    AGAIN_S,
    cancel,
    goes_on,
    leave,
    remind,
    user_code,
    was_asked,
)
from soma.sessions.child.serving import Answer, Call, Replies
from soma.sessions.wire import Connection, Message

__all__ = ["main"]

Room: TypeAlias = Callable[[Call], Answer]

_ROOMS = {
    "act": "acting:Acting.act",
    "forget": "acting:Acting.forget",
    "open": "opened:Opened.open",
    "close": "opened:Opened.close",
    "fit": "opened:Opened.fit",
    "forward": "opened:Opened.forward",
    "recall": "opened:Opened.recall",
    "invoke": "opened:Opened.invoke",
}
"""Kind of request -> what serves it; imported when it is first asked for."""


def main(connection: Connection) -> None:
    """Serve what comes on a connection, until it ends; then the process ends."""
    _Child(connection).run()


class _Child:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._requests: SimpleQueue[Message] = SimpleQueue()
        self._replies = Replies()
        self._rooms: dict[str, Any] = {}

    def run(self) -> None:
        threading.Thread(target=self._read, name="soma-reader", daemon=True).start()
        while True:
            self._serve(self._requests.get())

    def _read(self) -> None:
        status = 1
        try:
            while (message := self._receive()) is not None:
                if message.kind == "cancel":
                    cancel(message.fields["call"])
                elif message.kind in {"answer", "refused"}:
                    self._replies.put(message)
                else:
                    self._requests.put(message)
                del message  # it may hold much, and the next may take its time
            status = 0
        except ConnectionError as error:
            os.write(2, f"soma: the connection to the parent broke: {error}\n".encode())
        finally:
            os._exit(status)

    def _receive(self) -> Message | None:
        """Return what comes next; meanwhile remind a call that was cancelled and goes on."""
        while True:
            until = monotonic() + AGAIN_S if goes_on() else None
            try:
                return self._connection.receive(until)
            except TimeoutError:
                remind()

    def _serve(self, message: Message) -> None:
        call = Call(self._connection, self._replies, message)
        spoiled = False
        try:
            room = self._room(message.kind)
            try:
                with user_code(call.number):
                    fields, blobs = room(call)
            finally:
                call.end()
            kind = "done"
        except BaseException as error:  # noqa: BLE001  # whatever user code raises, also to leave
            leave()  # once more: a signal may have come where the first time began
            from soma.sessions.failures import pack_error  # which most children never need

            kind, (fields, blobs) = "failed", pack_error(error)
            fields["cancelled"] = fields["cancelled"] or was_asked(call.number)
            spoiled = fields["ends"] = fields["cancelled"] and _in_import(error)
        _flush()
        self._connection.send(kind, {**fields, "call": call.number}, blobs)
        if spoiled:
            os._exit(0)

    def _room(self, kind: str) -> Room:
        module, _, path = _ROOMS[kind].partition(":")
        name, _, method = path.partition(".")
        room = self._rooms.get(name)
        if room is None:
            found = getattr(import_module(f"soma.sessions.child.{module}"), name)
            room = self._rooms[name] = found()
        serve: Room = getattr(room, method)
        return serve


def _in_import(error: BaseException) -> bool:
    """Say whether an exception has come out of the middle of an import."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "<module>":  # Python takes importlib's own out
            return True
        trace = trace.tb_next
    return False


def _flush() -> None:
    """Bring what was printed on its way before the answer is."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed, or somebody else's
            stream.flush()
