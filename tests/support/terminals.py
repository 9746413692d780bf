"""A program on a terminal of its own, and what is seen there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import textwrap
from contextlib import contextmanager
from time import monotonic

from support.signals import hear_ctrl_c

__all__ = ["Terminal", "on_terminal"]

_TIMEOUT_S = 60
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """Our end of the terminal."""

    def __init__(self, process, ours):
        self.process = process
        self.ours = ours
        self.raw = ""

    def read_until(self, text, count=1):
        """Read until a text was written so often; None: until the end."""
        end = monotonic() + _TIMEOUT_S
        while text is None or self.raw.count(text) < count:
            assert select.select([self.ours], [], [], max(end - monotonic(), 0))[0], self.raw
            try:
                found = os.read(self.ours, 1 << 16)
            except OSError:  # what Linux says when nobody has the other end any more
                found = b""
            if not found:
                assert text is None, self.raw
                return
            self.raw += found.decode(errors="replace")

    def press(self, keys):
        """Type something; Ctrl-C reaches what runs as it does from a keyboard."""
        os.write(self.ours, keys)

    def hang_up(self):
        """Take the terminal away."""
        os.close(self.ours)
        self.ours = None

    def end(self):
        """Read everything; return the exit code."""
        self.read_until(None)
        return self.process.wait(_TIMEOUT_S)

    @property
    def lines(self):
        """What was written, without what moves the cursor and what was drawn over."""
        kept = []
        for piece in re.split(r"\r(?=\x1b\[2K)", self.raw):
            # To draw again is to go up line by line and erase each.
            erased = piece.count("\x1b[2K")
            kept = kept[: len(kept) - erased] if erased else kept
            kept += _CODES.sub("", piece).replace("\r\n", "\n").split("\n")
        return kept

    @property
    def shows_cursor(self):
        """Whether the cursor is to be seen."""
        return self.raw.rfind("\x1b[?25h") >= self.raw.rfind("\x1b[?25l")


def _own_terminal():
    """Make standard error the terminal that Ctrl-C comes from, and hear it; losing it is no end."""
    hear_ctrl_c()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    fcntl.ioctl(2, termios.TIOCSCTTY, 0)


@contextmanager
def on_terminal(code, *, rows=24, columns=80, stdout=None, **environment):
    """Run code in a new interpreter on a new terminal; it is gone at the end in any case."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    known = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_INTERACTIVE", "TTY_COMPATIBLE"}
    kept = {name: value for name, value in os.environ.items() if name not in known}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=theirs,
        stdout=theirs if stdout is None else stdout,
        stderr=theirs,
        env={**kept, "TERM": "xterm-256color", "PYTHONUTF8": "1", **environment},
        start_new_session=True,
        preexec_fn=_own_terminal,  # noqa: PLW1509  # it takes no lock
    )
    os.close(theirs)
    terminal = Terminal(process, ours)
    try:
        yield terminal
    finally:
        process.kill()
        process.wait(_TIMEOUT_S)
        if terminal.ours is not None:
            terminal.hang_up()
