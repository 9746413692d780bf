"""From a candidate to a report: load one plugin, whatever it does.

    metadata ─► requirements ─► import ─► signature ─► hooks ─► call ─► specs ─► names ─► ok
        └────────────┴────────────┴──────────┴──────────┴────────┴────────┴────────┴──► left out

A plugin that fails anywhere is left out whole, and the report says where, why and how to mend it.
The surprise: pluggy only validates, and never holds two plugins at once. Its entry-point loader
stops at the first broken plugin, one raising implementation hides the others, and a failed
``register`` leaves some releases half registered. So each plugin is registered, asked and taken out
again, and a manager that saw a failure is thrown away.
"""

from __future__ import annotations

import traceback as traceback_module
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

import pluggy

from soma import hookspecs
from soma.errors import InvalidSpec, did_you_mean
from soma.plugins.candidates import Candidate
from soma.plugins.locate import locate
from soma.plugins.report import Claim, PluginReport, claims_of
from soma.plugins.requirements import unmet
from soma.registry import Offer
from soma.specs import SPECS, Spec

_T = TypeVar("_T")

__all__ = ["PluginLoader"]


class _Fault(Exception):
    """A phase found something wrong; carries what the report will say."""

    def __init__(
        self, phase: str, error: str, fix: str, *, cause: BaseException | None = None
    ) -> None:
        super().__init__(error)
        self.phase = phase
        self.error = error
        self.fix = fix
        self.cause = cause


class PluginLoader:
    """Loads one plugin after another.

    Args:
        reserved: claims of core itself, which no plugin may take.
    """

    def __init__(self, reserved: AbstractSet[Claim] = frozenset()) -> None:
        self._reserved = reserved
        self._manager: pluggy.PluginManager | None = None  # None after a failure, too

    def load(self, candidate: Candidate) -> PluginReport:
        """Load one plugin and return what became of it. Never raises for what the plugin does."""
        module: ModuleType | None = None
        hooks: tuple[str, ...] = ()
        offers: tuple[Offer, ...] = ()
        fault: _Fault | None = None
        try:
            _check_metadata(candidate)
            module = _import(candidate)
            hooks, specs = self._ask(candidate, module)
            _check_names(candidate, specs, self._reserved)
            offers = tuple(
                Offer(spec=spec, dist=candidate.dist, version=candidate.version) for spec in specs
            )
        except _Fault as found:
            fault = found
        return PluginReport(
            dist=candidate.dist,
            version=candidate.version,
            entry_point=candidate.entry_point,
            module=candidate.module,
            file=_file_of(candidate, module),
            status="ok" if fault is None else "failed",
            hooks=hooks,
            offers=offers,
            phase="" if fault is None else fault.phase,
            error="" if fault is None else _one_line(fault.error),
            traceback="" if fault is None else _traceback_of(fault),
            fix="" if fault is None else fault.fix,
        )

    def _ask(self, candidate: Candidate, module: ModuleType) -> tuple[tuple[str, ...], list[Spec]]:
        """Register the module, call its hooks, and return (hooks, specs)."""
        _refuse_unmarked(module)
        manager, self._manager = self._manager or _new_manager(), None
        _register(manager, module)
        hooks: list[str] = []
        specs: list[Spec] = []
        for caller in sorted(manager.get_hookcallers(module) or (), key=lambda one: one.name):
            for implementation in caller.get_hookimpls():
                if caller.name not in SPECS and implementation.optionalhook:
                    continue  # the plugin says itself that some cores do not know this hook
                _refuse_unknown(caller.name)
                hooks.append(caller.name)
                specs += _call(candidate, caller.name, implementation.function)
        if not hooks:
            raise _Fault(
                "hooks",
                f"{candidate.module} has no hook: nothing in it is marked @soma.hookimpl",
                "mark the functions that return specs with @soma.hookimpl",
            )
        manager.unregister(module)
        self._manager = manager
        return tuple(hooks), specs


def _new_manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager("soma")
    manager.add_hookspecs(hookspecs)
    return manager


def _register(manager: pluggy.PluginManager, module: ModuleType) -> None:
    try:
        manager.register(module)
    except pluggy.PluginValidationError as error:
        raise _Fault(
            "signature",
            str(error.args[-1]),
            "a hook takes no arguments: def soma_commands(): ...",
            cause=error,
        ) from None


