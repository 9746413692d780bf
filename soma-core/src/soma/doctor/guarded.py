"""Checks that may fail in any way, or not end, and still end in a finding.

guarded("free disk", check)          what it yields; its exception is one more finding, and so is
                                     what it yields where nobody could print that
patiently("cache", check, limit_s)   the same on a thread of its own, which is left behind
                                     where nothing more is heard of it
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from soma._texts import one_line
from soma.contracts import Finding
from soma.errors import describe_error, shown

__all__ = ["Check", "guarded", "patiently"]

Check: TypeAlias = Callable[[], Iterable[Finding]]

_REPORT = "This is a fault of the check itself, or of what it looks at: report it with this line"
_MOST_TEXT = 500
_STATES = ("fine", "note", "wrong")


def guarded(about: str, check: Check) -> Iterator[Finding]:
    """Yield what a check finds; what it raises is a finding as well.

    Args:
        about: what is looked at, for that finding.
        check: the check, maybe somebody else's code.
    """
    try:
        for found in check():
            yield _checked(about, found)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001  # somebody else's code may raise anything
        why = one_line(describe_error(error), _MOST_TEXT)
        yield Finding(
            about=about, state="wrong", text=f"it cannot be checked: {why}", advice=_REPORT
        )


def _checked(about: str, found: object) -> Finding:
    """Return a finding that can be shown; one of its faults, where it cannot.

    Raises:
        TypeError: it is none. Whatever the check yields is something else, then: it is not gone on.
    """
    if not isinstance(found, Finding):
        raise TypeError(f"a check yields soma.contracts.Finding, not {shown(found)}")
    # A class of its own may give something else each time it is asked, so it is asked once.
    has: dict[str, Any] = {one.name: getattr(found, one.name) for one in fields(Finding)}
    texts = {name: value for name, value in has.items() if isinstance(value, str)}
    faults = [f"its {name} is no text, but {shown(has[name])}" for name in has.keys() - texts]
    if texts.get("state", "fine") not in _STATES:
        faults.append(f"its state is {shown(has['state'])}, and not {' or '.join(_STATES)}")
    if not faults:
        return Finding(**has)
    said = f". It says: {texts['text']}" if "text" in texts else ""
    return Finding(
        about=texts.get("about", about),
        state="wrong",
        text=f"what the check has found cannot be told: {'; '.join(sorted(faults))}{said}",
        advice=_REPORT,
    )


def patiently(about: str, check: Check, limit_s: float, advice: str = "") -> Iterator[Finding]:
    """Yield what a check finds, as long as it goes on finding something.

    Args:
        about: what is looked at.
        check: the check. It may hang, as everything does that lies on a server which is gone.
        limit_s: how long the next finding is waited for, in seconds.
        advice: what to do where it does not come.
    """
    told: SimpleQueue[Finding | None] = SimpleQueue()

    def work() -> None:
        for found in guarded(about, check):
            told.put(found)
        told.put(None)

    # A daemon: nothing stops a thread that waits for a server, and the command ends without it.
    threading.Thread(target=work, name=f"soma doctor: {about}", daemon=True).start()
    while True:
        try:
            found = told.get(timeout=limit_s)
        except Empty:
            text = f"it has not answered within {limit_s:g} s"
            yield Finding(about=about, state="wrong", text=text, advice=advice)
            return
        if found is None:
            return
        yield found
