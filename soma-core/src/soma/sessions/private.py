"""Filters of a session's own, so that what a fit keeps on ``self`` is nobody else's.

Two sessions of one program are two, in this process as in children: each has copies of the filters.
Classes, functions and modules are what they are here, and are not copied: a plain function has
nothing of its own that counts. What cannot be copied (it holds a lock, or a file) is the graph's
own object.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

from soma import engine
from soma.sessions.program import Program
from soma.topology import Declared

__all__ = ["private_program"]


def private_program(program: Program) -> engine.Program:
    """Return what the engine runs, with copies of the filters; what they share stays shared."""
    given, topology = program.engine, program.topology
    nodes = {id_: one.filter for id_, one in topology.nodes.items() if isinstance(one, Declared)}
    copies = _copied(nodes)
    own = {
        id_: replace(one, filter=copies[id_]) if isinstance(one, Declared) else one
        for id_, one in topology.nodes.items()
    }
    traits = dict(zip(given.ids, given.traits, strict=True))
    return engine.build_program(given.plan, replace(topology, nodes=own), traits, {})


def _copied(nodes: dict[str, Any]) -> dict[str, Any]:
    try:
        return deepcopy(nodes)
    except Exception:  # noqa: BLE001  # somebody else's code
        return {id_: _copy_of(node) for id_, node in nodes.items()}


def _copy_of(node: Any) -> Any:
    try:
        return deepcopy(node)
    except Exception:  # noqa: BLE001  # as above
        return node
