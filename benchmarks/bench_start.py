"""How long things take to start: over an empty interpreter, and against `python -c pass`.

Targets: `import soma` and `soma --version` at most 50 ms over an empty interpreter,
`soma plugins list` with 20 plugins at most 300 ms in all.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

ROUNDS = 15
PLUGINS = 20

HOOK = """
import soma

@soma.hookimpl
def soma_commands():
    yield soma.CommandSpec(name="{name}", target="{name}.cli:command", summary="What it does.")
"""


def write_plugins(folder: Path) -> None:
    for number in range(PLUGINS):
        name = f"bench_plugin_{number:02}"
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: soma-core~=0.1\n"
            "Requires-Dist: click>=8\n"
        )
        (info / "entry_points.txt").write_text(f"[soma]\n{name} = {name}.plugin\n")
        package = folder / name
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "plugin.py").write_text(HOOK.format(name=name))


def wall_ms(command: list[str], folder: Path) -> float:
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONPYCACHEPREFIX": str(folder)}
    # An installed package has its bytecode, whatever this shell says.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)
    return (perf_counter() - started) * 1e3


def main() -> None:
    python = sys.executable
    commands = {
        "empty interpreter": [python, "-c", "pass"],
        "import soma": [python, "-c", "import soma"],
        "soma --version": [python, "-m", "soma", "--version"],
        "what the commands stand on": [
            python,
            "-c",
            "import click, importlib.metadata, packaging.requirements, pluggy, dataclasses",
        ],
        "soma --help": [python, "-m", "soma", "--help"],
        f"soma plugins list, {PLUGINS} plugins": [python, "-m", "soma", "plugins", "list"],
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_plugins(folder)
        for command in commands.values():
            wall_ms(command, folder)  # which writes the bytecode
        times: dict[str, list[float]] = {what: [] for what in commands}
        for _ in range(ROUNDS):  # interleaved, so that a busy moment hits everybody
            for what, command in commands.items():
                times[what].append(wall_ms(command, folder))
    floor = statistics.median(times["empty interpreter"])
    libraries = statistics.median(times["what the commands stand on"])
    print(f"{'':34}{'median ms':>10}{'over empty':>12}{'/ empty':>9}{'/ libraries':>13}")
    for what, samples in times.items():
        median = statistics.median(samples)
        print(
            f"{what:34}{median:10.1f}{median - floor:12.1f}"
            f"{median / floor:9.2f}{median / libraries:13.2f}"
        )


if __name__ == "__main__":
    main()
