"""Who was called: noted in a module of its own, whose contents are in nobody's code identity."""

from __future__ import annotations

import os

__all__ = ["CALLS", "note", "noted"]

CALLS: list[str] = []
"""Of this process."""


def note(text):
    """Note a call here, and as a line of the file ``$SOMA_TEST_NOTES``, where that is given."""
    CALLS.append(text)
    path = os.environ.get("SOMA_TEST_NOTES")
    if path:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.write(fd, f"{text}\n".encode())  # one write: lines of many processes do not mix
        os.close(fd)


def noted(text):
    """Return how often a call was noted in this process."""
    return CALLS.count(text)
