"""Soma: declare a graph of filters once, then fit it and run it.

This file is the front door. It imports next to nothing: a public name is fetched from its room when
it is first used, and a name that another package of the family provides is fetched from there (or
answered with the line that installs it).
"""

from __future__ import annotations

from soma import _discovery, _finder, _original
from soma._version import __version__

TYPE_CHECKING = False  # typing alone would cost `import soma` 8 ms
if TYPE_CHECKING:
    from typing import Any

    # Any where the package is not installed.
    from soma_study import Pbt as Pbt
    from soma_study import Study as Study
    from soma_study import Trial as Trial
    from soma_torch import DifferentiableFilter as DifferentiableFilter
    from soma_worker import Coordinator as Coordinator
    from soma_worker import Worker as Worker

    from soma.codecs import codec as codec
    from soma.codecs import codecs_registered as codecs_registered
    from soma.errors import BrokenPackage as BrokenPackage
    from soma.errors import CacheConfigError as CacheConfigError
    from soma.errors import CodecError as CodecError
    from soma.errors import CycleError as CycleError
    from soma.errors import FrameError as FrameError
    from soma.errors import GraphError as GraphError
    from soma.errors import IdentityWarning as IdentityWarning
    from soma.errors import InvalidFilter as InvalidFilter
    from soma.errors import InvalidInput as InvalidInput
    from soma.errors import InvalidOutput as InvalidOutput
    from soma.errors import InvalidSpec as InvalidSpec
    from soma.errors import MemoryExceeded as MemoryExceeded
    from soma.errors import MissingCapability as MissingCapability
    from soma.errors import MissingCodec as MissingCodec
    from soma.errors import MissingPackage as MissingPackage
    from soma.errors import NameConflict as NameConflict
    from soma.errors import Nameless as Nameless
    from soma.errors import NotFittedError as NotFittedError
    from soma.errors import NotSendable as NotSendable
    from soma.errors import PlanError as PlanError
    from soma.errors import PluginError as PluginError
    from soma.errors import RemoteError as RemoteError
    from soma.errors import SchemaMismatch as SchemaMismatch
    from soma.errors import SessionCancelled as SessionCancelled
    from soma.errors import SessionError as SessionError
    from soma.errors import SessionLost as SessionLost
    from soma.errors import SessionTimeout as SessionTimeout
    from soma.errors import SomaError as SomaError
    from soma.errors import SourceWarning as SourceWarning
    from soma.errors import StateWarning as StateWarning
    from soma.errors import UnknownKind as UnknownKind
    from soma.errors import UnknownName as UnknownName
    from soma.errors import UnknownNode as UnknownNode
    from soma.errors import Unsettled as Unsettled
    from soma.filters import Filter as Filter
    from soma.graph import Graph as Graph
    from soma.hookspecs import hookimpl as hookimpl
    from soma.registry import Catalog
    from soma.space import search as search
    from soma.specs import ActionStoreSpec as ActionStoreSpec
    from soma.specs import CacheTierSpec as CacheTierSpec
    from soma.specs import CodecSpec as CodecSpec
    from soma.specs import CommandSpec as CommandSpec
    from soma.specs import DataStoreSpec as DataStoreSpec
    from soma.specs import EventSinkSpec as EventSinkSpec
    from soma.specs import ExecutorSpec as ExecutorSpec
    from soma.specs import RunnerSpec as RunnerSpec
    from soma.specs import StrategySpec as StrategySpec
    from soma.specs import TransportSpec as TransportSpec
    from soma.tracking.find import runs as runs
    from soma.tracking.tracked import TrackedRun as TrackedRun
    from soma.tracking.view import RunView as RunView
    from soma.values import Opaque as Opaque

__all__ = [
    "ActionStoreSpec",
    "BrokenPackage",
    "CacheConfigError",
    "CacheTierSpec",
    "CodecError",
    "CodecSpec",
    "CommandSpec",
    "CycleError",
    "DataStoreSpec",
    "EventSinkSpec",
    "ExecutorSpec",
    "Filter",
    "FrameError",
    "Graph",
    "GraphError",
    "IdentityWarning",
    "InvalidFilter",
    "InvalidInput",
    "InvalidOutput",
    "InvalidSpec",
    "MemoryExceeded",
    "MissingCapability",
    "MissingCodec",
    "MissingPackage",
    "NameConflict",
    "Nameless",
    "NotFittedError",
    "NotSendable",
    "Opaque",
    "PlanError",
    "PluginError",
    "RemoteError",
    "RunView",
    "RunnerSpec",
    "SchemaMismatch",
    "SessionCancelled",
    "SessionError",
    "SessionLost",
    "SessionTimeout",
    "SomaError",
    "SourceWarning",
    "StateWarning",
    "StrategySpec",
    "TrackedRun",
    "TransportSpec",
    "UnknownKind",
    "UnknownName",
    "UnknownNode",
    "Unsettled",
    "__version__",
    "codec",
    "codecs_registered",
    "hookimpl",
    "runs",
    "search",
]

