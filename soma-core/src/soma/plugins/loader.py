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

import inspect
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

import pluggy

from soma import hookspecs
from soma._hints import MODULES, RESERVED, install_line
from soma.errors import InvalidSpec, describe_error, did_you_mean, format_traceback
from soma.plugins.candidates import Candidate
from soma.plugins.locate import locate
from soma.plugins.report import Claim, PluginReport, claims_of
from soma.plugins.requirements import unmet
from soma.registry import Offer
from soma.specs import SPECS, Spec

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


class _Attempt:
    """How far one plugin came, and what it had said by then."""

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.phase = ""
        self.module: ModuleType | None = None
        self.hooks: list[str] = []
        self.specs: list[Spec] = []


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
        attempt = _Attempt(candidate)
        fault: _Fault | None = None
        try:
            self._go_through(attempt)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001  # a plugin may raise anything whatever
            fault = _fault_of(candidate, attempt.phase, error)
        offers = tuple(
            Offer(
                spec=spec,
                dist=candidate.dist,
                version=candidate.version,
                entry_point=candidate.entry_point,
            )
            for spec in attempt.specs
        )
        return PluginReport(
            dist=candidate.dist,
            version=candidate.version,
            entry_point=candidate.entry_point,
            module=candidate.module,
            file=_file_of(candidate, attempt.module),
            status="ok" if fault is None else "failed",
            hooks=tuple(attempt.hooks),
            offers=offers if fault is None else (),
            phase="" if fault is None else fault.phase,
            error="" if fault is None else _one_line(fault.error),
            traceback="" if fault is None else _traceback_of(fault),
            fix="" if fault is None else fault.fix,
        )

    def _go_through(self, attempt: _Attempt) -> None:
        candidate = attempt.candidate
        attempt.phase = "metadata"
        if candidate.damage:
            raise _Fault("metadata", candidate.damage, f"install {candidate.dist} again")
        attempt.phase = "requirements"
        for finding in unmet(candidate.requires, dist=candidate.dist):
            if finding.binding:
                raise _Fault("requirements", finding.what, finding.fix)
        attempt.phase = "import"
        attempt.module = _import(candidate)
        self._ask(attempt, attempt.module)
        attempt.phase = "names"
        _check_names(candidate, attempt.specs, self._reserved)

    def _ask(self, attempt: _Attempt, module: ModuleType) -> None:
        """Register the module and call its hooks."""
        attempt.phase = "hooks"
        _refuse_unmarked(module)
        manager, self._manager = self._manager or _new_manager(), None
        attempt.phase = "signature"
        manager.register(module)
        for caller in sorted(manager.get_hookcallers(module) or (), key=lambda one: one.name):
            for implementation in caller.get_hookimpls():
                if caller.name not in SPECS and implementation.optionalhook:
                    continue  # the plugin says itself that some cores do not know this hook
                attempt.phase = "hooks"
                _refuse_unknown(caller.name)
                attempt.hooks.append(caller.name)
                _check_form(implementation)
                attempt.phase = "call"
                attempt.specs += _call(caller.name, implementation.function)
        if not attempt.hooks:
            raise _Fault(
                "hooks",
                f"{attempt.candidate.module} has no hook: nothing in it is marked @soma.hookimpl",
                "mark the functions that return specs with @soma.hookimpl",
            )
        manager.unregister(module)
        self._manager = manager


def _new_manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager("soma")
    manager.add_hookspecs(hookspecs)
    return manager


def _refuse_unknown(hook: str) -> None:
    if hook not in SPECS:
        raise _Fault(
            "hooks",
            f"it implements {hook!r}, which is not a hook.{did_you_mean(hook, SPECS)}",
            "rename the function, or remove its @soma.hookimpl",
        )


def _import(candidate: Candidate) -> ModuleType:
    name = candidate.module
    if not all(part.isidentifier() for part in name.split(".")):
        raise _Fault(
            "import",
            f"its entry point names {name!r}, which is not a module",
            "name the module that holds the hooks, with dots and without a ':' or a hyphen, and "
            f'install again: {candidate.entry_point} = "package.module"',
        )
    return import_module(name)


