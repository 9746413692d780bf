"""Messages between a process and its child: small ones are copied, large ones change hands.

    preamble | a byte per 200 descriptors after the first 200 | CBOR of what is said | inline bytes

Descriptors ride on the preamble and on those bytes. A large array is therefore never sent: the
descriptor of the file that it lies in is, and its bytes stay where they are. A message is sent
whole or not at all: whoever is interrupted in the middle of one (Ctrl-C) has broken the connection,
and both sides are told so.
"""

from __future__ import annotations

import array
import errno
import math
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from soma.engine.blobs import Blob
from soma.engine.parcels import Parcel
from soma.sessions.incoming import BATCH, Incoming, blobs_of, write_fields, write_preamble

__all__ = ["NO_SIGNAL", "PROTOCOL", "Connection", "Message", "get_parcel", "put_parcel"]

PROTOCOL = 1
"""What messages there are and what is in them; counted up when that changes."""
_VECTORS = 512
"""Pieces that one call may write; the kernel allows 1,024."""
NO_SIGNAL: int = getattr(socket, "MSG_NOSIGNAL", 0)
"""Flag of a send that must not end a program which has SIGPIPE as the shell has it."""
_LOOK_MS = 1000
"""How often somebody who waits without an end looks whether the descriptor is still there."""
_GIVE_UP_MS = 100
"""How often somebody who sends looks whether to give up."""
_FLAGS = NO_SIGNAL | socket.MSG_DONTWAIT
_NOT_TAKEN = "the other side did not take what it was sent"
_CROWDED_S = 10.0
"""How long to wait while too many descriptors are under way."""


@dataclass(frozen=True, slots=True)
class Message:
    """What one side says to the other."""

    kind: str
    fields: dict[str, Any]
    """Whatever CBOR can say; a sequence arrives as a list, by old releases of cbor2 as a tuple."""
    blobs: list[Blob]


