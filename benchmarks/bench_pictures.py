"""What a picture of a graph costs, from its plan to SVG and to mermaid text.

Target: the SVG of 500 nodes in less than 1 s.

The floor is the layout by graphlay alone, of the same graph, with the same settings, in the same
run: what is beside it is ours. A fan has all of it in one layer, and is the hardest of these; what
is harder still is refused (soma/pictures/effort.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any
from unittest.mock import patch

from soma import Filter, Graph
from soma.pictures import Scene, draw, layout, mermaid
from soma.pictures.layered import lay_out
from soma.plan.picture import scene_of

SIZES = (60, 500, 2_000)
ROUNDS = 3


class Add(Filter):
    def forward(self, x: int, state: Any) -> int:  # noqa: ARG002  # forward has its signature
        return x + 1


def tangle(count: int) -> Graph:
    draws = random.Random(5)  # noqa: S311  # any graph of this kind will do
    graph = Graph()
    for number in range(count):
        graph.node(f"node_{number}", Add())
        near = range(max(0, number - 20), number)
        for source in sorted(draws.sample(near, min(len(near), draws.choice([1, 1, 2])))):
            graph.edge(f"node_{source}", f"node_{number}")
    return graph


def loops(count: int) -> Graph:
    graph = Graph()
    for number in range(count // 5):
        graph.loop(f"loop_{number}", Add() >> Add() >> Add(), until=is_over)
        if number:
            graph.edge(f"loop_{number // 2}", f"loop_{number}")
    return graph


def fan(count: int) -> Graph:
    graph = Graph()
    graph.node("first", Add())
    graph.node("last", Add())
    for number in range(count - 2):
        graph.node(f"node_{number}", Add())
        graph.edge("first", f"node_{number}")
        graph.edge(f"node_{number}", "last")
    return graph


def is_over(x: int) -> bool:
    return x > 0


def seconds(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        started = perf_counter()
        work()
        best = min(best, perf_counter() - started)
    return best


def layout_seconds(scene: Scene) -> float:
    """Return what graphlay takes for all that a picture has it lay out."""
    best = float("inf")
    for _ in range(ROUNDS):
        spent = 0.0

        def timed(*arguments: Any) -> Any:
            nonlocal spent
            started = perf_counter()
            found = lay_out(*arguments)
            spent += perf_counter() - started
            return found

        with patch.object(layout, "lay_out", timed):
            layout.place(scene)
        best = min(best, spent)
    return best


def main() -> None:
    print(f"{'':16}{'nodes':>7}{'plan s':>9}{'svg s':>9}{'/ layout':>10}{'MB':>7}{'mermaid s':>11}")
    for name, declare in {"tangle": tangle, "loops": loops, "fan": fan}.items():
        for size in SIZES:
            plan = declare(size).compile()
            scene = scene_of(plan)
            floor = layout_seconds(scene)
            drawn = seconds(partial(draw, scene))
            print(
                f"{name:16}{size:7,}{seconds(partial(scene_of, plan)):9.3f}{drawn:9.3f}"
                f"{drawn / floor:10.2f}{len(draw(scene)) / 1e6:7.2f}"
                f"{seconds(partial(mermaid, scene)):11.3f}"
            )


if __name__ == "__main__":
    main()
