"""The graph of a run as plain data: what graph.json holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from inspect import isroutine
from typing import Any

from soma.errors import SomaError, describe_error
from soma.masking.declared import arguments_of
from soma.nodes import label_of, traits_of
from soma.plan import Plan
from soma.topology import Declared, DeclaredBranch, DeclaredNode, Topology
from soma.tracking.manifest import SCHEMA_VERSION

__all__ = ["describe_graph"]


def describe_graph(topology: Topology, compiled: Callable[[], Plan]) -> dict[str, Any]:
    """Return nodes, edges and plan; a graph that does not compile says why."""
    plan, error = None, None
    try:
        plan = json.loads(compiled().to_json())
    except SomaError as caught:
        error = describe_error(caught)
    return {
        "schema_version": SCHEMA_VERSION,
        "nodes": [_node(id_, one) for id_, one in topology.nodes.items()],
        "edges": [list(edge) for edge in topology.edges],
        "plan": plan,
        "error": error,
    }


def _node(id_: str, one: DeclaredNode) -> dict[str, Any]:
    if not isinstance(one, Declared):
        kind = "branch" if isinstance(one, DeclaredBranch) else "loop"
        return {
            "id": id_,
            "label": kind,
            "kind": {"type": kind, "filter_name": None},
            "params": {},
        }
    kind = "trainable" if traits_of(one.filter).trainable else "stateless"
    return {
        "id": id_,
        "label": label_of(one.filter),
        "kind": {"type": kind, "filter_name": _qualified(one.filter)},
        "params": arguments_of(one.filter),
    }


def _qualified(node: Any) -> str:
    inner = node.func if isinstance(node, partial) else node  # it is called like what it wraps
    code = inner if isroutine(inner) else type(inner)
    module = getattr(code, "__module__", None) or "builtins"  # methods written in C have none
    return f"{module}.{code.__qualname__}"
