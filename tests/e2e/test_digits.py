"""The main example does its job: real digits, held-out accuracy, and nothing computed twice."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import soma

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "digits.py"


@pytest.fixture(scope="module")
def digits():
    spec = spec_from_file_location("digits_example", EXAMPLE)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("digits")


@pytest.fixture(scope="module")
def said(folder):
    """Return what two processes print, one after the other, in one folder with one cache."""
    return [_run(folder, sys.executable, str(EXAMPLE)) for _ in range(2)]


def _run(folder, *command):
    environment = {key: text for key, text in os.environ.items() if not key.startswith("SOMA_")}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment | {"SOMA_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.e2e
def test_it_prints_what_the_readme_says(said):
    assert _without_times(said[0]) == _without_times(_told("├──"))
    accuracies = _accuracies(said[0])
    assert len(accuracies) == 3
    assert min(accuracies[:2]) > 0.95
    assert accuracies[2] > 0.85  # after a fit with few examples of three digits


@pytest.mark.e2e
def test_the_second_process_computes_nothing_and_learns_the_same(said):
    first, second = said
    assert re.findall(r"fit: (\d+) hits, 0 computed", second) == ["90", "90", "90", "63"]
    assert second.count("  computed: nothing\n") == 1
    assert second.endswith(_told("in all: "))
    found, computed = re.search(r"in all: (\d+) found in the cache, (\d+) computed", first).groups()
    assert f"in all: {int(found) + int(computed)} found in the cache, nothing computed" in second
    assert _accuracies(second) == _accuracies(first)
    assert re.findall(r"  refine: .+|  classify: .+", second) == re.findall(
        r"  refine: .+|  classify: .+", first
    )


@pytest.mark.e2e
def test_the_record_of_the_second_run_names_every_node_as_reused(said, folder, digits):
    assert len(said) == 2
    shown = _run(folder, str(Path(sys.executable).with_name("soma")), "runs", "show", "last")
    reused = shown.partition("\nreused\n")[2].partition("\n\n")[0]
    nodes = {line.split()[0] for line in reused.splitlines()}
    assert nodes == {
        *("scaler", "pca", "strokes", "first_centres", "move_centres", "is_settled", "closeness"),
        *("join", "class_balance", "softmax", "weighted_softmax"),
    }
    assert "computed" not in shown
    (run,) = [one for one in soma.runs(folder / ".soma") if one.id in shown]
    calls = run.calls()
    assert [call.phase for call in calls] == [
        *("fit", "forward", "fit", "fit", "forward", "fit", "forward")
    ]
    assert [call.computed for call in calls] == [0] * 7
    first_seen = {one.tier for one in run.reused()}
    assert first_seen == {"Local", "Memory"}  # from the folder, and then from what was seen there


def _told(begin):
    """Return the block of the README that begins so, as a process prints it."""
    readme = (ROOT / "README.md").read_text()
    return begin + readme.partition(f"```text\n{begin}")[2].partition("```")[0]


def _accuracies(text):
    return [float(one) for one in re.findall(r"accuracy on 450 held-out images: (0\.\d+)", text)]


def _without_times(text):
    return re.sub(r" \(\d+\.\d\d s\)", "", text).strip()


def test_its_filters_agree_with_scikit_learn(digits):
    x, y = load_digits(return_X_y=True)
    scaler, pca = digits.Scaler(), digits.Pca(components=10)
    scaled = scaler.forward(x, scaler.fit(x))
    np.testing.assert_allclose(scaled, StandardScaler().fit_transform(x), atol=1e-12)

    ours = pca.forward(scaled, pca.fit(scaled))
    theirs = PCA(n_components=10, svd_solver="full").fit_transform(scaled)
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-8)  # up to sign

    model = digits.SoftmaxClassifier()
    agreement = np.mean(
        model.forward(ours, model.fit(ours, y))
        == LogisticRegression(max_iter=2000).fit(theirs, y).predict(theirs)
    )
    assert agreement > 0.97


def test_its_loop_finds_the_centres_of_k_means(digits):
    x, y = load_digits(return_X_y=True)
    g = digits.build(digits.Pca(components=10))
    g.fit(x, y)
    found = g.state()
    scaled = digits.Scaler().forward(x, found["scaler"])
    expected = KMeans(30, init=scaled[:30], n_init=1, algorithm="lloyd", tol=0, max_iter=1000).fit(
        scaled
    )
    np.testing.assert_allclose(
        found["move_centres"]["centres"], expected.cluster_centers_, atol=1e-8
    )
    assert "softmax" in found
    assert "weighted_softmax" not in found
