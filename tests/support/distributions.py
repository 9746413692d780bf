"""Fake installed distributions: real ``.dist-info`` folders, written in milliseconds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

TIMEOUT_S = 120

HOOK = """
import soma

@soma.hookimpl
def soma_commands():
    yield soma.CommandSpec(name="{command}", target="{module}.cli:command", summary="{summary}")
"""

COMMAND = """
import click

@click.command()
def command():
    click.echo("{says}")
"""


def write_distribution(
    folder: Path,
    name: str,
    *,
    version: str = "1.0",
    requires: tuple[str, ...] = (),
    entry_points: str = "",
    files: dict[str, str] | None = None,
    metadata: str | None = None,
) -> None:
    """Write a distribution that Python takes for installed when ``folder`` is on its path."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {line}" for line in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n" if metadata is None else metadata)
    (info / "entry_points.txt").write_text(dedent(entry_points))
    for path, text in (files or {}).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(dedent(text))


def write_plugin(
    folder: Path,
    name: str,
    *,
    plugin: str | None = None,
    cli: str | None = None,
    command: str | None = None,
    requires: tuple[str, ...] = (),
    version: str = "1.0",
) -> None:
    """Write a plugin with one command, or with the module text given."""
    module = name.replace("-", "_")
    write_distribution(
        folder,
        name,
        version=version,
        requires=requires,
        entry_points=f"[soma]\n{name} = {module}.plugin\n",
        files={
            f"{module}/__init__.py": "",
            f"{module}/plugin.py": HOOK.format(
                command=command or name, module=module, summary=f"What {name} does."
            )
            if plugin is None
            else plugin,
            f"{module}/cli.py": COMMAND.format(says=f"{name} ran") if cli is None else cli,
        },
    )


def without(*names: str) -> str:
    """Return code after which a process finds no distribution of those names, installed or not."""
    return dedent(f"""
        import importlib.metadata

        _find = importlib.metadata.MetadataPathFinder.find_distributions

        def _find_others(*args, **options):
            return [one for one in _find(*args, **options) if one.name not in {names!r}]

        importlib.metadata.MetadataPathFinder.find_distributions = _find_others
    """)


def run_python(
    code: str, *folders: Path, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that has ``folders`` first on its path."""
    return _run([sys.executable, "-c", dedent(code)], folders, cwd, environment)


def run_soma(
    arguments: str | list[str], *folders: Path, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the ``soma`` command in a fresh process that has ``folders`` first on its path."""
    words = arguments.split() if isinstance(arguments, str) else arguments
    return _run([sys.executable, "-m", "soma", *words], folders, cwd, environment)


def _run(
    command: list[str], folders: tuple[Path, ...], cwd: Path | None, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in {"SOMA_LOAD_PLUGINS", "SOMA_STRICT_PLUGINS", "PYTHONPATH"}
    }
    path = os.pathsep.join(map(str, folders))
    return subprocess.run(
        command,
        env=inherited | ({"PYTHONPATH": path} if path else {}) | environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
