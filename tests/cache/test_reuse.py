from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from soma import Filter, Graph
from soma_cache import DiskStore
from soma_cache.folder import Folder
from support import kept_values
from support.cache_folders import assert_sound, records_of
from support.distributions import run_python
from support.kept_values import NAMES, compute_all, pickled_reading
from support.values import identical, values

TESTS = Path(__file__).parents[1]


def opened(path):
    """Open a store that has seen nothing, as a new process does."""
    folder = Folder(str(path))
    folder.prepare()
    return DiskStore(folder)


# ---------------------------------------------------------------- values


def test_every_kind_of_value_is_bit_equal_from_a_new_process(folder):
    """In an interpreter that another one has not forked."""
    code = "from support import kept_values; print(kept_values.compute_all())"
    cold, warm = (run_python(code, TESTS) for _ in range(2))
    assert (cold.returncode, cold.stderr) == (0, "")
    assert cold.stdout.strip() == str(([name for name in NAMES for _ in range(2)], []))
    assert (warm.returncode, warm.stderr) == (0, "")
    assert warm.stdout.strip() == str(([], []))
    assert len(assert_sound(folder)) == 2 * len(NAMES)


def test_what_is_expected_is_not_equal_to_something_near():
    """The comparison would see it."""
    for name in NAMES:
        assert identical(kept_values.value(name), kept_values.value(name))
    assert not identical(kept_values.value("nans"), kept_values.value("nans")[::-1])
    assert not identical(np.float64(1), 1.0)


class Same(Filter):
    def __init__(self):
        self._calls = 0

    def forward(self, x, state):
        self._calls += 1
        return x


@given(values())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_value_comes_back_as_it_was(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "any values"
    cold = Graph.somatize(Same(), cache=opened(path)).forward(value)
    node = Same()
    warm = Graph.somatize(node, cache=opened(path)).forward(value)
    assert node._calls == 0
    assert identical(warm, cold)
    assert identical(warm, value)


def test_what_is_written_with_pickle_is_kept_and_marked(forker, folder):
    assert forker.run(pickled_reading) == ("Reading", [0.0, 2.0, 4.0], "ms", ["reads"])
    (record,) = assert_sound(folder)
    assert record["pickled"] is True
    assert forker.run(pickled_reading) == ("Reading", [0.0, 2.0, 4.0], "ms", [])
    forker.run(compute_all)
    assert sum(json.loads(path.read_bytes())["pickled"] for path in records_of(folder)) == 1


# ---------------------------------------------------------------- what is not computed


class Counted(Filter):
    def __init__(self):
        self._calls = 0


class Round(Counted):
    def __init__(self, digits):
        super().__init__()
        self.digits = digits

    def forward(self, x, state):
        self._calls += 1
        return np.round(x, self.digits)


class Mean(Counted):
    def fit(self, x, y=None):
        self._calls += 1
        return {"mean": x.mean()}

    def forward(self, x, state):
        self._calls += 1
        return x - state["mean"]


@pytest.mark.parametrize("items", [10, 10_000, 200_000])
def test_below_a_change_that_changes_nothing_nothing_runs(folder, items):
    """The upstream node is another, and what it gives is the same."""
    x = np.arange(items) % 7.0
    for digits, calls, below in [(1, 1, 2), (2, 1, 0), (2, 0, 0)]:
        first, last = Round(digits), Mean()
        g = Graph.somatize(first >> last, cache=opened(folder))
        g.fit(x)
        out = g.forward(x)
        assert out.tobytes() == (x - x.mean()).tobytes()
        assert (first._calls, last._calls) == (calls, below)
    assert len(assert_sound(folder)) == 4


def test_a_change_in_the_middle_runs_what_is_below_and_nothing_above(folder):
    x = np.linspace(0.0, 1.0, 5_000)
    for digits, calls in [((9, 3), (1, 1, 2)), ((9, 2), (0, 1, 2)), ((9, 3), (0, 0, 0))]:
        nodes = [Round(digits[0]), Round(digits[1]), Mean()]
        g = Graph.somatize(nodes[0] >> nodes[1] >> nodes[2], cache=opened(folder))
        g.fit(x)
        expected = np.round(np.round(x, digits[0]), digits[1])
        assert g.forward(x).tobytes() == (expected - expected.mean()).tobytes()
        assert tuple(node._calls for node in nodes) == calls


def test_one_value_lies_there_once_whoever_has_made_it(folder):
    x = np.arange(5_000) * 1.0
    for digits in range(5):
        Graph.somatize(Round(digits), cache=opened(folder)).forward(x)
    assert len(records_of(folder)) == 5
    assert len(list((folder / "cas").rglob("*.bin"))) == 1
