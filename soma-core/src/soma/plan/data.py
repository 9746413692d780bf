"""A plan as JSON, and back. What comes back is checked: a plan may have been edited by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from soma.errors import PlanError, shown
from soma.plan.entries import (
    MAX_NESTED,
    Arm,
    Branch,
    Composite,
    Diagnostic,
    Entry,
    Execute,
    Loop,
    Parallel,
    Sequence,
    units_of,
)

__all__ = ["FORMAT", "plan_from_data", "plan_to_data"]

FORMAT = 1
_DEPTH = 8  # a compiled body nests four deep, beside the bodies in it
_INSIDE: dict[Any, str] = {Composite: "nodes", Sequence: "steps", Parallel: "branches"}
_TYPES: dict[str, Any] = {
    one.__name__: one for one in (Execute, Composite, Branch, Loop, Sequence, Parallel)
}


def plan_to_data(root: Sequence, diagnostics: tuple[Diagnostic, ...]) -> str:
    """Return a plan as JSON."""
    return json.dumps(
        {
            "soma_plan_format": FORMAT,
            "root": _to_data(root),
            "diagnostics": [_fields(one) for one in diagnostics],
        }
    )


def _to_data(entry: Entry | Arm) -> dict[str, Any]:
    found = _fields(entry)
    return found if isinstance(entry, Arm) else {"type": type(entry).__name__, **found}


def _fields(one: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(one, field.name)) for field in fields(one)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [one if isinstance(one, str) else _to_data(one) for one in value]
    return _to_data(value) if isinstance(value, Sequence) else value


def plan_from_data(text: str | bytes) -> tuple[Sequence, tuple[Diagnostic, ...]]:
    """Return root and diagnostics of a plan that was written as JSON.

    Raises:
        PlanError: the text is no such plan; the message says where.
    """
    try:
        return _plan_from(json.loads(text))
    except PlanError:
        raise
    except (ValueError, TypeError, RecursionError) as error:
        raise PlanError(f"This is no plan: it is not JSON ({error})") from None


def _plan_from(found: Any) -> tuple[Sequence, tuple[Diagnostic, ...]]:
    if not isinstance(found, dict) or found.get("soma_plan_format") != FORMAT:
        raise PlanError(
            f"This is no plan that this release reads: soma_plan_format must be {FORMAT}"
        )
    if set(found) != {"soma_plan_format", "root", "diagnostics"}:
        raise PlanError("A plan has root and diagnostics, and nothing else")
    root = _body(found["root"], "root", nested=0)
    diagnostics = tuple(
        _make(Diagnostic, one, f"diagnostics[{place}]")
        for place, one in enumerate(_list(found["diagnostics"], "diagnostics"))
    )
    seen: set[str] = set()
    _check_body(root, seen)
    if not seen:
        raise PlanError("The plan has no nodes")
    return root, diagnostics


def _body(data: Any, where: str, *, nested: int) -> Sequence:
    if nested > MAX_NESTED:
        raise PlanError(f"{where}: branches and loops lie deeper in each other than {MAX_NESTED}")
    body = _entry(data, where, 0, nested)
    if not isinstance(body, Sequence):
        raise PlanError(f"{where} must be a Sequence")
    return body


def _entry(data: Any, where: str, depth: int, nested: int) -> Entry:
    if not isinstance(data, dict):
        raise PlanError(f"{where} must be an entry, not {shown(data)}")
    if depth > _DEPTH:
        raise PlanError(f"{where} lies deeper than a plan does")
    kind = data.get("type")
    cls = _TYPES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise PlanError(f"{where}: there is no entry of type {shown(kind)}")
    rest = {name: value for name, value in data.items() if name != "type"}
    if cls is Branch or cls is Loop:
        return _control(cls, rest, where, nested)
    made: Entry
    if cls is Execute:
        made = _make(cls, rest, where)
        return made
    inside = _INSIDE[cls]
    if set(rest) != {inside}:
        raise PlanError(f"{where}: a {kind} has {inside}, and nothing else")
    parts = tuple(
        _entry(one, f"{where}.{inside}[{place}]", depth + 1, nested)
        for place, one in enumerate(_list(rest[inside], f"{where}.{inside}"))
    )
    if cls is Composite and not (parts and all(isinstance(one, Execute) for one in parts)):
        raise PlanError(f"{where}: a Composite holds nodes, at least one, and nothing else")
    made = cls(**{inside: parts})
    return made


def _control(cls: Any, data: dict[str, Any], where: str, nested: int) -> Branch | Loop:
    """Return a branch or a loop; what lies in it is read first."""
    if cls is Loop and "body" in data:
        data["body"] = _body(data["body"], f"{where}.body", nested=nested + 1)
    if cls is Branch and "arms" in data:
        data["arms"] = [
            _arm(one, f"{where}.arms[{place}]", nested)
            for place, one in enumerate(_list(data["arms"], f"{where}.arms"))
        ]
    made: Branch | Loop = _make(cls, data, where)
    return made


def _arm(data: Any, where: str, nested: int) -> Arm:
    if isinstance(data, dict) and "body" in data:
        data["body"] = _body(data["body"], f"{where}.body", nested=nested + 1)
    made: Arm = _make(Arm, data, where)
    return made


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_RIGHT: dict[str, tuple[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(
        ("node", "condition", "terminal"), ("a text", lambda value: _is_text(value) and value)
    ),
    **dict.fromkeys(("label", "message"), ("a text", _is_text)),
    **dict.fromkeys(
        ("target", "until"),
        ("a text or null", lambda value: value is None or (_is_text(value) and value)),
    ),
    **dict.fromkeys(("cached", "frozen"), ("true or false", lambda value: isinstance(value, bool))),
    "kind": ("'trainable' or 'stateless'", lambda value: value in ("trainable", "stateless")),
    "level": ("'warning' or 'error'", lambda value: value in ("warning", "error")),
    "body": ("a Sequence", lambda value: isinstance(value, Sequence)),
    "arms": ("a list of at least one arm", lambda value: isinstance(value, list) and value),
    "max_iterations": ("a whole number from 1", lambda value: type(value) is int and value >= 1),
    "waits_for": (
        "a list of texts",
        lambda value: isinstance(value, list) and all(map(_is_text, value)),
    ),
}


def _make(cls: Any, data: Any, where: str) -> Any:
    names = [field.name for field in fields(cls)]
    if not isinstance(data, dict) or set(data) != set(names):
        raise PlanError(f"{where}: {_a(cls)} has {', '.join(names)}, and nothing else")
    for name, value in data.items():
        expected, right = _RIGHT[name]
        if not right(value):
            raise PlanError(f"{where}.{name} must be {expected}, not {shown(value)}")
    return cls(**{name: tuple(one) if isinstance(one, list) else one for name, one in data.items()})


def _a(cls: type) -> str:
    return f"{'an' if cls.__name__[0] in 'AE' else 'a'} {cls.__name__}"


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise PlanError(f"{where} must be a list, not {shown(value)}")
    return value


def _check_body(body: Sequence, seen: set[str]) -> set[str]:
    """Refuse entries that come before what they wait for; return the ids that a body has."""
    done: set[str] = set()
    for unit in units_of(body):
        for one in unit.nodes if isinstance(unit, Composite) else (unit,):
            if one.node in seen:
                raise PlanError(f"The node {one.node!r} stands in the plan twice")
            late = next((id_ for id_ in one.needs if id_ not in done), None)
            if late is not None:
                what = "feeds it" if late in one.waits_for else "is its condition"
                raise PlanError(f"The node {one.node!r} comes before {late!r}, which {what}")
            seen.add(one.node)
            done.add(one.node)
        if isinstance(unit, Branch):
            _check_arms(unit, seen)
        elif isinstance(unit, Loop):
            _check_has(unit.node, _check_body(unit.body, seen), (unit.terminal, unit.until))
    return done


def _check_arms(branch: Branch, seen: set[str]) -> None:
    labels = [arm.label for arm in branch.arms]
    if len(set(labels)) < len(labels):
        raise PlanError(f"The branch {branch.node!r} has two arms of one label")
    for arm in branch.arms:
        _check_has(branch.node, _check_body(arm.body, seen), (arm.terminal,))


def _check_has(node: str, inside: set[str], wanted: tuple[str | None, ...]) -> None:
    for id_ in wanted:
        if id_ is not None and id_ not in inside:
            raise PlanError(f"The node {node!r} names {id_!r}, which does not lie in its body")
