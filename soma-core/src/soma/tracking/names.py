"""How runs and moments are written."""

from __future__ import annotations

import os
from datetime import UTC, datetime

__all__ = ["new_name", "now_text"]


def now_text(moment: datetime | None = None) -> str:
    """Return a moment as files have it: ISO 8601 in UTC; the present one by default."""
    return (moment or datetime.now(UTC)).isoformat(timespec="milliseconds")


def new_name(kind: str, moment: datetime) -> str:
    """Return a name for a folder, which other runs of the same second have with luck not."""
    return f"{kind}_{moment:%Y%m%dT%H%M%SZ}_{os.urandom(2).hex()}"
