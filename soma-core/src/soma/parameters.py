"""The parameters of a graph that a search may choose: dimensions of filters, and optional edges.

"model.lr"             the dimension lr of the node model
"scaler -> model"      whether that edge is there
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soma.declaration import Declaration
from soma.errors import InvalidInput, UnknownName, did_you_mean, shown
from soma.space import Dimension, dimensions_of

__all__ = ["apply_params", "search_space"]

_EDGE = Dimension(None, None, "linear", (True, False), None)


def search_space(declared: Declaration) -> list[dict[str, Any]]:
    """Return every dimension as plain data."""
    nodes = [dimension.describe(name) for name, (_, _, dimension) in _by_name(declared).items()]
    return [*nodes, *(_EDGE.describe(name) for name in _edges_by_name(declared))]


def apply_params(declared: Declaration, params: Mapping[str, Any]) -> None:
    """Set parameters by name, after every one of them was looked at.

    Raises:
        UnknownName: there is no such dimension.
        InvalidInput: a value does not lie in its dimension, or these are no parameters.
    """
    if not isinstance(params, Mapping):
        raise InvalidInput(f"apply_params takes a dict of name and value, not {shown(params)}")
    of_nodes, of_edges = _by_name(declared), _edges_by_name(declared)
    for name, value in params.items():
        if name not in of_nodes and name not in of_edges:
            near = did_you_mean(str(name), [*of_nodes, *of_edges])
            raise UnknownName(f"apply_params: there is no parameter {shown(name)}.{near}")
        dimension = of_nodes[name][2] if name in of_nodes else _EDGE
        trouble = dimension.problem_with(value)
        if trouble:
            raise InvalidInput(f"apply_params: {name} {trouble}, and it is {shown(value)}")
    undo: list[tuple[Any, str, Any]] = []
    try:
        for name in params.keys() & of_nodes.keys():
            node, attribute, dimension = of_nodes[name]
            before = getattr(node, attribute)
            setattr(node, attribute, dimension.plain(params[name]))
            undo.append((node, attribute, before))
    except BaseException:  # a property of the user's refuses it
        for node, attribute, before in reversed(undo):
            setattr(node, attribute, before)
        raise
    for name in params.keys() & of_edges.keys():
        declared.set_edge(*of_edges[name], enabled=params[name])


def _by_name(declared: Declaration) -> dict[str, tuple[Any, str, Dimension]]:
    return {
        f"{id_}.{attribute}": (one.filter, attribute, dimension)
        for id_, one in declared.filters.items()
        for attribute, dimension in dimensions_of(type(one.filter)).items()
    }


def _edges_by_name(declared: Declaration) -> dict[str, tuple[str, str]]:
    return {f"{source} -> {target}": (source, target) for source, target in declared.optional}
