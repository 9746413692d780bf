"""Sessions: the same program in this process, or in a child process of this machine.

    g.add_worker("local://", count=2)         nodes of g run in children; its engine stays here
    LocalRunner().open(g.program())           the whole program in a child: fit, forward, put, call
    InProcessRunner().open(g.program())       the same, in this process

A child is a fresh interpreter that is started when it is first needed, serves one call at a time,
and whose end costs the one call that it was in.

Names are fetched from their modules when they are first used: a child needs none of them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from soma.sessions.inprocess import InProcessRunner as InProcessRunner
    from soma.sessions.local import LocalRunner as LocalRunner
    from soma.sessions.messages import send_message as send_message
    from soma.sessions.program import Program as Program

__all__ = ["InProcessRunner", "LocalRunner", "Program", "send_message"]

_HOMES = {
    "InProcessRunner": "inprocess",
    "LocalRunner": "local",
    "Program": "program",
    "send_message": "messages",
}


def __getattr__(name: str) -> Any:
    """Fetch a name when it is first used."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'soma.sessions' has no attribute {name!r}")
    found = getattr(import_module(f"soma.sessions.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
