"""$SOMA_CACHE_MAX_SIZE: looked after when a run is over, seldom, and harmless."""

from __future__ import annotations

import os
import shutil
import time

import numpy as np
import pytest

from soma import Filter, Graph
from soma._notices import _told
from soma.contracts import ActionRecord
from soma.engine.memory import MemoryStore
from soma_cache import collecting, index, open_store
from soma_cache import limit as limits
from soma_cache.collecting import collect
from support.cache_folders import blobs_of
from support.cache_stores import KEY, MIDDLE, keep, opened
from support.cache_walk import surveyed, walked


class Draw(Filter):
    """Gives as many bytes as it is told, other ones for each number."""

    def __init__(self, number, nbytes=MIDDLE):
        self.number = number
        self.nbytes = nbytes

    def forward(self, x, state):
        return np.full(self.nbytes, self.number % 251, dtype=np.uint8)


class Fails(Filter):
    def forward(self, x, state):
        raise RuntimeError("that is how it is")


@pytest.fixture(autouse=True)
def says_everything_again():
    _told.clear()


@pytest.fixture
def collected(monkeypatch):
    """Note each gc that a limit starts, with its limits."""
    found = []

    def noting(folder, **choice):
        found.append(choice)
        return collect(folder, **choice)

    monkeypatch.setattr(collecting, "collect", noting)
    return found


def grow_old(folder):
    for path in blobs_of(folder):
        os.utime(path, (time.time() - 7_200,) * 2)


def fill(folder, numbers):
    for number in numbers:
        Graph.somatize(Draw(number)).forward(1.0)
    grow_old(folder)


def test_without_it_nothing_is_looked_at(folder, collected, monkeypatch):
    monkeypatch.setattr(index, "consult", lambda *_: pytest.fail("looked"))
    fill(folder, range(3))
    assert collected == []


def test_above_it_the_least_worth_goes_down_to_nine_tenths(folder, collected, monkeypatch, capfd):
    fill(folder, range(8))
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("SOMA_CACHE_MAX_SIZE", "500K")
    Graph.somatize(Draw(100)).forward(1.0)
    assert collected == [{"max_bytes": 512_000 - 51_200, "min_age_s": 3_600.0}]
    assert 300_000 < sum(path.stat().st_size for path in blobs_of(folder)) <= 460_800
    assert surveyed(folder) == walked(folder)
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert "was above SOMA_CACHE_MAX_SIZE (500 KiB): 5 values of the least worth were" in err
    for number in range(8):  # those that went are computed again
        grow_old(folder)
        assert Graph.somatize(Draw(number)).forward(1.0).tolist() == [number] * MIDDLE
    assert len(collected) > 1
    assert capfd.readouterr().err == ""


def test_it_is_looked_at_at_once_and_then_when_a_hundredth_was_written(folder, monkeypatch):
    monkeypatch.setenv("SOMA_CACHE_MAX_SIZE", str(100 * 2 * MIDDLE))
    looked = []
    consult = index.consult

    def noting(*args, **choice):
        looked.append(1)
        return consult(*args, **choice)

    monkeypatch.setattr(index, "consult", noting)
    seen = []
    for number in (1, 1, 2, 3, 3, 4, 5):  # what is a hit writes nothing
        Graph.somatize(Draw(number)).forward(1.0)
        seen.append(len(looked))
    assert seen == [1, 1, 1, 2, 2, 2, 3]


def test_a_run_that_fails_is_over_too(folder, collected, monkeypatch):
    fill(folder, range(4))
    monkeypatch.setenv("SOMA_CACHE_MAX_SIZE", "200K")
    with pytest.raises(RuntimeError, match="how it is"):
        Graph.somatize(Draw(50) >> Fails()).forward(1.0)
    assert len(collected) == 1


def test_what_is_young_or_pinned_stays_and_a_line_says_so(folder, collected, monkeypatch, capfd):
    monkeypatch.setenv("SOMA_CACHE_MAX_SIZE", "150K")
    for number in range(4):
        Graph.somatize(Draw(number)).forward(1.0)
    assert len(blobs_of(folder)) == 4
    assert len(collected) == 3
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert "stays above SOMA_CACHE_MAX_SIZE" in err
    assert "(150 KiB): it has 195 KiB, and 195 KiB were used within the hour" in err


def test_what_takes_longer_than_a_moment_is_said_once(folder, monkeypatch, capfd):
    fill(folder, range(4))
    monkeypatch.setenv("SOMA_CACHE_MAX_SIZE", "5M")
    Graph.somatize(Draw(5)).forward(1.0)
    assert capfd.readouterr().err == ""
    monkeypatch.setattr(limits, "_MOMENT_S", -1.0)
    for number in range(6, 8):
        shutil.rmtree(folder / "index")
        Graph.somatize(Draw(number)).forward(1.0)
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert f"looking through the cache in {folder}, for SOMA_CACHE_MAX_SIZE" in err


@pytest.mark.parametrize("said", ["many", "0", "-5", "nan", "1e400", "20X", "9" * 400, " "])
def test_a_size_that_is_none_costs_a_line(folder, monkeypatch, capfd, said):
    monkeypatch.setenv("SOMA_CACHE_MAX_SIZE", said)
    for number in range(2):
        Graph.somatize(Draw(number)).forward(1.0)
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert "SOMA_CACHE_MAX_SIZE is a size" in err
    assert "grows as it likes" in err
    assert len(blobs_of(folder)) == 2


def test_a_cache_that_is_only_read_is_let_be(folder, monkeypatch):
    fill(folder, range(3))
    monkeypatch.setenv("SOMA_CACHE_MAX_SIZE", "1K")
    store = open_store(folder, read_only=True)
    Graph.somatize(Draw(9), cache=store).forward(1.0)
    assert len(blobs_of(folder)) == 3


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), RuntimeError("what")])
def test_what_goes_wrong_with_it_costs_a_line_and_no_run(folder, monkeypatch, capfd, error):
    monkeypatch.setenv("SOMA_CACHE_MAX_SIZE", "1K")

    def broken(*_, **__):
        raise error

    monkeypatch.setattr(index, "consult", broken)
    for number in range(3):
        assert Graph.somatize(Draw(number)).forward(1.0)[0] == number
    err = capfd.readouterr().err
    assert err.count("the cache cannot look after itself") == 1


class Noting(MemoryStore):
    """Notes when it is told that a run is over."""

    def __init__(self):
        super().__init__()
        self.runs = 0

    def after_run(self):
        self.runs += 1
        if self.runs == 2:
            raise ValueError("not now")


def test_any_store_is_told_when_a_run_is_over(capfd):
    store = Noting()
    g = Graph.somatize(Draw(1), cache=store)
    for count in range(1, 4):
        g.forward(1.0)
        assert store.runs == count
    with pytest.raises(RuntimeError):
        Graph.somatize(Fails(), cache=store).forward(1.0)
    assert store.runs == 4
    assert "cannot look after itself: ValueError: not now" in capfd.readouterr().err


def test_it_can_be_called_by_hand(folder, monkeypatch):
    store = opened(folder)
    keep(store, bytes(MIDDLE), key=KEY)
    grow_old(folder)
    store.after_run()
    assert len(blobs_of(folder)) == 1
    monkeypatch.setenv("SOMA_CACHE_MAX_SIZE", "1K")
    store.after_run()
    assert blobs_of(folder) == []
    assert isinstance(store.lookup(KEY), ActionRecord)
