"""Whether a plugin's declared requirements are there, by metadata alone.

Asked before a plugin is imported: "requires s3fs, which is not installed" is a better sentence than
the ImportError that would follow. Only direct requirements are looked at, and only soma-core's
version is binding: a release of anything else that the plugin did not expect may still work, so
that is left to ``soma plugins check``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from soma._hints import install_line
from soma._version import __version__
from soma.errors import describe_error

__all__ = ["Unmet", "unmet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """A requirement that is not met."""

    what: str
    """The whole finding: ``"requires s3fs, which is not installed"``."""
    fix: str
    binding: bool
    """Whether the plugin is left out because of it."""


def unmet(requires: Iterable[str], *, dist: str) -> Iterator[Unmet]:
    """Yield what is not met among Requires-Dist lines of ``dist``, extras aside."""
    for line in requires:
        try:
            requirement = Requirement(line)
            applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        except (InvalidRequirement, UndefinedComparison, UndefinedEnvironmentName):
            yield Unmet(
                what=f"its metadata has a requirement that cannot be read: {line!r}",
                fix=f"report it to the authors of {dist}, or: pip uninstall {dist}",
                binding=False,
            )
            continue
        if applies:
            yield from _look_at(requirement, dist)


@cache
def _installed_version(name: str) -> str:
    return version(name)  # which parses the whole METADATA, once per plugin that asks otherwise


def _look_at(requirement: Requirement, dist: str) -> Iterator[Unmet]:
    name = canonicalize_name(requirement.name)
    is_core = name == "soma-core"
    try:
        # What runs, not what is installed: a source tree on sys.path may differ from metadata.
        installed = __version__ if is_core else _installed_version(name)
    except PackageNotFoundError:
        wanted = f"{name}{requirement.specifier}"
        yield Unmet(
            what=f"requires {name}, which is not installed",
            fix=install_line(wanted if requirement.specifier else name),
            binding=True,
        )
        return
    except Exception as error:  # noqa: BLE001  # whatever damaged metadata raises
        yield Unmet(
            what=f"requires {name}, whose metadata cannot be read: {describe_error(error)}",
            fix=f"install {name} again",
            binding=False,
        )
        return
    try:
        fits = requirement.specifier.contains(installed, prereleases=True)
    except InvalidVersion:
        fits = False
    if fits:
        return
    if is_core:
        yield Unmet(
            what=f"requires soma-core{requirement.specifier}, but soma-core {installed} is running",
            fix=f"install a release of {dist} made for soma-core {installed}: "
            f"pip install --upgrade {dist}",
            binding=True,
        )
    else:
        yield Unmet(
            what=f"requires {name}{requirement.specifier}, but {name} {installed} is installed",
            fix=install_line(f"{name}{requirement.specifier}"),
            binding=False,
        )