class Connection:
    """One end of a pair of sockets. Any thread may send; one thread receives.

    Args:
        sock: a connected stream socket of this machine, which is taken over.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(None)
        self._sock = sock
        self._sending = threading.Lock()
        self._receiving = threading.RLock()
        self._incoming = Incoming(sock)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._room = select.poll()
        self._room.register(sock, select.POLLOUT)
        self._cut = ""
        self._closed = ""
        self._begun = False
        """Whether some of the message that is under way has been sent."""
        self.sender = 0
        """The thread that is in the middle of sending; 0 where none is."""
        self.after_send: Callable[[], None] | None = None
        """Called on the sender's thread after each message."""

    def fileno(self) -> int:
        """Return the descriptor; -1 once it is closed."""
        return self._sock.fileno()

    @property
    def broken(self) -> str:
        """Why nothing can be said or heard any more; empty while it can."""
        return self._closed or ("" if self.sender else self._cut)  # which is set while one sends

    def send(
        self,
        kind: str,
        fields: dict[str, Any],
        blobs: Sequence[Blob] = (),
        *,
        give_up: Callable[[], bool] | None = None,
    ) -> None:
        """Say something.

        Args:
            kind: what kind of message it is.
            fields: what it says, in types that CBOR knows.
            blobs: what goes with it.
            give_up: asked now and then while the other side takes nothing, or while others send;
                True ends the wait. None waits as long as the other side is there.

        Raises:
            ValueError: the fields hold what CBOR cannot say; nothing was sent.
            TimeoutError: ``give_up`` said so. The connection is broken if half of it was sent.
            ConnectionError: the other side is gone, or the connection was closed or broken.
        """
        outlines = [(len(one.header), one.lengths, one.fd >= 0) for one in blobs]
        files = [one.fd for one in blobs if one.fd >= 0]
        inline = [piece for one in blobs for piece in (one.header, *one.pieces)]
        body = write_fields([kind, fields, outlines])
        preamble = write_preamble(len(files), len(body), sum(map(len, inline)))
        while give_up is not None and self._sending.locked():
            if give_up():
                raise TimeoutError(_NOT_TAKEN)
            time.sleep(0.001)
        with self._sending:  # who was quicker gives up as well
            self._send(preamble, files, [body, *inline], give_up)
        if self.after_send is not None:
            self.after_send()

    def _send(
        self,
        preamble: bytes,
        files: list[int],
        rest: list[Any],
        give_up: Callable[[], bool] | None,
    ) -> None:
        if self.broken:
            raise ConnectionError(self.broken)
        self.sender = threading.get_ident()
        self._cut = "it was interrupted in the middle of a message"
        self._begun = False
        try:
            self._write(preamble, files, rest, give_up)
            self._cut = ""
        except TimeoutError:
            self._cut = _NOT_TAKEN if self._begun else ""
            raise
        except OSError as error:
            self._cut = _sentence(error)
            raise ConnectionError(self._closed or self._cut) from error
        finally:
            self.sender = 0
            if self._cut:
                self.shutdown()

    def receive(self, deadline: float | None = None) -> Message | None:
        """Return what the other side says next; None where it has ended the connection.

        Args:
            deadline: when to stop waiting, by ``time.monotonic``; None waits for ever.

        Raises:
            TimeoutError: the deadline has passed; the next call goes on from there.
            ConnectionError: what came is no message, or could not be taken.
        """
        with self._receiving:
            try:
                while (parts := self._incoming.next()) is None:
                    self._wait(deadline)
                return Message(parts.kind, parts.fields, blobs_of(parts))
            except EOFError:
                return None
            except TimeoutError:
                raise
            except OSError as error:
                self._cut = _sentence(error)
                self._incoming.close()
                raise ConnectionError(self._cut) from error

    def shutdown(self) -> None:
        """End the connection for both sides; what has arrived can still be received.

        Safe while others send or receive: they are woken up.
        """
        self._closed = self._closed or self._cut or "the connection was closed"
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection and give its descriptors back."""
        self.shutdown()
        with self._sending, self._receiving:
            self.abandon()

    def abandon(self) -> None:
        """Give the descriptors back without a word to the other side: for a copy after a fork."""
        self._closed = self._closed or "it belongs to the process that this one was forked from"
        self._incoming.close()
        self._sock.close()

    def _wait(self, deadline: float | None) -> None:
        """Wait until something has come, or the other side is gone."""
        if self._sock.fileno() < 0:
            raise ConnectionError(self._closed)
        if deadline is None:
            self._poll.poll(_LOOK_MS)  # somebody may close our descriptor, which wakes nobody
            return
        left = deadline - time.monotonic()
        if left <= 0 or not self._poll.poll(math.ceil(left * 1e3)):
            raise TimeoutError

    def _write(
        self,
        preamble: bytes,
        files: list[int],
        rest: list[Any],
        give_up: Callable[[], bool] | None,
    ) -> None:
        batches = [files[start : start + BATCH] for start in range(0, len(files), BATCH)]
        if len(batches) <= 1:
            self._write_all([preamble, *rest], files, give_up)
            return
        self._write_all([preamble], batches[0], give_up)
        for batch in batches[1:]:
            self._write_all([b"\0"], batch, give_up)
        self._write_all(rest, [], give_up)

    def _write_all(
        self, pieces: list[Any], files: list[int], give_up: Callable[[], bool] | None
    ) -> None:
        passed: list[Any] = []
        if files:
            passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
        at = 0
        while at < len(pieces):
            sent = self._write_some(pieces[at : at + _VECTORS], passed, give_up)
            self._begun, passed = True, []
            while at < len(pieces) and sent >= len(pieces[at]):
                sent -= len(pieces[at])
                at += 1
            if at < len(pieces):
                pieces[at] = memoryview(pieces[at])[sent:]

    def _write_some(
        self, pieces: list[Any], passed: list[Any], give_up: Callable[[], bool] | None
    ) -> int:
        deadline = time.monotonic() + _CROWDED_S
        while True:
            try:
                return self._sock.sendmsg(pieces, passed, _FLAGS)
            except BlockingIOError:
                if give_up is not None and give_up():
                    raise TimeoutError(_NOT_TAKEN) from None
                self._room.poll(_LOOK_MS if give_up is None else _GIVE_UP_MS)
            except OSError as error:
                if error.errno != errno.ETOOMANYREFS or time.monotonic() > deadline:
                    raise
                time.sleep(0.001)  # the other side takes them out meanwhile


def put_parcel(parcel: Parcel, blobs: list[Blob]) -> dict[str, Any]:
    """Append the bytes of a parcel to ``blobs``; return what stands for it in the fields."""
    blobs.append(parcel.blob)
    return {
        "blob": len(blobs) - 1,
        "form": parcel.form,
        "digest": parcel.digest,
        "pickled": parcel.pickled,
    }


def get_parcel(field: dict[str, Any], blobs: Sequence[Blob]) -> Parcel:
    """Return the parcel that ``put_parcel`` wrote into the fields of a message."""
    return Parcel(field["form"], blobs[field["blob"]], field["digest"], field["pickled"])


def _sentence(error: OSError) -> str:
    if isinstance(error, BrokenPipeError | ConnectionResetError):
        return "the other side is gone"
    return str(error)
