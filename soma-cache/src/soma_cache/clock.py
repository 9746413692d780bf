"""What time it is for the file system, whose clock gives files their times: a server's, maybe.

It is asked by making a file. Who removes things makes it in tmp, as every writer does, and goes on
by no other clock. Who only looks makes it among what is derived: nothing else is changed by that.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from soma_cache import files
from soma_cache.changes import INDEX
from soma_cache.folder import Folder
from soma_cache.layout import check_format

__all__ = ["now_s"]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def now_s(folder: Folder, *, deleting: bool = True) -> float:
    """Return the time of a file that is made now, in seconds since the epoch.

    Where none can be made, and nothing is to be removed, what the clock of this machine says: by
    that one, files of a server may be of any age.

    Args:
        folder: the folder.
        deleting: whether files of some age are to be removed.

    Raises:
        OSError: nothing can be made in the folder, though something is to be removed.
    """
    try:
        if not folder.read_only and check_format(folder.root):
            return _by_tmp(folder.root) if deleting else _by_index(folder.root)
    except OSError:
        if deleting:
            raise
    return time.time()


def _by_tmp(root: str) -> float:
    above = f"{root}/tmp"  # noqa: S108  # ours
    try:
        with files.new_file(root) as (path, fd):
            os.unlink(path)
            return os.fstat(fd).st_mtime
    except OSError:
        with suppress(OSError):  # the disk is full: then gc is needed most
            os.utime(above)
            return os.stat(above).st_mtime
        raise


def _by_index(root: str) -> float:
    path = f"{root}/{INDEX}/{os.path.basename(files.unused_path(root))}"
    if os.path.islink(os.path.dirname(path)):
        return time.time()
    fd = os.open(path, _NEW)
    try:
        os.unlink(path)
        return os.fstat(fd).st_mtime
    finally:
        os.close(fd)
