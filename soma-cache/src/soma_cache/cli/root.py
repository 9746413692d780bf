"""``soma cache``: what is in the cache, what may go, what is damaged, and why something missed.

The surprise: none of this is needed for anything to be right. Results are found, checked and made
again by every run; here a person looks, makes room, and asks why.

Exit codes: 0 is fine. 1: something is damaged (verify), the cache is still too large or not all
could be removed (gc), or it failed. 2 is wrong use: no such key, pin, run or cache. 130: Ctrl-C;
141: nobody read what it said to the end (``| head``).
"""

from __future__ import annotations

from typing import Any

import click

from soma.cli.streams import is_of_output
from soma.events.human import printable
from soma_cache.cli.collect import gc
from soma_cache.cli.folders import path, purge_v1
from soma_cache.cli.options import as_json_option, dir_option
from soma_cache.cli.pins import pin, pins, unpin
from soma_cache.cli.rm import rm
from soma_cache.cli.show import show
from soma_cache.cli.stats import stats
from soma_cache.cli.verify import verify
from soma_cache.cli.why import why

__all__ = ["cache"]


class _Told(click.Group):
    """Says in a sentence which file could not be read or written."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            if is_of_output(error):  # which every command of soma ends in the same way
                raise
            raise click.ClickException(_sentence(error)) from error


@click.group(cls=_Told, invoke_without_command=True)
@dir_option
@as_json_option
@click.pass_context
def cache(ctx: click.Context, *, root: str | None, as_json: bool) -> None:
    """Look after the cache on disk; by itself, say what is in it.

    KEY is 64 hexadecimal digits, or a beginning (4 at least) that only one key has. SIZE is a
    number of bytes, or such as 512M or 20G; AGE a number of seconds, or such as 30m, 1h or 2d.

    Exits with 0 if all is well; with 1 if something is damaged, still too large, or failed; with
    2 if there is no such key, pin, run or cache; with 130 after Ctrl-C.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(stats, root=root, as_json=as_json)
    else:  # an option may stand before the command as well as behind it
        ctx.default_map = {one: {"root": root, "as_json": as_json} for one in cache.commands}


for _command in (stats, gc, verify, pin, unpin, pins, rm, show, why, path, purge_v1):
    cache.add_command(_command)


def _sentence(error: OSError) -> str:
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{printable(str(error.filename))}: {error.strerror}"
