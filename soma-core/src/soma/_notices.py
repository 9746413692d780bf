"""One line on stderr for what a run cannot be stopped for, each said once per process."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from contextlib import suppress

__all__ = ["tell", "tell_once"]

_REMEMBERED = 10_000
_told: set[Hashable] = set()


def tell(sentence: str) -> None:
    """Say a sentence; to nobody, where stderr is closed or broken."""
    with suppress(OSError, ValueError):
        print(f"soma: {sentence}", file=sys.stderr)  # noqa: T201  # a notice


def tell_once(about: Hashable, sentence: str) -> None:
    """Say a sentence, unless the same has been said."""
    if about not in _told:
        if len(_told) >= _REMEMBERED:
            _told.clear()
        _told.add(about)
        tell(sentence)
