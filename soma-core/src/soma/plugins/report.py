"""What became of one plugin: frozen, and enough to mend it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from soma.registry import Offer
from soma.specs import Spec

__all__ = ["Claim", "PluginReport", "Status", "claims_of", "conflicts", "name_claimants"]

Claim = tuple[str, str]
"""(kind of thing, name): what at most one plugin may have."""

Status = Literal["ok", "failed", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginReport:
    """One row of ``soma plugins list``; ``soma plugins show`` prints all of it."""

    dist: str
    """The distribution, in its normalised spelling."""
    version: str
    entry_point: str
    """The name of its entry point in the group ``soma``."""
    module: str
    """The module which that entry point names."""
    file: str = ""
    """Where that module lies; empty when it could not be found."""
    status: Status = "ok"
    """``"off"``: left out by ``SOMA_LOAD_PLUGINS``."""
    hooks: tuple[str, ...] = ()
    """Hooks that it implements."""
    offers: tuple[Offer, ...] = ()
    """What it offers; empty unless the status is ``"ok"``."""
    phase: str = ""
    """Where it failed: metadata, requirements, import, signature, hooks, call, specs or names."""
    error: str = ""
    """What went wrong, in one line."""
    traceback: str = ""
    """The traceback of what its own code raised; empty when none of it did."""
    fix: str = ""
    """What to do about it, in one line."""

    @property
    def key(self) -> tuple[str, str]:
        """(distribution, entry-point name): what makes a plugin one plugin."""
        return (self.dist, self.entry_point)


def claims_of(spec: Spec) -> list[Claim]:
    """Return the names that the spec lays claim to."""
    by_alias = f"{spec.label} by {spec.alias_field}"
    return [(spec.label, spec.name), *((by_alias, alias) for alias in spec.aliases)]


def conflicts(found: Sequence[PluginReport]) -> dict[Claim, tuple[PluginReport, ...]]:
    """Return every name that more than one of these plugins claims, with the claimants."""
    claimants: defaultdict[Claim, list[PluginReport]] = defaultdict(list)
    for report in found:
        for offer in report.offers:
            for claim in claims_of(offer.spec):
                claimants[claim].append(report)
    return {claim: tuple(who) for claim, who in claimants.items() if len(who) > 1}


def name_claimants(who: Sequence[PluginReport]) -> str:
    """Return ``first 1.0 and second 1.0``, or the entry points where it is one distribution."""
    if len({report.dist for report in who}) == 1:
        points = " and ".join(sorted(repr(report.entry_point) for report in who))
        return f"two plugins of {who[0].dist}, {points}"
    return " and ".join(sorted({f"{report.dist} {report.version}" for report in who}))
