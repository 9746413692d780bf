"""What may be imported when: names in sys.modules of a fresh interpreter, never milliseconds."""

from __future__ import annotations

import ast

import pytest

from support.distributions import run_python, run_soma, write_plugin

FORBIDDEN = {
    "aiohttp",
    "asyncio",
    "click",
    "dataclasses",
    "fsspec",
    "importlib.metadata",
    "inspect",
    "numpy",
    "optuna",
    "packaging",
    "pluggy",
    "pyarrow",
    "ray",
    "rich",
    "torch",
    "typing",
    "websockets",
}
HEAVY = FORBIDDEN - {
    "asyncio",
    "click",
    "dataclasses",
    "importlib.metadata",
    "inspect",
    "packaging",
    "pluggy",
    "typing",
}


def new_modules(code: str, *folders, **environment) -> set[str]:
    done = run_python(
        f"""
        import sys
        before = set(sys.modules)
        {code}
        print("\\n" + repr(sorted(set(sys.modules) - before)))
        """,
        *folders,
        **environment,
    )
    assert done.returncode == 0, done.stderr
    return set(ast.literal_eval(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    [
        "import soma",
        "import somatize",
        "sys.argv = ['soma', '--version']; from soma.cli import main; main()",
    ],
)
def test_the_front_door_imports_next_to_nothing(code):
    assert not new_modules(code) & FORBIDDEN


def test_a_graph_imports_neither_numpy_nor_plugins():
    found = new_modules("import soma; soma.Graph()")
    assert not found & (HEAVY | {"asyncio", "importlib.metadata", "pluggy", "click"})
    assert not any(name.startswith("soma_") for name in found)


@pytest.mark.parametrize("words", ["'--help'", "'plugins', 'list'"])
def test_help_and_list_import_nothing_heavy_and_no_command_of_a_plugin(words, tmp_path):
    write_plugin(tmp_path, "soma-quick")
    found = new_modules(f"from soma.cli.root import run; assert run([{words}]) == 0", tmp_path)
    assert not found & HEAVY
    assert "soma_quick.plugin" in found
    assert "soma_quick.cli" not in found


def test_version_and_where_it_comes_from():
    import soma

    assert run_soma("--version").stdout == f"soma {soma.__version__}\n"
