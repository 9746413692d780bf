"""The import DAG of soma_cache, held to the table in docs/architecture.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "soma-cache" / "src" / "soma_cache"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def ranks() -> dict[str, int]:
    table = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| ((?:`soma_cache\.\w+` ?)+)\|", table, flags=re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`soma_cache\.(\w+)`", row)]
    return {name: rank for rank, name in enumerate(names)}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "soma_cache":
            found.update(f"soma_cache.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_the_table_names_every_room():
    assert set(ranks()) == {room_of(path) for path in MODULES}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_room_imports_only_rooms_above_it_in_the_table(path):
    rank, own = ranks(), room_of(path)
    for module in imported(path):
        if module.startswith("soma_cache."):
            room = module.split(".")[1]
            assert room == own or rank[room] < rank[own], f"{path.name} imports {module}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_it_stands_on_core_alone(path):
    tops = {module.split(".")[0] for module in imported(path)}
    assert not tops & {"torch", "aiohttp", "fsspec", "pyarrow", "optuna", "ray", "numpy"}
    assert not {top for top in tops if top.startswith("soma_")} - {"soma_cache"}
