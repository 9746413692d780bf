"""Names of ``soma`` that live in other packages: ``from soma import Study``.

Metadata is asked before anything is imported, so that three cases get three sentences: the package
is not installed; it is installed and does not import; it is installed and too old to have the name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from soma._hints import EXPORTS, MODULES, install_line
from soma.errors import BrokenPackage, MissingPackage, describe_error

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["GROUP", "available", "exports_of", "load_export", "module_behind"]

GROUP = "soma.exports"
"""The entry-point group in which members of the family name what they add to ``soma``."""


def load_export(name: str) -> Any:
    """Return the object that is ``soma.<name>``, one of ``EXPORTS``.

    Raises:
        MissingPackage: its package is not installed.
        BrokenPackage: its package does not import, or does not have the name.
    """
    dist = EXPORTS[name]
    entry_point = _entry_point(name, dist)
    try:
        return entry_point.load()
    except Exception as error:
        raise _broken(name, dist, error) from error


def module_behind(name: str) -> str:
    """Return the name of the module that is ``soma.<name>``, one of ``MODULES``.

    Raises:
        MissingPackage: its package is not installed.
        BrokenPackage: its package does not have the name.
    """
    return _entry_point(name, MODULES[name]).value


def available() -> list[str]:
    """Return the names among ``EXPORTS`` and ``MODULES`` whose package is installed."""
    family = sorted({*EXPORTS.values(), *MODULES.values()})
    return sorted(name for dist in family for name in exports_of(dist))


def exports_of(dist: str) -> list[str]:
    """Return the names of ``soma`` that this distribution provides, sorted."""
    from importlib.metadata import distribution

    owned = {name for name, owner in (EXPORTS | MODULES).items() if owner == dist}
    if not owned:
        return []
    try:
        points = distribution(dist).entry_points.select(group=GROUP)
    except Exception:  # noqa: BLE001  # not installed, or metadata that cannot be read
        return []
    return sorted(owned & {point.name for point in points})


def _entry_point(name: str, dist: str) -> EntryPoint:
    """Ask only the distribution that core knows to provide the name."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        installed = distribution(dist)
    except PackageNotFoundError:
        raise MissingPackage(
            f"soma.{name} comes from the {dist!r} package, which is not installed. "
            f"Install it with: {install_line(dist)}",
            name=f"soma.{name}",
        ) from None
    try:
        points = list(installed.entry_points.select(group=GROUP, name=name))
    except Exception as error:
        raise BrokenPackage(
            f"soma.{name} comes from {dist}, whose metadata cannot be read: "
            f"{describe_error(error)}. Install {dist} again"
        ) from error
    if points:
        return points[0]
    raise BrokenPackage(
        f"soma.{name} comes from {dist}, and the installed {dist} {installed.version} does not "
        f"have it. Upgrade it with: pip install --upgrade {dist}"
    )


def _broken(name: str, dist: str, cause: Exception) -> BrokenPackage:
    from importlib.metadata import version

    return BrokenPackage(
        f"soma.{name} comes from {dist} {version(dist)}, which is installed but failed to "
        f"import: {describe_error(cause)}. See: soma plugins show {dist}"
    )
