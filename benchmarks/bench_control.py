"""What a pass of a loop and an event cost, beside the node itself.

Targets: 10,000 passes of a loop of one node take at most 1.5 times what 10,000 nodes in a chain do;
without listeners events cost at most 1 us a node, and with one that writes JSON at most 15 us.

The floor of both is the chain in the same run. What events cost where nobody listens is the number
of times that the engine asks whether somebody does, times what asking takes: it is far below the
noise of a whole run. Contestants take turns, and the quietest round counts.
"""

from __future__ import annotations

import gc
import io
import json
from collections.abc import Callable
from time import perf_counter
from typing import Any

from soma import Graph
from soma.engine.announcer import Announcer
from soma.events import Bus

NODES = 10_000
ROUNDS = 9
ASKED_PER_NODE = 4
"""Most places at which one action asks: a miss, a start, an end, a failure or a hit."""


class Add:
    def forward(self, x: int, state: Any) -> int:  # noqa: ARG002  # forward has its signature
        return x + 1


def chain(cache: str) -> Graph:
    graph = Graph(cache=cache)
    graph.node("n0", Add())
    for number in range(1, NODES):
        graph.node(f"n{number}", Add())
        graph.edge(f"n{number - 1}", f"n{number}")
    return graph


def loop(cache: str) -> Graph:
    graph = Graph(cache=cache)
    graph.loop("loop", Add(), until=False, max_iterations=NODES)
    return graph


def asking_loop(cache: str) -> Graph:
    graph = Graph(cache=cache)
    graph.loop("loop", Add(), until=is_over, max_iterations=NODES)
    return graph


def is_over(x: int) -> bool:
    return x >= NODES


def heard(cache: str, *, as_json: bool) -> Graph:
    graph = chain(cache)
    lines = io.StringIO()

    def write(event: dict[str, Any]) -> None:
        lines.write(json.dumps(event))
        lines.write("\n")
        if lines.tell() > 1 << 24:
            lines.seek(0)

    graph.on_event(write if as_json else _nothing)
    return graph


def _nothing(event: dict[str, Any]) -> None:
    """Hear an event and do nothing."""


def us_per_node(graph: Graph) -> float:
    gc.collect()  # nobody pays for what another left behind
    started = perf_counter()
    found = graph.forward(0)
    took = (perf_counter() - started) / NODES * 1e6
    if found != NODES:
        raise RuntimeError(f"{NODES} expected, not {found}")
    return took


def us_of_asking() -> float:
    announcer = Announcer(Bus(), "run")
    count = 200_000
    started = perf_counter()
    for _ in range(count):
        if announcer.listening:
            raise RuntimeError("nobody should listen")
    return (perf_counter() - started) / count * 1e6


def main() -> None:
    contestants: dict[str, Callable[[str], Graph]] = {
        "chain": chain,
        "loop": loop,
        "loop with until": asking_loop,
        "chain, heard": lambda cache: heard(cache, as_json=False),
        "chain, to JSON": lambda cache: heard(cache, as_json=True),
    }
    for cache in ("off", "memory"):
        graphs = {name: make(cache) for name, make in contestants.items()}
        best = dict.fromkeys(graphs, float("inf"))
        for graph in graphs.values():
            graph.forward(0)  # compiles it, and fills its cache
        for _ in range(ROUNDS):
            for name, graph in graphs.items():
                best[name] = min(best[name], us_per_node(graph))
        floor = best["chain"]
        print(f"cache {cache}, {'computed' if cache == 'off' else 'all hit'}")
        for name, took in best.items():
            beside = f"   {took - floor:+6.1f} us" if "," in name else ""
            print(
                f"  {name:16} {took:6.1f} us a node or pass   {took / floor:5.2f} x chain{beside}"
            )
    asking = min(us_of_asking() for _ in range(ROUNDS))
    print(f"events without listeners: {asking * ASKED_PER_NODE:.2f} us a node at most")


if __name__ == "__main__":
    main()
