"""Versions: of Soma, of Python, of the system, and of what core requires."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata, version
from pathlib import Path

from packaging.specifiers import SpecifierSet

import soma
from soma._version import __version__
from soma.contracts import Finding
from soma.doctor.guarded import guarded
from soma.plugins.requirements import unmet

__all__ = ["look_at_installation"]

_CORE = "soma-core"
_PYTHON = "Programming Language :: Python :: "


def look_at_installation() -> Iterator[Finding]:
    """Look at the versions of everything that is there without a plugin."""
    try:
        found: PackageMetadata | None = metadata(_CORE)
    except PackageNotFoundError:
        found = None
    yield from guarded("soma", lambda: _soma(found))
    yield from guarded("python", lambda: _python(found))
    yield _system()
    yield from guarded("requirements", lambda: _requirements(found))
    yield from guarded("soma", _original)


def _soma(found: PackageMetadata | None) -> Iterator[Finding]:
    folder = Path(soma.__file__).parent
    text = f"{_CORE} {__version__}, in {folder}"
    if found is None:
        yield Finding(
            about="soma",
            state="note",
            text=f"{text}, which is not installed: its requirements are not known",
            advice=f"pip install {_CORE}, or from a checkout: pip install -e soma-core",
        )
    elif found["Version"] != __version__:
        yield Finding(
            about="soma",
            state="note",
            text=f"{text}; what is installed is {found['Version']}, and something else runs",
            advice="install the one that runs again (pip install -e soma-core), or take its folder "
            "off PYTHONPATH",
        )
    else:
        yield Finding(about="soma", state="fine", text=text)


def _python(found: PackageMetadata | None) -> Iterator[Finding]:
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    text = f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    wanted = "" if found is None else found["Requires-Python"] or ""
    tested = [
        one.removeprefix(_PYTHON)
        for one in (() if found is None else found.get_all("Classifier") or ())
        if one.startswith(f"{_PYTHON}3.")
    ]
    if not SpecifierSet(wanted).contains(platform.python_version(), prereleases=True):
        yield Finding(
            about="python",
            state="wrong",
            text=f"{text}: Soma {__version__} needs {wanted}",
            advice=f"make an environment with Python {tested[-1] if tested else wanted}, and "
            "install Soma there",
        )
    elif (tested and minor not in tested) or sys.implementation.name != "cpython":
        yield Finding(
            about="python",
            state="note",
            text=f"{text}: Soma {__version__} is tested with CPython {', '.join(tested)}",
        )
    else:
        yield Finding(about="python", state="fine", text=text)


def _system() -> Finding:
    text = f"{platform.system()} {platform.release()}, {platform.machine()}"
    if platform.system() == "Linux":
        return Finding(about="system", state="fine", text=text)
    return Finding(about="system", state="note", text=f"{text}: Soma is tested on Linux only")


def _requirements(found: PackageMetadata | None) -> Iterator[Finding]:
    if found is None:
        return
    lines = found.get_all("Requires-Dist") or ()
    missing = list(unmet(lines, dist=_CORE))
    for one in missing:
        text = f"{_CORE} {__version__} {one.what}"
        yield Finding(about="requirements", state="wrong", text=text, advice=one.fix)
    if not missing:
        text = f"what {_CORE} requires is installed"
        yield Finding(about="requirements", state="fine", text=text)


def _original() -> Iterator[Finding]:
    try:
        found = version("somatize")
    except PackageNotFoundError:
        return
    yield Finding(
        about="soma",
        state="wrong",
        text=f"somatize {found}, the original, is installed too and brings modules of the same "
        "names: which code runs depends on the order of installation",
        advice="pip uninstall somatize, then: pip install --force-reinstall --no-deps soma-core",
    )
