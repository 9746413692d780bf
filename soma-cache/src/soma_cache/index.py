"""The index: what is in the folder, without walking through it. Derived, and never the truth.

    index/base.sqlite     rows, as tables.py has them
    index/<host>.log      what has changed since, as changes.py notes it

Who asks brings it up to date first. It may be deleted at any moment, also while it is used, and so
is one that is damaged, or of another release: it is made again from records and blobs, all of
which are then read. Where nothing may be written it is made in memory, from what is there: in a
folder that belongs to others, on a full disk, and where a link leads to somewhere else.

It is opened for one question and closed again. A hit asks nothing, and sqlite3 is not imported
before somebody does.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar
from urllib.parse import quote

from soma.errors import SomaError
from soma_cache import files, forks
from soma_cache.changes import INDEX
from soma_cache.folder import Folder
from soma_cache.listing import Progress

if TYPE_CHECKING:
    import sqlite3

    from soma_cache.tables import Tables

__all__ = ["consult", "discard"]

_T = TypeVar("_T")
_Cause: TypeAlias = Literal["busy", "moved", "damaged", "elsewhere"]

_WAIT_S = 1.0
"""In one call of SQLite, which Ctrl-C does not end."""
_PATIENCE_S = 60.0
"""For others who bring it up to date; then it is made again in memory."""
_MOST_TRIES = 3
"""Where it was removed meanwhile, or is damaged."""
_MODE = 0o666
"""Less what the umask takes: a group may share it, as it does the rest."""
_BUSY = (5, 6)
_MOVED = 1032
"""SQLITE_READONLY_DBMOVED: it was removed, or another is in its place."""
_DAMAGED = (1, 11, 17, 18, 19, 20, 26)
"""Of a file that is none, that is not whole, or whose tables are others: what lies there is wrong.

Any other error is of the disk or of its rights: the same would happen to a new one.
"""


def consult(
    folder: Folder,
    question: Callable[[Tables], _T],
    *,
    everything: bool = False,
    progress: Progress | None = None,
) -> _T:
    """Return what the index answers, now that it is up to date.

    What could not be read on the way is in ``tables.unreadable``, for the question to ask.

    Args:
        folder: the folder.
        question: is given the rows. It may be asked more than once. A fork of this process waits
            for it, so it is short.
        everything: list every folder, whatever times and logs say.
        progress: called with (done, total) while the index is brought up to date.

    Raises:
        SomaError: this Python has no SQLite.
    """
    _check_sqlite()
    from soma_cache.merging import merge
    from soma_cache.rows import DAMAGED

    def ask(tables: Tables, *, lasting: bool) -> _T:
        tables.unreadable.clear()
        merge(folder, tables, lasting=lasting, everything=everything, progress=progress)
        with forks.holding_off():
            return question(tables)

    until = time.monotonic() + _PATIENCE_S
    tries = 0
    while tries < _MOST_TRIES and forks.may_use_disk() and _may_write(folder):
        try:
            with _on_disk(folder.root) as tables:
                return ask(tables, lasting=True)
        except DAMAGED as error:
            cause = _cause_of(error)
            if cause == "elsewhere" or (cause == "busy" and time.monotonic() > until):
                break
            tries += cause != "busy"
            if cause == "damaged":
                discard(folder)
    return _in_memory(folder.root, ask)


def _check_sqlite() -> None:
    """Say in our words that there is none.

    Raises:
        SomaError: this Python has no SQLite.
    """
    try:
        import_module("sqlite3")
    except ImportError as error:
        raise SomaError(
            f"this Python was built without SQLite ({error}), in which soma-cache keeps its index: "
            "sizes, gc and verify need it. Results are found and kept without"
        ) from None


def _cause_of(error: Exception) -> _Cause:
    import sqlite3

    if isinstance(error, sqlite3.ProgrammingError | sqlite3.InterfaceError):
        return "elsewhere"  # ours
    code: int = getattr(error, "sqlite_errorcode", _DAMAGED[0])  # none: what it says is wrong
    if code == _MOVED:
        return "moved"
    if code & 0xFF in _BUSY:
        return "busy"
    return "damaged" if code & 0xFF in _DAMAGED else "elsewhere"


def _may_write(folder: Folder) -> bool:
    """Say whether rows can lie on the disk; where they can, a place for them is there."""
    if not folder.may_change():
        return False
    with suppress(OSError):
        with suppress(FileExistsError):
            os.mkdir(f"{folder.root}/{INDEX}")
        is_ours = stat.S_ISDIR(os.lstat(f"{folder.root}/{INDEX}").st_mode)  # and no link
        if is_ours and os.access(f"{folder.root}/{INDEX}", os.W_OK | os.X_OK):
            if not all(map(_is_file_or_nothing, _paths(folder.root))):
                discard(folder)
            with suppress(FileExistsError):  # SQLite would make one that a group cannot write to
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                os.close(os.open(_base(folder.root), flags, _MODE))
            return True
    return False


def _is_file_or_nothing(path: str) -> bool:
    with suppress(FileNotFoundError):
        return stat.S_ISREG(os.lstat(path).st_mode)
    return True


def _base(root: str) -> str:
    return f"{root}/{INDEX}/base.sqlite"


def _paths(root: str) -> tuple[str, str]:
    return _base(root), f"{_base(root)}-journal"


@contextmanager
def _opened(database: str, **options: Any) -> Iterator[sqlite3.Connection]:
    import sqlite3

    with forks.holding_off():
        connection = sqlite3.connect(database, isolation_level=None, timeout=_WAIT_S, **options)
    try:
        yield connection
    finally:
        with forks.holding_off():
            connection.close()


@contextmanager
def _on_disk(root: str) -> Iterator[Tables]:
    from soma_cache.tables import Tables

    with _opened(_base(root)) as connection:
        yield Tables(connection)


def _in_memory(root: str, ask: Callable[..., _T]) -> _T:
    """Ask rows of our own: those that lie there, or else none."""
    from soma_cache.rows import DAMAGED
    from soma_cache.tables import Tables

    if forks.may_use_disk() and os.path.isfile(_base(root)):
        with suppress(*DAMAGED), _opened(":memory:") as connection:
            source = f"file:{quote(os.fsencode(_base(root)))}?mode=ro"
            with forks.holding_off(), _opened(source, uri=True) as there:
                there.backup(connection, progress=_not_waiting)
            return ask(Tables(connection), lasting=False)
    with _opened(":memory:") as connection:
        return ask(Tables(connection), lasting=False)


def _not_waiting(status: int, remaining: int, total: int) -> None:  # noqa: ARG001  # SQLite's
    """Leave a copy that would wait, for as long as it takes, for who writes to the original.

    Raises:
        sqlite3.OperationalError: it would.
    """
    import sqlite3

    if status in _BUSY:
        raise sqlite3.OperationalError("it is being written to")


def discard(folder: Folder) -> None:
    """Throw the rows away: they are made again from the files."""
    if not folder.may_change() or os.path.islink(f"{folder.root}/{INDEX}"):
        return
    for path in _paths(folder.root):
        try:
            os.unlink(path)
        except IsADirectoryError:
            with suppress(OSError):
                os.rename(path, files.unused_path(folder.root))
        except OSError:  # it is not there, or will not go
            continue
