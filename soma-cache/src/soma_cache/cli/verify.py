"""``soma cache verify``: is what lies in the cache what it says that it is?"""

from __future__ import annotations

from collections.abc import Iterator

import click

from soma.events.human import human_bytes, one_line, printable
from soma_cache.cli.bars import bar
from soma_cache.cli.options import as_json_option, dir_option
from soma_cache.cli.places import folder_to_read
from soma_cache.cli.saying import print_facts, print_json, unread_of
from soma_cache.layout import blob_name, record_name
from soma_cache.verifying import Verified
from soma_cache.verifying import verify as verify_folder

__all__ = ["verify"]

_LISTED = 50


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also what was right before, unchanged.")
@dir_option
@as_json_option
def verify(*, everything: bool, root: str | None, as_json: bool) -> None:
    """Read what is there, and compare each hash.

    Nothing is changed. Exits with 1 if something is damaged, or cannot be read.
    """
    folder = folder_to_read(root)
    with bar("reading") as progress:
        found = verify_folder(folder, everything=everything, progress=progress)
    bad = bool(found.blobs or found.records or found.unreadable)
    if as_json:
        print_json(
            {
                "path": folder.root,
                "checked": found.checked,
                "checked_bytes": found.checked_bytes,
                "skipped": found.skipped,
                "blobs": list(found.blobs),
                "records": list(found.records),
                "unreadable": unread_of(found),
            }
        )
    else:
        print_facts(_facts(found, everything=everything))
        _print_damaged(found)
    click.get_current_context().exit(1 if bad else 0)


def _facts(found: Verified, *, everything: bool) -> Iterator[tuple[str, str]]:
    blobs = "1 blob" if found.checked == 1 else f"{found.checked:,} blobs"
    yield "read", f"{blobs} ({human_bytes(found.checked_bytes)}), and all records"
    if not everything and found.skipped:
        yield "left out", f"{found.skipped:,} that were right before, and unchanged since (--all)"
    damaged = len(found.blobs) + len(found.records)
    yield "damaged", f"{damaged:,}" if damaged else "nothing"
    if found.unreadable:
        yield "not read", f"{len(found.unreadable):,}"


def _print_damaged(found: Verified) -> None:
    names = [*map(blob_name, found.blobs), *map(record_name, found.records)]
    lines = [f"  {one}" for one in names[:_LISTED]]
    lines += [f"  {printable(name)}: {one_line(why)}" for name, why in found.unreadable[:_LISTED]]
    more = max(len(names) - _LISTED, 0) + max(len(found.unreadable) - _LISTED, 0)
    lines += [f"  and {more:,} more (--json)"] if more else []
    if names:
        lines.append(
            "What is damaged is never given out: it counts as absent, and is made again where it "
            "is needed. Such a file may be removed. If there are more each time, the disk may fail."
        )
    if found.unreadable:
        lines.append("What cannot be read is made again as well. Whose files are these?")
    if any(name.startswith("pins") for name, _ in found.unreadable):
        lines.append("As long as a pin says no key gc removes nothing: pin it anew, or unpin it.")
    if lines:
        click.echo("\n".join(lines))
