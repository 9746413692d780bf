"""Check-ups of stores, each fine or broken in one way: targets of specs."""

from __future__ import annotations

import threading

from soma.contracts import Finding

__all__ = ["FINE", "NOTE", "WRONG", "never"]

FINE = Finding(about="shelf", state="fine", text="it stands")
NOTE = Finding(about="shelf", state="note", text="it is dusty", advice="wipe it")
WRONG = Finding(about="shelf", state="wrong", text="it has fallen down", advice="lift it")

never = threading.Event()
"""Waited for by what hangs; a test that is through sets it."""

a_number = 7


def fine():
    yield FINE


def a_list():
    return [NOTE, WRONG]


def fails_on_the_way():
    yield NOTE
    raise RuntimeError("the lamp\nis broken")


def leaves():
    raise SystemExit(3)


def nothing():
    return None


def texts():
    yield FINE
    yield "it stands"


def takes_something(shelf):
    yield FINE


def hangs():
    yield NOTE
    never.wait(30)
    yield WRONG
