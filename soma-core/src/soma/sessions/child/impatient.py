"""A store that this process has opened itself, for a call during which it must wait for nobody.

The client waits for us. Where the thread that has called holds a claim, whoever holds the claim we
want may be waiting for that one: so it is taken at once, or the value is computed without.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from soma.contracts import ActionStore
from soma.engine.claims import claim_at_once

__all__ = ["Impatient"]


class Impatient:
    """The same store, whose claims are not waited for.

    Args:
        store: the store.
        who: whom those say that they wait for who want what is claimed here.
    """

    def __init__(self, store: ActionStore, who: str) -> None:
        self._store: Any = store
        self._who = who

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def claim(self, key: str) -> AbstractContextManager[None]:
        """Return a context manager that holds ``key`` if nobody else does."""
        return _Attempt(self._store, key, self._who)


class _Attempt:
    """One claim. Leaving it twice, or from another thread, does no harm."""

    __slots__ = ("_held", "_key", "_store", "_who")

    def __init__(self, store: Any, key: str, who: str) -> None:
        self._store = store
        self._key = key
        self._who = who
        self._held: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        claim_at_once(self._store, self._key, self._who, self._held)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for one in self._held:
            one.__exit__(None, None, None)
        self._held.clear()  # last: where Ctrl-C comes before this, it can be left once more
