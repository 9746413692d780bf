"""Streams that progress is written to, without ever failing what it is the progress of.

While a table is drawn, rich stands in the place of ``sys.stdout`` and ``sys.stderr``, so that what
is printed appears above the table; the stream behind it is its ``rich_proxied_file``.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

__all__ = [
    "Quiet",
    "can_draw",
    "flush_redirected",
    "is_same_terminal",
    "is_terminal",
    "put_redirected_back",
]

_DUMB = {"dumb", "unknown"}
"""Values of TERM for terminals on which nothing can be drawn."""
_ASCII = str.maketrans({"µ": "u", "…": "...", "·": ",", "─": "-"})
"""For streams that cannot write them; what else they cannot write is escaped."""


class Quiet(io.TextIOBase):
    """Writes to a stream until that fails, and then to nothing.

    Not closed with it: the stream is somebody else's.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._broken = False

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a variable there, never set here
        """What the stream writes; rich draws lines of letters where it is not UTF-8."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write as much of a text as the stream can."""
        if not self._broken:
            try:
                self._write(text)
            except Exception:  # noqa: BLE001  # closed, broken, full or not a stream at all
                self._broken = True
        return len(text)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            plain = text.translate(_ASCII).encode(self.encoding, "backslashreplace")
            self._stream.write(plain.decode(self.encoding))

    def flush(self) -> None:
        """Pass on what was written."""
        if not self._broken:
            try:
                self._stream.flush()
            except Exception:  # noqa: BLE001  # as above
                self._broken = True

    def isatty(self) -> bool:
        """Say whether it is a terminal."""
        return is_terminal(self._stream)

    def fileno(self) -> int:
        """Return the descriptor of the stream."""
        return int(self._stream.fileno())


def is_terminal(stream: Any) -> bool:
    """Say whether a stream is an open terminal."""
    try:
        return bool(stream.isatty())
    except Exception:  # noqa: BLE001  # closed, None or not a stream at all
        return False


def can_draw(stream: Any) -> bool:
    """Say whether a stream is a terminal on which a table can be drawn over itself.

    Not where rich stands before the terminal already: somebody else draws there.
    """
    return (
        is_terminal(stream)
        and not hasattr(stream, "rich_proxied_file")
        and os.environ.get("TERM", "").lower() not in _DUMB
    )


def is_same_terminal(stream: Any, other: Any) -> bool:
    """Say whether two streams are one terminal."""
    try:
        return is_terminal(stream) and os.path.sameopenfile(stream.fileno(), other.fileno())
    except Exception:  # noqa: BLE001  # as above
        return False


def flush_redirected() -> None:
    """Write the lines that were begun: rich forgets them when it puts the streams back."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "rich_proxied_file"):
            stream.flush()


def put_redirected_back() -> None:
    """In a fork: rich's lock may be held by a thread that is not there, and nobody draws."""
    sys.stdout = getattr(sys.stdout, "rich_proxied_file", sys.stdout)
    sys.stderr = getattr(sys.stderr, "rich_proxied_file", sys.stderr)
