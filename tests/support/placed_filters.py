"""Filters for tests of workers: importable, so that they travel by path."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from soma import Filter


class Mean(Filter):
    """Learns the mean and says where it did."""

    def fit(self, x, y=None):
        return {"mean": np.asarray(x, dtype=float).mean(axis=0), "pid": os.getpid()}

    def forward(self, x, state):
        return np.asarray(x, dtype=float) - state["mean"]


class Where(Filter):
    """Gives the id of the process that it runs in."""

    _deterministic = False

    def forward(self, x, state):
        return os.getpid()


class Times(Filter):
    def __init__(self, factor):
        self.factor = factor

    def forward(self, x, state):
        return np.asarray(x) * self.factor


class Meet(Filter):
    """Waits until another node has come to the same folder: they must run at the same time."""

    _deterministic = False

    def __init__(self, folder, own, other):
        self.folder = str(folder)
        self.own = own
        self.other = other

    def forward(self, x, state):
        Path(self.folder, self.own).touch()
        for _ in range(600):
            if Path(self.folder, self.other).exists():
                return os.getpid()
            time.sleep(0.05)
        raise TimeoutError(f"{self.other} did not come")


class Keeps(Filter):
    """Learns into itself, and shows nothing of it."""

    def fit(self, x, y=None):
        self._learned = np.asarray(x).sum()

    def forward(self, x, state):
        return x + self._learned


class Changes(Filter):
    """Sets a public attribute in its fit, and reads it in its forward."""

    def __init__(self):
        self.unit = 1

    def fit(self, x, y=None):
        self.mean_ = float(np.mean(x))
        return {}

    def forward(self, x, state):
        return x - self.mean_


class KeepsALock(Filter):
    def fit(self, x, y=None):
        import threading

        self._lock = threading.Lock()

    def forward(self, x, state):
        return x


class Fails(Filter):
    def __init__(self, message="this is wrong"):
        self.message = message

    def forward(self, x, state):
        raise ValueError(self.message)


class Dies(Filter):
    """Ends its process in its fit, unless a file is there."""

    def __init__(self, how, spared=""):
        self.how = how
        self._spared = str(spared)

    def fit(self, x, y=None):
        if self._spared and Path(self._spared).exists():
            return {"n": len(x)}
        end(self.how)
        return {"n": -1}

    def forward(self, x, state):
        return np.asarray(x) + state["n"]


def end(how):
    """End this process in one of several ways."""
    if how == "exit":
        os._exit(3)
    elif how == "segfault":
        import ctypes

        ctypes.string_at(0)
    else:
        os.kill(os.getpid(), int(how))


class Sleeps(Filter):
    """Says that it runs, and sleeps."""

    def __init__(self, seconds, mark=""):
        self.seconds = seconds
        self._mark = str(mark)

    def forward(self, x, state):
        if self._mark:
            Path(self._mark).write_text(str(os.getpid()))
        time.sleep(self.seconds)
        return x


class Spins(Filter):
    """Runs pure Python for so many seconds."""

    def __init__(self, seconds, mark=""):
        self.seconds = seconds
        self._mark = str(mark)

    def forward(self, x, state):
        if self._mark:
            Path(self._mark).write_text(str(os.getpid()))
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            pass
        return x


class Takes(Filter):
    """Takes so many bytes and touches them."""

    def __init__(self, nbytes):
        self.nbytes = nbytes

    def forward(self, x, state):
        taken = [np.ones(1 << 20) for _ in range(self.nbytes >> 23)]
        return float(sum(one[0] for one in taken))


class Draws(Filter):
    def forward(self, x, state, rng):
        return np.asarray(x) + rng.normal(size=np.shape(x))


class Twice(Filter):
    """Goes on from its state."""

    def fit(self, x, y=None, *, state=None):
        return {"n": 1 if state is None else state["n"] + 1}

    def forward(self, x, state):
        return np.asarray(x) * state["n"]


class Prints(Filter):
    def forward(self, x, state):
        print("a line of Python")  # noqa: T201  # what is tested
        os.write(1, b"raw bytes \xff\n")
        os.write(2, b"no end")
        return x


class Inside(Filter):
    """Learns into itself and returns {}; forward uses both."""

    def fit(self, x, y=None):
        self._learned = float(np.mean(x))
        return {}

    def forward(self, x, state):
        return np.asarray(x) - self._learned + len(state)


class Counts(Filter):
    """Counts its calls on itself."""

    _deterministic = False

    def __init__(self):
        self._n = 0

    def forward(self, x, state):
        self._n += 1
        return self._n


class Opens(Filter):
    """Sets a public attribute that cannot travel."""

    def forward(self, x, state):
        import threading

        self.handle = threading.Lock()
        return x


NESTED = []
"""The graph that a node runs in its forward, and what it does before; empty in a child."""


class Nested(Filter):
    _cache_version = "nested"

    def forward(self, x, state):
        for graph, begin in NESTED:
            begin()
            for _ in range(3):
                graph.forward(x)
        return x * 2
