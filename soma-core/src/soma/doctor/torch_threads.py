"""torch, where it is installed: its version, and how many threads it takes.

Importing it takes seconds, and may hang or crash. So it is asked in a process of its own, which is
started first and heard last; and it has a time limit. What it has started itself ends with it, and
whatever holds its pipes after that is not waited for.

Whether it is installed, its metadata says: a folder ``torch`` that lies about is a package to
import, too, one without anything in it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import distribution

from soma.contracts import Finding
from soma.errors import shown

__all__ = ["TorchThreads"]

_LIMIT_S = 60.0
_END_S = 5.0
"""So long a process is waited for that was killed: one that waits for a disk does not end."""
_MARK = "soma-torch:"
_ASK = f"""
import json
try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    said = None
else:
    said = [str(torch.__version__), int(torch.get_num_threads())]
print("\\n{_MARK}" + json.dumps(said))
"""

_NUMBERS = re.compile(r"\s*[1-9][0-9]{0,8}\s*(,\s*[1-9][0-9]{0,8}\s*)*")
"""One for each level of nesting."""


class TorchThreads:
    """The question to torch, asked when this is made."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._failed: OSError | None = None
        if sys.executable and _is_installed():
            try:
                self._process = subprocess.Popen(  # noqa: S603  # our own interpreter, our own text
                    [sys.executable, "-P", "-c", _ASK],  # -P: a torch.py that lies about here
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    start_new_session=True,  # so that what it starts can be ended with it
                )
            except OSError as error:
                self._failed = error

    def look(self) -> Iterator[Finding]:
        """Say what it has answered; nothing where it is not installed.

        Raises:
            OSError: no process could be started for it.
        """
        yield from _asked_for()
        if self._failed is not None:
            raise self._failed
        if self._process is None:
            return
        try:
            said, printed = self._process.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            yield _broken(f"it is installed, and importing it takes more than {_LIMIT_S:g} s")
            return
        if self._process.returncode:
            last = printed.strip().splitlines()[-1:] or [_how(self._process.returncode)]
            yield _broken(f"it is installed and does not import: {last[0]}")
            return
        found = json.loads(said.rpartition(_MARK)[2])
        if found is not None:  # else its metadata alone is there
            yield _about(*found)

    def close(self) -> None:
        """End the process, unless it has ended, and what it has started."""
        process = self._process
        if process is None:
            return
        if process.returncode is None:  # else its number may be another's by now
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _is_installed() -> bool:
    try:
        distribution("torch")
    except Exception:  # noqa: BLE001  # not there, or so damaged that nothing can be said of it
        return False
    return True


def _how(status: int) -> str:
    return f"it was ended by signal {-status}" if status < 0 else f"exit status {status}"


def _broken(text: str) -> Finding:
    advice = (
        "try: python -c 'import torch', and install it again: pip install --force-reinstall torch"
    )
    return Finding(about="torch", state="wrong", text=text, advice=advice)


def _about(version: str, threads: int) -> Finding:
    cpus = _cpus()
    text = f"{version}, {threads} thread{'s' * (threads != 1)} on {cpus} CPU{'s' * (cpus != 1)}"
    if threads <= cpus:
        return Finding(about="torch", state="fine", text=text)
    return Finding(
        about="torch",
        state="note",
        text=f"{text}: more than there are get in each other's way",
        advice=f"export OMP_NUM_THREADS={cpus}",
    )


def _asked_for() -> Iterator[Finding]:
    """Look at the variable that says how many threads there shall be, for numpy as well."""
    said = os.environ.get("OMP_NUM_THREADS")
    if said is None:
        return
    if not _NUMBERS.fullmatch(said):
        yield Finding(
            about="threads",
            state="note",
            text=f"OMP_NUM_THREADS is a number of threads, and {shown(said)} is none",
            advice=f"export OMP_NUM_THREADS={_cpus()}, or: unset OMP_NUM_THREADS",
        )
    elif int(said.split(",")[0]) > _cpus():
        yield Finding(
            about="threads",
            state="note",
            text=f"OMP_NUM_THREADS={said}, and this process may use {_cpus()} of the CPUs",
            advice=f"export OMP_NUM_THREADS={_cpus()}",
        )


def _cpus() -> int:
    """Return on how many CPUs this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
