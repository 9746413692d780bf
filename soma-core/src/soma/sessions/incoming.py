"""The bytes that come in on a connection, cut into messages.

A message may stop anywhere, and whoever waits for it may have to leave: a generator remembers how
far it got, and goes on when somebody asks again. Descriptors arrive beside the bytes, in order, and
lie in a queue until the message that they belong to is whole; who gives up closes them.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections import deque
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import cbor2

from soma.engine.blobs import Blob

__all__ = [
    "Incoming",
    "Outline",
    "Parts",
    "blobs_of",
    "read_fields",
    "write_fields",
    "write_preamble",
]

Outline = tuple[int, list[int], bool]
"""Of a blob: bytes of its header, bytes of its buffers, whether these lie in a file."""

_PREAMBLE = struct.Struct("<4sHxxIQQ")  # magic, version, descriptors, bytes of CBOR, bytes inline
_MAGIC = b"\xf0SoM"
_VERSION = 1
BATCH = 200
"""Descriptors that one call may pass on; the kernel allows 253."""
_MOST_FILES = 1 << 16
_MOST_CBOR = 1 << 28
_MOST_INLINE = 1 << 38
_AHEAD = 1 << 16
_SPACE = socket.CMSG_SPACE(253 * array.array("i").itemsize)
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_FLAGS = socket.MSG_DONTWAIT | _CLOEXEC
_SURROGATES = 0x50_4D_41
"""Tag of a text with halves of pairs, such as the name of a folder that is not UTF-8."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A message that is there as a whole, and whose blobs are not built yet."""

    kind: str
    fields: dict[str, Any]
    outlines: list[Outline]
    inline: memoryview
    files: list[int]


