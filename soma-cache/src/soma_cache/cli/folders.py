"""``soma cache path`` and ``purge-v1``: which folder it is, and what was there before this Soma.

A store of the first format is never read and never touched: it may be somebody else's by now. So
``purge-v1``, which users of the first Soma know, says what there is, and how it is removed.
"""

from __future__ import annotations

import os
import shlex

import click

from soma.events.human import printable
from soma_cache.cli.options import as_json_option, dir_option
from soma_cache.cli.places import is_cache, root_of
from soma_cache.cli.saying import print_json
from soma_cache.layout import UnknownFormat
from soma_cache.place import stated_version

__all__ = ["path", "purge_v1"]

_MAY_BE_FIRST = ("first format", "no format", "unknown format")


@click.command()
@dir_option
@as_json_option
def path(*, root: str | None, as_json: bool) -> None:
    """Print the folder of the cache, be it there or not.

    Exits with 1 if what lies there is of another version, with 2 if it is no folder.
    """
    where = root_of(root)
    try:
        there = is_cache(where)
    finally:  # a script may want it all the same
        if not as_json:
            click.echo(where)
    if as_json:
        print_json({"path": where, "there": there})


@click.command(name="purge-v1")
@dir_option
@as_json_option
def purge_v1(*, root: str | None, as_json: bool) -> None:
    """Say what is there of the first format.

    And how to be rid of it. A cache of this Soma holds nothing of it.

    Nothing is removed. Exits with 1 if there is something of the first format, or may be.
    """
    where = root_of(root)
    kind = _kind(where)
    if as_json:
        print_json({"path": where, "holds": kind})
    else:
        click.echo(_said(where, kind))
    click.get_current_context().exit(1 if kind in _MAY_BE_FIRST else 0)


def _kind(root: str) -> str:
    """Return what lies in a folder.

    Raises:
        WrongUse: it is no folder.
        OSError: it cannot be looked into.
    """
    try:
        if is_cache(root):
            return "this format"
    except UnknownFormat:
        version = stated_version(root)
        if version is None:
            return "unknown format"
        return "first format" if version == 1 else "another format"
    return "no format" if os.path.isdir(root) and os.listdir(root) else "nothing"


def _said(root: str, kind: str) -> str:
    where, removing = printable(root), f"rm -r {shlex.quote(root)}"
    if kind == "this format":
        return (
            f"The cache in {where} is of format 2, and holds nothing of the first format: there is "
            "nothing to purge."
        )
    if kind == "nothing":
        return f"There is nothing in {where}, and so nothing of the first format."
    if kind == "another format":
        return (
            f"The cache in {where} is of another format than the first one, which this release "
            "does not read either: there is nothing to purge."
        )
    if kind == "unknown format":
        return (
            f"The format.json in {where} does not say what lies there: it may be a store of the "
            "first Soma, a damaged cache, or something else altogether. Nothing there was touched. "
            f"Have a look, and if nothing needs it: {removing}"
        )
    if kind == "first format":
        return (
            f"The store in {where} is of the first format, which this Soma does not read. Nothing "
            f"there was touched. If nothing else needs it: {removing}"
        )
    return (
        f"What lies in {where} has no format.json: it may be a store of the first Soma, or "
        f"something else altogether. Nothing there was touched. Have a look, and if it is such a "
        f"store: {removing}"
    )
