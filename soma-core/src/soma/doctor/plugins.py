"""Each plugin: loaded, left out and why, or in somebody's way. Nothing it offers is imported."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, requires

from soma._exports import exports_of
from soma.contracts import Finding
from soma.doctor.guarded import guarded
from soma.plugins import PluginReport, reports
from soma.plugins.locate import locate
from soma.plugins.report import conflicts, name_claimants
from soma.plugins.requirements import unmet

__all__ = ["look_at_plugins"]


def look_at_plugins() -> Iterator[Finding]:
    """Look at every plugin that is installed."""
    found = reports()
    if not found:
        yield Finding(about="plugins", state="fine", text="none are installed")
    for report in found:
        about = f"plugin {report.dist}"
        yield from guarded(about, partial(_look_at, about, report))
    for (label, name), who in conflicts(found).items():
        yield Finding(
            about=f"{label} {name}",
            state="wrong",
            text=f"it is claimed by {name_claimants(who)}, so neither is used",
            advice=_without_one(who),
        )


def _without_one(who: tuple[PluginReport, ...]) -> str:
    dists = sorted({one.dist for one in who})
    if len(dists) == 1:
        return f"tell the authors of {dists[0]}: it is to be offered once"
    return "remove one of them: " + " or ".join(f"pip uninstall {dist}" for dist in dists)


def _look_at(about: str, report: PluginReport) -> Iterator[Finding]:
    show = f"soma plugins show {report.dist}"
    if report.status == "off":
        text = f"{report.version} is switched off by SOMA_LOAD_PLUGINS"
        yield Finding(about=about, state="note", text=text, advice=report.fix)
        return
    if report.status == "failed":
        yield Finding(
            about=about,
            state="wrong",
            text=f"{report.version} was left out ({report.phase}): {report.error}",
            advice=f"{report.fix} (more: {show})",
        )
        return
    faults = [*_unmet(about, report), *_unfound(about, report, show)]
    yield from faults
    if not faults:
        text = f"{report.version}: {'; '.join(_what(report)) or 'nothing'}"
        yield Finding(about=about, state="fine", text=text)


def _unmet(about: str, report: PluginReport) -> Iterator[Finding]:
    try:
        lines = requires(report.dist) or ()
    except PackageNotFoundError:  # its metadata calls it otherwise than its folder does
        return
    for one in unmet(lines, dist=report.dist):
        text = f"{report.version} {one.what}"
        yield Finding(about=about, state="wrong", text=text, advice=one.fix)


def _unfound(about: str, report: PluginReport, show: str) -> Iterator[Finding]:
    for offer in report.offers:
        module = offer.spec.target.partition(":")[0]
        if locate(module) is None:
            yield Finding(
                about=about,
                state="wrong",
                text=f"{report.version} offers the {offer.describe()}, and has no module {module}",
                advice=f"install {report.dist} again (more: {show})",
            )


def _what(report: PluginReport) -> Iterator[str]:
    yield from (f"{offer.spec.label} {offer.spec.name}" for offer in report.offers)
    yield from (f"export {name}" for name in exports_of(report.dist))
