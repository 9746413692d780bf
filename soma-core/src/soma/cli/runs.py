"""``soma runs list|show|tail|rm|report``: the tracked runs of a folder, and what is in them."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from time import sleep
from typing import Any

import click

from soma.cli.report import report
from soma.errors import InvalidInput, UnknownName
from soma.events.human import clipped, human_ms, one_line, printable, times
from soma.tracking.files import json_text
from soma.tracking.find import find_run, remove_run
from soma.tracking.find import runs as all_runs
from soma.tracking.following import Follower
from soma.tracking.reading import record_in
from soma.tracking.text import padded
from soma.tracking.view import RunView

__all__ = ["runs"]

_COLOURS = {
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "interrupted": "yellow",
    "crashed": "red",
    "unreadable": "red",
    "unknown": "yellow",
}
_HEADER = ("RUN", "NAME", "STATE", "BEGAN", "TOOK", "TAGS", "ERROR")
_STATE = _HEADER.index("STATE")
_NAME, _ERROR = 30, 60
_POLL_S = 0.2
_INTERRUPTED = 130  # what a shell reports for a process ended by SIGINT

_root = click.option(
    "--root",
    type=click.Path(path_type=Path),
    default=".soma",
    show_default=True,
    help="The folder that runs are tracked in.",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(invoke_without_command=True)
@_root
@_as_json
@click.pass_context
def runs(ctx: click.Context, *, root: Path, as_json: bool) -> None:
    """List, show, follow, report and remove tracked runs; by itself, list them.

    RUN is an id, its beginning or its last digits, a name (its newest run), a path, or "last".
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_, root=root, as_json=as_json, state=None, tag=None, limit=None)
    else:  # an option may stand before the command as well as behind it
        ctx.default_map = {one: {"root": str(root), "as_json": as_json} for one in runs.commands}


@runs.command(name="list")
@_root
@click.option("--state", type=click.Choice(list(_COLOURS)), help="Only runs in this state.")
@click.option("--tag", help="Only runs with this tag.")
@click.option("--limit", type=click.IntRange(min=1), help="Only so many, the newest.")
@_as_json
def list_(
    *, root: Path, as_json: bool, state: str | None, tag: str | None, limit: int | None
) -> None:
    """List the runs, the newest first."""
    rows = (_row(one) for one in all_runs(root))
    chosen = (
        row for row in rows if state in (None, row["state"]) and (tag is None or tag in row["tags"])
    )
    found = list(islice(chosen, limit))
    if as_json:
        _print_json(found)
    elif found:
        cells = padded([_HEADER, *map(_cells, found)])
        click.echo("\n".join(_coloured(line) for line in cells))
    elif (state is not None or tag is not None) and (others := len(all_runs(root))):
        click.echo(f"None of the {times(others, 'run')} in {printable(str(root))} is like that.")
    else:
        click.echo(f"No runs in {printable(str(root))}." if root.exists() else _no_root(root))


@runs.command()
@click.argument("run")
@_root
@click.option("--all", "whole", is_flag=True, help="Each call, each reuse with its key, versions.")
@_as_json
def show(*, run: str, root: Path, whole: bool, as_json: bool) -> None:
    """Show what RUN did: each call, each node, what was reused, what failed, what was measured."""
    view = _found(root, run)
    if as_json:
        _print_json(_everything(view))
    else:
        click.echo(view.to_text(whole=whole))
    click.get_current_context().exit(1 if view.note else 0)


@runs.command()
@click.argument("run")
@_root
@click.option(
    "-n", "count", type=click.IntRange(min=0), default=20, show_default=True, help="Last lines."
)
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends.")
@click.option("--json", "as_json", is_flag=True, help="Print the lines of the file as they are.")
def tail(*, run: str, root: Path, count: int, follow: bool, as_json: bool) -> None:
    """Print the last events of RUN, one line each."""
    view = _found(root, run)
    view.manifest()  # which says so if it cannot be read here
    try:
        _tail(view, count, follow=follow, as_json=as_json)
    except KeyboardInterrupt:  # the usual end of it
        click.get_current_context().exit(_INTERRUPTED)


@runs.command()
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@_root
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also runs that are running, or may be.")
def rm(*, names: tuple[str, ...], root: Path, yes: bool, force: bool) -> None:
    """Remove runs for good.

    Exits with 2 if there is no such run, and then removes none; with 1 if one was not removed.
    """
    views = list(dict.fromkeys(_found(root, name) for name in names))
    if not yes:
        for view in views:
            click.echo("  ".join(_cells(_row(view))[: _STATE + 1]))
        click.confirm(f"Remove {times(len(views), 'run')} for good?", abort=True)
    refused = 0
    for view in views:
        try:
            remove_run(view, force=force)
        except InvalidInput as error:
            refused += 1
            click.echo(f"Error: {one_line(str(error), 500)}", err=True)
        else:
            click.echo(f"removed {printable(view.id)}")
    click.get_current_context().exit(1 if refused else 0)


