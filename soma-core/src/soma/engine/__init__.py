"""The engine: runs a program here, and computes nothing that is known.

    fit      every node that learns, and the forwards in between
    forward  every node; the outputs of the leaves come back

Checks come first (checks.py), then nodes by ready counts (schedule.py), each through the one place
where a node runs (actions.py). Values travel as hashes until somebody needs the object (values.py,
recompute.py). What is known lies in an ``ActionStore``; the one in memory is memory.py.

Names are fetched from their modules when they are first used: a session child needs a few of them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from soma.engine.checks import check_seed as check_seed
    from soma.engine.elsewhere import Action as Action
    from soma.engine.elsewhere import Done as Done
    from soma.engine.elsewhere import Placement as Placement
    from soma.engine.elsewhere import Seat as Seat
    from soma.engine.estimates import Estimate as Estimate
    from soma.engine.estimates import EstimateRow as EstimateRow
    from soma.engine.estimating import estimate as estimate
    from soma.engine.memory import MemoryStore as MemoryStore
    from soma.engine.memory import shared_store as shared_store
    from soma.engine.parcels import Parcel as Parcel
    from soma.engine.program import Program as Program
    from soma.engine.program import build_program as build_program
    from soma.engine.report import Decision as Decision
    from soma.engine.report import Failure as Failure
    from soma.engine.report import NodeRun as NodeRun
    from soma.engine.report import Notice as Notice
    from soma.engine.report import RunReport as RunReport
    from soma.engine.running import fit as fit
    from soma.engine.running import forward as forward
    from soma.engine.running import new_report as new_report
    from soma.engine.states import NodeState as NodeState

__all__ = [
    "Action",
    "Decision",
    "Done",
    "Estimate",
    "EstimateRow",
    "Failure",
    "MemoryStore",
    "NodeRun",
    "NodeState",
    "Notice",
    "Parcel",
    "Placement",
    "Program",
    "RunReport",
    "Seat",
    "build_program",
    "check_seed",
    "estimate",
    "fit",
    "forward",
    "new_report",
    "shared_store",
]

_HOMES = {
    "Action": "elsewhere",
    "Decision": "report",
    "Done": "elsewhere",
    "Estimate": "estimates",
    "EstimateRow": "estimates",
    "Failure": "report",
    "MemoryStore": "memory",
    "NodeRun": "report",
    "NodeState": "states",
    "Notice": "report",
    "Parcel": "parcels",
    "Placement": "elsewhere",
    "Program": "program",
    "RunReport": "report",
    "Seat": "elsewhere",
    "build_program": "program",
    "check_seed": "checks",
    "estimate": "estimating",
    "fit": "running",
    "forward": "running",
    "new_report": "running",
    "shared_store": "memory",
}


def __getattr__(name: str) -> Any:
    """Fetch a name when it is first used."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'soma.engine' has no attribute {name!r}")
    found = getattr(import_module(f"soma.engine.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
