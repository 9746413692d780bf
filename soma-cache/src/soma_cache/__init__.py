"""The disk cache of Soma: what was computed once is found again, by every process that asks.

Installed, it is what every ``Graph()`` has. It can be told where to look as well::

    from soma import Graph
    from soma_cache import open_store

    g = Graph()                                          # in the folder that all graphs share
    g = Graph(cache="disk", cache_path="study/cache")    # in a folder of its own
    g = Graph(cache="file:///shared/cache")              # with a folder of the lab behind it
    g = Graph(cache=open_store("study/cache", read_only=True))

docs/cache.md is the guide, docs/formats/store.md says what lies in the folder.
"""

from __future__ import annotations

from soma_cache.folder_tier import FolderTier
from soma_cache.opening import default_folder, open_store
from soma_cache.store import DiskStore

__all__ = ["DiskStore", "FolderTier", "default_folder", "open_store"]
