"""A plan or a declaration as text, for terminals."""

from __future__ import annotations

from soma.errors import GraphError
from soma.plan import Composite, Entry, Execute, Parallel, Plan, Sequence
from soma.topology import Topology

__all__ = ["plan_text", "topology_text"]


def plan_text(plan: Plan) -> str:
    """Return one line per node, side by side under ``parallel``, blocks under ``block``."""
    lines: list[str] = []
    _write(plan.root.steps, "", lines)
    lines += [f"{one.level}: {one.message}" for one in plan.diagnostics]
    return "\n".join(lines)


def _write(entries: tuple[Entry, ...], indent: str, lines: list[str]) -> None:
    """Write entries below each other; a plan nests four deep, so this may recurse."""
    for place, entry in enumerate(entries):
        last = place == len(entries) - 1
        branch, below = ("└── ", "    ") if last else ("├── ", "│   ")
        if isinstance(entry, Execute):
            lines.append(f"{indent}{branch}{_line(entry)}")
            continue
        title, inside = _title(entry)
        lines.append(f"{indent}{branch}{title}")
        _write(inside, indent + below, lines)


def _title(entry: Sequence | Parallel | Composite) -> tuple[str, tuple[Entry, ...]]:
    if isinstance(entry, Parallel):
        return "parallel", entry.branches
    if isinstance(entry, Composite):
        return "block that trains as one", entry.nodes
    return "in a row", entry.steps


def _line(entry: Execute) -> str:
    said = [
        _printable(entry.node),
        f"({entry.label})",
        *(["learns"] if entry.kind == "trainable" else []),
        *(["cached"] if entry.cached else []),
        *(["frozen"] if entry.frozen else []),
        *([f"at {entry.target}"] if entry.target is not None else []),
        *([f"← {', '.join(map(_printable, entry.waits_for))}"] if entry.waits_for else []),
    ]
    return " ".join(said)


def _printable(id_: str) -> str:
    """Return an id that stays on its line."""
    return id_ if id_.isprintable() else repr(id_)


def topology_text(topology: Topology, error: GraphError) -> str:
    """Return what is declared where it cannot be compiled, and why."""
    edges = [f"{_printable(source)} -> {_printable(target)}" for source, target in topology.edges]
    return "\n".join([*map(_printable, topology.nodes), *edges, f"error: {error}"])
