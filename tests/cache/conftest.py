"""For the tests of the disk cache: everything is kept, and new processes start quickly."""

from __future__ import annotations

import pytest

from support.forker import Forker


@pytest.fixture(scope="session")
def forker(tmp_path_factory):
    """A process that has imported everything, and from which others are forked."""
    with Forker(tmp_path_factory.mktemp("forker")) as made:
        yield made


@pytest.fixture(autouse=True)
def keeps_all(monkeypatch):
    monkeypatch.setenv("SOMA_CACHE_KEEP", "all")  # however long it took to compute


@pytest.fixture
def folder(own_cache_folder):
    return own_cache_folder