def _check_form(implementation: pluggy.HookImpl) -> None:
    """Refuse what pluggy lets pass: parameters with a default, and wrappers."""
    function = implementation.function
    signature = inspect.signature(function)
    if signature.parameters or implementation.wrapper or implementation.hookwrapper:
        raise _Fault(
            "signature",
            f"{function.__name__}{signature} "
            + ("takes arguments" if signature.parameters else "is a wrapper"),
            f"a hook takes nothing and returns specs: def {function.__name__}(): ...",
        )


def _refuse_unmarked(module: ModuleType) -> None:
    """Catch a forgotten decorator, which pluggy would pass over without a word."""
    for name in dir(module):
        if not name.startswith("soma_"):
            continue
        function = getattr(module, name)
        own = isinstance(function, FunctionType) and function.__module__ == module.__name__
        if own and not hasattr(function, "soma_impl"):
            raise _Fault(
                "hooks",
                f"{name} in {module.__name__} is not marked as a hook implementation",
                f"write @soma.hookimpl above def {name}(): or call it something else",
            )


def _call(hook: str, function: Callable[[], Any]) -> list[Spec]:
    wanted = SPECS[hook]
    returned = function()
    if isinstance(returned, Spec | str) or not isinstance(returned, Iterable):
        raise _wrong(hook, wanted, f"returned {returned!r}")
    found = list(returned)  # a generator runs here, and raises here
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
            owner = RESERVED.get(claim, candidate.dist)
            if owner != candidate.dist:
                raise _Fault(
                    "names",
                    f"it claims the {label} {name!r}, which is {owner}'s",
                    f"choose another name for it in {candidate.module}",
                )
            if claim in seen:
                raise _Fault(
                    "names",
                    f"it claims the {label} {name!r} twice",
                    f"offer it once in {candidate.module}",
                )
            seen.add(claim)


def _fault_of(candidate: Candidate, phase: str, error: BaseException) -> _Fault:
    """Say what the report will say of whatever was raised in a phase."""
    if isinstance(error, _Fault):
        return error
    if isinstance(error, pluggy.PluginValidationError):
        return _Fault(
            "signature",
            str(error.args[-1]).splitlines()[-1],
            "a hook takes nothing and returns specs: def soma_commands(): ...",
        )
    where = _where(error)
    if isinstance(error, InvalidSpec):
        return _Fault("specs", str(error), f"correct the field at {where}", cause=error)
    fix = (
        f"correct {where} if the plugin is yours; otherwise report it, "
        f"or: pip uninstall {candidate.dist}"
    )
    if isinstance(error, ModuleNotFoundError):
        fix = _fix_missing(candidate, error)
    return _Fault(phase, describe_error(error), fix, cause=error)


def _where(error: BaseException) -> str:
    """Return file and line of the innermost frame that is not core's own."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    found = "the plugin"
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_globals.get("__name__", "")
        if name.partition(".")[0] not in ("soma", "importlib", "pluggy"):
            found = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _fix_missing(candidate: Candidate, error: ModuleNotFoundError) -> str:
    missing = error.name or "what is missing"
    if candidate.module == missing or candidate.module.startswith(f"{missing}."):
        return (
            f"correct {candidate.entry_point} = {candidate.module!r} under "
            f"[project.entry-points.soma], then install {candidate.dist} again"
        )
    family = MODULES.get(missing.removeprefix("soma."))
    if family is not None:
        return install_line(family)
    return f"install what provides {missing!r}, then try: soma plugins check {candidate.dist}"


def _file_of(candidate: Candidate, module: ModuleType | None) -> str:
    if module is not None:
        return getattr(module, "__file__", None) or ""
    spec = locate(candidate.module)
    return (spec.origin or "") if spec is not None else ""


def _traceback_of(fault: _Fault) -> str:
    return "" if fault.cause is None else format_traceback(fault.cause)


def _one_line(text: str) -> str:
    return " ".join(text.split())
