"""What the compiler makes of a graph: frozen, plain data that goes to JSON and back.

    Plan.root      Sequence( Execute | Composite | Parallel( Sequence(...), ... ), ... )
    Plan.entries   the same without the nesting, each after what it waits for

Sequence and Parallel are how a plan is shown and sent. What holds when it runs is ``waits_for``:
an entry starts as soon as the entries that it names are done. A plan has no objects in it: filters
are found by their ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeAlias

from soma.errors import PlanError, shown

__all__ = ["Composite", "Diagnostic", "Entry", "Execute", "Parallel", "Plan", "Sequence"]

_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Execute:
    """Run one node."""

    node: str
    """Its id."""
    label: str
    """Name of its class or function."""
    kind: str
    """``"trainable"`` or ``"stateless"``."""
    waits_for: tuple[str, ...] = ()
    """The nodes that feed it, in the order of ids, as they stand in the dict that it is handed;
    empty: it gets the input of the graph."""
    target: str | None = None
    """Where it shall run: a worker's name or tag, or ``"local"``."""
    cached: bool = False
    frozen: bool = False

    @property
    def nodes(self) -> tuple[Execute, ...]:
        """This one, as for a block of several."""
        return (self,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Composite:
    """Differentiable nodes that hang together: they train as one block."""

    nodes: tuple[Execute, ...]
    """Each after what it waits for."""

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The nodes outside of the block that feed it, each once."""
        own = {one.node for one in self.nodes}
        found = dict.fromkeys(id_ for one in self.nodes for id_ in one.waits_for)
        return tuple(id_ for id_ in found if id_ not in own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """One after the other."""

    steps: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Side by side: none of them waits for another."""

    branches: tuple[Entry, ...]


Entry: TypeAlias = Execute | Composite | Sequence | Parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """Something that the compiler noticed."""

    node: str
    level: str
    """``"warning"`` or ``"error"``."""
    message: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A compiled graph."""

    root: Sequence
    diagnostics: tuple[Diagnostic, ...] = ()

    @cached_property
    def entries(self) -> tuple[Execute | Composite, ...]:
        """What runs, each after what it waits for."""
        return tuple(_flatten(self.root))

    @cached_property
    def nodes(self) -> tuple[Execute, ...]:
        """Every node, each after what it waits for."""
        return tuple(node for entry in self.entries for node in entry.nodes)

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """The ids that feed nobody: their outputs are what a forward returns."""
        feeding = {id_ for node in self.nodes for id_ in node.waits_for}
        return tuple(one.node for one in self.nodes if one.node not in feeding)

    @property
    def parallel_branches(self) -> int:
        """How many branches lie side by side at the widest place; 1 for a chain."""
        widths = [len(one.branches) for one in self.root.steps if isinstance(one, Parallel)]
        return max(widths, default=1)

    def to_json(self) -> str:
        """Return the plan as JSON; ``Plan.from_json`` gives an equal plan."""
        return json.dumps(
            {
                "soma_plan_format": _FORMAT,
                "root": _to_data(self.root),
                "diagnostics": [_fields(one) for one in self.diagnostics],
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """Return the plan that was written by ``to_json``.

        Raises:
            PlanError: the text is no such plan; the message says where.
        """
        try:
            found = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise PlanError(f"This is no plan: it is not JSON ({error})") from None
        if not isinstance(found, dict) or found.get("soma_plan_format") != _FORMAT:
            raise PlanError(
                f"This is no plan that this release reads: soma_plan_format must be {_FORMAT}"
            )
        if set(found) != {"soma_plan_format", "root", "diagnostics"}:
            raise PlanError("A plan has root and diagnostics, and nothing else")
        root = _from_data(found["root"], "root", depth=0)
        if not isinstance(root, Sequence):
            raise PlanError("root must be a Sequence")
        diagnostics = tuple(
            _make(Diagnostic, one, f"diagnostics[{place}]")
            for place, one in enumerate(_list(found["diagnostics"], "diagnostics"))
        )
        plan = cls(root=root, diagnostics=diagnostics)
        _check_order(plan)
        return plan

    def __repr__(self) -> str:
        return f"<Plan: nodes={len(self.nodes)}, branches={self.parallel_branches}>"


def _flatten(root: Entry) -> Iterator[Execute | Composite]:
    stack: list[Entry] = [root]
    while stack:
        entry = stack.pop()
        if isinstance(entry, Sequence):
            stack += reversed(entry.steps)
        elif isinstance(entry, Parallel):
            stack += reversed(entry.branches)
        else:
            yield entry


_DEPTH = 8  # a compiled plan nests four deep


def _to_data(entry: Entry) -> dict[str, Any]:
    if isinstance(entry, Execute):
        return {"type": "Execute", **_fields(entry)}
    name, inside = _PARTS[type(entry)]
    return {"type": name, inside: [_to_data(one) for one in getattr(entry, inside)]}


_PARTS: dict[type, tuple[str, str]] = {
    Composite: ("Composite", "nodes"),
    Sequence: ("Sequence", "steps"),
    Parallel: ("Parallel", "branches"),
}
_BY_NAME = {name: (cls, inside) for cls, (name, inside) in _PARTS.items()}


def _fields(one: Any) -> dict[str, Any]:
    found = {field.name: getattr(one, field.name) for field in fields(one)}
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in found.items()
    }


def _from_data(data: Any, where: str, depth: int) -> Entry:
    if not isinstance(data, dict):
        raise PlanError(f"{where} must be an entry, not {shown(data)}")
    if depth > _DEPTH:
        raise PlanError(f"{where} lies deeper than a plan does")
    kind = data.get("type")
    rest = {name: value for name, value in data.items() if name != "type"}
    if kind == "Execute":
        made: Entry = _make(Execute, rest, where)
        return made
    if kind not in _BY_NAME:
        raise PlanError(f"{where}: there is no entry of type {shown(kind)}")
    cls, inside = _BY_NAME[kind]
    if set(rest) != {inside}:
        raise PlanError(f"{where}: a {kind} has {inside}, and nothing else")
    parts = tuple(
        _from_data(one, f"{where}.{inside}[{place}]", depth + 1)
        for place, one in enumerate(_list(rest[inside], f"{where}.{inside}"))
    )
    if cls is Composite and not all(isinstance(one, Execute) for one in parts):
        raise PlanError(f"{where}: a Composite holds nodes alone")
    return cls(**{inside: parts})  # type: ignore[no-any-return]  # one of three entries


_TYPES: dict[str, tuple[str, Any]] = {
    "node": ("a text", lambda value: isinstance(value, str) and value),
    "label": ("a text", lambda value: isinstance(value, str)),
    "message": ("a text", lambda value: isinstance(value, str)),
    "kind": ("'trainable' or 'stateless'", lambda value: value in ("trainable", "stateless")),
    "level": ("'warning' or 'error'", lambda value: value in ("warning", "error")),
    "target": ("a text or null", lambda value: value is None or isinstance(value, str)),
    "cached": ("true or false", lambda value: isinstance(value, bool)),
    "frozen": ("true or false", lambda value: isinstance(value, bool)),
    "waits_for": (
        "a list of texts",
        lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    ),
}


def _make(cls: Any, data: Any, where: str) -> Any:
    names = [field.name for field in fields(cls)]
    if not isinstance(data, dict) or set(data) != set(names):
        raise PlanError(f"{where}: a {cls.__name__} has {', '.join(names)}, and nothing else")
    for name, value in data.items():
        expected, right = _TYPES[name]
        if not right(value):
            raise PlanError(f"{where}.{name} must be {expected}, not {shown(value)}")
    return cls(**{name: tuple(one) if isinstance(one, list) else one for name, one in data.items()})


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise PlanError(f"{where} must be a list, not {shown(value)}")
    return value


def _check_order(plan: Plan) -> None:
    done: set[str] = set()
    for node in plan.nodes:
        if node.node in done:
            raise PlanError(f"The node {node.node!r} stands in the plan twice")
        late = [id_ for id_ in node.waits_for if id_ not in done]
        if late:
            raise PlanError(f"The node {node.node!r} comes before {late[0]!r}, which feeds it")
        done.add(node.node)
    if not done:
        raise PlanError("The plan has no nodes")
