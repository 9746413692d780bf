"""Which differentiable nodes train together.

Nodes that hang together by edges are one block, fan-outs and fan-ins included, unless a way leads
out of the block and back in: then it would wait for itself. Nodes are looked at in the order of the
plan, and each joins the blocks that feed it, where that closes no circle of blocks.

Blocks are numbers, and sets of blocks are bits of an int: of every node it is known from which
blocks ways lead to it through some node outside of them.
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
    blocks = _Blocks()
    for id_ in order:
        blocks.add(id_, feeding[id_], differentiable=id_ in differentiable)
    block_of = {
        id_: str(blocks.root(blocks.number[id_])) if id_ in differentiable else f"node {id_}"
        for id_ in order
    }
    members: dict[str, list[str]] = {}
    for id_ in order:
        members.setdefault(block_of[id_], []).append(id_)
    return _sorted(members, block_of, feeding)


class _Blocks:
    """Blocks as far as they are known (a union-find)."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}
        """Differentiable node -> the block that was made for it."""
        self.home: list[int] = []
        self.bits: list[int] = []
        """Block -> the numbers it is made of, as bits."""
        self.above: list[int] = []
        """Block -> those from which a way leads to it through a node outside of them."""
        self.above_node: dict[str, int] = {}
        self.any_late = False
        """Whether some block lies below one that was made after it."""

    def root(self, number: int) -> int:
        """Return the number that stands for a block."""
        while self.home[number] != number:
            self.home[number] = self.home[self.home[number]]  # shortens the way for the next
            number = self.home[number]
        return number

    def add(self, id_: str, sources: list[str], *, differentiable: bool) -> None:
        """Add a node below those that feed it."""
        if not differentiable:
            self.above_node[id_] = self._ways(sources, into=-1)
            return
        fed_by = dict.fromkeys(self.root(self.number[one]) for one in sources if one in self.number)
        joined = [block for block in fed_by if not self._leads_back(block, sources)]
        own = self.number[id_] = joined[0] if joined else self._new()
        for block in joined[1:]:
            self.home[block] = own
            self.bits[own] |= self.bits[block]
            self.above[own] |= self.above[block]
        self.above_node[id_] = self._ways(sources, into=own)
        self.above[own] |= self.above_node[id_]
        self.any_late |= self.above[own] >= _lowest(self.bits[own]) << 1

    def _new(self) -> int:
        own = len(self.home)
        self.home.append(own)
        self.bits.append(1 << own)
        self.above.append(0)
        return own

    def _ways(self, sources: list[str], *, into: int) -> int:
        """Return the blocks from which ways lead to a node of the block ``into``."""
        found = 0
        for one in sources:
            found |= self.above_node[one]
            if one in self.number and self.root(self.number[one]) != into:
                found |= self.bits[self.root(self.number[one])]
        return found

    def _leads_back(self, block: int, sources: list[str]) -> bool:
        """Say whether a way out of a block leads to a node that it would take in."""
        wanted = self.bits[block]
        # Older blocks lead back only where one of them lies below a younger one.
        younger = -1 if self.any_late else -_lowest(wanted)
        seen, left = 0, self._ways(sources, into=block) & younger
        while left and not left & wanted:
            one = self.root(_lowest(left).bit_length() - 1)
            seen |= self.bits[one]
            left = (left | self.above[one]) & ~seen & younger
        return bool(left)


def _lowest(bits: int) -> int:
    return bits & -bits


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
