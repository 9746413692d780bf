"""What writers have left in tmp that were killed.

A name there begins with the host and the process of its writer. One that is not there any more,
on this host, finishes nothing. Of others that is not known: two containers may share a folder and
the name of a host and see no process of each other, hence the hour; and after a day nobody writes.
Folders that stood in the place of a file were moved there, and go after a day.

What has no name of ours is somebody else's, and so is all that lies behind a link.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from typing import NamedTuple

from soma_cache import files
from soma_cache.folder import Folder

__all__ = ["Leftover", "leftovers", "sweep"]

_HOUR_S = 3_600.0
_DAY_S = 86_400.0
_NAME = re.compile(
    r"(?P<host>[\w.-]{1,64})-(?P<pid>[0-9]{1,10})-[0-9]{1,20}"
    r"|doctor-[0-9]{1,10}-[0-9a-f]{8}"  # of who has looked whether a file can be written
)


class Leftover(NamedTuple):
    """Something in tmp that nobody will finish."""

    path: str
    nbytes: int
    is_folder: bool


def leftovers(folder: Folder, now_s: float) -> list[Leftover]:
    """Return what lies in tmp and nobody will finish.

    Args:
        folder: the folder.
        now_s: the time of the file system.

    Raises:
        OSError: tmp cannot be listed.
    """
    tmp, found = f"{folder.root}/tmp", []  # noqa: S108  # ours
    with suppress(FileNotFoundError, NotADirectoryError):
        if os.path.islink(tmp):
            return []
        for entry in os.scandir(tmp):
            with suppress(OSError):  # gone meanwhile
                about = entry.stat(follow_symlinks=False)
                if _is_left(entry.name, about, now_s):
                    is_folder = stat.S_ISDIR(about.st_mode)
                    nbytes = _bytes_in(entry.path) if is_folder else about.st_size
                    found.append(Leftover(entry.path, nbytes, is_folder))
    return found


def sweep(left: Leftover) -> None:
    """Remove it.

    Raises:
        OSError: it cannot be removed, or not all of it.
    """
    if left.is_folder:
        from shutil import rmtree

        rmtree(left.path)
    else:
        os.unlink(left.path)


def _is_left(name: str, about: os.stat_result, now_s: float) -> bool:
    found = _NAME.fullmatch(name)
    if found is None:
        return False
    if stat.S_ISDIR(about.st_mode):  # only being moved there has set this time
        return now_s - max(about.st_mtime, about.st_ctime) > _DAY_S
    age_s = now_s - about.st_mtime
    if age_s <= _HOUR_S or not stat.S_ISREG(about.st_mode):
        return False
    is_ours = found["host"] == files.host()
    return age_s > _DAY_S or (is_ours and not _is_alive(int(found["pid"])))


def _bytes_in(path: str) -> int:
    return sum(
        os.lstat(f"{above}/{name}").st_size for above, _, names in os.walk(path) for name in names
    )


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # sends nothing
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # somebody else's
        return True
    return True
