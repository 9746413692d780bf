"""For all tests: each has a cache of its own, which no other test and no user's graph has seen."""

from __future__ import annotations

from itertools import count

import pytest

_numbers = count()


@pytest.fixture(scope="session")
def caches_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(autouse=True)
def own_cache_folder(caches_folder, monkeypatch):
    """Name a folder that is not there yet: most tests need none."""
    for name in ("REMOTE", "FSYNC", "KEEP", "MAX_SIZE"):
        monkeypatch.delenv(f"SOMA_CACHE_{name}", raising=False)
    folder = caches_folder / str(next(_numbers))
    monkeypatch.setenv("SOMA_CACHE_DIR", str(folder))
    return folder
