"""``soma runs report RUN``: a run as one HTML file that needs nothing else."""

from __future__ import annotations

from pathlib import Path

import click

from soma.errors import UnknownName
from soma.events.human import one_line, printable
from soma.tracking.find import find_run

__all__ = ["report"]


@click.command()
@click.argument("run")
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    default=".soma",
    show_default=True,
    help="The folder that runs are tracked in.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help='The file to write, or "-" for stdout; the id of the run and .html by default.',
)
def report(*, run: str, root: Path, output: Path | None) -> None:
    """Write RUN as one HTML page, to be sent or printed: graph, timeline, tables, charts.

    The page needs no other file and no network. A file that is there is replaced.
    """
    from soma.tracking.report import run_page, write_page  # which a list of runs does without

    try:
        view = find_run(root, run)
    except UnknownName as error:
        click.echo(one_line(str(error), 10_000), err=True)
        click.get_current_context().exit(2)
    if output == Path("-"):
        click.echo(run_page(view).encode(), nl=False)
        return
    target = Path(f"{view.id}.html") if output is None else output
    try:
        write_page(view, target)
    except (OSError, ValueError) as error:  # ValueError: a name that no system takes
        why = getattr(error, "strerror", None) or error
        raise click.ClickException(f"{target} cannot be written: {why}") from error
    click.echo(printable(str(target)))
