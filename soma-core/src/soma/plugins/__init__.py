"""The plugins of this process: found once, at first need, never while ``soma`` is imported.

    discover(points)  ──►  one report per plugin         (a function of its input; keeps nothing)
    reports()         ──►  the same for this process     (once, with a line on stderr per failure)
    *_catalog()       ──►  what the registry chooses from

Two switches in the environment: ``SOMA_LOAD_PLUGINS=a,b`` lets only those distributions in (empty:
none), and ``SOMA_STRICT_PLUGINS=1`` turns a failed plugin into an error wherever plugins are used.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, version
from types import MappingProxyType

from soma._exports import exports_of
from soma._hints import EXPORTS, MODULES
from soma._notices import tell
from soma._version import __version__
from soma.errors import PluginError
from soma.plugins.candidates import Candidate, find_candidates, let_in_by_environment
from soma.plugins.loader import PluginLoader
from soma.plugins.report import PluginReport, claims_of, conflicts
from soma.registry import Catalog

__all__ = [
    "PluginReport",
    "builtin_catalog",
    "builtin_report",
    "conflicts",
    "discover",
    "installed_catalog",
    "reports",
]

_LOADING_TIMEOUT_S = 30.0

_lock = threading.RLock()
_discovering = False


@cache
def builtin_report() -> PluginReport:
    """Return the report of core itself, loaded by the rules that hold for everybody.

    Raises:
        PluginError: core breaks its own rules, which only a damaged installation does.
    """
    report = PluginLoader().load(
        Candidate(
            dist="soma-core",
            version=__version__,
            entry_point="soma-core",
            module="soma.plugins.own",
        )
    )
    if report.status != "ok":
        raise PluginError(f"soma-core itself does not load: {report.error}. Install it again")
    return report


def discover(points: Iterable[EntryPoint] | None = None) -> tuple[PluginReport, ...]:
    """Load every plugin and return what became of each, sorted by distribution.

    Args:
        points: entry points to load; None takes those of the group ``soma`` on ``sys.path``.
    """
    reserved = {claim for offer in builtin_report().offers for claim in claims_of(offer.spec)}
    loader = PluginLoader(reserved)
    let_in = let_in_by_environment()
    return tuple(
        _off(candidate)
        if let_in is not None and candidate.dist not in let_in
        else loader.load(candidate)
        for candidate in find_candidates(points)
    )


def reports() -> tuple[PluginReport, ...]:
    """Return the reports of this process; discovers once and tells of each failure on stderr.

    Raises:
        PluginError: a plugin asked for a plugin's name while it was itself being loaded, or
            another thread has been loading plugins for 30 s.
    """
    global _discovering  # noqa: PLW0603  # guards the one discovery of the process
    # Waiting has a limit: whoever loads plugins may itself wait for an import of this thread.
    if not _lock.acquire(timeout=_LOADING_TIMEOUT_S):
        raise PluginError(
            f"Plugins are still being loaded by another thread after {_LOADING_TIMEOUT_S:.0f} s. "
            "If a module asks for plugins while it is imported, ask for them later"
        )
    try:
        if _discovering:
            raise PluginError(
                "A plugin asked for something that plugins provide while plugins were still being "
                "loaded. Ask for it when it is used, not when the plugin's module is imported"
            )
        _discovering = True
        try:
            return _reports_once()
        finally:
            _discovering = False
    finally:
        _lock.release()


@cache
def _reports_once() -> tuple[PluginReport, ...]:
    found = _with_exporters(discover())
    for report in found:
        if report.status == "failed":
            tell(
                f"left out the plugin {report.dist} {report.version}: "
                f"{report.error.rstrip('.')}{'' if report.error.endswith('?') else '.'} "
                f"Fix: {report.fix} (more: soma plugins show {report.dist})"
            )
    for name in sorted(
        (let_in_by_environment() or frozenset()) - {report.dist for report in found}
    ):
        tell(f"SOMA_LOAD_PLUGINS names {name}, and no plugin of that name is installed")
    return found


def builtin_catalog() -> Catalog:
    """Return what core itself offers."""
    return Catalog(offers=builtin_report().offers)


def installed_catalog() -> Catalog:
    """Return what the plugins of this process offer.

    Raises:
        PluginError: ``SOMA_STRICT_PLUGINS`` is set and a plugin failed; the message names each.
    """
    found = reports()
    failed = [report for report in found if report.status == "failed"]
    if failed and _is_strict():
        raise PluginError(
            "SOMA_STRICT_PLUGINS is set, and these plugins failed: "
            + "; ".join(f"{one.dist} {one.version}: {one.error} (fix: {one.fix})" for one in failed)
        )
    return Catalog(
        offers=tuple(offer for report in found for offer in report.offers),
        left_out=MappingProxyType(
            {
                report.dist: report.error or "SOMA_LOAD_PLUGINS does not name it"
                for report in found
                if report.status != "ok"
            }
        ),
    )


def _with_exporters(found: tuple[PluginReport, ...]) -> tuple[PluginReport, ...]:
    """Add a row for each package of the family that has names of ``soma`` and no hook."""
    listed = {report.dist for report in found}
    family = sorted({*EXPORTS.values(), *MODULES.values()} - listed)
    rows = [
        PluginReport(dist=dist, version=version(dist), entry_point="", module="")
        for dist in family
        if exports_of(dist)
    ]
    return tuple(sorted((*found, *rows), key=lambda report: report.key))


def _is_strict() -> bool:
    value = os.environ.get("SOMA_STRICT_PLUGINS", "")
    return value.strip().casefold() not in ("", "0", "false", "no", "off")


def _off(candidate: Candidate) -> PluginReport:
    return PluginReport(
        dist=candidate.dist,
        version=candidate.version,
        entry_point=candidate.entry_point,
        module=candidate.module,
        status="off",
        fix=f"add {candidate.dist} to SOMA_LOAD_PLUGINS, or unset it",
    )
