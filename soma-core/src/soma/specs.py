"""What a plugin offers, as data.

    hook returns a Spec  ──►  listed, checked, shown        (nothing of the plugin imported)
    name is used         ──►  Spec.target imported, once

A hook takes nothing and returns specs. A spec says what core has to know *before* it imports the
thing itself: the name that people type, where the object lives, and a few facts per kind. The
surprise: fields are checked when the spec is built, so a wrong one is reported at the line in the
plugin that wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from soma.errors import InvalidSpec

__all__ = [
    "SPECS",
    "ActionStoreSpec",
    "CacheTierSpec",
    "CodecSpec",
    "CommandSpec",
    "DataStoreSpec",
    "EventSinkSpec",
    "ExecutorSpec",
    "RunnerSpec",
    "Spec",
    "StrategySpec",
    "TransportSpec",
]

_Check = Callable[[object], str]
"""Return what was expected, or an empty text when the value is right."""


def _name(value: object) -> str:
    if isinstance(value, str) and value and value == value.strip() and value.isprintable():
        return ""
    return "a text without surrounding blanks"


def _target(value: object) -> str:
    if isinstance(value, str) and value.count(":") == 1:
        dotted = [*value.split(":")[0].split("."), *value.split(":")[1].split(".")]
        if all(part.isidentifier() for part in dotted):
            return ""
    return "'package.module:attribute'"


def _target_or_nothing(value: object) -> str:
    return "" if value == "" else _target(value)


def _text(value: object) -> str:
    return "" if isinstance(value, str) and value.isprintable() else "one line of text"


def _command_name(value: object) -> str:
    plain = isinstance(value, str) and not value.startswith("-") and len(value.split()) == 1
    return "" if plain and not _name(value) else "one word that does not start with '-'"


def _names(value: object) -> str:
    if isinstance(value, tuple) and not any(_name(item) for item in value):
        return ""
    return "a tuple of texts"


def _some_names(value: object) -> str:
    return "" if not _names(value) and value else "a tuple of at least one text"


def _schemes(value: object) -> str:
    right = isinstance(value, tuple) and value and all(map(_is_scheme, value))
    return "" if right else "a tuple of URL schemes in small letters, without '://'"


def _is_scheme(value: object) -> bool:
    # RFC 3986, section 3.1
    return isinstance(value, str) and re.fullmatch(r"[a-z][a-z0-9+.-]*", value) is not None


def _flag(value: object) -> str:
    return "" if isinstance(value, bool) else "True or False"


def _count(value: object) -> str:
    right = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return "" if right else "a whole number, 0 or more"


def _latency(value: object) -> str:
    right = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    return "" if right else "a number of milliseconds, 0 or more"


def _executor_kind(value: object) -> str:
    return "" if value in ("plan", "driver") else "'plan' or 'driver'"


def _field(check: _Check, **kwargs: Any) -> Any:
    return field(metadata={"check": check}, **kwargs)


def _values(spec: Spec) -> tuple[Any, ...]:
    return tuple(getattr(spec, one.name) for one in fields(spec))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Spec:
    """One thing that a plugin offers. Subclasses add only what core must know before importing.

    Raises:
        InvalidSpec: a field has the wrong type or form; the message names field and value.
    """

    hook: ClassVar[str] = ""
    """The hook that returns specs of this class."""
    label: ClassVar[str] = ""
    """What the thing is called in tables and messages."""
    alias_field: ClassVar[str] = ""
    """The field whose members are names of their own: the schemes of a runner, say."""

    name: str = _field(_name)
    """What users type and what records keep: ``"s3"``, ``"torch.Tensor"``."""
    target: str = _field(_target)
    """``"package.module:attribute"``, imported when the name is first used."""
    summary: str = _field(_text, default="")
    """One line for ``soma plugins list`` and ``soma --help``."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            expected = one.metadata["check"](value)
            if expected:
                raise InvalidSpec(
                    f"{type(self).__name__}({self.name!r}): {one.name} must be {expected}, "
                    f"not {value!r}"
                )

    # Written once for all: eleven generated ones would cost every start of the command 8 ms.

    def __eq__(self, other: object) -> bool:
        return _values(self) == _values(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *_values(self)))

    def __repr__(self) -> str:
        inside = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self))
        return f"{type(self).__name__}({inside})"

    @property
    def aliases(self) -> tuple[str, ...]:
        """Further names under which this thing is found, in order."""
        found: tuple[str, ...] = getattr(self, self.alias_field) if self.alias_field else ()
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CodecSpec(Spec):
    """How one type is written down. The target is a ``soma.contracts.Codec``."""

    hook: ClassVar[str] = "soma_codecs"
    label: ClassVar[str] = "codec"
    alias_field: ClassVar[str] = "types"

    types: tuple[str, ...] = _field(_some_names)
    """Full names of the types it writes, matched along the MRO: ``("torch.Tensor",)``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TransportSpec(Spec):
    """How bytes travel. The target is called ``(url, *, token, timeout_s) -> Transport``."""

    hook: ClassVar[str] = "soma_transports"
    label: ClassVar[str] = "transport"
    alias_field: ClassVar[str] = "schemes"

    schemes: tuple[str, ...] = _field(_schemes)
    """URL schemes it serves, without ``://``."""
    min_bytes: int = _field(_count, default=0)
    """Smallest payload it is meant for, included."""
    streaming: bool = _field(_flag, default=False)
    """Whether it can send a payload whose length is not known yet."""
    server: str = _field(_target_or_nothing, default="")
    """The server half, ``"package.module:attribute"``: called ``(**options)``, returns a
    ``TransportServer``. Empty: the worker's own port serves it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DataStoreSpec(Spec):
    """Where values live between runs. The target is called ``(**options) -> DataStore``."""

    hook: ClassVar[str] = "soma_data_stores"
    label: ClassVar[str] = "data store"

    options: tuple[str, ...] = _field(_names, default=())
    """Keywords it accepts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ExecutorSpec(Spec):
    """What happens. The target is a ``PlanExecutor`` or a ``DriverExecutor`` class."""

    hook: ClassVar[str] = "soma_executors"
    label: ClassVar[str] = "executor"
    alias_field: ClassVar[str] = "plan_nodes"

    kind: Literal["plan", "driver"] = _field(_executor_kind)
    """``"plan"`` runs entries of a plan, ``"driver"`` runs many sessions."""
    plan_nodes: tuple[str, ...] = _field(_names, default=())
    """Plan entries it runs: ``("Composite",)``. Empty for a driver."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class StrategySpec(Spec):
    """What a fit means over several sessions. The target is a ``Strategy`` class."""

    hook: ClassVar[str] = "soma_strategies"
    label: ClassVar[str] = "strategy"

    options: tuple[str, ...] = _field(_names, default=())
    """Keywords that ``set_strategy`` passes on."""
    min_sessions: int = _field(_count, default=1)
    """Sessions it needs at the least, included."""
    refuses: str = _field(_text, default="")
    """Why the name is known and refused, and what to use instead. Empty: it works."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RunnerSpec(Spec):
    """Where programs are opened. The target is called ``(url, **options) -> Runner``."""

    hook: ClassVar[str] = "soma_runners"
    label: ClassVar[str] = "runner"
    alias_field: ClassVar[str] = "schemes"

    schemes: tuple[str, ...] = _field(_schemes)
    """URL schemes it serves, without ``://``: ``("ws", "wss")``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ActionStoreSpec(Spec):
    """Where actions are recorded. The target is called ``(**options) -> ActionStore``."""

    hook: ClassVar[str] = "soma_action_stores"
    label: ClassVar[str] = "action store"

    shareable: bool = _field(_flag)
    """Whether session children may open the same store themselves."""
    checkup: str = _field(_target_or_nothing, default="")
    """``"package.module:function"`` that looks whether it works here: called without arguments by
    ``soma doctor``, yields ``soma.contracts.Finding``. Empty: there is nothing to look at."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CacheTierSpec(Spec):
    """A remote tier of the cache. The target is called ``(url, **options) -> CacheTier``."""

    hook: ClassVar[str] = "soma_cache_tiers"
    label: ClassVar[str] = "cache tier"

    order_ms: float = _field(_latency)
    """Expected latency of one read, in milliseconds: fast tiers are asked first."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class EventSinkSpec(Spec):
    """Where events go. The target is called ``(run_dir) -> EventSink``."""

    hook: ClassVar[str] = "soma_event_sinks"
    label: ClassVar[str] = "event sink"

    default: bool = _field(_flag, default=False)
    """Whether every run gets it unasked."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CommandSpec(Spec):
    """A sub-command of ``soma``. The target is a ``click.Command``."""

    hook: ClassVar[str] = "soma_commands"
    label: ClassVar[str] = "command"

    name: str = _field(_command_name)
    """What users type after ``soma``: one word."""


SPECS: Mapping[str, type[Spec]] = MappingProxyType(
    {
        spec.hook: spec
        for spec in (
            CodecSpec,
            TransportSpec,
            DataStoreSpec,
            ExecutorSpec,
            StrategySpec,
            RunnerSpec,
            ActionStoreSpec,
            CacheTierSpec,
            EventSinkSpec,
            CommandSpec,
        )
    }
)
"""Hook name -> the class of specs that it returns. These ten are all there are."""
