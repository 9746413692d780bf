"""The import DAG of core, held to the table in docs/architecture.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "soma-core" / "src" / "soma"

FOREIGN = {"torch", "aiohttp", "websockets", "fsspec", "pyarrow", "optuna", "ray", "sklearn"}


def rooms() -> dict[str, int]:
    """Return room -> its row in the table; rooms of one row are ranked in the order written."""
    table = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| ((?:`\w+` ?)+)\|", table, flags=re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    return {name: rank for rank, name in enumerate(names)}


def modules() -> list[Path]:
    return sorted(path for path in CORE.rglob("*.py") if path != CORE / "__init__.py")


def room_of(path: Path) -> str:
    return path.relative_to(CORE).with_suffix("").parts[0]


def imported(path: Path) -> list[str]:
    """Return every module imported anywhere in the file, inside functions too."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            found += [f"{base}.{alias.name}" for alias in node.names] if base == "soma" else [base]
    return found


def test_the_table_names_every_room():
    there = {room_of(path) for path in modules()} - {"__main__"}
    assert there == set(rooms())


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(CORE)))
def test_a_room_imports_only_rooms_above_it_in_the_table(path):
    ranks = rooms()
    own = room_of(path)
    for module in imported(path):
        parts = module.split(".")
        if parts[0] != "soma" or len(parts) == 1 or own == "__main__":
            continue
        assert parts[1] == own or ranks[parts[1]] < ranks[own], f"{path.name} imports {module}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(CORE)))
def test_core_imports_no_plugin_and_nothing_heavy(path):
    for module in imported(path):
        top = module.split(".")[0]
        assert top not in FOREIGN
        assert not top.startswith("soma_")


def test_no_public_name_is_a_submodule():
    """Importing soma.search, the module, would put it in the place of soma.search, the name."""
    import soma

    submodules = {path.stem for path in CORE.glob("*.py")} | {
        path.name for path in CORE.iterdir() if (path / "__init__.py").exists()
    }
    assert not submodules & (set(soma.__all__) | set(soma._EXPORTS))
