"""The main example does its job: real digits, held-out accuracy, and the numbers it learned."""

from __future__ import annotations

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

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "digits.py"


@pytest.fixture(scope="module")
def digits():
    spec = spec_from_file_location("digits_example", EXAMPLE)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.e2e
def test_it_prints_what_the_readme_says():
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=120, check=True
    )
    readme = (ROOT / "README.md").read_text()
    told = readme.partition("```text\n├──")[2].partition("```")[0]
    assert _without_times("├──" + done.stdout.partition("├──")[2]) == _without_times(f"├──{told}")
    accuracies = re.findall(r"accuracy on 450 held-out images: (0\.\d+)", done.stdout)
    assert len(accuracies) == 3
    assert min(map(float, accuracies[:2])) > 0.95
    assert float(accuracies[2]) > 0.85  # after a fit with few examples of three digits


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
