"""What a case needs: a node that always learns the same, and the keys under which it was recorded.

    @row("the order of attributes")
    def _(lab):
        return keys(one), keys(other)       # before and after

A case is called like its row in docs/keys.md.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from textwrap import dedent
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from soma import Filter, Graph

if TYPE_CHECKING:
    import pytest

__all__ = ["CASES", "Keys", "Lab", "Probe", "X", "Y", "alone", "key_of", "keys", "row"]

X, Y = np.array([1.0, 2.0, 4.0]), np.array([0.0, 1.0, 1.0])
HEADER = "import functools\nimport numpy as np\nfrom soma import Filter, search\n"


class Keys(NamedTuple):
    """The keys of one node."""

    fit: str
    """Empty where there is none."""
    output: str


class Lab(NamedTuple):
    """Where a case may leave things: all is as before when it is over."""

    patch: pytest.MonkeyPatch
    folder: Any

    def module(self, text: str, name: str = "pipeline") -> Any:
        """Run a text as a module of that name, as an import would, and return it."""
        made = types.ModuleType(name)
        self.patch.setitem(sys.modules, name, made)
        exec(compile(HEADER + dedent(text), f"<{name}>", "exec", dont_inherit=True), vars(made))  # noqa: S102  # its purpose
        return made

    def texts(self, before: str, after: str) -> tuple[Keys, Keys]:
        """Return the keys of the ``node`` of two texts, each a module of one name."""
        return keys(self.module(before).node), keys(self.module(after).node)


Case = Callable[[Lab], tuple[Keys, Keys]]
CASES: dict[str, Case] = {}


def row(text: str) -> Callable[[Case], Case]:
    """Enter a case under the text of its row."""

    def enter(case: Case) -> Case:
        assert text not in CASES, text
        CASES[text] = case
        return case

    return enter


class Probe(Filter):
    """Learns the same from whatever it is given, and gives what it gets."""

    def __init__(self, amount: Any = 1) -> None:
        self.amount = amount

    def fit(self, x, y=None):
        return 0

    def forward(self, x, state):
        return x


def keys(
    node: Any = None,
    *,
    x: Any = X,
    y: Any = Y,
    given: Any = X,
    graph: Graph | None = None,
    name: str = "probe",
    **how: Any,
) -> Keys:
    """Fit and forward, and return the keys of one node.

    Args:
        node: it is alone in its graph; a ``Probe`` unless given.
        x: what it learns from.
        y: the labels.
        given: what it transforms.
        graph: one in which a node of that name lies, instead.
        name: the id of the node.
        how: further arguments of the fit.
    """
    g = alone(Probe() if node is None else node, name) if graph is None else graph
    g.fit(x, y, **how)
    fit = key_of(g, name, "state")
    g.forward(given)
    return Keys(fit, key_of(g, name, "output"))


def alone(node: Any, name: str = "probe") -> Graph:
    """Return a graph of one node, with a cache of its own."""
    g = Graph(cache="memory")
    g.node(name, node)
    return g


def key_of(g: Graph, name: str, what: str) -> str:
    """Return the key of what the last run did first of that kind with a node."""
    key = next(one.key for one in g.last_run.actions if (one.node, one.what) == (name, what))
    assert len(key) == 64, key  # hexadecimal digits
    return key
