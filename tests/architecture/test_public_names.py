"""``__all__``, what resolves, what type checkers see, and the documentation are one list."""

from __future__ import annotations

import ast
import re
import typing
from importlib import import_module
from pathlib import Path

import pytest

import soma
from soma._hints import EXPORTS

ROOT = Path(__file__).parents[2]
CORE = ROOT / "soma-core" / "src" / "soma"


def documented() -> set[str]:
    return set(re.findall(r"^### (\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE))


def seen_by_type_checkers() -> dict[str, str]:
    """Return name -> module of the imports under TYPE_CHECKING that re-export."""
    found = {}
    for node in ast.parse((CORE / "__init__.py").read_text()).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                found |= {a.asname: line.module for a in line.names if a.asname}
    return found


def test_one_list():
    public = set(soma.__all__)
    assert documented() - {"Modules"} == public
    assert set(soma._EXPORTS) == public - {"__version__"}
    seen = seen_by_type_checkers()
    assert {name: module for name, module in seen.items() if name in public} == soma._EXPORTS
    assert {
        name: module.replace("_", "-") for name, module in seen.items() if name not in public
    } == EXPORTS
    assert public <= set(dir(soma))
    assert soma.__all__ == sorted(soma.__all__)


@pytest.mark.parametrize("name", sorted(soma._EXPORTS))
def test_every_name_resolves_to_the_object_of_its_room(name):
    home = import_module(soma._EXPORTS[name])
    assert getattr(soma, name) is getattr(home, name)
    assert name in home.__all__


@pytest.mark.parametrize("name", sorted(soma.__all__))
def test_every_name_has_a_docstring_or_is_data(name):
    value = getattr(soma, name)
    assert isinstance(value, str) or value.__doc__


def test_every_room_lists_names_that_it_has():
    for path in CORE.rglob("*.py"):
        if path.name == "__main__.py":
            continue
        name = ".".join(("soma", *path.relative_to(CORE).with_suffix("").parts))
        module = import_module(name.removesuffix(".__init__"))
        assert all(hasattr(module, public) for public in getattr(module, "__all__", ()))


def test_annotations_resolve():
    """What signatures name is there at run time, for tools that ask."""
    assert typing.get_type_hints(soma.Graph.edge)["source"] is str
