"""What a fit or forward would do, row by row: what ``g.estimate`` returns.

    node    what    what would be done   about     bytes  last time
    center  state   reused                         144 B
    center  output  recomputed          1.2 s    1.5 GiB
    line    state   unknown until run   3.4 s             2026-11-30 13:43

The surprise: below something that has to be computed nothing is known, since keys are made of what
comes out. Those rows have the time that the same took before, and may all turn out to be known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, NamedTuple, TypeAlias

from soma._html import preformatted
from soma.events.human import human_ms

__all__ = ["OUTCOME_WORDS", "Estimate", "EstimateRow", "Outcome"]

Outcome: TypeAlias = Literal["reused", "read", "recomputed", "computed", "always", "unknown"]
OUTCOME_WORDS: Mapping[Outcome, str] = {
    "reused": "reused",
    "read": "read",
    "recomputed": "recomputed",
    "computed": "computed",
    "always": "computed every time",
    "unknown": "unknown until run",
}
"""How tables say it, in the order in which they count."""
_CERTAIN = ("read", "recomputed", "computed", "always")


class EstimateRow(NamedTuple):
    """One fit or forward of one node."""

    phase: Literal["fit", "forward"]
    """The call in which it would be done."""
    node: str
    what: str
    """``"state"`` for a fit, ``"output"`` for a forward."""
    outcome: Outcome
    """``"reused"``: known, and nobody needs more than its hash; or it takes no time to read, or
    what this estimate has computed before is the same. ``"read"``: known, and needed.
    ``"recomputed"``: known and needed, and its value is not there; if it will be kept, whoever
    needs the same afterwards reads it. ``"computed"``: not known.
    ``"always"``: it is never looked up. ``"unknown"``: its key depends on what is not known."""
    ms: float | None
    """About how long, in milliseconds: what it took before, or what reading takes. None where
    nothing has been recorded of such a node."""
    nbytes: int
    """Size of its frame; 0 where it is not known."""
    key: str = ""
    """Its key; empty where that is not known, or it has none."""
    since: float | None = None
    """When the record that this rests on was made, in seconds since the epoch."""
    passes: tuple[int, ...] = ()
    """Pass numbers of the loops around it, outermost first. Where it is not known which arm is
    taken or how many more passes there are, a node has one row for all that may come."""
    why: str = ""
    """Why it is computed every time, where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a fit, a forward, or both would do. ``print(estimate.to_text())`` shows the table."""

    phases: tuple[Literal["fit", "forward"], ...]
    rows: tuple[EstimateRow, ...] = ()
    """In an order in which they could be done."""
    notices: tuple[str, ...] = ()
    """Why something is not kept, or not known: the input has no hash, the cache cannot be read."""

    @property
    def counts(self) -> dict[Outcome, int]:
        """How many rows have which outcome; those that none has are left out."""
        found = Counter(one.outcome for one in self.rows)
        return {outcome: found[outcome] for outcome in OUTCOME_WORDS if found[outcome]}

    @property
    def known_ms(self) -> float:
        """About how long what is certainly done takes, as far as that is known."""
        return self._sum(_CERTAIN)

    @property
    def unknown_ms(self) -> float:
        """What the rest took the last time. It may be known, or an arm that is not taken."""
        return self._sum(("unknown",))

    @property
    def never(self) -> tuple[EstimateRow, ...]:
        """The rows of which nobody has ever recorded how long they take."""
        return tuple(one for one in self.rows if one.ms is None)

    def to_text(self) -> str:
        """Return a table: what would be done with each node, about how long it takes, its size."""
        from soma.engine.estimate_text import estimate_text  # which only those who look need

        return estimate_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data, for JSON."""
        return {
            "phases": list(self.phases),
            "counts": self.counts,
            "known_ms": _finite(self.known_ms),
            "unknown_ms": _finite(self.unknown_ms),
            "never": len(self.never),
            "rows": [{**one._asdict(), "passes": list(one.passes)} for one in self.rows],
            "notices": list(self.notices),
        }

    def _repr_html_(self) -> str:
        return preformatted(self.to_text())

    def __str__(self) -> str:
        return f"{' and '.join(self.phases)}: {counts_text(self.counts)}; {self.time_text()}"

    def time_text(self) -> str:
        """Return how long it takes, in words."""
        said = [f"about {human_ms(self.known_ms)}"] if self.known_ms else []
        if self.unknown_ms:
            said.append(f"up to {human_ms(self.unknown_ms)} more for what is unknown")
        if self.never:
            said.append(f"{len(self.never)} never timed")
        return ", ".join(said) or "nothing to wait for"

    def _sum(self, outcomes: Iterable[str]) -> float:
        return sum(one.ms or 0.0 for one in self.rows if one.outcome in outcomes)


def _finite(ms: float) -> float | None:
    """JSON knows no infinity."""
    return ms if isfinite(ms) else None


def counts_text(counts: Mapping[Outcome, int]) -> str:
    """Return outcomes with their numbers: ``"3 reused, 1 computed"``."""
    said = [f"{count} {OUTCOME_WORDS[outcome]}" for outcome, count in counts.items()]
    return ", ".join(said) or "nothing to do"
