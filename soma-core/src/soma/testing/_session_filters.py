"""Filters and functions that the session suite runs: importable, so that any process has them.

All of them are exact: no sum here depends on how many threads a library takes, so that two
processes must agree to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic, sleep
from typing import Any

import numpy as np

from soma.filters import Filter
from soma.sessions.messages import send_message

__all__ = [
    "Faulty",
    "Greedy",
    "Join",
    "Keeper",
    "Mishap",
    "Noise",
    "Refine",
    "Scaler",
    "Slopes",
    "Spin",
    "Steps",
    "add",
    "below_one",
    "double",
    "fail",
    "halve",
    "overwrite",
    "same",
    "scale",
    "sign",
    "spin_after_a_word",
    "talk",
]

_SPIN_S = 60.0
"""How long what is to be cancelled goes on if nobody cancels it."""


class Mishap(Exception):
    """An exception of a user's own, with more than a text in it."""

    def __init__(self, code: int, where: str) -> None:
        super().__init__(code, where)
        self.code = code
        self.where = where


class Keeper(Filter):
    """Keeps what it learns to itself."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def fit(self, x: Any, y: Any = None) -> None:  # noqa: ARG002  # fit has its signature
        """Keep the sum."""
        self._sum = x.sum()

    def forward(self, x: Any, state: Any) -> Any:  # noqa: ARG002  # it has none
        """Return the input times the factor, and what was kept."""
        return x * self.factor, getattr(self, "_sum", None)


class Scaler(Filter):
    """Learns the mean, and takes it away."""

    def fit(self, x: Any, y: Any = None) -> dict[str, Any]:  # noqa: ARG002  # fit has its signature
        """Return the mean of each column."""
        return {"mean": x.mean(axis=0), "rows": len(x)}

    def forward(self, x: Any, state: Any) -> Any:
        """Return what lies above the mean."""
        return x - state["mean"]


class Slopes(Filter):
    """Learns from labels."""

    def __init__(self, damping: float = 0.0) -> None:
        self.damping = damping

    def fit(self, x: Any, y: Any) -> dict[str, Any]:
        """Return one slope per column."""
        return {"slope": (x * y[:, None]).sum(axis=0) / ((x * x).sum(axis=0) + self.damping)}

    def forward(self, x: Any, state: Any) -> Any:
        """Return a column per slope."""
        return x * state["slope"]


class Noise(Filter):
    """Draws numbers, when it learns and when it runs."""

    def fit(self, x: Any, y: Any = None, *, rng: Any) -> dict[str, Any]:  # noqa: ARG002  # as above
        """Return a shift that only chance has made."""
        return {"shift": rng.normal(size=x.shape[1:])}

    def forward(self, x: Any, state: Any, *, rng: Any) -> Any:
        """Return what was shifted, and shaken."""
        return x + state["shift"] + rng.normal(size=x.shape)


class Steps(Filter):
    """Counts what it was asked to learn, and goes on from what it is given."""

    def fit(
        self,
        x: Any,  # noqa: ARG002  # as above
        y: Any = None,  # noqa: ARG002  # as above
        *,
        state: Any = None,
        epochs: int = 1,
        batch_size: int | None = None,
        shuffle: bool = False,
    ) -> dict[str, Any]:
        """Return the steps taken so far, and how."""
        before = 0 if state is None else state["steps"]
        return {"steps": before + epochs, "batch_size": batch_size, "shuffle": shuffle}

    def forward(self, x: Any, state: Any) -> Any:
        """Return the input, so many times."""
        return x * state["steps"]


class Refine(Filter):
    """Goes on from the pass before, in a loop."""

    def fit(self, x: Any, y: Any = None, *, state: Any = None) -> dict[str, Any]:  # noqa: ARG002  # as above
        """Return what was seen at most, and in how many passes."""
        before = {"most": -np.inf, "passes": 0} if state is None else state
        return {"most": max(before["most"], float(x.max())), "passes": before["passes"] + 1}

    def forward(self, x: Any, state: Any) -> Any:
        """Return half of it, and what was seen at most."""
        return x / 2 + 0 * state["most"]


class Join(Filter):
    """Takes several inputs, by the ids of the nodes that they come from."""

    def forward(self, x: Mapping[str, Any], state: Any) -> Any:  # noqa: ARG002  # as above
        """Return the ids and the columns side by side."""
        return list(x), np.concatenate([np.atleast_2d(one) for one in x.values()], axis=1)


class Greedy(Filter):
    """Writes to what it is given."""

    def forward(self, x: Any, state: Any) -> Any:  # noqa: ARG002  # as above
        """Return zeros, which the input has become."""
        x *= 0
        return x


class Faulty(Filter):
    """Fails on what is negative, when it learns and when it runs."""

    def fit(self, x: Any, y: Any = None) -> dict[str, Any]:  # noqa: ARG002  # as above
        """Return the sum.

        Raises:
            Mishap: it is negative.
        """
        return {"sum": self._checked(x, "fit")}

    def forward(self, x: Any, state: Any) -> Any:
        """Return input and state.

        Raises:
            Mishap: the sum of the input is negative.
        """
        return self._checked(x, "forward") + state["sum"]

    def _checked(self, x: Any, where: str) -> float:
        found = float(x.sum())
        if found < 0:
            raise Mishap(7, where)
        return found


class Spin(Filter):
    """Goes round and round on what is negative, until somebody cancels it."""

    def fit(self, x: Any, y: Any = None) -> dict[str, Any]:  # noqa: ARG002  # as above
        """Return the sum, of what is not negative."""
        return {"sum": _spun(x)}

    def forward(self, x: Any, state: Any) -> Any:
        """Return input and state, of what is not negative."""
        return _spun(x) + state["sum"]


def _spun(x: Any) -> float:
    found = float(x.sum())
    if found < 0:
        _spin()
    return found


def _spin() -> None:
    end = monotonic() + _SPIN_S
    while monotonic() < end:
        sleep(0.005)
    raise TimeoutError(f"nobody has cancelled this within {_SPIN_S:g} s")


def same(x: Any) -> Any:
    """Return the input."""
    return x


def double(x: Any) -> Any:
    """Return twice the input."""
    return 2 * x


def halve(x: Any) -> Any:
    """Return half of the input."""
    return x / 2


def scale(x: Any, factor: Any) -> Any:
    """Return the input, so many times."""
    return x * factor


def sign(x: Any) -> str:
    """Return in words whether a sum is negative."""
    return "negative" if float(x.sum()) < 0 else "positive"


def below_one(x: Any) -> bool:
    """Say whether all of it is below 1."""
    return bool(x.max() < 1)


def add(a: Any, b: Any) -> Any:
    """Return a sum."""
    return a + b


def overwrite(x: Any) -> float:
    """Write to an array, and return what its sum is then."""
    x[...] = 7
    return float(x.sum())


def fail(code: int) -> None:
    """Raise.

    Raises:
        Mishap: always.
    """
    raise Mishap(code, "call")


def talk(words: list[Any]) -> list[Any]:
    """Send each word, and return the answers."""
    return [send_message(word) for word in words]


def spin_after_a_word() -> None:
    """Send a word, then go round and round."""
    send_message("begun")
    _spin()
