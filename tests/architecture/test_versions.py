"""One version, one licence, one list of distributions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import soma

ROOT = Path(__file__).parents[2]
PROJECTS = sorted(
    path
    for pattern in ("*/pyproject.toml", "plugins/*/pyproject.toml")
    for path in ROOT.glob(pattern)
    if not path.parent.name.startswith(".")
)


def project(path: Path) -> dict:
    return tomllib.loads(path.read_text())["project"]


def test_there_are_distributions():
    assert {project(path)["name"] for path in PROJECTS} >= {"soma-core", "soma-example"}


@pytest.mark.parametrize("path", PROJECTS, ids=lambda path: path.parent.name)
def test_every_distribution_has_the_version_of_core(path):
    assert project(path)["version"] == soma.__version__


@pytest.mark.parametrize("path", PROJECTS, ids=lambda path: path.parent.name)
def test_siblings_are_pinned_to_this_minor_release(path):
    minor = ".".join(soma.__version__.split(".")[:2])
    siblings = {project(one)["name"] for one in PROJECTS}
    for requirement in project(path).get("dependencies", ()):
        name = re.match(r"[\w.-]+", requirement).group().rstrip("~=")
        if name in siblings:
            assert requirement.partition("~=")[2] == f"{minor}.0", requirement


@pytest.mark.parametrize("path", PROJECTS, ids=lambda path: path.parent.name)
def test_every_distribution_is_whole(path):
    folder = path.parent
    assert (folder / "README.md").is_file()
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    packages = list((folder / "src").iterdir())
    assert packages
    assert all((package / "py.typed").is_file() for package in packages if package.is_dir())


@pytest.mark.parametrize("path", PROJECTS, ids=lambda path: path.parent.name)
def test_every_distribution_is_installed_for_development(path):
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    where = f"-e ./{path.parent.relative_to(ROOT)}"
    assert any(line == where or line.startswith(f"{where}[") for line in lines)


def test_the_changelog_has_this_version():
    assert f"## {soma.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_ci_runs_the_test_command_of_the_readme():
    commands = re.findall(r"^python3 -m venv .*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert [command.split()[-1] for command in commands] == ["demo", "tests"]
    assert commands[1] in (ROOT / ".ci" / "run").read_text().splitlines()
