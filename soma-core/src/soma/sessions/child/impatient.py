"""A store that this process has opened itself, for a call during which it must wait for nobody.

The client waits for us. Where the thread that has called holds a claim, whoever holds the claim we
want may be waiting for that one: so it is taken at once, or the value is computed without.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

from soma.contracts import ActionStore

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
        """Hold ``key`` if nobody else does."""
        attempt = getattr(self._store, "try_claim", None)
        held = None if attempt is None else attempt(key, self._who)
        return nullcontext() if held is None else _Held(held)


class _Held:
    """A claim that is held already."""

    __slots__ = ("_claim",)

    def __init__(self, claim: AbstractContextManager[None]) -> None:
        self._claim = claim

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._claim.__exit__(kind, error, trace)
