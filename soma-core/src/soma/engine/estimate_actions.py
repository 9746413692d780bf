"""What an estimate finds of each fit and forward, and what stands for what only a run knows."""

from __future__ import annotations

from soma.contracts import ActionRecord
from soma.engine.estimates import Outcome

__all__ = ["Action", "Promises", "is_promise"]

_PROMISE = "?"
"""What promises begin with, and no hash does."""


class Promises:
    """Texts that stand for hashes which only a run will know. One for each key that has none."""

    def __init__(self) -> None:
        self._count = 0
        self._of_keys: dict[str, str] = {}
        self._of_bases: dict[str, str] = {}

    def kept(self, key: str) -> str | None:
        """Return what stands for what will be recorded under a key; None where nothing will."""
        return self._of_keys.get(key)

    def keep(self, key: str) -> str:
        """Say that something will be recorded under a key."""
        return self._of_keys.get(key) or self._of_keys.setdefault(key, self.new())

    def of(self, basis: str) -> str:
        """Return what stands for something that is not recorded, and made from this every time."""
        return self._of_bases.get(basis) or self._of_bases.setdefault(basis, self.new())

    def new(self) -> str:
        """Return what stands for something that nothing else is."""
        self._count += 1
        return f"{_PROMISE}{self._count}"


def is_promise(digest: str) -> bool:
    """Say whether it stands for a hash that only a run will know."""
    return digest.startswith(_PROMISE)


class Action:
    """One fit or forward that would be done, or is known."""

    __slots__ = (
        "at",
        "digest",
        "init",
        "key",
        "outcome",
        "passes",
        "place",
        "record",
        "rest",
        "what",
        "why",
    )

    def __init__(self, at: int, place: int, what: str, passes: tuple[int, ...]) -> None:
        self.at = at
        """Its position in the run; -1 where it has none, since it may never come to it."""
        self.place = place
        self.what = what
        self.passes = passes
        self.outcome: Outcome = "unknown"
        self.key = ""
        self.record: ActionRecord | None = None
        self.digest = ""
        """Of what it gives, or a promise."""
        self.init: Action | None = None
        """Of a fit: the one that gave the state which it goes on from."""
        self.rest = False
        """Whether it stands for all that may come of a body."""
        self.why = ""
        """Why it is computed every time, where it is."""
