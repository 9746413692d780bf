"""What has been declared so far: nodes, edges, branches and loops.

    Declaration (grows, one per graph) ──freeze()──► Topology (frozen, what the compiler reads)

An optional edge may be cut and put back: it keeps its place among the others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from soma._numbers import whole_number
from soma.dsl import NO_MARKS, Chain, Fork, Marked, Marks, expand
from soma.errors import GraphError, InvalidFilter, UnknownNode, did_you_mean, shown
from soma.nodes import check_node, label_of
from soma.topology import Declared, DeclaredBranch, DeclaredLoop, DeclaredNode, Topology

__all__ = ["FALLBACKS", "Declaration"]

FALLBACKS = frozenset({"default", "else"})
"""Labels of the arm that is taken where no other is named."""


class Declaration:
    """What has been declared so far. ``version`` grows with every change."""

    def __init__(self) -> None:
        self.nodes: dict[str, DeclaredNode] = {}
        self.version = 0
        self._edges: dict[tuple[str, str], bool] = {}  # an ordered set; False: it is cut
        self._optional: dict[tuple[str, str], None] = {}
        self._last_number: dict[str, int] = {}  # the last that made an id unique

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """The edges that are not cut, in the order of declaration."""
        return tuple(pair for pair, enabled in self._edges.items() if enabled)

    @property
    def optional(self) -> tuple[tuple[str, str], ...]:
        """The edges that may be cut."""
        return tuple(self._optional)

    @property
    def filters(self) -> dict[str, Declared]:
        """Node id -> what was declared, without branches and loops."""
        return {id_: one for id_, one in self.nodes.items() if isinstance(one, Declared)}

    def filter(self, id_: str) -> Any:
        """Return the object behind a node.

        Raises:
            UnknownNode: there is no node of that id.
            GraphError: it is a branch or a loop.
        """
        self.require(f"filter({shown(id_)})", (id_,))
        found = self.nodes[id_]
        if not isinstance(found, Declared):
            kind = "branch" if isinstance(found, DeclaredBranch) else "loop"
            raise GraphError(f"{id_!r} is a {kind}: it has no filter; the nodes in it have")
        return found.filter

    def config(self) -> dict[str, Any]:
        """Return node id -> what counts of it in a hash."""
        return {
            id_: (one.filter, one.cached, one.frozen)
            if isinstance(one, Declared)
            else (one.condition, dict(one.arms))
            if isinstance(one, DeclaredBranch)
            else (one.body, one.until, one.max_iterations)
            for id_, one in self.nodes.items()
        }

    def copy(self) -> Declaration:
        """Return a declaration that grows on its own, with the same filters."""
        copied = Declaration()
        copied.nodes = dict(self.nodes)
        copied.version = self.version
        copied._edges = dict(self._edges)
        copied._optional = dict(self._optional)
        copied._last_number = dict(self._last_number)
        return copied

    def freeze(self) -> Topology:
        """Return what is declared now."""
        return Topology(nodes=dict(self.nodes), edges=self.edges)

    def add(
        self,
        filter_: Any,
        id_: Any = None,
        marks: Marks = NO_MARKS,
        *,
        named: bool = False,
    ) -> str:
        """Add a node and return its id; ``named``: by this one and no other.

        Raises:
            GraphError: the id is taken or no text, or the target is no text.
            InvalidFilter: the object cannot be a node.
        """
        if isinstance(filter_, Marked):
            marks, filter_ = filter_.marks.within(marks), filter_.inner
        if not named:
            id_, named = marks.name, marks.name is not None
        check_node(filter_)
        target = _checked_target(marks.target)
        made = self._free(id_) if named else self._free_id(_snake_case(label_of(filter_)))
        self.nodes[made] = Declared(
            filter=filter_,
            target=target,
            cached=bool(marks.cached),
            frozen=bool(marks.frozen),
        )
        self.version += 1
        return made

    def add_branch(self, id_: Any, condition: Any, arms: Any, *, target: str | None = None) -> str:
        """Add a branch, and the nodes that are declared with it; all of them, or none.

        Raises:
            GraphError: the id is taken or no text, there is no arm, or a label makes no sense.
            UnknownNode: the condition or an arm is the id of no node.
            InvalidFilter: an object cannot be a node.
        """
        call = f"branch({shown(id_)})"
        labels = _checked_labels(call, arms)
        asked = f"{call}: its condition"
        told = {
            f"{call}, arm {label!r}": arm for label, arm in zip(labels, arms.values(), strict=True)
        }
        self._check_named(id_, {asked: condition, **told})
        with self._reserved(id_) as made:
            self.nodes[made] = DeclaredBranch(
                condition=self._one(asked, condition),
                arms={
                    label: self._members(what, arm)
                    for label, (what, arm) in zip(labels, told.items(), strict=True)
                },
                target=_checked_target(target),
            )
        return made

    def add_loop(
        self, id_: Any, body: Any, until: Any, max_iterations: Any, *, target: str | None = None
    ) -> str:
        """Add a loop, and the nodes that are declared with it; all of them, or none.

        Raises:
            GraphError: the id is taken or no text, or another argument makes no sense.
            UnknownNode: ``until`` or something in the body is the id of no node.
            InvalidFilter: an object cannot be a node.
        """
        call = f"loop({shown(id_)})"
        own = {f"{call}: until": until} if isinstance(until, str) and until == id_ else {}
        # Any other until may be the id of a node that the body makes, and is looked for after that.
        self._check_named(id_, {f"{call}, its body": body, **own})
        with self._reserved(id_) as made:
            self.nodes[made] = DeclaredLoop(
                body=self._members(f"{call}, its body", body),
                until=self._until(call, until),
                max_iterations=_checked_count(call, max_iterations),
                target=_checked_target(target),
            )
        return made

    def _until(self, call: str, until: Any) -> str | Literal[False] | None:
        if until is None or until is False:
            return None if until is None else False
        if until is True:
            raise GraphError(
                f"{call}: until=True says nothing. Give a node, a filter or a function whose "
                "output says when to stop; None, where the body's last node says it; or False to "
                "run max_iterations times"
            )
        return self._one(f"{call}: until", until)

    def _one(self, what: str, given: Any) -> str:
        """Return the id of one node, which is made where it is not there yet."""
        if isinstance(given, str):
            self.require(what, (given,))
            return str.__str__(given)
        inner = given.inner if isinstance(given, Marked) else given
        if isinstance(inner, Chain | Fork | list | tuple):
            raise GraphError(
                f"{what} is one node, not an expression of several ({shown(given)}). Add them "
                "first, and give the id of the last"
            )
        with _named(what):
            return self.add(given)

    def _members(self, what: str, given: Any) -> tuple[str, ...]:
        """Return the ids of the nodes that were named; those that are not there yet are made."""
        if isinstance(given, str):
            self.require(what, (given,))
            return (str.__str__(given),)
        if isinstance(given, list | tuple):
            found = [id_ for one in given for id_ in self._members(what, one)]
            if not found:
                raise GraphError(f"{what} is empty: give a node, a filter, or a list of them")
            return tuple(dict.fromkeys(found))
        made: list[str] = []

        def add(one: Any, marks: Marks) -> str:
            made.append(self.add(one, marks=marks))
            return made[-1]

        with _named(what):
            expand(given, add, self.connect)
        return tuple(made)

    @contextmanager
    def _reserved(self, given: Any) -> Iterator[str]:
        """Keep a place for a node; what is added meanwhile goes again where that fails."""
        id_ = self._free(given)
        nodes, edges, numbers = len(self.nodes), len(self._edges), dict(self._last_number)
        version = self.version
        self.nodes[id_] = Declared(filter=None)
        try:
            yield id_
        except BaseException:
            for one in list(self.nodes)[nodes:]:
                del self.nodes[one]
            for pair in list(self._edges)[edges:]:
                del self._edges[pair]
            self._last_number = numbers
            self.version = version
            raise
        self.version += 1

    def _free(self, id_: Any) -> str:
        """Return an id that nobody has as a plain text.

        Raises:
            GraphError: it is taken, or no text.
        """
        if not isinstance(id_, str) or not id_:
            raise GraphError(f"A node id is a text of at least one character, not {shown(id_)}")
        if id_ in self.nodes:
            raise GraphError(
                f"There is a node {id_!r} already. Choose another id; g.node(filter) without one "
                "finds one that is free"
            )
        return str.__str__(id_)  # of an Enum that is a text, say

    def _check_named(self, id_: Any, given: Mapping[str, Any]) -> None:
        """Refuse ids that no node has, before anything is added; what -> ids and filters."""
        self._free(id_)
        for what, named in given.items():
            ids, lists = [named], set()
            for one in ids:  # which grows meanwhile
                if isinstance(one, list | tuple):
                    if id(one) in lists:
                        raise GraphError(f"{what} is a list that holds one list twice, or itself")
                    lists.add(id(one))
                    ids += one
                elif isinstance(one, str) and one == id_:
                    raise GraphError(f"{what} is {id_!r} itself, which cannot lie in itself")
                elif isinstance(one, str):
                    self.require(what, (one,))

    def connect(self, source: str, target: str) -> None:
        """Add an edge; one that is there already stays as it is.

        Raises:
            UnknownNode: there is no node of that id.
        """
        self.require(f"edge({shown(source)}, {shown(target)})", (source, target))
        source, target = str.__str__(source), str.__str__(target)
        if (source, target) not in self._edges:
            self._edges[source, target] = True
            self.version += 1

    def make_optional(self, source: str, target: str) -> None:
        """Say that an edge may be cut.

        Raises:
            UnknownNode: there is no node of that id.
            GraphError: there is no such edge.
        """
        self._require_edge("optional", source, target)
        self._optional[str.__str__(source), str.__str__(target)] = None

    def set_edge(self, source: str, target: str, *, enabled: bool) -> None:
        """Cut an optional edge, or put it back at its place.

        Raises:
            UnknownNode: there is no node of that id.
            GraphError: there is no such edge, or it is not optional.
        """
        self._require_edge("set_edge", source, target)
        if (source, target) not in self._optional:
            raise GraphError(
                f"set_edge: the edge {source!r} -> {target!r} is not optional. Say so first: "
                f"g.optional({source!r}, {target!r})"
            )
        if self._edges[source, target] != enabled:
            self._edges[source, target] = enabled
            self.version += 1

    def require(self, call: str, ids: Iterable[Any]) -> None:
        """Refuse ids that no node has.

        Raises:
            UnknownNode: the message starts with ``call`` and suggests the nearest id.
        """
        for id_ in ids:
            if not isinstance(id_, str):
                raise UnknownNode(
                    f"{call} takes the ids of nodes, not a {type(id_).__name__}: g.node(filter) "
                    "returns the id"
                )
            if id_ not in self.nodes:
                raise UnknownNode(
                    f"{call}: {id_!r} is not in this graph.{did_you_mean(id_, self.nodes)}"
                )

    def _require_edge(self, call: str, source: Any, target: Any) -> None:
        self.require(f"{call}({shown(source)}, {shown(target)})", (source, target))
        if (source, target) not in self._edges:
            raise GraphError(
                f"{call}: there is no edge {source!r} -> {target!r}. Add it first: "
                f"g.edge({source!r}, {target!r})"
            )

    def _free_id(self, wanted: str) -> str:
        id_, number = wanted, self._last_number.get(wanted, 1)
        while id_ in self.nodes:
            number += 1
            id_ = f"{wanted}_{number}"
        self._last_number[wanted] = number
        return id_


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Say of an object that cannot be a node what it was given for."""
    try:
        yield
    except InvalidFilter as error:
        raise InvalidFilter(f"{what}: {error}") from None


