"""Which store a graph works with, from what its user said.

What was named is opened at once, so that a wrong name is refused where it stands. What a graph has
by default, the disk cache that all graphs share, is opened when it is first needed: looking for the
package that offers it takes a moment that whoever only draws a graph should not pay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from soma._hints import install_line
from soma._notices import tell_once
from soma.contracts import ActionStore
from soma.engine.memory import MemoryStore, shared_store
from soma.errors import (
    InvalidInput,
    MissingPackage,
    UnknownName,
    describe_error,
    did_you_mean,
    shown,
)
from soma.registry import default
from soma.specs import ActionStoreSpec

__all__ = ["CacheChoice", "StoreSource"]

_NAMES = ("memory", "disk", "off")
_WITH_PATH = ("local", "tiered")
"""What the disk cache was called in the first Soma, where it wanted a path."""
_UNOPENED: Any = object()


StoreSource: TypeAlias = tuple[str, dict[str, Any]]
"""Name and options by which another process may open the same store itself."""

_Opened: TypeAlias = tuple[ActionStore | None, StoreSource | None]


class CacheChoice:
    """The store of one graph.

    Args:
        cache: its name, an address or an ``ActionStore``; None for the default.
        path: the folder of a cache on disk.
        max_bytes: bytes that are held in memory.

    Raises:
        UnknownName: there is no cache of that name.
        MissingPackage: the package that provides it is not installed.
        InvalidInput: the arguments do not go together.
    """

    def __init__(self, cache: Any, path: Any, max_bytes: Any) -> None:
        _check(cache, path, max_bytes)
        self._max_bytes = max_bytes
        self._opened: Any = _UNOPENED if cache is None else _named(cache, path, max_bytes)

    @property
    def store(self) -> ActionStore | None:
        """The store; None where nothing is kept."""
        return self._open()[0]

    @property
    def source(self) -> StoreSource | None:
        """How another process opens the same store, where it may."""
        return self._open()[1]

    def _open(self) -> _Opened:
        if self._opened is _UNOPENED:
            self._opened = _default(self._max_bytes)
        opened: _Opened = self._opened
        return opened


def _check(cache: Any, path: Any, max_bytes: Any) -> None:
    if path is not None and (not isinstance(cache, str) or cache in ("memory", "off")):
        raise InvalidInput(
            f"cache_path ({shown(path)}) is the folder of a cache on disk: say cache='disk' with it"
        )
    if path is None and isinstance(cache, str) and cache in _WITH_PATH:
        raise InvalidInput(f"cache={cache!r} needs cache_path, the folder of the cache")
    if max_bytes is None:
        return
    if cache == "off" or not (cache is None or isinstance(cache, str)):
        raise InvalidInput(
            "cache_max_bytes is how much of a cache is held in memory: it goes with "
            "cache='memory' and with cache='disk'"
        )
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes <= 0:
        raise InvalidInput(
            f"cache_max_bytes must be a whole number of bytes above 0, not {shown(max_bytes)}"
        )


def _named(cache: Any, path: Any, max_bytes: int | None) -> _Opened:
    if cache == "memory":
        return MemoryStore(max_bytes), None
    if cache == "off":
        return None, None
    if isinstance(cache, str):
        options: dict[str, Any] = {} if path is None else {"path": path}
        if "://" in cache:  # a tier behind a cache on disk
            options["url"] = cache
        if max_bytes is not None:
            options["max_bytes"] = max_bytes
        name = "disk" if cache in _WITH_PATH or "url" in options else cache
        try:
            default().find(name, ActionStoreSpec)
        except UnknownName:
            raise UnknownName(
                f"There is no cache {cache!r}.{did_you_mean(cache, _NAMES)}"
            ) from None
        return _from_plugins(name, options)  # what it misses, such as a tier, it says itself
    if isinstance(cache, type):
        raise InvalidInput(f"cache is a store, not the class {shown(cache)}: make an object of it")
    if callable(getattr(cache, "lookup", None)) and callable(getattr(cache, "commit", None)):
        store: ActionStore = cache
        return store, None
    raise InvalidInput(
        f"cache must be one of {_NAMES}, an address or an ActionStore, not {shown(cache)}"
    )


def _default(max_bytes: int | None) -> _Opened:
    """Open the disk cache; where there is none, say so once and hold results in memory."""
    try:
        return _from_plugins("disk", {} if max_bytes is None else {"max_bytes": max_bytes})
    except MissingPackage:
        tell_once(
            ("no cache",),
            "results are held in memory, and are gone when this process ends. To have them kept on "
            f"disk: {install_line('soma-cache')}. To have it so without this line: "
            "Graph(cache='memory')",
        )
    except Exception as error:  # noqa: BLE001  # nothing kept is worth a failed run
        tell_once(
            ("no cache",),
            "the cache on disk cannot be used, so results are held in memory: "
            + " ".join(describe_error(error).split()),
        )
    return shared_store() if max_bytes is None else MemoryStore(max_bytes), None


def _from_plugins(name: str, options: dict[str, Any]) -> _Opened:
    offer = default().find(name, ActionStoreSpec)
    store: ActionStore = default().get(name, ActionStoreSpec)(**options)
    shareable = isinstance(offer.spec, ActionStoreSpec) and offer.spec.shareable
    # What it says of itself is exact (a path that was relative here, say), or that nobody else can.
    found: Mapping[str, Any] | None = getattr(store, "open_options", options)
    return store, (name, dict(found)) if shareable and found is not None else None
