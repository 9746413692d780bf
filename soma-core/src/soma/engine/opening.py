"""Which store a graph works with, from what its user said."""

from __future__ import annotations

from typing import Any, TypeAlias

from soma.contracts import ActionStore
from soma.engine.memory import MemoryStore, shared_store
from soma.errors import InvalidInput, UnknownName, did_you_mean, shown
from soma.registry import default
from soma.specs import ActionStoreSpec

__all__ = ["StoreSource", "open_store"]

_NAMES = ("memory", "disk", "off")


StoreSource: TypeAlias = tuple[str, dict[str, Any]]
"""Name and options by which another process may open the same store itself."""


def open_store(
    cache: Any, path: Any, max_bytes: Any
) -> tuple[ActionStore | None, StoreSource | None]:
    """Return the store, None for ``"off"``, and how another process opens it, where it may.

    Raises:
        UnknownName: there is no cache of that name.
        MissingPackage: the package that provides it is not installed.
        InvalidInput: the arguments do not go together.
    """
    if path is not None and (cache is None or cache in ("memory", "off")):
        raise InvalidInput(
            f"cache_path ({shown(path)}) is the folder of a cache on disk: say cache='disk' with it"
        )
    if max_bytes is not None and cache is not None and cache != "memory":
        raise InvalidInput("cache_max_bytes is the size of a cache in memory: cache='memory'")
    if cache == "memory" or (cache is None and max_bytes is not None):
        return MemoryStore(max_bytes), None
    if cache is None:
        return shared_store(), None
    if cache == "off":
        return None, None
    if isinstance(cache, str):
        return _from_plugins(cache, path)
    if callable(getattr(cache, "lookup", None)) and callable(getattr(cache, "commit", None)):
        store: ActionStore = cache
        return store, None
    raise InvalidInput(
        f"cache must be one of {_NAMES}, an address or an ActionStore, not {shown(cache)}"
    )


def _from_plugins(cache: str, path: Any) -> tuple[ActionStore, StoreSource | None]:
    name, options = cache, {} if path is None else {"path": path}
    if "://" in cache:  # tiers behind a cache on disk
        name, options["url"] = "disk", cache
    try:
        offer = default().find(name, ActionStoreSpec)
        factory = default().get(name, ActionStoreSpec)
    except UnknownName:
        raise UnknownName(f"There is no cache {cache!r}.{did_you_mean(cache, _NAMES)}") from None
    store: ActionStore = factory(**options)
    shareable = isinstance(offer.spec, ActionStoreSpec) and offer.spec.shareable
    return store, (name, options) if shareable else None
