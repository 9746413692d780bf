"""Filters for tests of session children: importable, so that they travel by path."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import numpy as np

from soma import Filter, Opaque


class Mean(Filter):
    def fit(self, x, y=None):
        return {"mean": np.asarray(x, dtype=float).mean(axis=0)}

    def forward(self, x, state):
        return np.asarray(x, dtype=float) - state["mean"]


class Named(Filter):
    """Takes all there is to be had."""

    def fit(self, x, y=None, *, rng, state=None, epochs=1, batch_size=None, shuffle=False):
        return {
            "y": y,
            "drawn": float(rng.normal()),
            "from": state,
            "options": [epochs, batch_size, shuffle],
        }

    def forward(self, x, state, rng):
        return {"x": x, "state": state, "drawn": float(rng.normal())}


class Notes(Filter):
    """Writes on itself, in every way there is."""

    def __init__(self):
        self.name = "notes"
        self.log = ["made"]
        self.same = [1, 2]
        self.gone = "soon"
        self.array = np.zeros(3)

    def fit(self, x, y=None):
        self.log.append(f"fit of {len(x)}")
        self.array[0] = 7.0
        self.new_ = {"n": len(x)}
        del self.gone
        self.name = "no" + "tes"
        return {}

    def forward(self, x, state):
        return list(self.log)


class Slots:
    """Has no __dict__."""

    __slots__ = ("__hidden", "count", "unset")

    def __init__(self):
        self.count = 0
        self.__hidden = 0

    def fit(self, x, y=None):
        self.count += 1
        self.__hidden += 10
        return {}

    def forward(self, x, state):
        return self.__hidden

    @property
    def hidden(self):
        return self.__hidden


class LeavesOut(Filter):
    """Its lock stays at home."""

    def __init__(self):
        self.seen = 0
        self._lock = threading.Lock()

    def __getstate__(self):
        return {name: one for name, one in vars(self).items() if name != "_lock"}

    def __setstate__(self, state):
        vars(self).update(state)
        self._lock = threading.Lock()

    def forward(self, x, state):
        self.seen += 1
        self._lock = threading.Lock()
        return x


class HoldsMethod(Filter):
    """Holds a method of its own, as something to call."""

    def __init__(self):
        self.log = []
        self.hook = self.work
        self.inner = {"hook": self.work}

    def work(self):
        self.log.append("worked")

    def forward(self, x, state):
        self.hook()
        return x


class Odd(Filter):
    """Gives what cannot travel, or what can be read only once."""

    _deterministic = False

    def __init__(self, what):
        self.what = what

    def forward(self, x, state):
        if self.what == "lock":
            return threading.Lock()
        if self.what == "opaque":
            return Opaque(x)
        if self.what == "coroutine":
            return _nothing()
        if self.what == "set":
            return {1, 2}
        return (one for one in x)


async def _nothing():
    return None


class Fails(Filter):
    """Writes on itself, and fails."""

    def __init__(self):
        self.tries = 0

    def forward(self, x, state):
        self.tries += 1
        raise KeyError(f"try {self.tries}")


class Waits(Filter):
    """Says by a file that it runs, and runs until it is stopped."""

    def __init__(self, mark, how="sleeps"):
        self._mark = str(mark)
        self.how = how

    def forward(self, x, state):
        Path(self._mark).write_text(str(os.getpid()))
        try:
            while True:
                time.sleep(60 if self.how == "sleeps" else 0)
        except Exception:  # noqa: BLE001  # which a cancel is none of
            return "caught"


class Prints(Filter):
    def forward(self, x, state):
        sys.stdout.write("a line\nno end")
        return x


class ChangesConfig(Filter):
    """Changes what it is keyed by."""

    def __init__(self):
        self.calls = 0

    def forward(self, x, state):
        self.calls += 1
        return x + self.calls


class Inside(Filter):
    """Learns into itself."""

    def fit(self, x, y=None):
        self._sum = float(np.sum(x))

    def forward(self, x, state):
        return x + self._sum


class Dies(Filter):
    """Ends its process."""

    def forward(self, x, state):
        os._exit(4)


class Counts(Filter):
    """Says by a file how often it ran."""

    def __init__(self, file):
        self._file = str(file)

    def forward(self, x, state):
        with Path(self._file).open("a") as file:
            file.write("x")
        return np.asarray(x) * 2


def double(x):
    return x * 2


def drawn(x, rng):
    return float(rng.normal())


def gathered(x):
    return [list(x), [type(one).__name__ for one in x.values()]]


HOME = "SOMA_TEST_HOME"
"""Names the process in which no ``Homeless`` can be made."""


class Homeless:
    def __init__(self):
        self.value = 7

    def __setstate__(self, given):
        if os.environ.get(HOME) == str(os.getpid()):
            raise OSError("not at home")
        self.__dict__.update(given)


class Away(Filter):
    """Learns what only another process can hold."""

    def fit(self, x, y=None):
        return {"away": Homeless()}

    def forward(self, x, state):
        return state["away"].value


def told(value):
    """Say what it is given, and return it."""
    from soma.sessions import send_message

    send_message(value)
    return value
