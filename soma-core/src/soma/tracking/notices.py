"""What is said on stderr where a record has a gap: one line, and no reason to fail either."""

from __future__ import annotations

from contextlib import suppress

from soma._notices import tell
from soma.errors import describe_error

__all__ = ["tell_gap"]


def tell_gap(what: str, error: Exception, remark: str = "") -> None:
    """Say that something was not recorded, why, and what may be done about it."""
    said = f"{what}, and the run goes on: {describe_error(error)}"
    with suppress(Exception):  # stderr may be closed
        tell(" ".join(f"{said}. {remark}".split() if remark else said.split()))
