"""The source text of a node, for those who read or edit filters."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from soma.errors import SourceWarning
from soma.nodes import label_of

__all__ = ["source_of"]


def source_of(id_: str, node: Any) -> str:
    """Return the source text of a node's class or function; empty, and a warning, without one."""
    inner = getattr(node, "func", node)  # a partial is written as what it wraps
    code = inner if inspect.isroutine(inner) else type(inner)
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):  # typed at a prompt, made at run time, or written in C
        warnings.warn(
            f"The source of node {id_!r} ({label_of(node)}) is not at hand: it was not read from a "
            "file",
            SourceWarning,
            stacklevel=3,
        )
        return ""
