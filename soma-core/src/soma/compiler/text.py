"""A plan or a declaration as text, for terminals."""

from __future__ import annotations

from soma._texts import printable
from soma.errors import GraphError
from soma.plan import Branch, Composite, Entry, Execute, Loop, Parallel, Plan, Sequence
from soma.topology import DeclaredBranch, DeclaredLoop, DeclaredNode, Topology

__all__ = ["plan_text", "topology_text"]


def plan_text(plan: Plan) -> str:
    """Return one line per node, side by side under ``parallel``, blocks under ``block``."""
    lines: list[str] = []
    _write(plan.root.steps, "", lines)
    lines += [f"{one.level}: {one.message}" for one in plan.diagnostics]
    return "\n".join(lines)


def _write(entries: tuple[Entry, ...], indent: str, lines: list[str]) -> None:
    """Write entries below each other; a plan nests a few deep, so this may recurse."""
    for place, entry in enumerate(entries):
        last = place == len(entries) - 1
        branch, below = ("└── ", "    ") if last else ("├── ", "│   ")
        if isinstance(entry, Execute):
            lines.append(f"{indent}{branch}{_line(entry)}")
        elif isinstance(entry, Branch):
            lines.append(f"{indent}{branch}{_branch_line(entry)}")
            _write_arms(entry, indent + below, lines)
        else:
            title, inside = _title(entry)
            lines.append(f"{indent}{branch}{title}")
            _write(inside, indent + below, lines)


def _write_arms(entry: Branch, indent: str, lines: list[str]) -> None:
    for place, arm in enumerate(entry.arms):
        last = place == len(entry.arms) - 1
        branch, below = ("└── ", "    ") if last else ("├── ", "│   ")
        lines.append(f"{indent}{branch}{printable(arm.label)}:")
        _write(arm.body.steps, indent + below, lines)


def _title(entry: Sequence | Parallel | Composite | Loop) -> tuple[str, tuple[Entry, ...]]:
    if isinstance(entry, Parallel):
        return "parallel", entry.branches
    if isinstance(entry, Composite):
        return "block that trains as one", entry.nodes
    if isinstance(entry, Loop):
        return _loop_line(entry), entry.body.steps
    return "in a row", entry.steps


def _branch_line(entry: Branch) -> str:
    said = f"{printable(entry.node)}: branch on {printable(entry.condition)}"
    return f"{said}{_waits(entry.waits_for)}"


def _loop_line(entry: Loop) -> str:
    count = entry.max_iterations
    times = f"{count} time{'s' * (count != 1)}"
    how = times if entry.until is None else f"until {printable(entry.until)}, at most {times}"
    return f"{printable(entry.node)}: loop, {how}{_waits(entry.waits_for)}"


def _waits(ids: tuple[str, ...]) -> str:
    return f" ← {', '.join(map(printable, ids))}" if ids else ""


def _line(entry: Execute) -> str:
    said = [
        printable(entry.node),
        f"({entry.label})",
        *(["learns"] if entry.kind == "trainable" else []),
        *(["cached"] if entry.cached else []),
        *(["frozen"] if entry.frozen else []),
        *([f"at {entry.target}"] if entry.target is not None else []),
    ]
    return f"{' '.join(said)}{_waits(entry.waits_for)}"


def topology_text(topology: Topology, error: GraphError) -> str:
    """Return what is declared where it cannot be compiled, and why."""
    lines = [printable(id_) + _declared(one) for id_, one in topology.nodes.items()]
    lines += [f"{printable(source)} -> {printable(target)}" for source, target in topology.edges]
    return "\n".join([*lines, f"error: {error}"])


def _declared(one: DeclaredNode) -> str:
    """Return what a branch or loop says of itself."""
    if isinstance(one, DeclaredBranch):
        arms = "; ".join(
            f"{printable(label)}: {', '.join(map(printable, ids))}"
            for label, ids in one.arms.items()
        )
        return f": branch on {printable(one.condition)} ({arms})"
    if isinstance(one, DeclaredLoop):
        until = f", until {printable(one.until)}" if one.until else ""
        return f": loop of {', '.join(map(printable, one.body))}{until}"
    return ""
