"""What a session may be able to do beyond fit and forward, and how it is said that one cannot."""

from __future__ import annotations

from collections.abc import Iterable

from soma._hints import install_line
from soma.errors import MissingCapability

__all__ = ["missing"]

_BROUGHT_BY = {
    "call": "sessions in this process and in child processes (local://) have it",
    "data": f"it comes with soma-data. Install it with: {install_line('soma-data')}",
    "gradients": f"it comes with soma-torch. Install it with: {install_line('soma-torch')}",
    "group": f"it comes with soma-torch. Install it with: {install_line('soma-torch')}",
    "put": "sessions in this process and in child processes (local://) have it",
    "stages": f"it comes with soma-torch. Install it with: {install_line('soma-torch')}",
    "stream": "no session of this release of soma-core has it",
    "train_state": f"it comes with soma-torch. Install it with: {install_line('soma-torch')}",
}
"""Capability -> where sessions come from that have it."""


def missing(session: str, what: str, needed: str, there: Iterable[str]) -> MissingCapability:
    """Return the error for what a session cannot do.

    Args:
        session: what it is called.
        what: what was asked of it: ``"stream()"``.
        needed: the capability that this needs.
        there: the capabilities it has.
    """
    listed = ", ".join(map(repr, sorted(there))) or "none beyond fit and forward"
    return MissingCapability(
        f"Session {session!r} cannot do {what}: that needs the capability {needed!r}, and it has "
        f"{listed}. Of {needed!r}: {_BROUGHT_BY.get(needed, 'nothing in this release brings it')}"
    )
