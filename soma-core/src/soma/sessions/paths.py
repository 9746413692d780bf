"""What of ``sys.path`` another interpreter needs, which has libraries of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

__all__ = ["foreign_path"]


def foreign_path() -> Iterator[str]:
    """Yield what is on our path and belongs to no interpreter."""
    homes = [os.path.join(home, "") for home in {sys.prefix, sys.base_prefix}]  # noqa: PTH118  # ends so
    for one in map(str, sys.path):
        if not any(os.path.join(one, "").startswith(home) for home in homes):  # noqa: PTH118  # as above
            yield one
