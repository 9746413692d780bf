"""The import DAG of soma_cache, held to the table in docs/architecture.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "soma-cache" / "src" / "soma_cache"
MODULES = sorted(path for path in PACKAGE.glob("*.py") if path.stem != "__init__")


def ranks() -> dict[str, int]:
    table = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| ((?:`soma_cache\.\w+` ?)+)\|", table, flags=re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`soma_cache\.(\w+)`", row)]
    return {name: rank for rank, name in enumerate(names)}


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
    assert set(ranks()) == {path.stem for path in MODULES}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_room_imports_only_rooms_above_it_in_the_table(path):
    rank = ranks()
    for module in imported(path):
        if module.startswith("soma_cache."):
            assert rank[module.split(".")[1]] < rank[path.stem], f"{path.name} imports {module}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_it_stands_on_core_alone(path):
    tops = {module.split(".")[0] for module in imported(path)}
    assert not tops & {"torch", "aiohttp", "fsspec", "pyarrow", "optuna", "ray", "numpy"}
    assert not {top for top in tops if top.startswith("soma_")} - {"soma_cache"}
