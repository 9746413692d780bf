"""Which folder a command is about, and whether there is a cache in it.

The surprise: no command makes a folder. One that is not there is said to be not there, whereas a
graph would make it.
"""

from __future__ import annotations

import os

from soma.events.human import printable
from soma_cache.cli.options import WrongUse
from soma_cache.folder import Folder
from soma_cache.layout import UnknownFormat, check_format
from soma_cache.place import FIRST_FORMAT, find_root, stated_version

__all__ = ["absence", "find_folder", "folder_to_change", "folder_to_read", "is_cache", "root_of"]


def root_of(said: str | None) -> str:
    """Return the path of the folder that ``--dir`` says, or of the one that all graphs share.

    Raises:
        WrongUse: it says nothing, or counts from a working folder that is gone.
    """
    if said is not None and not said:
        raise WrongUse("--dir is empty: give the folder of a cache, or leave it out")
    try:
        return find_root(said)
    except FileNotFoundError as error:
        raise WrongUse(str(error)) from error


def is_cache(root: str) -> bool:
    """Say whether there is a cache in a folder.

    Raises:
        WrongUse: it is no folder, or none that could be one.
        UnknownFormat: it is one that this release does not read.
        OSError: it cannot be looked into.
    """
    try:
        return check_format(root)
    except NotADirectoryError:
        raise WrongUse(f"{printable(root)} is no folder") from None
    except IsADirectoryError:
        path = printable(f"{root}/format.json")
        raise WrongUse(f"{path} is a folder, so that nothing says what lies beside it") from None
    except UnknownFormat:
        if stated_version(root) == 1:
            raise UnknownFormat(FIRST_FORMAT.format(printable(root))) from None
        raise


def find_folder(root: str) -> Folder | None:
    """Return the cache in a folder, as far as it may be changed; None where there is none.

    Raises:
        WrongUse: as of ``is_cache``, and so are the others.
        UnknownFormat: it is one that this release does not read.
        OSError: it cannot be looked into.
    """
    if not is_cache(root):
        return None
    return Folder(root, read_only=not _may_write(root))


def folder_to_read(said: str | None) -> Folder:
    """Return the cache that a command is about.

    Raises:
        WrongUse: there is none.
        OSError: as of ``find_folder``.
    """
    root = root_of(said)
    found = find_folder(root)
    if found is None:
        raise WrongUse(absence(root))
    return found


def folder_to_change(said: str | None) -> Folder:
    """Return the cache that a command is about to change.

    Raises:
        WrongUse: there is none.
        PermissionError: it cannot be written.
        OSError: as of ``find_folder``.
    """
    found = folder_to_read(said)
    if found.read_only:
        raise PermissionError(
            f"the cache in {printable(found.root)} cannot be written from here, so that nothing in "
            "it was changed"
        )
    return found


def absence(root: str) -> str:
    """Return in words that there is no cache in a folder."""
    if os.path.isdir(root) and os.listdir(root):
        return (
            f"There is no cache in {printable(root)}: it has no format.json, so what lies there is "
            "something else."
        )
    return f"There is no cache in {printable(root)} yet."


def _may_write(root: str) -> bool:
    return os.access(root, os.W_OK | os.X_OK)