def _checked_target(target: Any) -> str | None:
    if target is None:
        return None
    if not isinstance(target, str) or not target:
        raise GraphError(
            f"A target is the name or a tag of a worker, or 'local', not {shown(target)}"
        )
    return str.__str__(target)


def _checked_labels(call: str, arms: Any) -> list[str]:
    """Return the labels of arms as texts; True and False are called like JSON's."""
    if not isinstance(arms, Mapping) or not arms:
        raise GraphError(
            f"{call}: arms is a dict of label and filter or node id with at least one, not "
            f"{shown(arms)}"
        )
    labels = []
    for label in arms:
        if not isinstance(label, str | bool):
            raise GraphError(
                f"{call}: an arm is called by a text, True or False, not {shown(label)}: these are "
                "what a condition can return"
            )
        labels.append(str.__str__(label) if isinstance(label, str) else str(label).lower())
    twice, times = Counter(labels).most_common(1)[0]
    if times > 1:
        raise GraphError(f"{call}: there are two arms {twice!r}; True and 'true' are one")
    if len(FALLBACKS.intersection(labels)) > 1:
        raise GraphError(f"{call}: 'default' and 'else' mean the same. Take one of them away")
    return labels


def _checked_count(call: str, count: Any) -> int:
    found = whole_number(count)
    if found is None or found < 1:
        raise GraphError(
            f"{call}: max_iterations is a whole number from 1, not {shown(count)}: without an end "
            "a loop might never come back"
        )
    return found


def _snake_case(name: str) -> str:
    """Return the name with an underscore where a word begins: HTTPServer -> http_server."""
    plain = name.strip("<>_") or name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", plain).lower()
