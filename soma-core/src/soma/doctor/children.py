"""Whether a session child starts, and answers: the other thing that an installation may break."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from soma.contracts import Finding
from soma.doctor.guarded import patiently
from soma.errors import SomaError

__all__ = ["look_at_children"]

_LIMIT_S = 30.0
_ABOUT = "session child"
_ADVICE = "is the machine very busy, or does its Python hang? Try: python -c 'import soma.graph'"


class _Nothing:
    """A node, since a program has one."""

    def forward(self, x: Any, state: Any) -> Any:  # noqa: ARG002  # the signature of a node
        return x


def look_at_children() -> Iterator[Finding]:
    """Start one child and have it say its number."""
    return patiently(_ABOUT, _start_one, _LIMIT_S, _ADVICE)


def _start_one() -> Iterator[Finding]:
    from soma.graph import Graph  # what only this check needs
    from soma.sessions.local import LocalRunner

    graph = Graph(cache="off")
    graph.node("nothing", _Nothing())
    try:
        with LocalRunner(timeout_s=_LIMIT_S) as runner, runner.open(graph.program()) as session:
            number = session.call(os.getpid)
    except (SomaError, OSError) as error:
        yield Finding(
            about=_ABOUT,
            state="wrong",
            text=f"it does not work: {error}",
            advice="what it has printed says why; programs run in this process all the same",
        )
        return
    if number == os.getpid():
        raise RuntimeError(f"process {number} has answered itself")
    yield Finding(about=_ABOUT, state="fine", text="it starts and answers")