def _refuse_unknown(hook: str) -> None:
    if hook not in SPECS:
        raise _Fault(
            "hooks",
            f"it implements {hook!r}, which is not a hook.{did_you_mean(hook, SPECS)}",
            "rename the function, or remove its @soma.hookimpl",
        )


def _check_metadata(candidate: Candidate) -> None:
    if candidate.damage:
        raise _Fault("metadata", candidate.damage, f"install {candidate.dist} again")
    for finding in unmet(candidate.requires, dist=candidate.dist):
        if finding.binding:
            raise _Fault("requirements", finding.what, finding.fix)


def _import(candidate: Candidate) -> ModuleType:
    name = candidate.module
    if ":" in name or not all(part.isidentifier() for part in name.split(".")):
        raise _Fault(
            "import",
            f"its entry point names {name!r}, which is not a module",
            f'name the module that holds the hooks: {candidate.entry_point} = "package.module"',
        )
    return _guarded(candidate, "import", lambda: import_module(name))


def _refuse_unmarked(module: ModuleType) -> None:
    """Catch a forgotten decorator, which pluggy would pass over without a word."""
    for name in SPECS:
        function = getattr(module, name, None)
        if callable(function) and not hasattr(function, "soma_impl"):
            raise _Fault(
                "hooks",
                f"{name} in {module.__name__} is not marked as a hook implementation",
                f"write @soma.hookimpl above def {name}():",
            )


def _call(candidate: Candidate, hook: str, function: Callable[[], Any]) -> list[Spec]:
    wanted = SPECS[hook]

    def collect() -> list[Any]:
        returned = function()
        if isinstance(returned, Spec | str) or not isinstance(returned, Iterable):
            raise _wrong(hook, wanted, f"returned {returned!r}")
        return list(returned)  # a generator runs here, and raises here

    found = _guarded(candidate, "call", collect)
    for one in found:
        if not isinstance(one, wanted):
            raise _wrong(hook, wanted, f"gave {one!r}")
    return found


def _wrong(hook: str, wanted: type[Spec], what: str) -> _Fault:
    return _Fault(
        "specs",
        f"{hook} {what}; expected an iterable of {wanted.__name__}",
        f"yield soma.{wanted.__name__}(...) for each thing it offers",
    )


def _check_names(candidate: Candidate, specs: list[Spec], reserved: AbstractSet[Claim]) -> None:
    seen: set[Claim] = set()
    for spec in specs:
        for claim in claims_of(spec):
            label, name = claim
            if claim in reserved:
                raise _Fault(
                    "names",
                    f"it claims the {label} {name!r}, which is core's own",
                    f"choose another name for it in {candidate.module}",
                )
            if claim in seen:
                raise _Fault(
                    "names",
                    f"it claims the {label} {name!r} twice",
                    f"offer it once in {candidate.module}",
                )
            seen.add(claim)


def _guarded(candidate: Candidate, phase: str, run: Callable[[], _T]) -> _T:
    """Run a plugin's own code; whatever it raises becomes a fault of that phase."""
    try:
        return run()
    except _Fault:
        raise
    except InvalidSpec as error:
        raise _Fault("specs", str(error), "correct the field in the plugin", cause=error) from None
    except ModuleNotFoundError as error:
        raise _Fault(
            phase,
            f"{type(error).__name__}: {error}",
            _fix_missing(candidate, error),
            cause=error,
        ) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever a plugin's code raises
        raise _Fault(
            phase,
            f"{type(error).__name__}: {error}",
            f"report it to the authors of {candidate.dist}, or: pip uninstall {candidate.dist}",
            cause=error,
        ) from None


def _fix_missing(candidate: Candidate, error: ModuleNotFoundError) -> str:
    missing = error.name or "what is missing"
    if candidate.module == missing or candidate.module.startswith(f"{missing}."):
        return f"install {candidate.dist} again: its entry point names a module that is not there"
    return f"install what provides {missing!r}, then try: soma plugins check {candidate.dist}"


def _file_of(candidate: Candidate, module: ModuleType | None) -> str:
    if module is not None:
        return getattr(module, "__file__", None) or ""
    spec = locate(candidate.module)
    return (spec.origin or "") if spec is not None else ""


def _traceback_of(fault: _Fault) -> str:
    return "" if fault.cause is None else "".join(traceback_module.format_exception(fault.cause))


def _one_line(text: str) -> str:
    return " ".join(text.split())
