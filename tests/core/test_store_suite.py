"""The suites of stores and tiers: what is sound passes, and each fault is found by its check."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from soma.engine import MemoryStore
from soma.testing import ActionStoreSuite, CacheTierSuite
from support import broken_stores, broken_tiers

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300


class TestMemoryStore(ActionStoreSuite):
    @pytest.fixture
    def store(self):
        return MemoryStore()


class TestTwoViewsOfOneStore(ActionStoreSuite):
    @pytest.fixture
    def store(self):
        return broken_stores.View()

    @pytest.fixture
    def another(self, store):
        return broken_stores.View(store.behind)


class TestDictTier(CacheTierSuite):
    @pytest.fixture
    def tier(self):
        return broken_tiers.DictTier()

    @pytest.fixture
    def another(self, tier):
        return broken_tiers.DictTier(tier.held)


def checks_of(suite):
    return {name for name in dir(suite) if name.startswith("test_")} - {"test_suite_is_intact"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "stand_ins"),
    [(ActionStoreSuite, broken_stores), (CacheTierSuite, broken_tiers)],
    ids=["stores", "tiers"],
)
def test_every_check_finds_the_fault_that_it_is_for(suite, stand_ins):
    """As an author sees it: a class derived from the suite, run by pytest."""
    file = Path(stand_ins.__file__)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"),
            *(f"{file}::{name}::{check}" for name, check in sorted(stand_ins.FAULTS)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "CI": "1"},  # there pytest shows all of a difference
    )
    failed = set(re.findall(r"^FAILED \S+?::(\w+)::(\w+)", done.stdout, re.MULTILINE))
    assert failed == stand_ins.FAULTS, done.stdout + done.stderr
    assert "ERROR" not in done.stdout
    assert {check for _, check in stand_ins.FAULTS} == checks_of(suite), "a check without a fault"
