"""What is refused before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from soma._numbers import whole_number
from soma.engine.calls import is_read_once
from soma.engine.program import Branching, Looping, Program
from soma.engine.states import NodeState
from soma.engine.values import IMMUTABLE
from soma.errors import (
    GraphError,
    InvalidInput,
    MissingPackage,
    Nameless,
    NotFittedError,
    UnknownNode,
    Unsettled,
    did_you_mean,
    shown,
)
from soma.plan import Execute

__all__ = [
    "check_arm",
    "check_cached",
    "check_data",
    "check_fitted",
    "check_input",
    "check_learnable",
    "check_learners",
    "check_options",
    "check_refresh",
    "check_run_id",
    "check_seed",
    "check_targets",
]

_LISTED = 10


def check_seed(seed: Any) -> int | None:
    """Return the seed as an int.

    Raises:
        InvalidInput: it is no whole number.
    """
    if seed is None:
        return None
    found = whole_number(seed)
    if found is None:
        raise InvalidInput(f"seed must be a whole number, not {shown(seed)}")
    return found


def check_run_id(run_id: Any) -> str:
    """Return the id of a run; empty where none was given.

    Raises:
        InvalidInput: it is no text, or an empty one.
    """
    if run_id is None:
        return ""
    if not isinstance(run_id, str) or not run_id.strip():
        raise InvalidInput(f"run_id must be a text that says something, not {shown(run_id)}")
    return run_id


def check_options(epochs: Any, batch_size: Any, shuffle: Any) -> dict[str, Any]:
    """Return the fit options.

    Raises:
        InvalidInput: one of them makes no sense.
    """
    found: dict[str, Any] = {}
    for name, value in (("epochs", epochs), ("batch_size", batch_size)):
        found[name] = whole_number(value)
        if value is None and name == "batch_size":
            continue
        if found[name] is None or found[name] < 1:
            raise InvalidInput(f"{name} must be a whole number from 1, not {shown(value)}")
    if not isinstance(shuffle, bool):
        raise InvalidInput(f"shuffle must be True or False, not {shown(shuffle)}")
    return {**found, "shuffle": shuffle}


def check_refresh(program: Program, refresh: Any) -> frozenset[str]:
    """Return the ids of the nodes that shall be computed anew.

    Raises:
        UnknownNode: there is no node of that id.
    """
    if isinstance(refresh, bool):
        return frozenset(program.ids) if refresh else frozenset()
    if isinstance(refresh, tuple) and not refresh:
        return frozenset()
    wanted = (refresh,) if isinstance(refresh, str) else refresh
    try:
        ids = frozenset(wanted)
    except TypeError:
        raise InvalidInput(
            f"refresh must be node ids or True for all, not {shown(refresh)}"
        ) from None
    for id_ in ids:
        if id_ not in program.places:
            near = did_you_mean(str(id_), program.ids)
            raise UnknownNode(f"refresh: {id_!r} is not in this graph.{near}")
    return ids.union(*(_inside(program, id_) for id_ in ids))


def _inside(program: Program, id_: str) -> Iterator[str]:
    """Yield the ids of what lies in a branch or loop, however deep, and of conditions."""
    control = program.controls.get(program.places[id_])
    controls = [] if control is None else [control]
    for one in controls:  # which grows meanwhile
        if isinstance(one, Branching):
            yield program.ids[one.condition]
        for number in one.bodies:
            scope = program.scopes[number]
            for place in range(scope.start, scope.stop):
                yield program.ids[place]
                inner = program.controls.get(place)
                controls += () if inner is None else (inner,)


def check_data(program: Program, x: Any, y: Any) -> None:
    """Refuse data that cannot be learned from.

    Raises:
        InvalidInput: x and y have different lengths, y is None where a fit has no default for it,
            or x is None where a node that learns gets it.
    """
    check_input("x", x)
    check_input("y", y)
    rows, labels = _rows(x), _rows(y)
    if rows is not None and labels is not None and rows != labels:
        raise InvalidInput(
            f"x has {rows} rows and y has {labels}: they are learned from row by row. (A tuple or "
            "a dict is taken as it is.)"
        )
    check_learnable(program, 0, x, y)


def check_learnable(program: Program, scope: int, x: Any, y: Any) -> None:
    """Refuse to fit on None what certainly learns from it in a body, loops in it included.

    Raises:
        InvalidInput: y is None where a fit has no default for it, or x where a node gets it.
    """
    for place in program.needs.learners[scope]:
        id_, traits = program.ids[place], program.traits[place]
        if y is None and traits.needs_y:
            raise InvalidInput(
                f"Node {id_!r} ({traits.label}) learns from labels: its fit(x, y) has no default "
                "for y. Call g.fit(x, y), or write fit(self, x, y=None)"
            )
        if x is None and _gets_input_of_graph(program, place):
            raise InvalidInput(
                f"Node {id_!r} ({traits.label}) learns from the input of the graph, and x is None"
            )


def _gets_input_of_graph(program: Program, place: int) -> bool:
    """Say whether a node gets x, in a loop in the first pass."""
    while not program.before[place]:
        place = program.scopes[program.scope_of[place]].control
        if place < 0:
            return True
    return False


def check_input(name: str, value: Any) -> None:
    """Refuse what can be read only once: the first node would use it up.

    Raises:
        InvalidInput: it is a generator, an iterator or a coroutine, and has no codec.
    """
    cls = type(value)
    if cls not in IMMUTABLE and is_read_once(cls):
        raise InvalidInput(
            f"{name} is a {cls.__name__}, which can be read only once, and the first node would "
            "use it up. Give a list or an array, or soma.Opaque around it"
        )


def _rows(value: Any) -> int | None:
    """Return the length of the first axis; None for what has no rows."""
    if type(value) is list:
        return len(value)
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape and isinstance(shape[0], int):
        return shape[0]
    return None


def check_targets(program: Program, known: Collection[str]) -> None:
    """Refuse nodes that shall run where nobody is.

    Args:
        program: what shall run.
        known: names and tags of the workers there are.

    Raises:
        GraphError: a target is neither ``"local"`` nor one of these; the message names them.
    """
    for entry in program.placed:
        if entry.target not in known:
            there = ", ".join(map(repr, ("local", *known)))
            raise GraphError(
                f"Node {entry.node!r} shall run at {entry.target!r}, and this graph has no worker "
                f"of that name or tag. There is: {there}"
            )


def check_learners(program: Program) -> None:
    """Refuse to fit nodes that learn by gradient, which needs somebody who knows how.

    Raises:
        MissingPackage: they have no fit of their own, and soma-torch is not installed.
        GraphError: it is, and does not train blocks in this release.
    """
    names = [program.ids[place] for place in program.learners if not program.traits[place].has_fit]
    if not names:
        return
    from soma.registry import default
    from soma.specs import ExecutorSpec

    told = f"{_listed(names)}: no fit(x, y) of its own, so what it learns comes by gradient. "
    try:
        default().find("composite", ExecutorSpec)
    except MissingPackage as error:
        raise MissingPackage(f"{told}{error}", name=error.name) from None
    raise GraphError(f"{told}Blocks that train as one are not run by this release of soma-core")


def check_fitted(program: Program, states: Mapping[str, NodeState]) -> None:
    """Refuse to forward through nodes that have learned nothing; of arms only when one is taken.

    Raises:
        NotFittedError: the message names them.
    """
    unfitted = _unfitted(program, 0, states)
    if unfitted:
        raise NotFittedError(
            f"forward before fit: {_listed(unfitted)} learned nothing yet. Call g.fit(x, y) first"
        )


def check_arm(program: Program, scope: int, states: Mapping[str, NodeState], when: str) -> None:
    """Refuse to forward through an arm that has learned nothing.

    Raises:
        NotFittedError: the message names the arm and its nodes.
    """
    unfitted = _unfitted(program, scope, states)
    if unfitted:
        arm = program.scopes[scope]
        branch = f"Branch {program.ids[arm.control]!r}{when}"
        raise NotFittedError(
            f"{branch} takes arm {arm.arm!r}, which was never fitted: "
            f"{_listed(unfitted)} learned nothing yet. A fit fits the arm that its data take: call "
            "g.fit with data that take this one, or load a state"
        )


def _unfitted(program: Program, scope: int, states: Mapping[str, NodeState]) -> list[str]:
    learners = (program.ids[place] for place in program.needs.learners[scope])
    return [id_ for id_ in learners if id_ not in states]


def check_cached(program: Program) -> None:
    """Refuse to keep for good what may change.

    Raises:
        Unsettled: a cached node, or one above it, learns and is not frozen.
        Nameless: nothing says what a cached node does.
        GraphError: its class says that it must not be kept.
    """
    for place in program.cached:
        entry = program.entries[place]
        if not program.traits[place].cacheable:
            label = program.traits[place].label
            raise GraphError(
                f"Node {entry.node!r} is cached, and its class ({label}) says "
                "_cacheable = False. Take one of the two away"
            )
        if not program.needs.settled[place]:
            moving = program.ids[_unsettled_above(program, place)]
            raise Unsettled(
                f"Node {entry.node!r} is cached, and {moving!r} may still learn: what is kept "
                f"would be wrong after the next fit. Freeze it: g.node({moving!r}, ..., "
                "frozen=True), or filter.frozen(); or do without cached"
            )
        try:
            program.identity(place).read()
        except Nameless as error:
            raise Nameless(f"Node {entry.node!r} is cached, and: {error}") from None


def _unsettled_above(program: Program, place: int) -> int:
    """Return a node, this one or one above it, that learns and is not frozen."""
    seen = {place}
    stack = [place]
    while stack:
        one = stack.pop()
        entry = program.entries[one]
        if isinstance(entry, Execute) and entry.kind == "trainable" and not entry.frozen:
            return one
        for source in _above(program, one):
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return place


def _above(program: Program, place: int) -> list[int]:
    """Return the nodes of which one gives what a node gets, or decides what it is."""
    found, inner = list(program.before[place]), place
    while not program.before[inner]:
        scope = program.scopes[program.scope_of[inner]]
        if scope.control < 0:
            break
        if isinstance(program.controls[scope.control], Looping):
            found.append(scope.terminal)
        inner = scope.control
        found += program.before[inner]
    control = program.controls.get(place)
    if control is not None:
        found += [program.scopes[number].terminal for number in control.bodies]
        found.append(control.until if isinstance(control, Looping) else control.condition)
    return [one for one in found if one >= 0]


def _listed(ids: Iterable[str]) -> str:
    found = list(ids)
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return ", ".join(map(repr, found[:_LISTED])) + more
