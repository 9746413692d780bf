"""From a name to the thing: name -> spec -> object, imported when it is first used.

    find("ws", RunnerSpec)   core's own offers   ──hit──►  no plugin is looked for
                                  │ miss
                                  ▼
                             installed plugins   ──one──►  the offer
                                  ├── two  ──►  NameConflict naming both
                                  └── none ──►  MissingPackage with its install line, or UnknownName

Discovery is injected: a registry is a function of the two catalogues it is given, so a test builds
one from its own. The process-wide one is ``default()``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

from soma import _discovery
from soma._hints import NAMES, install_line
from soma.errors import (
    BrokenPackage,
    MissingPackage,
    NameConflict,
    UnknownName,
    describe_error,
    did_you_mean,
)
from soma.specs import Spec

__all__ = ["Catalog", "Offer", "Registry", "default", "load_target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One spec, and who makes it."""

    spec: Spec
    dist: str
    """Name of the distribution, in its normalised spelling."""
    version: str
    entry_point: str = ""
    """Name of the plugin's entry point: one distribution may have several plugins."""

    def describe(self) -> str:
        """Return ``command 'hello'``."""
        return f"{self.spec.label} {self.spec.name!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """What there is to choose from, and what was left out."""

    offers: tuple[Offer, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Distribution -> one sentence that says why it offers nothing."""


def load_target(target: str) -> Any:
    """Import and return what ``"package.module:attribute"`` names.

    Raises:
        ImportError: the module does not import, or has no such attribute. Whatever else the
            module raises while it is imported comes through as it is.
    """
    from importlib import import_module

    module_name, _, path = target.partition(":")
    found: Any = import_module(module_name)
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise ImportError(f"{module_name} has no attribute {path!r}") from error
    return found


class Registry:
    """Offers by name. Safe for threads: at worst an object is fetched twice.

    Args:
        builtins: returns what core itself offers; asked first, and never replaced.
        installed: returns what plugins offer; asked when a name is not core's own.
    """

    def __init__(self, builtins: Callable[[], Catalog], installed: Callable[[], Catalog]) -> None:
        self._builtins = builtins
        self._installed = installed
        self._objects: dict[tuple[type[Spec], str], Any] = {}

    def offers(self, kind: type[Spec]) -> tuple[Offer, ...]:
        """Return every offer of a kind, core's own first, the rest by name."""
        own = _of_kind(self._builtins(), kind)
        rest = sorted(_of_kind(self._installed(), kind), key=lambda offer: offer.spec.name)
        return (*own, *rest)

    def find(self, name: str, kind: type[Spec], *, by_alias: bool = False) -> Offer:
        """Return the offer of that name, without importing what it offers.

        Args:
            name: what the user wrote.
            kind: the class of the spec: ``RunnerSpec``, ``CommandSpec``, ...
            by_alias: ``name`` is one of ``spec.aliases`` (a URL scheme, a type) instead.

        Raises:
            NameConflict: two plugins claim the name.
            MissingPackage: the name is one of the family's, and its package is not installed.
            BrokenPackage: its package is installed and was left out.
            UnknownName: nobody provides it; the message names the nearest.
        """
        for catalog in (self._builtins, self._installed):
            found = [
                offer
                for offer in _of_kind(catalog(), kind)
                if name in (offer.spec.aliases if by_alias else (offer.spec.name,))
            ]
            if len(found) > 1:
                raise NameConflict(_conflict(name, kind, found))
            if found:
                return found[0]
        raise self._not_found(name, kind, by_alias=by_alias)

    def get(self, name: str, kind: type[Spec], *, by_alias: bool = False) -> Any:
        """Return the object behind a name, importing it the first time.

        Raises:
            BrokenPackage: the package is installed and its code fails to import.
            SomaError: as ``find``.
        """
        offer = self.find(name, kind, by_alias=by_alias)
        key = (kind, offer.spec.name)
        if key not in self._objects:
            self._objects[key] = self.load(offer)
        return self._objects[key]

    def load(self, offer: Offer) -> Any:
        """Import what an offer points at.

        Raises:
            BrokenPackage: it fails to import; the message says how to see why.
        """
        try:
            return load_target(offer.spec.target)
        except (Exception, SystemExit) as error:
            raise BrokenPackage(
                f"The {offer.describe()} comes from {offer.dist} {offer.version}, which is "
                f"installed but failed to import: {describe_error(error)}. "
                f"See: soma plugins show {offer.dist}"
            ) from error

    def _not_found(self, name: str, kind: type[Spec], *, by_alias: bool) -> Exception:
        label = kind.label
        left_out = self._installed().left_out
        dist = NAMES.get((label, name))
        if dist is not None and dist in left_out:
            return BrokenPackage(
                f"The {label} {name!r} comes from {dist}, which is installed but was left out: "
                f"{left_out[dist]}. See: soma plugins show {dist}"
            )
        version = _installed_version(dist) if dist is not None else None
        if version is not None:
            return BrokenPackage(
                f"The {label} {name!r} comes from {dist}, and the installed {dist} {version} does "
                f"not have it. Upgrade it with: pip install --upgrade {dist}"
            )
        if dist is not None:
            return MissingPackage(
                f"The {label} {name!r} comes from the {dist!r} package, which is not installed. "
                f"Install it with: {install_line(dist)}"
            )
        known = [
            alias
            for offer in self.offers(kind)
            for alias in (offer.spec.aliases if by_alias else (offer.spec.name,))
        ]
        known += [hinted for of, hinted in NAMES if of == label]
        missing = (
            f" Plugins left out, which may provide it: {', '.join(sorted(left_out))}."
            if left_out
            else ""
        )
        return UnknownName(f"There is no {label} {name!r}.{did_you_mean(name, known)}{missing}")


def _of_kind(catalog: Catalog, kind: type[Spec]) -> Iterator[Offer]:
    return (offer for offer in catalog.offers if isinstance(offer.spec, kind))


def _installed_version(dist: str) -> str | None:
    from importlib.metadata import version

    try:
        return version(dist)
    except Exception:  # noqa: BLE001  # not installed, or too damaged to say its version
        return None


def _conflict(name: str, kind: type[Spec], claims: list[Offer]) -> str:
    dists = sorted({offer.dist for offer in claims})
    if len(dists) == 1:
        points = " and ".join(sorted(repr(offer.entry_point) for offer in claims))
        return (
            f"The {kind.label} {name!r} is claimed by two plugins of {dists[0]}, {points}, so "
            "neither is used. Offer it in one of them"
        )
    who = " and ".join(sorted({f"{offer.dist} {offer.version}" for offer in claims}))
    out = " or ".join(f"pip uninstall {dist}" for dist in dists)
    return (
        f"The {kind.label} {name!r} is claimed by {who}, so neither is used. "
        f"Remove one of them: {out}"
    )


@cache
def default() -> Registry:
    """Return the registry of this process: core's own offers and the installed plugins'."""
    return Registry(_discovery.builtins, _discovery.installed)
