"""``soma estimate``: what a graph of the user's own would compute, without running it."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from typing import Any

import click

from soma.cli.target import load_object
from soma.dsl import Chain, Fork
from soma.errors import SomaError
from soma.events.human import one_line
from soma.graph import Graph

__all__ = ["estimate"]

_MOST = 3
"""A graph, x and y."""


@click.command()
@click.argument("target", metavar="MODULE:ATTRIBUTE")
@click.option(
    "--phase",
    type=click.Choice(["fit", "forward"]),
    help="Of one call alone; both, unless given: the fit where anything learns, and a forward.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def estimate(*, target: str, phase: Any, as_json: bool) -> None:
    """Say what a graph would reuse, read and compute, and about how long that takes.

    MODULE:ATTRIBUTE is a graph and its data, (graph, x) or (graph, x, y), or a function that
    returns that, such as pipeline:prepared. Of a graph alone it is said how long its nodes took the
    last time. The present folder is looked in first. No node runs, and no result is written. The
    folder of the cache is made where there is none, and its index is brought up to date.
    """
    graph, data = _parts(target, load_object(target))
    try:
        with redirect_stdout(sys.stderr):  # a codec of the user's own may print
            found = graph.estimate(*data, phase=phase)
    except SomaError as error:
        raise click.ClickException(one_line(str(error), 10_000)) from error
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    else:
        click.echo(found.to_text())


def _parts(target: str, found: Any) -> tuple[Graph, tuple[Any, ...]]:
    first, *data = found if isinstance(found, tuple) and found else (found,)
    if isinstance(first, Chain | Fork):
        first = Graph.somatize(first)
    if not isinstance(first, Graph):
        where = "begins with" if isinstance(found, tuple) and found else "is"
        raise click.ClickException(
            f"{target} {where} {type(first).__name__}, and what is wanted is a Graph, (graph, x), "
            "(graph, x, y), or a function that returns one of these"
        )
    if len(data) >= _MOST:
        raise click.ClickException(
            f"{target} has {len(data) + 1} parts, and what is wanted is (graph, x) or (graph, x, y)"
        )
    return first, tuple(data)
