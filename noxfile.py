"""Every job of this repository, by name: `nox -l` lists them, `nox -s NAME` runs one."""

from __future__ import annotations

import zipfile
from pathlib import Path

import nox

nox.needs_version = ">=2024.3.2"
nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_external_run = True
nox.options.sessions = ["tests"]

# Distribution -> (its folder, its own tests, siblings it needs from this tree).
DISTRIBUTIONS = {
    "soma-core": ("soma-core", ("tests/core", "tests/discovery"), ()),
    "soma-cache": ("soma-cache", ("tests/cache",), ("soma-core",)),
    "soma-example": ("plugins/soma-example", ("plugins/soma-example/tests",), ("soma-core",)),
}
TEST_TOOLS = ["hypothesis"]
TYPED = [f"{folder}/src" for folder, _, _ in DISTRIBUTIONS.values()]


def install_everything(session: nox.Session) -> None:
    session.install("-r", "requirements-dev.txt")


@nox.session
def demo(session: nox.Session) -> None:
    """Set up and run the main example, twice: the second process computes nothing."""
    session.install(
        "-c",
        "constraints.txt",
        *("-e", "./soma-core", "-e", "./soma-cache"),
        *("-r", "examples/requirements.txt"),
    )
    session.run("python", "examples/digits.py")
    session.run("python", "examples/digits.py")
    session.run("soma", "runs", "show", "last")


@nox.session
def tests(session: nox.Session) -> None:
    """Run all tests with everything installed."""
    install_everything(session)
    session.run("pytest", "-m", "not gpu", *session.posargs)


@nox.session
@nox.parametrize("dist", list(DISTRIBUTIONS))
def alone(session: nox.Session, dist: str) -> None:
    """Test one distribution with only what it declares."""
    folder, own_tests, siblings = DISTRIBUTIONS[dist]
    needed = [f"./{DISTRIBUTIONS[sibling][0]}" for sibling in siblings]
    needed.append(f"./{folder}")
    core = "./soma-core"
    wanted = [f"{path}[testing]" if path == core else path for path in needed]
    session.install("-c", "constraints.txt", *wanted, *TEST_TOOLS)
    session.run("pytest", *own_tests, *session.posargs)


@nox.session
def min(session: nox.Session) -> None:  # noqa: A001  # the session's name on the command line
    """Test with the lowest releases that are declared."""
    session.install("-c", "constraints-min.txt", "-e", "./soma-core[testing]", *TEST_TOOLS)
    session.run("pytest", "tests/core", "tests/discovery", *session.posargs)


@nox.session
def gpu(session: nox.Session) -> None:
    """Run the tests that need an accelerator; they skip themselves where there is none."""
    install_everything(session)
    session.run("pytest", "-m", "gpu", *session.posargs, success_codes=[0, 5])


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format."""
    session.install("-c", "constraints.txt", "ruff")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types, strictly."""
    install_everything(session)
    session.run("mypy", *TYPED, "tests/typing", "examples", "benchmarks")


@nox.session
def docs(session: nox.Session) -> None:
    """Run every block of the documentation and every doctest."""
    install_everything(session)
    session.run("pytest", "tests/docs", *session.posargs)
    session.run("pytest", "--doctest-modules", *TYPED, *session.posargs)


@nox.session(reuse_venv=False)
def build(session: nox.Session) -> None:
    """Build every distribution, install the wheels in this clean environment and check them."""
    session.install("build")
    out = Path(session.create_tmp()) / "dist"
    for old in out.glob("*"):
        old.unlink()
    for folder, _, _ in DISTRIBUTIONS.values():
        session.run("python", "-m", "build", "--outdir", str(out), folder)
    wheels = sorted(out.glob("*.whl"))
    if len(wheels) != len(DISTRIBUTIONS):
        session.error(f"{len(DISTRIBUTIONS)} wheels expected, {len(wheels)} built")
    for wheel in wheels:
        names = zipfile.ZipFile(wheel).namelist()
        if not any(name.endswith("py.typed") for name in names):
            session.error(f"{wheel.name} has no py.typed")
        if wheel.name.startswith("soma_core") and "soma/testing/__init__.py" not in names:
            session.error(f"{wheel.name} has no soma/testing")
    session.install("--force-reinstall", "-c", "constraints.txt", *map(str, wheels))
    session.run("soma", "--version")
    session.run("soma", "plugins", "list", "--all")
    session.run("soma", "plugins", "check")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure, and print the ratios to the floors and peers of the same run."""
    install_everything(session)
    session.install("-c", "constraints.txt", "-r", "benchmarks/requirements.txt")
    for script in sorted(Path("benchmarks").glob("bench_*.py")):
        session.run("python", str(script), *session.posargs)
