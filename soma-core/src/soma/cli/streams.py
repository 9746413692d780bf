r"""The standard streams of a command: what they cannot show, and what they do not take.

    a sign that the encoding lacks     is written as \xNN, by every command
    nobody reads on (``| head``)       the command ends without a word, as one that SIGPIPE ended
    a full disk (``> /dev/full``)      a sentence, and 1

The surprise: an error of a stream names no file, and so could come from anywhere. What click was
writing is known. For the rest the stream is asked: one that has not taken something still holds it,
and says so again when it is flushed, unless it is one that holds nothing (``python -u``).
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from traceback import walk_tb

__all__ = ["OutputLost", "give_up", "heard_or_not", "is_of_output", "show_everything", "told_apart"]

_ECHO = "click.utils"  # where everything is printed
_NOBODY_READS = 141  # what a shell reports for a process ended by SIGPIPE


class OutputLost(Exception):
    """What was to be printed was not taken; the ``OSError`` is its cause."""


def show_everything() -> None:
    """Have the streams write what their encoding lacks as an escape, and not raise."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def is_of_output(error: OSError) -> bool:
    """Say whether an error is of standard output or standard error."""
    if error.filename is not None:
        return False
    if any(frame.f_globals.get("__name__") == _ECHO for frame, _ in walk_tb(error.__traceback__)):
        return True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:  # which was closed before Python began
                stream.flush()
        except OSError as again:
            if again.errno == error.errno:
                return True
        except ValueError:  # closed meanwhile
            pass
    return False


@contextmanager
def told_apart() -> Iterator[None]:
    """Flush standard output at the end; raise what the streams do not take as ``OutputLost``."""
    try:
        yield
        if sys.stdout is not None:
            with suppress(ValueError):  # closed meanwhile
                sys.stdout.flush()
    except OSError as error:
        if not is_of_output(error):
            raise
        raise OutputLost from error


def give_up(error: OSError) -> int:
    """Drop what is not taken, say why if anybody can hear it, and return the exit status."""
    reason = error.strerror or str(error)
    _let_go(sys.stdout)
    if error.errno == errno.EPIPE:
        status = _NOBODY_READS
    else:
        status = 1
        with heard_or_not():
            print(  # noqa: T201  # the sentence; no click is needed for it
                f"Error: what was to be printed could not be written: {reason}",
                file=sys.stderr,
                flush=True,
            )
    return status


@contextmanager
def heard_or_not() -> Iterator[None]:
    """Say something on standard error; where it is not taken, the exit status says enough."""
    with suppress(OSError, ValueError):
        yield
    _let_go(sys.stderr)


def _let_go(stream: object) -> None:
    """Send to nowhere what a stream still holds, or Python complains when it closes it."""
    flush, fileno = getattr(stream, "flush", None), getattr(stream, "fileno", None)
    if flush is None or fileno is None:
        return
    try:
        flush()
    except OSError:
        with suppress(OSError, ValueError):  # no file behind it
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, fileno())
            os.close(nowhere)
    except ValueError:  # closed meanwhile
        pass
