"""What can be checked of a plugin without knowing it: the same checks for the CLI and for pytest.

Each check is a name and a function that raises AssertionError with a sentence. ``soma plugins
check`` runs them and prints a table; ``soma.testing.plugin_checks`` turns them into tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

from soma._exports import exports_of
from soma.errors import describe_error
from soma.plugins.report import PluginReport, conflicts, name_claimants
from soma.plugins.requirements import unmet
from soma.registry import Offer, load_target
from soma.specs import ActionStoreSpec, CodecSpec, CommandSpec

__all__ = ["HEAVY", "Check", "iter_checks"]

HEAVY = (
    "aiohttp",
    "fsspec",
    "numpy",
    "optuna",
    "pyarrow",
    "ray",
    "s3fs",
    "torch",
    "websockets",
)
"""Packages that importing a plugin's module may not bring in: they cost everybody's start-up."""

_IMPORT_TIMEOUT_S = 60.0
_MARK = "soma-imports-lightly:"
_LOOK = f"""
import json, sys
module, sys.path[:], heavy = sys.argv[1], json.loads(sys.argv[2]), set(json.loads(sys.argv[3]))
import soma
before = set(sys.modules)
__import__(module)
print("\\n{_MARK}" + json.dumps(sorted(heavy & (set(sys.modules) - before))))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that must hold."""

    name: str
    run: Callable[[], None]
    """Raises AssertionError with one sentence when it does not hold."""


def iter_checks(reports: tuple[PluginReport, ...], dist: str) -> Iterator[Check]:
    """Yield the checks of every plugin of a distribution, given the reports of the process."""
    for report in reports:
        if report.dist == dist:
            yield from _checks_of(report, reports)
    for name in exports_of(dist):
        yield Check(name=f"export soma.{name}", run=partial(_export, name))


def _checks_of(report: PluginReport, reports: tuple[PluginReport, ...]) -> Iterator[Check]:
    if not report.entry_point:
        return  # it has exports only
    yield Check(name="loads", run=_raise_if(_why_not_loaded(report)))
    if report.status != "ok":
        return
    yield Check(name="requirements", run=partial(_requirements, report.dist))
    yield Check(name="imports lightly", run=partial(_light, report.module))
    for (label, name), who in conflicts(reports).items():
        if report in who:
            sentence = (
                f"the {label} {name!r} is claimed by {name_claimants(who)}, so neither is used"
            )
            yield Check(name=f"{label} {name} is its own", run=_raise_if(sentence))
    for offer in report.offers:
        yield Check(name=offer.describe(), run=partial(_target, offer))
        if isinstance(offer.spec, ActionStoreSpec) and offer.spec.checkup:
            name = f"check-up of {offer.describe()}"
            yield Check(name=name, run=partial(_checkup, offer.spec.checkup))


def _raise_if(sentence: str) -> Callable[[], None]:
    def run() -> None:
        if sentence:
            raise AssertionError(sentence)

    return run


def _why_not_loaded(report: PluginReport) -> str:
    if report.status == "ok":
        return ""
    return f"{report.error or 'switched off by SOMA_LOAD_PLUGINS'}. Fix: {report.fix}"


def _requirements(dist: str) -> None:
    try:
        lines = requires(dist) or ()
    except PackageNotFoundError:
        return  # entry points given by hand have no metadata to look at
    findings = [f"{one.what} ({one.fix})" for one in unmet(lines, dist=dist)]
    if findings:
        raise AssertionError("; ".join(findings))


def _light(module: str) -> None:
    """Import the module in a fresh interpreter and look at what came with it."""
    path = json.dumps(list(map(os.fsdecode, sys.path)))
    try:
        done = subprocess.run(  # noqa: S603  # our own interpreter, our own text
            [sys.executable, "-c", _LOOK, module, path, json.dumps(HEAVY)],
            capture_output=True,
            text=True,
            timeout=_IMPORT_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise AssertionError(
            f"importing {module} takes more than {_IMPORT_TIMEOUT_S:.0f} s"
        ) from None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise AssertionError(f"{module} does not import in a fresh interpreter: {last[0]}")
    greedy = json.loads(done.stdout.rpartition(_MARK)[2])
    if greedy:
        raise AssertionError(
            f"importing {module} brings in {', '.join(greedy)}, which slows every start of soma; "
            "import it where it is used, behind the target of a spec"
        )


def _export(name: str) -> None:
    import soma

    try:
        getattr(soma, name)
    except (Exception, SystemExit) as error:  # a check reports whatever a package's code does
        raise AssertionError(describe_error(error)) from error


def _target(offer: Offer) -> None:
    spec = offer.spec
    found = _loaded(spec.target)
    if isinstance(spec, CommandSpec):
        from click import Command

        fits, expected = isinstance(found, Command), "a click.Command"
    elif isinstance(spec, CodecSpec):
        from soma.contracts import Codec

        fits = isinstance(found, Codec) and not isinstance(found, type)
        expected = "a codec object, with kind, type_name, dump and load"
    else:
        fits, expected = callable(found), "something that can be called"
    _refuse_unless(fits, spec.target, found, expected)


def _checkup(target: str) -> None:
    found = _loaded(target)
    _refuse_unless(callable(found), target, found, "a function")


def _loaded(target: str) -> Any:
    try:
        return load_target(target)
    except (Exception, SystemExit) as error:  # a check reports whatever a plugin's code does
        raise AssertionError(f"{target} does not load: {describe_error(error)}") from error


def _refuse_unless(fits: bool, target: str, found: Any, expected: str) -> None:  # noqa: FBT001  # what it is about
    if not fits:
        raise AssertionError(f"{target} is a {type(found).__name__}; expected {expected}")
