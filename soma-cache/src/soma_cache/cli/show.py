"""``soma cache show KEY``: all that is known of one result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from soma.contracts import ActionRecord
from soma.events.human import clipped, human_bytes, printable
from soma_cache.cli.keys import find_key
from soma_cache.cli.options import as_json_option, dir_option, runs_option
from soma_cache.cli.places import folder_to_read
from soma_cache.cli.saying import human_compute, human_moment, origin_of, print_facts, print_json
from soma_cache.cli.tracked import run_of
from soma_cache.folder import Folder
from soma_cache.layout import blob_name, record_name
from soma_cache.pins import pins
from soma_cache.records import Read

__all__ = ["show"]

_PARTS = 30


@click.command()
@click.argument("key")
@runs_option
@dir_option
@as_json_option
def show(*, key: str, runs: Path, root: str | None, as_json: bool) -> None:
    """Show what is known of one result.

    Who made it, when, how long that took, what went into its key, and where it lies. A call is one
    fit or forward; the tracked run that it was part of is named where it is found.

    Exits with 1 if the record is damaged, with 2 if there is none.
    """
    folder = folder_to_read(root)
    key = find_key(folder, key)
    read = folder.record(key)
    if read is None:
        raise click.ClickException(
            f"The record {record_name(key)} is damaged, and counts as absent: it is replaced when "
            "the result is computed again. soma cache rm takes it away"
        )
    held = sorted(name for name, one in pins(folder).items() if one == key)
    record = read.record
    run = run_of(runs, record.origin.get("run", ""), record.created_at)
    if as_json:
        print_json(_as_data(folder, read, held) | {"tracked_run": run})
    else:
        print_facts(_facts(folder, read, held, run))


def _as_data(folder: Folder, read: Read, held: list[str]) -> dict[str, Any]:
    record = read.record
    return {
        "key": record.key,
        "name": record.name,
        "origin": dict(record.origin),
        "created_at": record.created_at,
        "compute_ms": record.compute_ms,
        "effect": record.effect,
        "expensive": record.expensive,
        "pickled": record.pickled,
        "outputs": {name: _output(folder, read, name) for name in record.outputs},
        "pins": held,
        "parts": {part: digest.hex() for part, digest in record.parts.items()},
        "path": f"{folder.root}/{record_name(record.key)}",
    }


def _output(folder: Folder, read: Read, name: str) -> dict[str, Any]:
    digest = read.record.outputs[name]
    where, path = "gone", None
    if digest in read.inline:
        where = "record"
    elif folder.has(digest):
        where, path = "blob", f"{folder.root}/{blob_name(digest)}"
    nbytes = read.record.bytes[name]
    return {"digest": digest, "bytes": nbytes, "where": where, "path": path}


def _facts(
    folder: Folder, read: Read, held: list[str], run: str | None
) -> Iterator[tuple[str, str]]:
    record = read.record
    yield "key", record.key
    yield "class", clipped(printable(record.name), 200) if record.name else ""
    yield from _origin(record, run)
    yield "made", human_moment(record.created_at)
    yield "took", human_compute(record.compute_ms)
    yield "kind", _kind(record)
    for name in record.outputs:
        output = _output(folder, read, name)
        yield clipped(printable(name)), f"{human_bytes(output['bytes'])}, {_where(output)}"
    yield "pins", ", ".join(clipped(printable(one)) for one in held)
    yield "made of", _parts(record)
    yield "file", printable(f"{folder.root}/{record_name(record.key)}")


def _origin(record: ActionRecord, run: str | None) -> Iterator[tuple[str, str]]:
    yield "node", origin_of(record.origin, "node")
    yield "call", origin_of(record.origin, "run")
    yield "tracked run", printable(run) if run else ""
    for name in ("host", "python", "soma"):
        yield name, origin_of(record.origin, name)


def _kind(record: ActionRecord) -> str:
    said = []
    if record.effect == "impure":
        said.append("impure: no function of its input")
    if record.expensive:
        said.append("expensive: gc takes others first")
    if record.pickled:
        said.append("written with pickle: it stays on this machine")
    return "; ".join(said)


def _where(output: dict[str, Any]) -> str:
    if output["where"] == "record":
        return f"in the record (hash {output['digest']})"
    if output["where"] == "gone":
        return f"not here now (hash {output['digest']}): made again where it is needed"
    return printable(output["path"])


def _parts(record: ActionRecord) -> str:
    names = [clipped(printable(one)) for one in sorted(record.parts)]
    more = f" and {len(names) - _PARTS} more (--json)" if len(names) > _PARTS else ""
    return ", ".join(names[:_PARTS]) + more
