"""New processes at the price of a fork: one that has imported everything, and opened nothing.

    with Forker(folder) as forker:
        done = forker.run(work, 1, 2)         # work(1, 2) in a process of its own
        child = forker.start(work)            # the same, beside us: child.kill(), child.wait()

To Soma each child is a new process: no store is open in it, nothing was computed, nothing was said.
``work`` is a function of a module that can be imported; its result comes back by pickle.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

__all__ = ["Child", "Done", "Forker"]

PATIENCE_S = 60
_TESTS = Path(__file__).parents[1]


class Done(NamedTuple):
    status: int
    """As of ``os.waitstatus_to_exitcode``: -9 where it was killed."""
    value: Any
    stderr: str


class Forker:
    """Forks children that work in folders of their own below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from support import forker; forker.serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(_TESTS)},
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()

    def start(self, work, *args, plain=False, most_bytes=None, cwd=None, **environment) -> Child:
        """Start ``work(*args)``.

        Args:
            work: the function.
            args: what it is given.
            plain: as somebody for whom the modes of files hold, which root is not.
            most_bytes: no file may become longer.
            cwd: where it works.
            environment: variables, besides ours.
        """
        self._count += 1
        place = self._folder / f"child-{self._count}"
        place.mkdir(parents=True)
        place.chmod(0o777)
        ours = {name: os.environ.get(name) for name in os.environ if name.startswith("SOMA_")}
        order = {
            "work": (work.__module__, work.__qualname__),
            "args": args,
            "plain": plain,
            "most_bytes": most_bytes,
            "cwd": str(cwd or place),
            "environment": {**ours, **environment},
            "place": str(place),
        }
        return Child(self, self._ask(("start", order)), place)

    def run(self, work, *args, seconds=PATIENCE_S, **settings) -> Any:
        """Return what ``work(*args)`` returned; fail where it did not."""
        return self.start(work, *args, **settings).value(seconds)

    def _ask(self, order):
        pickle.dump(order, self._process.stdin)
        self._process.stdin.flush()
        return pickle.load(self._process.stdout)  # noqa: S301  # our own


class Child(NamedTuple):
    forker: Forker
    pid: int
    place: Path
    """A folder of its own."""

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)  # the forker has not reaped it: the number is its own

    def wait(self, seconds=PATIENCE_S) -> Done:
        status = self.forker._ask(("wait", (self.pid, seconds)))
        assert status is not None, f"it is not through after {seconds} s"
        value, result = None, self.place / "result"
        if result.exists():
            value = pickle.loads(result.read_bytes())  # noqa: S301  # our own
        stderr = self.place / "stderr"
        return Done(status, value, stderr.read_text() if stderr.exists() else "")

    def value(self, seconds=PATIENCE_S) -> Any:
        done = self.wait(seconds)
        assert done.status == 0, done.stderr
        return done.value


# ---------------------------------------------------------------- the process that forks


def serve() -> None:
    """Do what is asked for on stdin until it is closed; then kill what still runs."""
    _warm_up()
    orders, answers = sys.stdin.buffer, sys.stdout.buffer
    running: set[int] = set()
    while True:
        try:
            what, order = pickle.load(orders)  # noqa: S301  # our own
        except EOFError:
            break
        if what == "start":
            pid = os.fork()
            if pid == 0:
                _become(**order)
            running.add(pid)
            found = pid
        else:
            found = _waited(*order)
            running.discard(order[0])
        pickle.dump(found, answers)
        answers.flush()
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _warm_up() -> None:
    from soma.registry import default
    from soma.specs import ActionStoreSpec
    from soma_cache import DiskStore
    from soma_cache.folder import Folder
    from support import cache_processes, cache_work, notes

    default().get("disk", ActionStoreSpec)
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path)
        folder.prepare()
        cache_work.study(cache_work.LARGE, cache=DiskStore(folder))
    cache_processes.drawn(0, 1)
    del notes.CALLS[:]
    gc.collect()
    gc.freeze()  # a child looks through its own objects only, and copies no pages for that


def _waited(pid: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _become(*, work, args, plain, most_bytes, cwd, environment, place) -> None:
    """Be the child: what a program does at its end is done, but nothing is taken apart."""
    folder = Path(place)
    for fd, target in ((0, os.devnull), (1, folder / "stdout"), (2, folder / "stderr")):
        opened = os.open(target, os.O_RDWR | os.O_CREAT, 0o666)
        os.dup2(opened, fd)
        os.close(opened)
    for name in [one for one in os.environ if one.startswith("SOMA_")]:
        del os.environ[name]
    os.environ.update(environment)
    os.chdir(cwd)
    if most_bytes is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
    if plain:
        _drop_capabilities()
    try:
        value = getattr(importlib.import_module(work[0]), work[1])(*args)
    except BaseException:  # noqa: BLE001  # the test shows it
        traceback.print_exc()
        status = 1
    else:
        with suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        (folder / "result").write_bytes(pickle.dumps(value))
        status = 0
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(status)


def _drop_capabilities() -> None:
    """Have root read and write what its owner may, and no more."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # of this process
    nothing = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable, in two halves
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "capset")
