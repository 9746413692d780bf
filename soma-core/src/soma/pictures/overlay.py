"""What a run did, laid over the picture of its graph.

What an overlay does not name was not reached, and is drawn pale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

__all__ = ["OUTCOMES", "Did", "Outcome", "Overlay", "did_text"]

Outcome: TypeAlias = Literal["hit", "computed", "recomputed", "running", "unfinished", "failed"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""In the order in which a legend lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Did:
    """What a run did with one node, branch or loop."""

    outcome: Outcome
    text: str = ""
    """One short line: ``"2 hits, 1.2 ms"``, ``"26 passes, stopped"``. Where it does not say the
    outcome, the outcome is put before it."""
    arms: tuple[str, ...] = ()
    """Of a branch: the labels of the arms that were taken; the others are drawn pale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """What a run did, by the ids of nodes, branches and loops."""

    nodes: Mapping[str, Did] = field(default_factory=dict)
    title: str = ""
    """What the run was, beside the legend: ``"fit, 1.2 s"``."""


_OPEN = {"running", "unfinished", "failed"}


def did_text(did: Did, *, of_frame: bool = False) -> str:
    """Return what was done in words, so that nothing is said by colour alone.

    >>> did_text(Did(outcome="computed", text="1.2 ms"))
    'computed, 1.2 ms'
    >>> did_text(Did(outcome="hit", text="2 hits"))
    '2 hits'
    """
    if not did.text:
        return did.outcome
    # What a loop or branch did is told by its text; only where it did not end is there more to say.
    told = did.outcome in did.text or (of_frame and did.outcome not in _OPEN)
    return did.text if told else f"{did.outcome}, {did.text}"
