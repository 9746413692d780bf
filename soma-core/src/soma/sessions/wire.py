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
import os
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
from soma.sessions.incoming import BATCH, Incoming, Parts, write_fields, write_preamble

__all__ = ["NO_SIGNAL", "PROTOCOL", "Connection", "Message", "get_parcel", "put_parcel"]

PROTOCOL = 1
"""What messages there are and what is in them; counted up when that changes."""
_VECTORS = 512
"""Pieces that one call may write; the kernel allows 1,024."""
NO_SIGNAL: int = getattr(socket, "MSG_NOSIGNAL", 0)
"""Flag of a send that must not end a program which has SIGPIPE as the shell has it."""
_LOOK_MS = 1000
"""How often somebody who waits without an end looks whether the descriptor is still there."""
_CROWDED_S = 10.0
"""How long to wait while too many descriptors are under way."""


@dataclass(frozen=True, slots=True)
class Message:
    """What one side says to the other."""

    kind: str
    fields: dict[str, Any]
    """Whatever CBOR can say; tuples arrive as lists."""
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
        self._cut = ""
        self._closed = ""
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
        return self._closed or self._cut

    def send(self, kind: str, fields: dict[str, Any], blobs: Sequence[Blob] = ()) -> None:
        """Say something.

        Args:
            kind: what kind of message it is.
            fields: what it says, in types that CBOR knows.
            blobs: what goes with it.

        Raises:
            ValueError: the fields hold what CBOR cannot say; nothing was sent.
            ConnectionError: the other side is gone, or the connection was closed or broken.
        """
        outlines = [(len(one.header), one.lengths, one.fd >= 0) for one in blobs]
        files = [one.fd for one in blobs if one.fd >= 0]
        inline = [piece for one in blobs for piece in (one.header, *one.pieces)]
        body = write_fields([kind, fields, outlines])
        preamble = write_preamble(len(files), len(body), sum(map(len, inline)))
        with self._sending:
            self._send(preamble, files, [body, *inline])
        if self.after_send is not None:
            self.after_send()

    def _send(self, preamble: bytes, files: list[int], rest: list[Any]) -> None:
        if self.broken:
            raise ConnectionError(self.broken)
        self.sender = threading.get_ident()
        self._cut = "it was interrupted in the middle of a message"
        try:
            self._write(preamble, files, rest)
            self._cut = ""
        except OSError as error:
            self._cut = _sentence(error)
            raise ConnectionError(self.broken) from error
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
                return Message(parts.kind, parts.fields, _blobs_of(parts))
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

    def _write(self, preamble: bytes, files: list[int], rest: list[Any]) -> None:
        batches = [files[start : start + BATCH] for start in range(0, len(files), BATCH)]
        if len(batches) <= 1:
            self._write_all([preamble, *rest], files)
            return
        self._write_all([preamble], batches[0])
        for batch in batches[1:]:
            self._write_all([b"\0"], batch)
        self._write_all(rest, [])

    def _write_all(self, pieces: list[Any], files: list[int]) -> None:
        sent = self._write_some(pieces[:_VECTORS], files)
        at = 0
        while True:
            while at < len(pieces) and sent >= len(pieces[at]):
                sent -= len(pieces[at])
                at += 1
            if at == len(pieces):
                return
            pieces[at] = memoryview(pieces[at])[sent:]
            sent = self._sock.sendmsg(pieces[at : at + _VECTORS], (), NO_SIGNAL)

    def _write_some(self, pieces: list[Any], files: list[int]) -> int:
        if not files:
            return self._sock.sendmsg(pieces, (), NO_SIGNAL)
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
        deadline = time.monotonic() + _CROWDED_S
        while True:
            try:
                return self._sock.sendmsg(pieces, passed, NO_SIGNAL)
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


def _blobs_of(parts: Parts) -> list[Blob]:
    """Build the blobs of a message, which take its descriptors over."""
    files = parts.files
    files.reverse()
    made, at = [], 0
    try:
        for head, sizes, in_file in parts.outlines:
            header = bytes(parts.inline[at : at + head])
            at += head
            if in_file:
                made.append(Blob.of_file(header, sizes, files.pop()))
                continue
            buffers = []
            for size in sizes:
                buffers.append(parts.inline[at : at + size])
                at += size
            made.append(Blob(header, buffers))
    finally:
        for fd in files:
            os.close(fd)
    return made


def _sentence(error: OSError) -> str:
    if isinstance(error, BrokenPipeError | ConnectionResetError):
        return "the other side is gone"
    return str(error)
