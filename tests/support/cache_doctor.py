"""What child processes find with the check-up of the disk cache."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from soma_cache import open_store
from soma_cache.checkup import checkup
from support.cache_work import MIDDLE, study

__all__ = ["checked", "checked_on"]

_PRIVATE = 1 << 14 | 1 << 18  # MS_REC | MS_PRIVATE
_BIND = 1 << 12  # MS_BIND
_READ_ONLY = _BIND | 1 << 5 | 1  # MS_REMOUNT | MS_RDONLY


def checked():
    """Return about -> (state, text, advice); what is found twice is told as it is found last."""
    return {one.about: (one.state, one.text, one.advice) for one in checkup()}


def checked_on(options, how="used"):
    """Check a cache in a file system that ends with this process; None where none can be made.

    It is used before, filled up, or used and mounted again to be read.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    folder = Path(os.environ["SOMA_CACHE_DIR"])
    folder.mkdir()
    place = os.fsencode(folder)
    if (
        libc.unshare(0x00020000) != 0  # CLONE_NEWNS
        or libc.mount(b"none", b"/", None, _PRIVATE, None) != 0
        or libc.mount(b"tmpfs", place, b"tmpfs", 0, options.encode()) != 0
    ):
        return None
    open_store(folder)
    if how != "filled":
        study(MIDDLE)
    else:
        with (folder / "mine").open("wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
    if how == "read" and (
        libc.mount(place, place, None, _BIND, None) != 0
        or libc.mount(b"none", place, None, _READ_ONLY, None) != 0
    ):
        return None
    return checked()
