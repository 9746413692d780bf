"""``soma cache rm``: take a record away, and the results that nobody else names."""

from __future__ import annotations

from typing import Any

import click

from soma.errors import SomaError, describe_error
from soma.events.human import human_bytes, one_line, times
from soma_cache.cli.keys import find_key
from soma_cache.cli.options import as_json_option, dir_option
from soma_cache.cli.places import folder_to_change
from soma_cache.cli.saying import human_moment, named, print_json, print_table, short
from soma_cache.folder import Folder
from soma_cache.removing import Removed, remove

__all__ = ["rm"]


@click.command()
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@dir_option
@as_json_option
def rm(*, keys: tuple[str, ...], yes: bool, root: str | None, as_json: bool) -> None:
    """Forget results: they are computed again.

    A result that another record names as well stays, and what is pinned is refused. Exits with 2
    if there is no such key, and then removes none; with 1 if one was not removed. What was used
    within the hour is left to gc.
    """
    folder = folder_to_change(root)
    found = list(dict.fromkeys(find_key(folder, one) for one in keys))
    if not yes:
        print_table([_row(folder, key) for key in found], err=True)
        click.confirm(f"Remove {times(len(found), 'record')} for good?", abort=True, err=True)
    rows = [_removed(folder, key) for key in found]
    if as_json:
        print_json(rows)
    else:
        _print(rows)
    click.get_current_context().exit(1 if any(row["error"] for row in rows) else 0)


def _row(folder: Folder, key: str) -> tuple[str, ...]:
    read = folder.record(key)
    if read is None:
        return short(key), "", "damaged", ""
    size = human_bytes(sum(read.record.bytes.values()))
    return short(key), size, named(read.record), human_moment(read.record.created_at)


def _removed(folder: Folder, key: str) -> dict[str, Any]:
    row: dict[str, Any] = {"key": key, "removed": False, "blobs": [], "kept": []}
    row |= {"freed_bytes": 0, "error": ""}
    try:
        done: Removed = remove(folder, key)
    except (SomaError, OSError) as error:
        told = isinstance(error, SomaError) or error.errno is None
        return row | {"error": str(error) if told else describe_error(error)}
    went = {"removed": True, "blobs": list(done.blobs), "kept": list(done.kept)}
    return row | went | {"freed_bytes": done.freed_bytes}


def _print(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if row["error"]:
            click.echo(f"Error: {one_line(row['error'], 500)}", err=True)
        else:
            also = f" and {times(len(row['blobs']), 'blob')}" if row["blobs"] else ""
            size = human_bytes(row["freed_bytes"])
            left = f"; {times(len(row['kept']), 'blob')} left to gc" if row["kept"] else ""
            click.echo(f"removed {short(row['key'])}{also} ({size}){left}")
