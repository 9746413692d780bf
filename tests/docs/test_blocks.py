"""Every block of the documentation is run, and what it prints is compared.

Per file, in order and in one namespace: a ``python`` block is executed, a ``text`` block after it
is what it must have printed, and the commands of a ``console`` block are run. ``file=NAME`` is a
file that a reader writes; ``...`` in expected output stands for anything. What an ``sh`` block
shows is tested where the thing itself is: the demo in tests/e2e.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from soma import codecs

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for path in sorted(ROOT.rglob("*.md"))
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
]
BLOCK = re.compile(r"^```(\w*)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "text", "console", "sh", "toml"}


def blocks(path: Path) -> list[tuple[str, str, str]]:
    return BLOCK.findall(path.read_text())


def matches(expected: str, printed: str) -> bool:
    pattern = ".*".join(map(re.escape, expected.strip().split("...")))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_says_what_it_is(path):
    assert path.read_text().count("\n```") == 2 * len(blocks(path))
    assert {language for language, _, _ in blocks(path)} <= LANGUAGES


@pytest.mark.parametrize(
    "path",
    [page for page in PAGES if any(language == "python" for language, _, _ in blocks(page))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_python_blocks_run_and_print_what_stands_below_them(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for table in ("_by_kind", "_by_type"):  # what a page registers is its own
        monkeypatch.setattr(codecs, table, dict(getattr(codecs, table)))
    monkeypatch.setattr(codecs, "_resolved", type(codecs._resolved)())
    namespace: dict = {"__name__": "__main__"}
    printed = None
    monkeypatch.syspath_prepend(tmp_path)
    for language, file, text in blocks(path):
        if file and path.name != "CONTRIBUTING.md":
            (tmp_path / file).write_text(text)
        elif language == "python" and not file:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, f"{path.name}", "exec"), namespace)  # noqa: S102  # its purpose
            printed = out.getvalue()
        elif language == "text" and printed is not None:
            assert matches(text, printed), printed
            printed = None
        else:
            printed = None
            if language == "console" and path.name != "CONTRIBUTING.md":  # which has its own test
                run_console(text, cwd=tmp_path, path=[])


def test_links_lead_to_files():
    for path in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def run_console(text: str, *, cwd: Path, path: list[Path]) -> None:
    """Run each ``$ command`` and compare what it prints with the lines below it."""
    bin_folder = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(map(str, path)),
    }
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
        done = subprocess.run(
            shlex.split(command),
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert matches(expected, done.stdout), f"$ {command}\n{done.stdout}{done.stderr}"


def test_the_plugin_of_contributing_works_as_written(tmp_path):
    """Write its files, install them for real, run its commands and its test."""
    page = blocks(ROOT / "CONTRIBUTING.md")
    source, site = tmp_path / "source", tmp_path / "site"
    for _, file, text in page:
        if file:
            target = source / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
    install(source, site)
    for language, _, text in page:
        if language == "console":
            run_console(text, cwd=source, path=[site])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_plugin.py"],
        cwd=source,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "4 passed" in done.stdout, done.stdout + done.stderr


def install(source: Path, site: Path) -> None:
    """Install a package into an empty folder, with the build backend that is here already."""
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"),
            *("--no-build-isolation", "--target", str(site), str(source)),
        ],
        check=True,
        timeout=300,
        capture_output=True,
    )
