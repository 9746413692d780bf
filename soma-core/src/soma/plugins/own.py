"""Core as a plugin of itself: its built-ins come in through the hooks that everybody has."""

from __future__ import annotations

from collections.abc import Iterator

from soma.hookspecs import hookimpl
from soma.specs import ActionStoreSpec, CommandSpec

__all__ = ["soma_action_stores", "soma_commands"]


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
        name="frame",
        target="soma.cli.frame:frame",
        summary="Look into SOMA1 frames, the bytes of values.",
    )
    yield CommandSpec(
        name="plugins",
        target="soma.cli.plugins:plugins",
        summary="List, show and check the plugins that are installed.",
    )
