"""Handwritten digits: scale, look at them in two ways, classify; then compute nothing twice.

    scaler ──┬── pca ─────┬── join ── softmax_classifier
             └── strokes ─┘

The data are scikit-learn's 1,797 bundled images of 8 by 8 pixels; the filters are numpy.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from soma import Filter, Graph

Floats = NDArray[np.float64]
State = dict[str, Any]


class Scaler(Filter):
    """Subtract the mean of each pixel and divide by its standard deviation."""

    def fit(self, x: Floats, y: Any = None) -> State:
        deviation = x.std(axis=0)
        return {"mean": x.mean(axis=0), "deviation": np.where(deviation > 0, deviation, 1.0)}

    def forward(self, x: Floats, state: State) -> Floats:
        return np.asarray((x - state["mean"]) / state["deviation"])


class Pca(Filter):
    """Project on the directions of largest variance."""

    def __init__(self, components: int) -> None:
        self.components = components

    def fit(self, x: Floats, y: Any = None) -> State:
        mean = x.mean(axis=0)
        directions = np.linalg.svd(x - mean, full_matrices=False)[2]
        return {"mean": mean, "directions": directions[: self.components].T}

    def forward(self, x: Floats, state: State) -> Floats:
        return np.asarray((x - state["mean"]) @ state["directions"])


class Strokes(Filter):
    """Most ink in each row and column: what an image looks like from the side and from above."""

    def forward(self, x: Floats, state: None) -> Floats:
        images = x.reshape(-1, 8, 8)
        return np.concatenate([images.max(axis=1), images.max(axis=2)], axis=1)


def join(branches: dict[str, Floats]) -> Floats:
    """Put the features of all branches side by side."""
    return np.concatenate([branches[name] for name in sorted(branches)], axis=1)


class SoftmaxClassifier(Filter):
    """Multinomial logistic regression with an L2 penalty, by gradient descent."""

    def __init__(self, steps: int = 500, rate: float = 0.5, penalty: float = 1e-3) -> None:
        self.steps = steps
        self.rate = rate
        self.penalty = penalty

    def fit(self, x: Floats, y: NDArray[np.int64]) -> State:
        classes, label = np.unique(y, return_inverse=True)
        target = np.eye(len(classes))[label]
        weights = np.zeros((x.shape[1], len(classes)))
        bias = np.zeros(len(classes))
        for _ in range(self.steps):
            error = (_softmax(x @ weights + bias) - target) / len(x)
            weights -= self.rate * (x.T @ error + self.penalty * weights)
            bias -= self.rate * error.sum(axis=0)
        return {"weights": weights, "bias": bias, "classes": classes}

    def forward(self, x: Floats, state: State) -> NDArray[np.int64]:
        scores = x @ state["weights"] + state["bias"]
        return np.asarray(state["classes"][np.argmax(scores, axis=1)])


def _softmax(scores: Floats) -> Floats:
    exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(exponents / exponents.sum(axis=1, keepdims=True))


def main() -> None:
    images, digits = load_digits(return_X_y=True)
    shuffled = np.random.default_rng(0).permutation(len(images))
    train, held_out = shuffled[:1347], shuffled[1347:]

    pca = Pca(components=30)
    g = Graph.somatize(Scaler() >> (pca | Strokes()) >> join >> SoftmaxClassifier())
    print(g)

    def fit() -> None:
        started = perf_counter()
        g.fit(images[train], digits[train])
        print(f"{g.last_run} ({perf_counter() - started:.2f} s)")

    def score() -> None:
        predicted = g.forward(images[held_out])
        accuracy = float(np.mean(predicted == digits[held_out]))
        print(f"accuracy on {len(held_out)} held-out images: {accuracy:.3f}")

    fit()
    score()
    print("the same again, which is answered from memory:")
    fit()
    print("with 40 components, which only what depends on them is computed for:")
    pca.components = 40
    fit()
    score()


if __name__ == "__main__":
    main()
