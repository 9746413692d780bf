"""Which differentiable nodes train together.

Nodes that hang together by edges are one block, fan-outs and fan-ins included, unless a way from
one to the other leads through a node outside: then the block would wait for itself. Each node has
a level, which rises whenever an edge leads from one kind of node to the other; neighbours of one
level are one block, and no way out of a level leads back into it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

__all__ = ["find_blocks"]


def find_blocks(
    order: list[str], feeding: Mapping[str, list[str]], differentiable: set[str]
) -> list[list[str]]:
    """Return the blocks in an order in which they can run; other nodes are blocks of one.

    Args:
        order: every id, each after all that feed it.
        feeding: node id -> the ids that feed it.
        differentiable: the ids of nodes through which gradients flow.
    """
    if not differentiable:
        return [[id_] for id_ in order]
    home = _merge(order, feeding, differentiable)
    members: dict[str, list[str]] = {}
    for id_ in order:
        members.setdefault(_root(home, id_), []).append(id_)
    return _sorted(members, {id_: _root(home, id_) for id_ in order}, feeding)


def _merge(
    order: list[str], feeding: Mapping[str, list[str]], differentiable: set[str]
) -> dict[str, str]:
    """Return node id -> another of its block, whose root stands for the block (union-find)."""
    level: dict[str, int] = {}
    home = {id_: id_ for id_ in order}
    for id_ in order:
        own = id_ in differentiable
        level[id_] = max(
            (level[one] + ((one in differentiable) != own) for one in feeding[id_]), default=0
        )
        for one in feeding[id_]:
            if own and one in differentiable and level[one] == level[id_]:
                home[_root(home, id_)] = _root(home, one)
    return home


def _root(home: dict[str, str], id_: str) -> str:
    while home[id_] != id_:
        home[id_] = home[home[id_]]  # shortens the way for the next
        id_ = home[id_]
    return id_


def _sorted(
    members: dict[str, list[str]], block_of: dict[str, str], feeding: Mapping[str, list[str]]
) -> list[list[str]]:
    """Return the blocks, each after those that feed it."""
    waiting = dict.fromkeys(members, 0)
    following: dict[str, list[str]] = {root: [] for root in members}
    for id_, sources in feeding.items():
        for one in sources:
            if block_of[one] != block_of[id_]:
                waiting[block_of[id_]] += 1
                following[block_of[one]].append(block_of[id_])
    ready = deque(root for root, count in waiting.items() if not count)
    found = []
    while ready:
        root = ready.popleft()
        found.append(members[root])
        for after in following[root]:
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
    return found
