"""Where a cache lies, or would be made: there, a folder, readable, and whose.

What is looked at here is the folder as others see it. What it lies on is another matter
(``filesystem``), and so is what is in it (``contents``).

The surprise: that a folder may be written to does not say that one can be made in it (``/proc``, a
quota). Where the cache is not there yet, a folder is made beside its place, and removed.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shlex
import stat
from collections.abc import Iterator

from soma.contracts import Finding
from soma.errors import describe_error, shown
from soma_cache.opening import default_folder

__all__ = [
    "ELSEWHERE",
    "FIRST_FORMAT",
    "allowing",
    "find_root",
    "look_at_place",
    "nearest",
    "stated_version",
]

ELSEWHERE = "name another folder: export SOMA_CACHE_DIR=..."
FIRST_FORMAT = (
    "the cache in {} has format version 1, the first format, which this release does not read: "
    "soma cache purge-v1 says more. Nothing there was touched"
)
"""What is said of such a folder."""
_ABOUT = "cache folder"
_DENIED = (errno.EACCES, errno.EPERM)
_MOST_FORMAT_BYTES = 1 << 16


def find_root(said: str | None = None) -> str:
    """Return the whole path of a folder; of the one that graphs have by default unless one is said.

    Raises:
        FileNotFoundError: the path counts from the working folder, and that is gone.
    """
    try:
        return default_folder() if said is None else os.path.abspath(os.path.expanduser(said))
    except FileNotFoundError:
        said = os.environ.get("SOMA_CACHE_DIR", "") if said is None else said
        raise FileNotFoundError(
            f"{shown(said)} counts from the working folder, and that has been removed: go to "
            "another folder, or give the whole path"
        ) from None


def stated_version(root: str) -> int | None:
    """Return the version that a folder says it has; None where it says none."""
    try:
        with open(f"{root}/format.json", "rb", opener=_open_at_once) as file:
            found = json.loads(file.read(_MOST_FORMAT_BYTES))["version"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if type(found) is int else None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe in its place is not waited for


def allowing(path: str, modes: str) -> str:
    """Return what to do so that we may do more with a path: only its owner can allow it.

    Args:
        path: what is there.
        modes: as of ``chmod``, such as ``"u+rwx"`` or ``"-R u+rwX"``.
    """
    uid = os.stat(path).st_uid
    if uid == os.geteuid():
        return f"chmod {modes} {shlex.quote(path)}, or {ELSEWHERE}"
    return f"it belongs to {_name_of(uid)}: ask for access, or {ELSEWHERE}"


def look_at_place(root: str) -> Iterator[Finding]:
    """Look at the folder itself; without one, at where it would be made."""
    try:
        found = os.stat(root)
    except FileNotFoundError:
        yield from _absent(root)
        return
    except OSError as error:
        yield _unreachable(root, error)
        return
    if not stat.S_ISDIR(found.st_mode):
        text = f"{root} is no folder"
        yield Finding(about=_ABOUT, state="wrong", text=text, advice=f"remove it, or {ELSEWHERE}")
    elif not os.access(root, os.R_OK | os.X_OK):
        yield Finding(
            about=_ABOUT,
            state="wrong",
            text=f"{root} cannot be read: mode {stat.S_IMODE(found.st_mode):04o}, "
            f"{_owner(found.st_uid)}",
            advice=allowing(root, "u+rwx"),
        )
    elif found.st_mode & stat.S_IWOTH:
        yield Finding(
            about=_ABOUT,
            state="note",
            text=f"{root}, mode {stat.S_IMODE(found.st_mode):04o}: everybody on this machine may "
            "put results there, and you use them",
            advice=allowing(root, "o-w"),
        )
    else:
        mode, owner = f"{stat.S_IMODE(found.st_mode):04o}", _owner(found.st_uid)
        yield Finding(about=_ABOUT, state="fine", text=f"{root}, mode {mode}, {owner}")


def _unreachable(root: str, error: OSError) -> Finding:
    """Return what is wrong on the way to the folder."""
    way, text, advice = nearest(root), describe_error(error), ELSEWHERE
    if isinstance(error, NotADirectoryError):
        text = f"{root} cannot be made: {way} is no folder"
    elif error.errno in _DENIED:
        text, advice = f"{root} cannot be reached: {way} is closed", allowing(way, "u+x")
    return Finding(about=_ABOUT, state="wrong", text=text, advice=advice)


def _absent(root: str) -> Iterator[Finding]:
    if os.path.islink(root):
        text, advice = f"{root} is a link that leads nowhere", f"remove it, or {ELSEWHERE}"
        yield Finding(about=_ABOUT, state="wrong", text=text, advice=advice)
        return
    parent = nearest(root)
    cannot = f"{root} is not there and cannot be made: "
    if not os.path.isdir(parent):
        text, advice = f"{cannot}{parent} is no folder", f"remove it, or {ELSEWHERE}"
    elif not os.access(parent, os.W_OK | os.X_OK):
        text, advice = f"{cannot}nothing can be written to {parent}", allowing(parent, "u+wx")
    else:
        try:
            _try_to_make_one(parent)
        except OSError as error:
            why = error.strerror or describe_error(error)
            text, advice = f"{cannot}{parent} takes no folder: {why}", ELSEWHERE
        else:
            text = f"{root} is not there; the first result makes it"
            yield Finding(about=_ABOUT, state="fine", text=text)
            return
    yield Finding(about=_ABOUT, state="wrong", text=text, advice=advice)


def _try_to_make_one(parent: str) -> None:
    path = f"{parent}/.soma-doctor-{os.getpid()}-{secrets.token_hex(4)}"
    os.mkdir(path, 0o700)
    os.rmdir(path)


def nearest(path: str) -> str:
    """Return the folder itself, or what is there of the way to it."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _owner(uid: int) -> str:
    return "yours" if uid == os.geteuid() else f"of {_name_of(uid)}"


def _name_of(uid: int) -> str:
    import pwd  # which asks the network in some places

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
