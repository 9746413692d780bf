"""Core as a plugin of itself: its built-ins come in through the hooks that everybody has."""

from __future__ import annotations

from collections.abc import Iterator

from soma.hookspecs import hookimpl
from soma.specs import CommandSpec

__all__ = ["soma_commands"]


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
