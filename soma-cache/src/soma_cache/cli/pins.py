"""``soma cache pin``, ``unpin`` and ``pins``: what gc leaves alone, under names."""

from __future__ import annotations

from typing import Any

import click

from soma.errors import InvalidInput, UnknownName
from soma.events.human import clipped, human_bytes, one_line, printable
from soma_cache import pins as kept
from soma_cache.cli.keys import find_key
from soma_cache.cli.options import WrongUse, as_json_option, dir_option
from soma_cache.cli.places import absence, find_folder, folder_to_change, root_of
from soma_cache.cli.saying import named, print_json, print_table, short
from soma_cache.folder import Folder
from soma_cache.records import Read

__all__ = ["pin", "pins", "unpin"]

_HEADER = ("PIN", "KEY", "SIZE", "WHAT")


@click.command()
@click.argument("name")
@click.argument("key")
@dir_option
@as_json_option
def pin(*, name: str, key: str, root: str | None, as_json: bool) -> None:
    """Keep what KEY gave from every gc, under NAME.

    A pin of that name is moved. Exits with 2 if there is no such key.
    """
    if not name:
        raise WrongUse("The name of the pin is empty: give it one, such as figure-3")
    folder = folder_to_change(root)
    key = find_key(folder, key)
    read = folder.record(key)
    if read is None:
        raise click.ClickException(
            f"The record of {key} is damaged, so that nothing says which results it has. Nothing "
            "was pinned; see: soma cache verify"
        )
    before = kept.pins(folder).get(name)
    try:
        kept.pin(folder, name, key)
    except (InvalidInput, UnknownName) as error:
        raise WrongUse(str(error)) from error
    if as_json:
        print_json({"name": name, "key": key, "before": before})
        return
    moved = f" (it was on {short(before)})" if before not in (None, key) and before else ""
    click.echo(f"pinned {clipped(printable(name))}: {short(key)} {named(read.record)}{moved}")
    if _state(folder, read) == "gone":
        click.echo("Its result is not in the folder now. Once it is computed again, it stays.")


@click.command()
@click.argument("name")
@dir_option
@as_json_option
def unpin(*, name: str, root: str | None, as_json: bool) -> None:
    """Take the pin NAME away. What it kept stays, until a gc takes it.

    Exits with 2 if there is no such pin.
    """
    folder = folder_to_change(root)
    key = kept.pins(folder).get(name)
    try:
        kept.unpin(folder, name)
    except KeyError as error:
        raise WrongUse(str(error.args[0])) from error
    if as_json:
        print_json({"name": name, "key": key})
    else:
        said = short(key) if key else "it said no key"
        click.echo(f"unpinned {clipped(printable(name))}: {said}")


@click.command()
@dir_option
@as_json_option
def pins(*, root: str | None, as_json: bool) -> None:
    """List the pins, and what they keep."""
    where = root_of(root)
    folder = find_folder(where)
    rows = [] if folder is None else [_row(folder, *one) for one in _sorted(folder)]
    if as_json:
        print_json(rows)
    elif rows:
        print_table([_HEADER, *map(_cells, rows)])
    else:
        click.echo(absence(where) if folder is None else f"No pins in {printable(where)}.")


def _sorted(folder: Folder) -> list[tuple[str, str]]:
    found = kept.look_at_pins(folder)
    if found.closed:
        raise click.ClickException(f"{printable(folder.root)}/pins: {one_line(found.closed)}")
    return sorted({**dict.fromkeys(found.unclear, ""), **found.keys}.items())


def _row(folder: Folder, name: str, key: str) -> dict[str, Any]:
    read = folder.record(key) if key else None
    record = None if read is None else read.record
    unknown = "unknown" if key else "unclear"
    return {
        "name": name,
        "key": key,
        "state": unknown if read is None else _state(folder, read),
        "bytes": None if record is None else sum(record.bytes.values()),
        "what": None if record is None else named(record),
    }


def _state(folder: Folder, read: Read) -> str:
    """Return whether a pin has something to keep: ``"kept"`` or ``"gone"``."""
    outputs = read.record.outputs.values()
    there = all(one in read.inline or folder.has(one) for one in outputs)
    return "kept" if there else "gone"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    said = {
        "kept": str(row["what"]),
        "gone": f"{row['what']}, not in the folder now",
        "unknown": "there is no record of that key now",
        "unclear": "its file says no key, and gc stops: pin it anew, or unpin it",
    }
    size = "" if row["bytes"] is None else human_bytes(row["bytes"])
    return clipped(printable(row["name"])), short(row["key"]), size, said[row["state"]]
