"""Where this process stands: working folder, ``sys.path`` and codecs, as the client has them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from soma.engine.blobs import Blob
from soma.frame.enums import trust
from soma.sessions import travel

__all__ = ["settle", "unpacked"]

_T = TypeVar("_T")


def settle(fields: Mapping[str, Any], blobs: Sequence[Blob]) -> None:
    """Take over what a message says of the client's surroundings; what it leaves out stays."""
    trust()  # the client's code runs here in any case
    if fields.get("cwd"):
        with suppress(OSError):  # it was removed meanwhile
            os.chdir(fields["cwd"])
    if fields.get("path") is not None:
        sys.path[:] = fields["path"]
    for one in fields.get("more_path", ()):
        if one not in sys.path:
            sys.path.append(one)
    if fields.get("codecs", -1) >= 0:
        unpacked(blobs[fields["codecs"]], travel.register_codecs)


def unpacked(blob: Blob, unpack: Callable[[Blob], _T]) -> _T:
    """Return what a pickle holds, also where its module was written only a moment ago."""
    try:
        return unpack(blob)
    except ImportError:
        importlib.invalidate_caches()
        return unpack(blob)
