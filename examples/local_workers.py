"""The digits graph with its two feature paths in two child processes; the numbers are the same.

    scaler ──┬── pca ───────┬── join ── softmax
             └── strokes ───┘

Two workers, one line. Nodes that follow each other stay at one worker; ``pca`` and ``strokes`` need
nothing of each other and are at work at the same time. The predictions are compared, bit by bit,
with those of the same graph in this process; ``soma runs show`` says where each node ran.
"""

from __future__ import annotations

import numpy as np
from digits import Pca, Scaler, SoftmaxClassifier, Strokes, join
from sklearn.datasets import load_digits

from soma import Graph


def build() -> Graph:
    """Declare the graph. Its cache is its own, so that nothing is known beforehand."""
    g = Graph(cache="memory")
    g.node("scaler", Scaler())
    g.node("pca", Pca(components=30))
    g.node("strokes", Strokes())
    g.node("join", join)
    g.node("softmax", SoftmaxClassifier(steps=200))
    for features in ("pca", "strokes"):
        g.edge("scaler", features)
        g.edge(features, "join")
    g.edge("join", "softmax")
    return g


def main() -> None:
    images, digits = load_digits(return_X_y=True)
    shuffled = np.random.default_rng(0).permutation(len(images))
    train, held_out = shuffled[:1347], shuffled[1347:]

    here = build()
    here.fit(images[train], digits[train])
    expected = here.forward(images[held_out])

    there = build()
    print("workers:", ", ".join(there.add_worker("local://", count=2)))
    with there.track_run("local_workers"):
        there.fit(images[train], digits[train])
        done = there.last_run
        assert done is not None  # noqa: S101  # for the type checker
        print(done.to_text())
        predicted = there.forward(images[held_out])
    accuracy = float(np.mean(predicted == digits[held_out]))
    print(f"accuracy on {len(held_out)} held-out images: {accuracy:.3f}")
    print("the same as in one process, bit by bit:", np.array_equal(predicted, expected))
    print("the record of it: soma runs show local_workers")


if __name__ == "__main__":
    main()