class Incoming:
    """The messages of one socket, for one thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = memoryview(bytearray(_AHEAD))
        self._start = self._end = 0
        self._files: deque[int] = deque()
        self._messages = self._cut()

    def next(self) -> Parts | None:
        """Return the next message; None where it has not come yet.

        Raises:
            EOFError: there will be none.
            ConnectionError: what came is no message.
        """
        try:
            return next(self._messages)
        except StopIteration:
            raise EOFError from None

    def close(self) -> None:
        """Close the descriptors that nobody has taken."""
        while self._files:
            with suppress(OSError):
                os.close(self._files.popleft())

    def _cut(self) -> Generator[Parts | None, None, None]:
        while True:
            raw = yield from self._take(_PREAMBLE.size, first=True)
            files, body, inline = _read_preamble(raw)
            if files > BATCH:
                yield from self._take((files - 1) // BATCH)
            said = yield from self._take(body)
            kind, fields, outlines = _read_body(said)
            _check(outlines, files, inline)
            rest = (yield from self._take(inline)) if inline else b""
            if len(self._files) < files:
                raise ConnectionError(
                    f"a message came with {len(self._files)} of its {files} descriptors"
                )
            own = [self._files.popleft() for _ in range(files)]
            yield Parts(kind, fields, outlines, memoryview(rest), own)

    def _take(self, size: int, *, first: bool = False) -> Generator[None, None, bytes | bytearray]:
        while self._end - self._start < size:
            if size > _AHEAD:
                return (yield from self._take_large(size))
            if self._start + size > _AHEAD or self._start == self._end:
                self._move_to_front()
            count = self._receive(self._buffer[self._end :])
            if count == 0:
                self._end_of_stream(clean=first and self._start == self._end)
            elif count < 0:
                yield
            else:
                self._end += count
        start = self._start
        self._start += size
        return bytes(self._buffer[start : self._start])

    def _take_large(self, size: int) -> Generator[None, None, bytearray]:
        try:
            whole = bytearray(size)
        except MemoryError:
            raise ConnectionError(f"no memory for a message of {size} bytes") from None
        done = self._end - self._start
        whole[:done] = self._buffer[self._start : self._end]
        self._start = self._end = 0
        with memoryview(whole) as view:
            while done < size:
                count = self._receive(view[done:])
                if count == 0:
                    self._end_of_stream(clean=False)
                elif count < 0:
                    yield
                else:
                    done += count
        return whole

    def _move_to_front(self) -> None:
        kept = self._end - self._start
        if kept:
            self._buffer[:kept] = bytes(self._buffer[self._start : self._end])
        self._start, self._end = 0, kept

    def _end_of_stream(self, *, clean: bool) -> None:
        if clean:
            raise EOFError
        raise ConnectionError("the connection ended in the middle of a message")

    def _receive(self, view: memoryview) -> int:
        """Read what there is; return 0 at the end of the stream, -1 where it has not come yet."""
        try:
            count, passed, flags, _ = self._sock.recvmsg_into([view], _SPACE, _FLAGS)
        except BlockingIOError:
            return -1
        except ConnectionResetError:  # it died and had not read all that we said
            return 0
        if passed:
            self._keep_files(passed)
        if flags & socket.MSG_CTRUNC:
            raise ConnectionError(
                "a message came with descriptors and this process can have no more: close files "
                "or raise the limit (ulimit -n)"
            )
        return count

    def _keep_files(self, passed: list[tuple[int, int, bytes]]) -> None:
        for level, kind, raw in passed:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found = array.array("i")
                found.frombytes(raw[: len(raw) - len(raw) % found.itemsize])
                self._files.extend(found)
                if not _CLOEXEC:  # not Linux
                    for fd in found:
                        os.set_inheritable(fd, False)  # noqa: FBT003  # its name says it


def blobs_of(parts: Parts) -> list[Blob]:
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


def write_preamble(files: int, body: int, inline: int) -> bytes:
    """Return how a message begins, with its number of descriptors, bytes of CBOR, bytes inline.

    Raises:
        ValueError: the other side would refuse a message of that size.
    """
    if files > _MOST_FILES or body > _MOST_CBOR or inline > _MOST_INLINE:
        raise ValueError(
            f"A message of {files} descriptors, {body} bytes of fields and {inline} bytes inline "
            f"is too large: {_MOST_FILES}, {_MOST_CBOR} and {_MOST_INLINE} are the limits"
        )
    return _PREAMBLE.pack(_MAGIC, _VERSION, files, body, inline)


def _read_preamble(raw: bytes | bytearray) -> tuple[int, int, int]:
    magic, version, files, body, inline = _PREAMBLE.unpack(raw)
    if magic != _MAGIC:
        raise ConnectionError(f"what came is not the beginning of a message: {bytes(raw)!r}")
    if version != _VERSION:
        raise ConnectionError(f"a message of version {version} came, and {_VERSION} is known")
    if files > _MOST_FILES or body > _MOST_CBOR or inline > _MOST_INLINE:
        raise ConnectionError(
            f"a message announces {files} descriptors, {body} bytes of fields and {inline} bytes "
            "inline: no message is as large"
        )
    return files, body, inline


def write_fields(said: list[Any]) -> bytes:
    """Return what is said as CBOR.

    Raises:
        ValueError: CBOR cannot say it.
    """
    try:
        try:
            return cbor2.dumps(said)
        except UnicodeEncodeError:
            return cbor2.dumps(_spelled(said))
    except (cbor2.CBOREncodeError, RecursionError, TypeError) as error:
        raise ValueError(f"The fields of a message hold what CBOR cannot say: {error}") from error


def _spelled(said: Any) -> Any:
    if isinstance(said, str):
        if said.isascii():
            return said
        return cbor2.CBORTag(_SURROGATES, said.encode("utf-8", "surrogatepass"))
    if isinstance(said, dict):
        return {_spelled(key): _spelled(value) for key, value in said.items()}
    return [_spelled(one) for one in said] if isinstance(said, list | tuple) else said


def read_fields(raw: bytes | bytearray) -> Any:
    """Return what CBOR says."""
    return cbor2.loads(bytes(raw), tag_hook=_from_tag)  # the oldest release takes nothing else


def _from_tag(*given: Any) -> Any:
    tag = next(one for one in given if isinstance(one, cbor2.CBORTag))  # releases differ in these
    return tag.value.decode("utf-8", "surrogatepass") if tag.tag == _SURROGATES else tag


def _read_body(raw: bytes | bytearray) -> tuple[str, dict[str, Any], list[Outline]]:
    try:
        kind, fields, outlines = read_fields(raw)
        found = [(_size(head), list(map(_size, sizes)), bool(on)) for head, sizes, on in outlines]
    except Exception as error:  # hostile bytes may raise whatever a decoder can raise
        raise ConnectionError(f"what a message says cannot be read: {error}") from error
    if not isinstance(kind, str) or not isinstance(fields, dict):
        raise ConnectionError("what a message says is not [kind, fields, outlines of its blobs]")
    return kind, fields, found


def _size(found: Any) -> int:
    if type(found) is not int or not 0 <= found < 1 << 63:
        raise ValueError(f"{found!r} is no number of bytes")
    return found


def _check(outlines: list[Outline], files: int, inline: int) -> None:
    own_files = sum(in_file for _, _, in_file in outlines)
    own = sum(head + (0 if in_file else sum(sizes)) for head, sizes, in_file in outlines)
    if own_files != files or own != inline:
        raise ConnectionError(
            f"a message announces {files} descriptors and {inline} bytes inline, and its blobs "
            f"have {own_files} and {own}"
        )
