"""What processes do beside each other in tests of the disk cache: write, wait, fork, be killed."""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import threading
import time
from pathlib import Path

import numpy as np

from soma import Filter, Graph
from soma.sessions import LocalRunner
from soma_cache import open_store
from support.cache_work import MIDDLE, SMALL, Add, Learn, drawn, study
from support.notes import CALLS, note, noted

__all__ = [
    "Held",
    "Seeded",
    "Slow",
    "forks_beside_writers",
    "forks_once",
    "forward_at",
    "look_at_what_was_written",
    "seeds",
    "study_at_a_worker",
    "study_in_a_session",
    "write_until_killed",
]

X = np.arange(6.0)


class Draw(Filter):
    """Gives bytes that nobody else gives."""

    def __init__(self, number, nbytes):
        self.number = number
        self.nbytes = nbytes

    def forward(self, x, state):
        note("draw")
        return drawn(self.number, self.nbytes)


class Slow(Filter):
    def forward(self, x, state):
        note("slow")
        time.sleep(1.0)
        return x * 2


class Held(Filter):
    """Does not come to its end before a file is there."""

    def __init__(self, gate):
        self._gate = gate

    def kwargs(self):
        return {}

    def forward(self, x, state):
        note("held")
        _wait_for(self._gate)
        return x * 2


class Seeded(Filter):
    """Learns what its seed says; the process is killed when it is about to learn once more."""

    def __init__(self, most=99):
        self._most = most

    def kwargs(self):
        return {}

    def fit(self, x, y=None, *, rng):
        if noted("fit") == self._most:
            os.kill(os.getpid(), signal.SIGKILL)
        note("fit")
        return {"drawn": rng.normal(size=x.shape)}

    def forward(self, x, state):
        return x * state["drawn"]


def _wait_for(path, seconds=60):
    deadline = time.monotonic() + seconds
    while not Path(path).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not come")
        time.sleep(0.002)


def forward_at(gate, node):
    """Say that we are here, and forward as soon as a file is there; return (result, calls)."""
    Path("here").touch()
    _wait_for(gate)
    return Graph.somatize(node).forward(X), list(CALLS)


# ---------------------------------------------------------------- to be killed


def _random(seed):
    return random.Random(seed)  # noqa: S311  # not for secrets


def _drawings(turn):
    """Yield the (number, nbytes) of what one writer writes, from small to larger than 1 MiB."""
    sizes = _random(turn)
    for place in range(1000):
        yield 1000 * turn + place, sizes.choices([300, 3_000, 30_000, 1_100_000], [5, 4, 3, 1])[0]


def write_until_killed(turn):
    """Say that we are here, and keep one value after the other."""
    Path("here").touch()
    for number, nbytes in _drawings(turn):
        Graph.somatize(Draw(number, nbytes)).forward(0)


def look_at_what_was_written(turns):
    """Ask for what each writer has written, in order, up to the first that has to be computed.

    Returns:
        How many were found, computed, and wrong.
    """
    wrong, total = 0, 0
    for turn in range(turns):
        for number, nbytes in _drawings(turn):
            before = noted("draw")
            found = Graph.somatize(Draw(number, nbytes)).forward(0)
            total += 1
            wrong += found.tobytes() != drawn(number, nbytes).tobytes()
            if noted("draw") > before:
                break
    return total - noted("draw"), noted("draw"), wrong


def seeds(most, count=5):
    """Return what each seed has drawn, and how often fit was called."""
    g = Graph.somatize(Seeded(most))
    found = []
    for seed in range(count):
        g.fit(np.ones(4), seed=seed)
        found.append(g.forward(np.ones(4)))
    return found, noted("fit")


# ---------------------------------------------------------------- forks


def _status(pid, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "it did not come to its end"


def _child_of(number):
    """Hit what was computed before the fork, and compute something that was not."""
    known, fresh = study(MIDDLE), study(SMALL + number)
    again = study(SMALL + number)
    right = known.right and fresh.right and again.right
    return right and (known.calls, fresh.calls, again.calls) == ([], ["add", "fit", "learn"], [])


def _forked(work, *args):
    pid = os.fork()
    if pid == 0:
        status = 2
        faulthandler.dump_traceback_later(10)
        try:
            status = 0 if work(*args) else 1
        finally:
            os._exit(status)
    return _status(pid)


def forks_once():
    """Study in threads, fork, and go on; return the status of the child, and what we then find."""
    threads = [threading.Thread(target=study, args=(MIDDLE,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    status = _forked(_child_of, 1)
    return status, study(MIDDLE), study(SMALL + 1), study(SMALL)


def forks_beside_writers(count):
    """Fork again and again while other threads compute, write and read; return the statuses."""
    study(MIDDLE)
    stop, wrong = threading.Event(), []

    def write(number):
        turn = 0
        while not stop.is_set():
            turn += 1
            which = 10_000 * number + turn % 50
            found = Graph.somatize(Draw(which, 3_000 * number)).forward(0)
            if not np.array_equal(found, drawn(which, 3_000 * number)):
                wrong.append(which)

    threads = [threading.Thread(target=write, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    try:
        statuses = [_forked(_child_of, number) for number in range(1, count + 1)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return statuses, wrong


def claims_and_forks():
    """Hold a claim, and fork a child that wants another; return its status."""
    study(MIDDLE)
    with open_store().claim("ab" * 32):
        return _forked(_child_of, 2), study(SMALL + 2)


# ---------------------------------------------------------------- sessions


def study_at_a_worker(items):
    """As ``study``, at a worker in a process of its own."""
    x = np.arange(items, dtype=float)
    g = Graph.somatize(Add(1.0) >> Learn())
    g.add_worker("local://")
    try:
        g.fit(x)
        return bool(np.array_equal(g.forward(x), 4 * (x + 1)))
    finally:
        g.shutdown_workers()


def study_in_a_session(items):
    """As ``study``, in a session of a runner."""
    x = np.arange(items, dtype=float)
    g = Graph.somatize(Add(1.0) >> Learn())
    with LocalRunner() as runner:
        session = runner.open(g.program())
        session.fit(x, None, seed=None, options={})
        return bool(np.array_equal(session.forward(x), 4 * (x + 1)))
