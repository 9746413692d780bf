"""Core as a plugin of itself: its built-ins come in through the hooks that everybody has."""

from __future__ import annotations

from collections.abc import Iterator

from soma.hookspecs import hookimpl
from soma.specs import ActionStoreSpec, CommandSpec, EventSinkSpec, RunnerSpec

__all__ = ["soma_action_stores", "soma_commands", "soma_event_sinks", "soma_runners"]


@hookimpl
def soma_action_stores() -> Iterator[ActionStoreSpec]:
    """Offer the store in memory."""
    yield ActionStoreSpec(
        name="memory",
        target="soma.engine.memory:MemoryStore",
        summary="Keeps results as long as the process lives.",
        shareable=False,
    )


@hookimpl
def soma_commands() -> Iterator[CommandSpec]:
    """Offer the commands of core."""
    yield CommandSpec(
        name="codecs",
        target="soma.cli.codecs:codecs",
        summary="List the codecs: kind, type, and who registered it.",
    )
    yield CommandSpec(
        name="doctor",
        target="soma.cli.doctor:doctor",
        summary="Check this installation, and say what to do.",
    )
    yield CommandSpec(
        name="estimate",
        target="soma.cli.estimate:estimate",
        summary="Say what a graph would compute, and about how long that takes.",
    )
    yield CommandSpec(
        name="frame",
        target="soma.cli.frame:frame",
        summary="Look into SOMA1 frames, the bytes of values.",
    )
    yield CommandSpec(
        name="graph",
        target="soma.cli.graph:graph",
        summary="Draw a graph as text, SVG or Mermaid.",
    )
    yield CommandSpec(
        name="plugins",
        target="soma.cli.plugins:plugins",
        summary="List, show and check the plugins that are installed.",
    )
    yield CommandSpec(
        name="runs",
        target="soma.cli.runs:runs",
        summary="List, show, follow and remove tracked runs.",
    )


@hookimpl
def soma_event_sinks() -> Iterator[EventSinkSpec]:
    """Offer the sink of tracked runs."""
    yield EventSinkSpec(
        name="jsonl",
        target="soma.tracking.jsonl:JsonlSink",
        summary="Writes events.jsonl and metrics.jsonl into the folder of a tracked run.",
    )


@hookimpl
def soma_runners() -> Iterator[RunnerSpec]:
    """Offer child processes of this machine."""
    yield RunnerSpec(
        name="local",
        target="soma.sessions.local:LocalRunner",
        summary="Runs programs and nodes in child processes of this machine.",
        schemes=("local",),
    )