def _found(root: Path, text: str) -> RunView:
    try:
        return find_run(root, text)
    except UnknownName as error:
        click.echo(one_line(str(error), 10_000), err=True)
        click.get_current_context().exit(2)


def _no_root(root: Path) -> str:
    return f"No runs: there is no folder {printable(str(root))}."


def _row(view: RunView) -> dict[str, Any]:
    """Return what a list says of a run; None where it cannot be read."""
    row: dict[str, Any] = {"id": view.id, "state": view.state, "note": view.note}
    row |= dict.fromkeys(("name", "kind", "created_at", "finished_at", "duration_ms", "error"))
    row |= {"tags": [], "params": {}, "path": str(view.path)}
    try:
        finished = view.finished_at
        row |= {
            "name": view.name,
            "kind": view.kind,
            "created_at": view.created_at.isoformat(),
            "finished_at": None if finished is None else finished.isoformat(),
            "duration_ms": view.duration_ms,
            "error": view.error,
            "tags": view.tags,
            "params": view.params,
        }
    except InvalidInput:  # it says so in its note
        pass
    return row


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    from datetime import datetime

    created, took = row["created_at"], row["duration_ms"]
    return (
        printable(row["id"]),
        clipped(printable(row["name"]), _NAME) if row["name"] else "",
        row["state"],
        f"{datetime.fromisoformat(created).astimezone():%Y-%m-%d %H:%M}" if created else "",
        human_ms(took) if took is not None else "",
        clipped(", ".join(map(printable, row["tags"]))),
        one_line(row["error"] or row["note"].replace(f"{row['path']}{os.sep}", ""), _ERROR),
    )


def _coloured(cells: list[str]) -> str:
    """Return a line of the list; click leaves colours out where nobody would see them."""
    colour = _COLOURS.get(cells[_STATE].strip())
    line = "  ".join(cells).rstrip()
    if colour is None or "NO_COLOR" in os.environ:
        return line
    coloured = [*cells]
    coloured[_STATE] = click.style(cells[_STATE], fg=colour)
    return "  ".join(coloured).rstrip()


def _everything(view: RunView) -> dict[str, Any]:
    row = _row(view)
    if view.note:
        return row
    return {
        **row,
        "manifest": view.manifest(),
        "status": view.status(),
        "calls": [one._asdict() for one in view.calls()],
        "nodes": [dataclasses.asdict(one) for one in view.nodes()],
        "reused": [one._asdict() for one in view.reused()],
        "failures": [one._asdict() for one in view.failures()],
        "decisions": [one._asdict() for one in view.decisions()],
        "notices": [one._asdict() for one in view.notices()],
        "working": [one._asdict() for one in view.working()],
        "metrics": {
            name: [one._asdict() for one in points] for name, points in view.metrics().items()
        },
        "lost_events": view.lost_events,
        "damaged_lines": view.damaged_lines,
    }


def _print_json(data: Any) -> None:
    try:
        text = json.dumps(data, indent=2, allow_nan=False)
    except ValueError:  # a number that JSON has no writing for
        text = json.dumps(json.loads(json_text(data)), indent=2)
    click.echo(text)


def _tail(view: RunView, count: int, *, follow: bool, as_json: bool) -> None:
    from soma.cli.tail import Teller  # which a list does without

    teller, follower = Teller(), Follower(view.path / "events.jsonl")

    def told(lines: list[bytes]) -> Iterator[str]:
        for line in lines:
            event = record_in(line)
            if event is not None:
                said = _raw(line, event) if as_json else teller.line(event)
                if said:
                    yield said

    ended = not follow or view.state != "running"  # asked first: what it wrote is then there
    lines = follower.lines()
    _print_lines(deque(told([*lines, follower.rest()] if ended else lines), maxlen=count))
    while not ended:
        sleep(_POLL_S)
        ended = view.state != "running"
        lines = follower.lines()
        _print_lines(told([*lines, follower.rest()] if ended else lines))
    if follow and not as_json:
        click.echo(f"soma: {printable(view.id)} is {view.state}")


def _raw(line: bytes, event: dict[str, Any]) -> str:
    return line.decode().strip() if line.isascii() else json.dumps(event)


def _print_lines(lines: Iterator[str] | deque[str]) -> None:
    text = "\n".join(lines)
    if text:
        click.echo(text)


runs.add_command(report)
