"""The demo, edited in three ways: `soma cache why` names the edit, and `stats` what is banked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from soma_cache import open_store

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.py"
EDITS = {
    "method": ("np.unique(nearest):", "sorted(np.unique(nearest)):"),
    "attribute": ("pca.components = 40", "pca.components = 41"),
    "input": ("default_rng(0)", "default_rng(1)"),
}


def run_demo(folder, text):
    quick = text.replace("steps: int = 500", "steps: int = 5")  # nobody looks at the accuracy
    assert quick != text
    (folder / "digits.py").write_text(quick)
    run_command(folder, "digits.py")


def run_command(folder, *arguments):
    environment = {key: text for key, text in os.environ.items() if not key.startswith("SOMA_")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment | {"SOMA_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout


def why(folder, node):
    """Return (what, passes) -> parts that differ, of all that was computed in the last run."""
    said = json.loads(run_command(folder, "-m", "soma", "cache", "why", "last", node, "--json"))
    return {
        (one["what"], *one["passes"]): {part["part"] for part in one["differs"]}
        for one in said["misses"]
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which the demo has run as it is."""
    made = tmp_path_factory.mktemp("shows")
    run_demo(made, EXAMPLE.read_text())
    return made


def edited(folder, edit):
    before, after = EDITS[edit]
    text = EXAMPLE.read_text()
    assert before in text
    run_demo(folder, text.replace(before, after))


@pytest.mark.e2e
def test_why_names_the_edited_method(folder):
    edited(folder, "method")
    found = why(folder, "move_centres")
    assert found["state", 1] == {"method fit"}
    assert found["output", 1] == {"method fit"}  # what it learns is the same as before
    assert why(folder, "pca") == {}


@pytest.mark.e2e
def test_why_names_the_changed_attribute(folder):
    edited(folder, "attribute")
    found = why(folder, "pca")
    assert found["state",] == {"attribute components"}
    assert found["output",] == {"attribute components", "state"}
    assert why(folder, "strokes") == {}


@pytest.mark.e2e
def test_why_names_the_other_input(folder):
    edited(folder, "input")
    assert why(folder, "scaler")["state",] == {"input", "labels"}
    assert why(folder, "strokes")["output",] == {"input"}


@pytest.mark.e2e
def test_stats_name_the_compute_that_is_banked(folder):
    said = json.loads(run_command(folder, "-m", "soma", "cache", "stats", "--json"))
    store = open_store(folder / "cache")
    records = list(store.records())
    assert said["records"] == len(records) > 100
    there = [
        one
        for one in records
        if all(one.bytes[name] <= 2048 or store.has(each) for name, each in one.outputs.items())
    ]
    assert said["compute_ms"] == pytest.approx(sum(one.compute_ms for one in there))
