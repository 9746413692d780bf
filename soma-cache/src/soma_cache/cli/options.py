"""The options that every command has, and sizes and ages as people write them.

Wrong use is told apart from what went wrong: it exits with 2, and nothing was done.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from soma._sizes import parse_bytes
from soma.errors import InvalidInput, shown

__all__ = [
    "WrongUse",
    "as_json_option",
    "dir_option",
    "parse_age",
    "parsed_age",
    "parsed_size",
    "runs_option",
]

_T = TypeVar("_T", bound=Callable[..., Any])
_N = TypeVar("_N", int, float)
_AGE = re.compile(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*(s|m|min|h|d)?\s*", re.IGNORECASE | re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


class WrongUse(click.ClickException):
    """There is no such key, pin, run or cache; or what was typed makes no sense."""

    exit_code = 2


def parse_age(name: str, text: str) -> float:
    """Return an age in seconds: a number of them, or a text such as ``"30m"``, ``"1h"``, ``"2d"``.

    Args:
        name: what the age is of, for the message.
        text: the age as it was given.

    Raises:
        InvalidInput: it is no age.
    """
    match = _AGE.fullmatch(text)
    if match is None:
        raise InvalidInput(f"{name} is an age, as seconds or as 30m, 1h or 2d, not {shown(text)}")
    return float(match[1]) * _SECONDS[(match[2] or "s").lower()]


def parsed_size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return the bytes that an option says; for ``callback=``."""
    return None if value is None else _parsed(parse_bytes, ctx, param, value, least=0)


def parsed_age(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Return the seconds that an option says; for ``callback=``."""
    return _parsed(parse_age, ctx, param, value)


def _parsed(
    parse: Callable[..., _N], ctx: click.Context, param: click.Parameter, text: str, **more: int
) -> _N:
    try:
        return parse(param.opts[-1], text, **more)
    except InvalidInput as error:
        raise click.UsageError(str(error), ctx) from error


def dir_option(command: _T) -> _T:
    """Give a command the option that names the folder, as ``root``."""
    return click.option(
        "--dir",
        "root",
        metavar="DIR",
        help="The folder of the cache.  [default: $SOMA_CACHE_DIR, or ~/.soma/cache]",
    )(command)


def runs_option(command: _T) -> _T:
    """Give a command the option that names the folder of tracked runs, as ``runs``."""
    return click.option(
        "--root",
        "runs",
        type=click.Path(path_type=Path),
        default=".soma",
        show_default=True,
        help="The folder that runs are tracked in.",
    )(command)


def as_json_option(command: _T) -> _T:
    """Give a command the option ``--json``, as ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
