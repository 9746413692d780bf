"""Which folder a cache is in, and what is done where that cannot be used.

Nothing kept is worth a failed run. A folder that cannot be made or read, or is of another version,
gives one line on standard error and a store in memory instead; one that cannot be written is read.
A store is opened once per process: graphs that name the same folder share it.
"""

from __future__ import annotations

import errno
import os
import re
import threading
import weakref
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from soma._notices import tell_once
from soma.contracts import ActionStore
from soma.engine.memory import MemoryStore
from soma.errors import InvalidInput, SomaError, describe_error, shown
from soma.registry import default
from soma.specs import CacheTierSpec
from soma_cache.folder import Folder
from soma_cache.layout import check_format
from soma_cache.remote import Remote
from soma_cache.store import DEFAULT_MAX_BYTES, DiskStore

__all__ = ["default_folder", "open_remote", "open_store", "without_secrets"]


class _Wanted(NamedTuple):
    root: str
    url: str
    """Empty where there is no remote tier."""
    asked: bool
    """Whether whoever opens it has named the url."""
    read_only: bool
    max_bytes: int
    always_sync: bool


def default_folder() -> str:
    """Return the folder of the cache that graphs have by default.

    ``$SOMA_CACHE_DIR``, or ``~/.soma/cache`` where that is not set.
    """
    found = os.environ.get("SOMA_CACHE_DIR") or "~/.soma/cache"
    return os.path.abspath(os.path.expanduser(found))


def open_store(
    path: Any = None,
    *,
    url: str | None = None,
    read_only: bool = False,
    max_bytes: int | None = None,
) -> ActionStore:
    """Open the cache in a folder.

    Args:
        path: the folder; None for ``default_folder()``.
        url: a remote tier behind it, such as ``file:///shared/cache``; None for what
            ``$SOMA_CACHE_REMOTE`` says, if anything; an empty text for none.
        read_only: write nothing to the folder; what is computed is held in memory.
        max_bytes: bytes of small values that are held in memory; 1 GiB unless given.

    Returns:
        A ``DiskStore``; a ``MemoryStore``, and a line on standard error, where the folder cannot
        be used.

    Raises:
        InvalidInput: an argument cannot be understood.
        UnknownName: nobody provides a tier for that url.
        MissingPackage: the package that does is not installed.
    """
    root = _folder_of(path)
    if url is not None and not isinstance(url, str):
        raise InvalidInput(f"url is a text such as 'file:///shared/cache', not {shown(url)}")
    if not isinstance(read_only, bool):
        raise InvalidInput(f"read_only is True or False, not {shown(read_only)}")
    asked = url is not None
    url = os.environ.get("SOMA_CACHE_REMOTE", "") if url is None else url
    limit: Any = DEFAULT_MAX_BYTES if max_bytes is None else max_bytes
    if isinstance(limit, bool) or not isinstance(limit, int) or limit <= 0:
        raise InvalidInput(f"max_bytes is a whole number of bytes above 0, not {shown(limit)}")
    wanted = _Wanted(root, url, asked, read_only, limit, _always_syncs())
    with _lock:
        store = _open.get(wanted)
        if store is None:
            store = _opened(wanted)
            _open[wanted] = store
        _last[:] = [store]  # which outlives the graphs that have it
        return store


def _folder_of(path: Any) -> str:
    if path is None:
        return default_folder()
    try:
        root = os.fspath(path)
    except TypeError:
        raise InvalidInput(f"the path of a cache is that of a folder, not {shown(path)}") from None
    if not isinstance(root, str) or not root or "\0" in root:
        raise InvalidInput(f"the path of a cache is that of a folder, not {shown(path)}")
    return os.path.abspath(os.path.expanduser(root))


def _always_syncs() -> bool:
    said = os.environ.get("SOMA_CACHE_FSYNC") or "auto"
    if said not in ("auto", "always"):
        tell_once(
            ("SOMA_CACHE_FSYNC", said),
            f"SOMA_CACHE_FSYNC is 'auto' or 'always', and {shown(said)} is taken for 'auto'",
        )
    return said == "always"


def _opened(wanted: _Wanted) -> ActionStore:
    remote = _remote_of(wanted.url, asked=wanted.asked) if wanted.url else None
    root, read_only = wanted.root, wanted.read_only
    try:
        if os.path.isdir(root) and not os.access(root, os.R_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), root)
        if not read_only and _cannot_write(root):
            _tell(root, "it cannot be written", "what is there is used, and what is computed")
            read_only = True
        folder = Folder(root, read_only=read_only, always_sync=wanted.always_sync)
        if read_only:
            check_format(root)
        else:
            folder.prepare()
    except OSError as error:
        _tell(root, describe_error(error), "results")
        return MemoryStore(wanted.max_bytes)
    options = {
        "path": root,
        "url": "" if remote is None else wanted.url,
        "read_only": read_only,
        "max_bytes": wanted.max_bytes,
    }
    return DiskStore(
        folder,
        remote=remote,
        max_bytes=wanted.max_bytes,
        open_options=options,
    )


def _cannot_write(root: str) -> bool:
    return os.path.isdir(root) and not os.access(root, os.W_OK | os.X_OK)


def _tell(root: str, why: str, what: str) -> None:
    tell_once(
        ("cache folder", root),
        f"the cache in {root} cannot be used as it should ({why}): {what} will be kept in the "
        "memory of this process only",
    )


def _remote_of(url: str, *, asked: bool) -> Remote | None:
    """Open the tier of a url; None, and a line, where it cannot be used.

    Raises:
        SomaError: nobody provides it, or the url cannot be right, and the user has named it.
    """
    try:
        return open_remote(url)
    except Exception as error:  # a tier is somebody else's code, and may raise anything
        if asked and isinstance(error, SomaError):
            raise
        name = without_secrets(url)
        _tell_of_remote(name if asked else f"{name}, of $SOMA_CACHE_REMOTE,", describe_error(error))
        return None


def open_remote(url: str) -> Remote:
    """Open the tier of a url. It is asked nothing.

    Raises:
        SomaError: nobody provides it, or the url cannot be right. The tier is somebody else's code,
            and may raise anything.
    """
    tier = default().get(_scheme_of(url), CacheTierSpec)(url)
    return Remote(tier, without_secrets(url))


def _scheme_of(url: str) -> str:
    """Return which kind of tier a url names.

    Raises:
        InvalidInput: it cannot be told.
    """
    with suppress(ValueError):
        scheme = urlsplit(url).scheme
        if scheme:
            return scheme
    raise InvalidInput(
        f"{shown(without_secrets(url))} is no url of a remote cache: a shared folder is written "
        "like file:///shared/cache"
    )


def without_secrets(url: str) -> str:
    """Return what may be said of a url: neither who asks there, nor a password or a token."""
    start, plain, more = _URL.findall(url)[0]
    if "@" in more:  # of a password, maybe
        plain = "..."
    elif plain[:1] != "/" or plain[:2] == "//":
        plain = plain.rpartition("@")[2]
    return "".join(one for one in start + plain if one.isprintable())


_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)?([^?#]*)(.*)", re.DOTALL)


def _tell_of_remote(name: str, why: str) -> None:
    tell_once(
        ("remote cache", name),
        f"the remote cache {name} cannot be used, and the run goes on with what is on this "
        f"machine: {why}",
    )


_lock = threading.RLock()
_open: weakref.WeakValueDictionary[_Wanted, Any] = weakref.WeakValueDictionary()
_last: list[Any] = []


def _after_fork() -> None:
    global _lock  # noqa: PLW0603  # of the process
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
