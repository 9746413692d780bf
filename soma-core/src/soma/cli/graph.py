"""``soma graph``: the picture of a graph, from a module or from the record of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from soma.cli.target import load_object
from soma.dsl import Chain, Fork
from soma.graph import Graph
from soma.tracking.files import write_output
from soma.tracking.find import find_run
from soma.tracking.view import RunView

__all__ = ["graph"]

_BY_SUFFIX = {"": "text", ".txt": "text", ".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid"}


@click.command()
@click.argument("target", required=False, metavar="MODULE:ATTRIBUTE")
@click.option("--run", "run", metavar="RUN", help="Draw the graph of this run, and what it did.")
@click.option(
    "--root", default=".soma", show_default=True, metavar="DIR", help="Folder that holds all runs."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "mermaid", "svg"]),
    help="Text, unless the name of the output says otherwise (.svg, .mmd).",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    help="Write to this file instead of stdout.",
)
@click.option("--no-overlay", is_flag=True, help="Leave out what the run did.")
def graph(
    *,
    target: str | None,
    run: str | None,
    root: str,
    form: str | None,
    output: Path | None,
    no_overlay: bool,
) -> None:
    """Draw a graph.

    MODULE:ATTRIBUTE is a graph, an expression, or a function that returns one, such as pipeline:g
    for the g in pipeline.py. The present folder is looked in first. Or --run RUN: an id, a name, or
    "last".
    """
    if (target is None) == (run is None):
        raise click.UsageError("Give either MODULE:ATTRIBUTE or --run RUN")
    form = form or _form_of(output)
    shown = _graph(target) if target is not None else find_run(root, str(run))
    drawn = _drawn(shown, form, overlay=not no_overlay)
    if output is None or str(output) == "-":
        click.echo(drawn)
        return
    try:
        write_output(output, f"{drawn}\n")
    except (OSError, ValueError) as error:  # ValueError: a name that no system takes
        why = getattr(error, "strerror", None) or error
        raise click.ClickException(f"{output} cannot be written: {why}") from error


def _form_of(output: Path | None) -> str:
    suffix = output.suffix.lower() if output is not None else ""
    if suffix not in _BY_SUFFIX:
        raise click.UsageError(
            f"What is {suffix!r}? Give --format, or a name that ends in .svg, .mmd or .txt"
        )
    return _BY_SUFFIX[suffix]


def _graph(target: str) -> Graph:
    found = load_object(target)
    if isinstance(found, Chain | Fork):
        return Graph.somatize(found)
    if not isinstance(found, Graph):
        raise click.ClickException(
            f"{target} is {type(found).__name__}, neither a Graph nor a function that returns one"
        )
    return found


def _drawn(shown: Graph | RunView, form: str, *, overlay: bool) -> str:
    draw: Any = {"svg": shown.to_svg, "mermaid": shown.to_mermaid}.get(form)
    if draw is not None:
        return str(draw(overlay=overlay))
    return shown.to_text() if isinstance(shown, Graph) else shown.graph_text()
