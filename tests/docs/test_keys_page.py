"""Each row of the tables in docs/keys.md is a test, and each test is a row.

A row says whether two keys of a node change: that of its fit, and that of its output. What it says
is compared with the keys under which real graphs are recorded, before and after.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from soma import Graph
from soma.engine import MemoryStore
from support.keys import CASES, Lab
from support.keys.lab import Probe, X, Y, keys

PAGE = (Path(__file__).parents[2] / "docs" / "keys.md").read_text()
HEAD = r"^\| [^|\n]+ \| the fit's key \| the output's key \|\n\| --- \| --- \| --- \|\n"
TABLES = re.findall(HEAD + r"((?:\|.*\n)+)", PAGE, re.MULTILINE)
ROWS = {
    text: (fit, output)
    for table in TABLES
    for text, fit, output in re.findall(r"^\| (.*) \| (\S*) \| (\S*) \|$", table, re.MULTILINE)
}
SAID = {"changes": True, "stays": False, "none": False}


def test_there_is_a_case_for_every_row_and_a_row_for_every_case():
    assert set(ROWS) == set(CASES)
    assert len(ROWS) == sum(table.count("\n") for table in TABLES)
    assert {word for said in ROWS.values() for word in said} <= set(SAID)


@pytest.mark.parametrize("text", CASES)
def test_the_row_says_what_happens(text, monkeypatch, tmp_path):
    before, after = CASES[text](Lab(monkeypatch, tmp_path))
    changed = (before.fit != after.fit, before.output != after.output)
    assert changed == tuple(SAID[word] for word in ROWS[text])
    assert ("none" in ROWS[text]) == (not before.fit)


def test_the_keys_are_those_of_the_records():
    store = MemoryStore()
    g = Graph(cache=store)
    g.node("probe", Probe())
    found = keys(graph=g)
    assert found == keys()
    records = {what: one.key for one in store.records() for what in one.outputs}
    assert records == {"state": found.fit, "output": found.output}
    g.fit(X, Y)
    assert [one.key for one in g.last_run.actions if one.outcome == "hit"] == [found.fit]
