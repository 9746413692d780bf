"""What a worker is started with, checked before anything is started."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soma._numbers import whole_number
from soma._sizes import parse_bytes
from soma.errors import InvalidInput, shown

__all__ = ["Settings", "check_settings", "check_tags"]

_LEAST_MEMORY = 64 << 20
"""Bytes: an interpreter with numpy alone has half of it."""
_MOST_CHILDREN = 1024
RESERVED = "local"
"""As a target: this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the children of one runner are started with."""

    count: int = 1
    memory_bytes: int | None = None
    timeout_s: float | None = None
    python: str | None = None
    """The interpreter; None for the one of this process."""


def check_settings(count: Any, memory: Any, timeout_s: Any, python: Any) -> Settings:
    """Return what was given, checked.

    Raises:
        InvalidInput: one of them makes no sense; the message names it.
    """
    found = whole_number(count)
    if found is None or not 1 <= found <= _MOST_CHILDREN:
        raise InvalidInput(
            f"count is how many processes there shall be, a whole number from 1 to "
            f"{_MOST_CHILDREN}, not {shown(count)}"
        )
    return Settings(
        count=found,
        memory_bytes=None if memory is None else _checked_memory(memory),
        timeout_s=None if timeout_s is None else _checked_timeout(timeout_s),
        python=None if python is None else _checked_python(python),
    )


def check_tags(tags: Any) -> tuple[str, ...]:
    """Return the tags of a worker, each once.

    Raises:
        InvalidInput: one of them cannot be a tag.
    """
    listed = [tags] if isinstance(tags, str) else tags
    found = list(listed) if isinstance(listed, Iterable) else [listed]
    for tag in found:
        if not isinstance(tag, str) or not tag.strip():
            raise InvalidInput(f"A tag is a text that says something, not {shown(tag)}")
        if tag == RESERVED:
            raise InvalidInput(
                f"{RESERVED!r} cannot be a tag: as a target it means the process of the graph"
            )
    return tuple(dict.fromkeys(map(str, found)))


def _checked_memory(memory: Any) -> int:
    found = parse_bytes("memory", memory)
    if found < _LEAST_MEMORY:
        raise InvalidInput(
            f"memory={shown(memory)} is too little for a Python with numpy: give 64M or more"
        )
    if not Path("/proc/self/statm").exists():
        raise InvalidInput("memory= needs /proc, which only Linux has; leave it out")
    return found


def _checked_timeout(timeout_s: Any) -> float:
    try:
        found = float(timeout_s) if not isinstance(timeout_s, bool | str) else math.nan
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not 0 < found < math.inf:
        raise InvalidInput(f"timeout_s is a number of seconds above 0, not {shown(timeout_s)}")
    return found


def _checked_python(python: Any) -> str:
    try:
        found = shutil.which(os.fspath(python))
    except TypeError:
        found = None
    if found is None:
        raise InvalidInput(
            f"python={shown(python)} is no program that can be run: give the path of a Python "
            "interpreter"
        )
    return str(found)
