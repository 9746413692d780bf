"""What this package offers to Soma."""

from __future__ import annotations

from collections.abc import Iterator

import soma


@soma.hookimpl
def soma_commands() -> Iterator[soma.CommandSpec]:
    """Offer one command."""
    yield soma.CommandSpec(
        name="hello", target="soma_example.cli:hello", summary="Say hello, as a plugin would."
    )


@soma.hookimpl
def soma_codecs() -> Iterator[soma.CodecSpec]:
    """Say how a Reading is written down."""
    yield soma.CodecSpec(
        name="soma_example.Reading",
        target="soma_example.reading:CODEC",
        types=("soma_example.reading.Reading",),
        summary="A sampled signal.",
    )
