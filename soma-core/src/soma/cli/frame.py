"""``soma frame show FILE``: what is in a frame, without importing anybody's code."""

from __future__ import annotations

import dataclasses
import json
import mmap
from pathlib import Path
from typing import Any

import click

from soma.errors import FrameError
from soma.frame.show import FrameInfo, describe_frame

__all__ = ["frame"]

_SHOWN = 200
"""Lines that are printed unasked."""


@click.group()
def frame() -> None:
    """Look into SOMA1 frames, the bytes of values."""


@frame.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--all", "whole", is_flag=True, help=f"Print every line, not the first {_SHOWN}.")
def show(*, file: Path, as_json: bool, whole: bool) -> None:
    """Show what is in the frame FILE: structure, kinds, dtypes, shapes, sizes, hash."""
    if not file.is_file():
        raise click.ClickException(f"{file} is no file: a frame is mapped, not read as a stream")
    try:
        info = describe_frame(_mapped(file))
    except FrameError as error:
        raise click.ClickException(f"{file}: {error}") from error
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(info), indent=2))
    else:
        click.echo("\n".join(_lines(info, shown=len(info.lines) if whole else _SHOWN)))


def _mapped(file: Path) -> Any:
    with file.open("rb") as opened:
        if not file.stat().st_size:
            return b""  # which cannot be mapped
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)


def _lines(info: FrameInfo, *, shown: int) -> list[str]:
    lines = [
        f"hash    {info.digest}",
        f"size    {info.bytes:,} bytes, header {info.header_bytes:,}",
        f"kinds   {', '.join(info.kinds) or 'none'}",
    ]
    if info.pickled:
        lines.append("pickle  yes: only the store of the machine that wrote it reads this")
    for line in info.lines[:shown]:
        size = f"  [{line.bytes:,} bytes]" if line.bytes is not None else ""
        lines.append(f"{'  ' * line.depth}{line.what}{size}")
    if len(info.lines) > shown:
        lines.append(f"... {len(info.lines) - shown:,} more lines (--all)")
    return lines
