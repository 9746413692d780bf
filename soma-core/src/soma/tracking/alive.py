"""Whether a run that says it is running still is: nobody can write down that he was killed.

On the machine of the run its process is looked for. A process id is given to others again after a
while, so the moment at which it started has to be the same, too. From elsewhere, and where the
system does not tell, there is only the heartbeat.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["STALE_S", "machine", "moment", "state_of", "this_process"]

STALE_S = 60.0
"""A heartbeat comes every 10 s; what is silent for so long is taken for dead."""
_ENDED = ("completed", "failed", "interrupted")
_PID_MAX = 2**31 - 1
_STATE, _STARTED = 0, 19
"""Fields 3 and 22 of /proc/<pid>/stat, counted from behind the name of the command."""
_DEAD = frozenset("ZXx")


def this_process() -> dict[str, Any]:
    """Return what ``process`` in status.json says of this process; None where nobody tells."""
    pid = os.getpid()  # asked each time: a fork has another
    found = _stat(pid)
    return {
        "hostname": os.uname().nodename,
        "pid": pid,
        "started": None if found is None else found[1],
        **machine(),
    }


def machine() -> dict[str, str | None]:
    """Return what two processes have in common that can see each other's process ids."""
    return {"boot_id": _boot_id(), "pid_namespace": _pid_namespace()}


def state_of(status: Mapping[str, Any], *, written_at: float | None = None) -> str:
    """Return the state of a run as its status.json and its process tell.

    Args:
        status: what status.json holds.
        written_at: when that file was written, in s since the epoch; counts where the heartbeat
            in it is no time.

    Returns:
        ``"running"``, ``"completed"``, ``"failed"``, ``"interrupted"``, ``"crashed"``; or
        ``"unknown"`` where the file says something else.
    """
    state = status.get("state")
    if state in _ENDED:  # a tuple is asked whatever the file holds
        return str(state)
    if state != "running":
        return "unknown"
    alive = _is_alive(status.get("process"))
    if alive is None:
        alive = _beats(status.get("heartbeat_at"), written_at)
    return "running" if alive else "crashed"


def moment(text: Any) -> datetime | None:
    """Return the time that an ``..._at`` says, or None; one without a zone is in UTC."""
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):  # a zone may lead out of the years that there are
        return None
    return found if MINYEAR < found.year < MAXYEAR else None  # as another zone may, later


def _is_alive(process: Any) -> bool | None:
    """Say whether a process of this machine is alive; None where nobody here can tell."""
    here = machine()
    if not isinstance(process, Mapping) or None in here.values():
        return None
    pid, started = process.get("pid"), process.get("started")
    if any(process.get(name) != value for name, value in here.items()):
        return None
    if type(pid) is not int or not 0 < pid <= _PID_MAX:  # others mean groups of processes
        return None
    found = _stat(pid) if started is not None else None
    if found is not None:
        return found[0] not in _DEAD and found[1] == started
    if not _is_there(pid):
        return False
    return True if started is None else None  # /proc may hide what belongs to others


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True


def _beats(heartbeat: Any, written_at: float | None) -> bool:
    found = moment(heartbeat)
    at = found.timestamp() if found is not None else written_at
    # A clock that was set back, or is another machine's, may be before the heartbeat.
    return at is not None and time.time() - at <= STALE_S


def _stat(pid: int) -> tuple[str, int] | None:
    """Return state and start of a process as Linux tells them, or None."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = text.rpartition(")")[2].split()  # before it is the command, which may hold any
        return fields[_STATE], int(fields[_STARTED])
    except (OSError, ValueError, IndexError):
        return None


@cache
def _boot_id() -> str | None:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() or None
    return None


def _pid_namespace() -> str | None:
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return None