_EXPORTS = {
    "ActionStoreSpec": "soma.specs",
    "BrokenPackage": "soma.errors",
    "CacheConfigError": "soma.errors",
    "CacheTierSpec": "soma.specs",
    "CodecError": "soma.errors",
    "CodecSpec": "soma.specs",
    "CommandSpec": "soma.specs",
    "CycleError": "soma.errors",
    "DataStoreSpec": "soma.specs",
    "EventSinkSpec": "soma.specs",
    "ExecutorSpec": "soma.specs",
    "Filter": "soma.filters",
    "FrameError": "soma.errors",
    "Graph": "soma.graph",
    "GraphError": "soma.errors",
    "IdentityWarning": "soma.errors",
    "InvalidFilter": "soma.errors",
    "InvalidSpec": "soma.errors",
    "MissingCodec": "soma.errors",
    "MissingPackage": "soma.errors",
    "NameConflict": "soma.errors",
    "Nameless": "soma.errors",
    "NotFittedError": "soma.errors",
    "Opaque": "soma.values",
    "PluginError": "soma.errors",
    "RunnerSpec": "soma.specs",
    "SomaError": "soma.errors",
    "StrategySpec": "soma.specs",
    "TransportSpec": "soma.specs",
    "MemoryExceeded": "soma.errors",
    "MissingCapability": "soma.errors",
    "NotSendable": "soma.errors",
    "RemoteError": "soma.errors",
    "SessionCancelled": "soma.errors",
    "SessionError": "soma.errors",
    "SessionLost": "soma.errors",
    "SessionTimeout": "soma.errors",
    "UnknownKind": "soma.errors",
    "UnknownName": "soma.errors",
    "UnknownNode": "soma.errors",
    "InvalidInput": "soma.errors",
    "InvalidOutput": "soma.errors",
    "PlanError": "soma.errors",
    "SchemaMismatch": "soma.errors",
    "SourceWarning": "soma.errors",
    "StateWarning": "soma.errors",
    "Unsettled": "soma.errors",
    "RunView": "soma.tracking.view",
    "TrackedRun": "soma.tracking.tracked",
    "runs": "soma.tracking.find",
    "search": "soma.space",
    "codec": "soma.codecs",
    "codecs_registered": "soma.codecs",
    "hookimpl": "soma.hookspecs",
}

_ROOMS = frozenset(
    {
        "contracts",
        "engine",
        "errors",
        "events",
        "frame",
        "identity",
        "pictures",
        "plan",
        "sessions",
        "testing",
    }
)
"""Modules that may be used as ``soma.<module>`` without an import of their own."""


def _builtin_offers() -> Catalog:
    from soma.plugins import builtin_catalog

    return builtin_catalog()


def _installed_offers() -> Catalog:
    from soma.plugins import installed_catalog

    return installed_catalog()


_discovery.builtins = _builtin_offers
_discovery.installed = _installed_offers
_finder.install()
_original.tell_if_installed()

if not TYPE_CHECKING:  # a type checker shall know the names, not take any for one

    def __getattr__(name: str) -> Any:
        """Fetch a public name when it is first used."""
        from importlib import import_module

        if name in _EXPORTS:
            value = getattr(import_module(_EXPORTS[name]), name)
        elif name in _ROOMS:
            return import_module(f"soma.{name}")  # which binds it here
        else:
            from soma._hints import EXPORTS, MODULES

            if name in MODULES:
                return import_module(f"soma.{name}")
            if name not in EXPORTS:
                raise AttributeError(
                    f"module 'soma' has no attribute {name!r}", name=name, obj=_this_module()
                )
            from soma._exports import load_export

            value = load_export(name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """List core's own names and those whose package is installed."""
        from importlib.util import find_spec

        from soma._exports import available

        rooms = _ROOMS if find_spec("pytest") is not None else _ROOMS - {"testing"}
        return sorted({*__all__, *rooms, *available()})

    def _this_module() -> Any:
        import sys

        return sys.modules[__name__]
