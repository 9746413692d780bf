"""``soma cache stats``: how much is in there, and how much computing it saves."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

import click

from soma._sizes import parse_bytes
from soma.errors import InvalidInput
from soma.events.human import human_bytes, one_line, printable, times
from soma_cache.cli.bars import bar
from soma_cache.cli.options import as_json_option, dir_option
from soma_cache.cli.places import absence, find_folder, root_of
from soma_cache.cli.saying import (
    human_compute,
    print_facts,
    print_json,
    told_unread,
    unread_of,
)
from soma_cache.survey import Survey, survey

__all__ = ["stats"]

_NOTHING = Survey(
    records=0,
    record_bytes=0,
    blobs=0,
    bytes=0,
    pins=0,
    compute_ms=0.0,
    banked=0,
    recorded_ms=0.0,
    unfinished=0,
    unfinished_bytes=0,
)


@click.command()
@dir_option
@as_json_option
def stats(*, root: str | None, as_json: bool) -> None:
    """Say how much is there, and what it saves.

    Compute banked is how long it took to compute what is there: what a rerun of all of it saves.
    """
    where = root_of(root)
    folder = find_folder(where)
    found = _NOTHING
    if folder is not None:
        with bar("looking") as progress:
            found = survey(folder, progress=progress)
    if as_json:
        data = {**dataclasses.asdict(found), "unreadable": unread_of(found)}
        print_json({"path": where, "there": folder is not None, **data})
    elif folder is None:
        click.echo(absence(where))
    else:
        print_facts(_facts(where, found))


def _facts(root: str, found: Survey) -> Iterator[tuple[str, str]]:
    yield "folder", printable(root)
    yield "records", f"{found.records:,} ({human_bytes(found.record_bytes)})"
    yield "blobs", f"{found.blobs:,} ({human_bytes(found.bytes)})"
    banked = _counted(found.banked, "result")
    yield "compute banked", f"{human_compute(found.compute_ms)} in {banked}"
    gone = found.records - found.banked
    if gone > 0:
        lost_ms = max(found.recorded_ms - found.compute_ms, 0.0)
        counted = _counted(gone, "result")
        yield "compute gone", f"{human_compute(lost_ms)} in {counted}, made again where needed"
    yield "pins", f"{found.pins:,}"
    if found.unfinished:
        size = human_bytes(found.unfinished_bytes)
        yield "unfinished", f"{_counted(found.unfinished, 'file')} ({size}) being written, or left"
    yield "not read", told_unread(unread_of(found))
    yield "limit", _limit()


def _counted(count: int, noun: str) -> str:
    return times(count, noun).replace(str(count), f"{count:,}", 1)


def _limit() -> str:
    """Return what a run keeps to by itself."""
    said = os.environ.get("SOMA_CACHE_MAX_SIZE")
    if not said:
        return ""
    try:
        return f"{human_bytes(parse_bytes('SOMA_CACHE_MAX_SIZE', said))} (SOMA_CACHE_MAX_SIZE)"
    except InvalidInput as error:
        return one_line(str(error))
