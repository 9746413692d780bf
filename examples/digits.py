"""Handwritten digits: scale, look at them in three ways, classify; and compute nothing twice.

    scaler ──┬── pca ────────────────────────────────┬── join ── classify
             ├── strokes ────────────────────────────┤           balanced: softmax
             └── first_centres ── refine ── closeness┘           skewed:   weighted softmax

``refine`` is a loop: one step of k-means, until no centre moves. ``classify`` is a branch: which
classifier learns depends on how even the classes are. The data are scikit-learn's 1,797 bundled
images of 8 by 8 pixels; the filters are numpy. Run it twice: the second process finds all that the
first has computed in the cache on disk, and ``soma runs show last`` says so of every node.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from soma import Filter, Graph
from soma.engine import RunReport

Floats = NDArray[np.float64]
State = dict[str, Any]

STILL = 1e-9
"""A centre that moves less does not move."""
EVEN = 0.5
"""Classes are even where the smallest has more than this share of the average."""
RARE = 7
"""From this digit on, the last part of the demo leaves few images."""


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


class FirstCentres(Filter):
    """Take the first images as centres, which a later step moves: a start for k-means."""

    def __init__(self, count: int) -> None:
        self.count = count

    def fit(self, x: Floats, y: Any = None) -> State:
        return {"centres": x[: self.count].copy()}

    def forward(self, x: Floats, state: State) -> State:
        return {"images": x, "centres": state["centres"]}


class MoveCentres(Filter):
    """One step of Lloyd's k-means: move each centre to the mean of the images nearest to it."""

    def fit(self, found: State, y: Any = None) -> State:
        nearest = np.argmax(closeness(found), axis=1)
        centres = found["centres"].copy()
        for place in np.unique(nearest):
            centres[place] = found["images"][nearest == place].mean(axis=0)
        return {"centres": centres}

    def forward(self, found: State, state: State) -> State:
        moved = float(np.abs(state["centres"] - found["centres"]).max())
        return {"images": found["images"], "centres": state["centres"], "moved": moved}


def is_settled(found: State) -> bool:
    """Say whether no centre has moved."""
    return bool(found["moved"] < STILL)


def closeness(found: State) -> Floats:
    """Return how close every image is to every centre, from 0 to 1."""
    between = found["images"][:, None, :] - found["centres"][None, :, :]
    return np.asarray(np.exp(-np.mean(between**2, axis=2)))


class ClassBalance(Filter):
    """Learn how even the classes are, and say so by name."""

    def fit(self, x: Floats, y: NDArray[np.int64]) -> State:
        counts = np.unique(y, return_counts=True)[1]
        return {"smallest_share": float(counts.min() / counts.mean())}

    def forward(self, x: Floats, state: State) -> str:
        return "balanced" if state["smallest_share"] > EVEN else "skewed"


def join(branches: dict[str, Floats]) -> Floats:
    """Put the features of all branches side by side."""
    return np.concatenate([branches[name] for name in sorted(branches)], axis=1)


class SoftmaxClassifier(Filter):
    """Multinomial logistic regression with an L2 penalty, by gradient descent."""

    def __init__(self, *, weighted: bool = False, steps: int = 500, penalty: float = 1e-3) -> None:
        self.weighted = weighted
        self.steps = steps
        self.penalty = penalty
        self.rate = 0.5

    def fit(self, x: Floats, y: NDArray[np.int64]) -> State:
        classes, label, counts = np.unique(y, return_inverse=True, return_counts=True)
        target = np.eye(len(classes))[label]
        weights = np.zeros((x.shape[1], len(classes)))
        bias = np.zeros(len(classes))
        each = 1 / (len(classes) * counts[label]) if self.weighted else np.full(len(x), 1 / len(x))
        for _ in range(self.steps):
            error = (_softmax(x @ weights + bias) - target) * each[:, None]
            weights -= self.rate * (x.T @ error + self.penalty * weights)
            bias -= self.rate * error.sum(axis=0)
        return {"weights": weights, "bias": bias, "classes": classes}

    def forward(self, x: Floats, state: State) -> NDArray[np.int64]:
        scores = x @ state["weights"] + state["bias"]
        return np.asarray(state["classes"][np.argmax(scores, axis=1)])


def _softmax(scores: Floats) -> Floats:
    exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(exponents / exponents.sum(axis=1, keepdims=True))


def build(pca: Pca | None = None) -> Graph:
    """Declare the graph: ``soma graph digits:build`` draws it."""
    pca = Pca(components=30) if pca is None else pca
    g = Graph.somatize(Scaler() >> (pca | Strokes() | FirstCentres(30)))
    g.loop("refine", MoveCentres(), until=is_settled)
    g.branch(
        "classify",
        ClassBalance(),
        arms={
            "balanced": SoftmaxClassifier().named("softmax"),
            "skewed": SoftmaxClassifier(weighted=True).named("weighted_softmax"),
        },
    )
    g.node(closeness)
    g.node(join)
    g.edge("first_centres", "refine")
    g.edge("refine", "closeness")
    for features in ("pca", "strokes", "closeness"):
        g.edge(features, "join")
    g.edge("join", "classify")
    return g


def main() -> None:
    from sklearn.datasets import load_digits  # here: whoever wants the filters needs no data

    images, digits = load_digits(return_X_y=True)
    shuffled = np.random.default_rng(0).permutation(len(images))
    train, held_out = shuffled[:1347], shuffled[1347:]

    pca = Pca(components=30)
    g = build(pca)
    print(g)
    reports: list[RunReport] = []

    def done() -> RunReport:
        assert g.last_run is not None  # noqa: S101  # for the type checker
        reports.append(g.last_run)
        return g.last_run

    def fit(rows: NDArray[np.int64]) -> RunReport:
        g.fit(images[rows], digits[rows])
        report = done()
        computed = len(report.actions) - report.hits
        print(f"fit: {report.hits} hits, {computed} computed ({report.duration_ms / 1e3:.2f} s)")
        return report

    def score() -> None:
        predicted = g.forward(images[held_out])
        done()
        accuracy = float(np.mean(predicted == digits[held_out]))
        print(f"accuracy on {len(held_out)} held-out images: {accuracy:.3f}")

    with g.track_run("digits"):
        for decision in fit(train).decisions:
            print(f"  {decision.node}: {decision.outcome}")
        score()
        print("the same again, of which everything is known by now:")
        fit(train)
        print("with 40 components, which only what depends on them is computed for:")
        pca.components = 40
        print(f"  computed: {', '.join(fit(train).computed) or 'nothing'}")
        score()
        print("with few examples of 7, 8 and 9:")
        few = np.flatnonzero(digits[train] >= RARE)[20:]
        for decision in fit(np.delete(train, few)).decisions:
            print(f"  {decision.node}: {decision.outcome}")
        score()

    hits = sum(report.hits for report in reports)
    computed = sum(len(report.actions) for report in reports) - hits
    print(f"in all: {hits} found in the cache, {computed or 'nothing'} computed")
    print("what became of every node: soma runs show last")


if __name__ == "__main__":
    main()
