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
