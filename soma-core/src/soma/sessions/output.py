"""What a child prints, line by line, on the stderr of this process.

    [local-1] epoch 3 of 10

The child's stdout and stderr are one pipe, so that raw bytes of its libraries come out as well, and
in order. A line ends where the next one begins, or where a progress bar writes over it, which it
then does here as well. Lines go to ``sys.stderr`` as it is when they come, which a notebook or a
test may have replaced. Before the child is ready they are held back: they become part of the error
if it fails.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import deque
from contextlib import suppress

__all__ = ["Output"]

_READ = 1 << 16
_AT_ONCE = 1 << 20
"""Bytes after which others have their turn; a pipe holds 64 KiB."""
_LONGEST = 1 << 20
"""Bytes after which an unfinished line is cut."""
_LINE = re.compile(rb"([^\r\n]*)(\r?\n|\r(?=[^\n]))")
"""Text and its end; a carriage return at the end of all may yet be half of an end."""
_HELD = 200
_SHOWN = 15


class Output:
    """What one child prints. Safe for threads.

    Args:
        name: stands before every line.
        fd: the end of the pipe to read from, which is taken over.
    """

    def __init__(self, name: str, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._mark = f"[{name}] "
        self._lock = threading.RLock()  # a stderr that somebody replaced may ask for more
        self._unfinished = b""
        self._held: deque[str] | None = deque(maxlen=_HELD)

    def pump(self) -> bool:
        """Tell what has been printed; return whether more may come."""
        with self._lock:
            fresh, more = self._read()
            waiting = self._unfinished + fresh
            lines = _LINE.findall(waiting)
            self._unfinished = waiting[sum(len(text) + len(end) for text, end in lines) :]
            if len(self._unfinished) > _LONGEST:
                lines.append((self._unfinished, b"\n"))
                self._unfinished = b""
            self._tell(lines)
            return more

    def drain(self) -> None:
        """Tell what has been printed, and end a line that is not finished."""
        with self._lock:
            self.pump()
            if self._unfinished:
                line, self._unfinished = self._unfinished.rstrip(b"\r"), b""
                self._tell([(line, b"\n")])

    def release(self) -> None:
        """Tell what was held back; from now on everything is told as it comes."""
        with self._lock:
            held, self._held = self._held, None
            self._write(list(held or ()))

    def last_lines(self) -> str:
        """Return the end of what was held back, as text below a sentence; or nothing."""
        with self._lock:
            lines = list(self._held or ())[-_SHOWN:]
        return "".join(f"\n    {line.rstrip()}" for line in lines)

    def close(self) -> None:
        """Tell the rest and give the descriptor back."""
        with self._lock:
            self.drain()
            self.abandon()

    def abandon(self) -> None:
        """Give the descriptor back."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)

    def _read(self) -> tuple[bytes, bool]:
        pieces: list[bytes] = []
        size = 0
        while self.fd >= 0 and size < _AT_ONCE:
            try:
                piece = os.read(self.fd, _READ)
            except BlockingIOError:
                return b"".join(pieces), True
            except OSError:
                piece = b""
            if not piece:
                return b"".join(pieces), False
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces), self.fd >= 0

    def _tell(self, lines: list[tuple[bytes, bytes]]) -> None:
        texts = [
            text.decode("utf-8", "backslashreplace") + ("\r" if end == b"\r" else "\n")
            for text, end in lines
            if text or end != b"\r"
        ]
        if self._held is not None:
            self._held.extend(texts)
        else:
            self._write(texts)

    def _write(self, texts: list[str]) -> None:
        stream = sys.stderr
        if texts and stream is not None:
            with suppress(Exception):  # somebody else's stream
                stream.write("".join(f"{self._mark}{text}" for text in texts))
                stream.flush()
