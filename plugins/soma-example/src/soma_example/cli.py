"""The command ``soma hello``."""

from __future__ import annotations

import click


@click.command()
@click.option("--name", default="world", help="Whom to greet.")
def hello(name: str) -> None:
    """Say hello, as a plugin would."""
    click.echo(f"Hello, {name}: soma-example is at work.")
