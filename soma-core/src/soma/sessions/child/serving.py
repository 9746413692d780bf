"""One call while it is served, and how the code below it talks with the other side.

    call.tell("event", ...)             no answer
    call.ask("lookup", ...) ──► "answer" or "refused", which the reader thread brings

After the end of its call a thread that user code has left running is heard no more: whoever asks
then is stopped, and what is told goes nowhere.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import count
from queue import SimpleQueue
from typing import Any, TypeAlias

from soma.engine.blobs import Blob
from soma.sessions.wire import Connection, Message

__all__ = ["Answer", "Call", "Replies"]

Answer: TypeAlias = tuple[dict[str, Any], Sequence[Blob]]
"""Fields and blobs of what answers a request."""


class Replies:
    """Who waits for which reply."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._waiting: dict[int, SimpleQueue[Message | None]] = {}

    def expect(self) -> tuple[int, SimpleQueue[Message | None]]:
        """Return the number of a question, and where its reply will be."""
        number, place = next(self._numbers), SimpleQueue[Message | None]()
        self._waiting[number] = place
        return number, place

    def put(self, message: Message) -> None:
        """Bring a reply to who waits for it; drop it where nobody does any more."""
        place = self._waiting.get(message.fields["id"])
        if place is not None:
            place.put(message)

    def forget(self, number: int) -> None:
        """Nobody waits for this reply any more."""
        self._waiting.pop(number, None)

    def leave(self) -> None:
        """Nobody will reply: wake whoever waits."""
        for place in list(self._waiting.values()):
            place.put(None)


class Call:
    """One call.

    Args:
        connection: where the other side is.
        replies: where its replies come in.
        message: what it asks for.
    """

    __slots__ = ("_connection", "_ended", "_lock", "_replies", "message", "number")

    def __init__(self, connection: Connection, replies: Replies, message: Message) -> None:
        self._connection = connection
        self._replies = replies
        self._lock = threading.RLock()  # a destructor may come back here
        self._ended = False
        self.message = message
        self.number: int = message.fields["call"]

    def tell(self, kind: str, fields: dict[str, Any], blobs: Sequence[Blob] = ()) -> None:
        """Tell the other side something, if it still listens."""
        with self._lock:
            if not self._ended:
                self._connection.send(kind, {**fields, "call": self.number}, blobs)

    def ask(self, kind: str, fields: dict[str, Any], blobs: Sequence[Blob] = ()) -> Message:
        """Ask the other side something and return its answer.

        Raises:
            Stopped: the call has ended, and nobody answers any more.
            Exception: what it answers with, where it refuses.
        """
        number, place = self._replies.expect()
        try:
            self.tell(kind, {**fields, "id": number}, blobs)
            reply = None if self._ended else place.get()
        finally:
            self._replies.forget(number)
        if reply is None:
            from soma.engine.run import Stopped

            raise Stopped
        if reply.kind == "refused":
            from soma.sessions.failures import raise_error

            raise_error(reply, "the process that called")
        return reply

    def end(self) -> None:
        """Say no more: the answer to the call is what comes next."""
        with self._lock:
            self._ended = True
        self._replies.leave()
