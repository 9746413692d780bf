"""One fit or forward under way: what is known so far, and what is asked of everybody.

A run belongs to one call. It is thrown away whole where something in it turns out to have been
wrong (recompute.py), so nothing of it is ever mixed with another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from soma._notices import tell_once
from soma.contracts import ActionRecord, ActionStore
from soma.engine.keys import fan_in_hash
from soma.engine.program import Program
from soma.engine.report import NodeRun, Notice, RunReport
from soma.engine.states import NodeState
from soma.engine.values import VirtualValue
from soma.errors import Nameless, describe_error
from soma.frame import Encoded
from soma.identity import Identity

__all__ = ["Call", "Run", "Stopped"]

KEEP_BELOW = 1 << 20
"""Outputs under this many bytes are always kept."""
_BYTES_PER_MS = 1_000_000
"""1 GB/s: larger ones are kept where computing them is slower than reading them would be."""


class Stopped(BaseException):
    """The run was abandoned; nobody waits for what this thread does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What was asked for."""

    fitting: bool
    x: Any
    y: Any = None
    seed: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    states: Mapping[str, NodeState] = field(default_factory=dict)
    warm_start: bool = False
    refresh: frozenset[str] = frozenset()
    clock: Callable[[], float] = perf_counter


class Run:
    """The state of one call."""

    def __init__(
        self, program: Program, store: ActionStore | None, call: Call, report: RunReport
    ) -> None:
        self.program = program
        self.store = store
        self.call = call
        self.report = report
        self.stopped = False
        self.claims: set[AbstractContextManager[None]] = set()
        self.fixed: dict[int, VirtualValue] = {}
        """Outputs that hold for the rest of this call, as long as they are made from the same:
        those that differ from what had been recorded, and those that cannot be made again."""
        self.sticky: set[int] = set()
        """Nodes that came out differently once: what they make stays in hand."""
        self.made: set[tuple[str, str]] = set()
        """(id, what) that were computed before the run started over."""
        self.refreshed: set[tuple[int, str]] = set()
        """(place, what) that was asked to be computed anew and has been."""
        self.results: dict[int, Any] = {}
        """Leaf -> what it gave, when all is done."""
        self.uses = program.uses_in_fit if call.fitting else program.uses_in_forward
        self.x = VirtualValue(call.x, uses=self.uses[-1], owned=False, sticky=True)
        self.y = VirtualValue(call.y, uses=len(program.learners), owned=False, sticky=True)
        self._begin()

    def _begin(self) -> None:
        self.outputs: list[VirtualValue] = [_NOTHING] * len(self.program.ids)
        self.holding: set[int] = set()
        """Known outputs whose blob is gone: they keep their claim on what feeds them until their
        own takers are served, or each of them would have it made again."""
        self.states: dict[str, NodeState] = {} if self.call.fitting else dict(self.call.states)

    def start_over(self, changed: Mapping[int, VirtualValue]) -> None:
        """Forget what was found so far, but for what holds for the rest of the call."""
        for place, value in enumerate(self.outputs):
            if value.sticky:
                self.fixed[place] = value
        self.fixed.update(changed)
        self.sticky.update(changed)
        rows = [row for row in self.report.actions if row.outcome != "hit"]
        self.made.update((row.node, row.what) for row in rows)
        self.report.actions[:] = rows
        self._begin()

    def seed_of(self, place: int) -> int | None:
        """Return the seed as far as it concerns a node."""
        return self.call.seed if self.program.traits[place].uses_seed else None

    def identity_of(self, place: int) -> Identity | None:
        """Return what a node is, now; None where nothing says so.

        Raises:
            CacheConfigError: something in it cannot be hashed.
        """
        try:
            return self.program.identity(place).read()
        except Nameless as error:
            self.not_kept(place, str(error))
            return None

    def input_hash(self, place: int) -> str:
        """Return the hash of what a node is given; empty where it has none."""
        sources = self.program.before[place]
        if not sources:
            return self.given_hash(self.x)
        if len(sources) == 1:
            return _hash_of(self.outputs[sources[0]])
        hashes = {self.program.ids[one]: _hash_of(self.outputs[one]) for one in sources}
        return fan_in_hash(hashes) if all(hashes.values()) else ""

    def given_hash(self, value: VirtualValue) -> str:
        """Return the hash of x or y; empty where it has none, and a line says why."""
        found = _hash_of(value)
        if not found and self.store is not None:
            name = value.type_name()
            which = "y is, or holds" if value is self.y else "the input of the graph is, or holds"
            message = (
                f"{which}, something that nothing says how to write down ({name}): what depends on "
                "it is not kept. Register a codec: soma.codec(kind, type, dump=..., load=...)"
            )
            self.notice("NodeNotKept", "", message, once=("input", name))
        return found

    def take(self, place: int) -> Any:
        """Return the output of a node for one of its takers. It must be in hand."""
        found = self.outputs[place].take()
        if self.outputs[place].uses <= 0 and self.stops_holding(place):
            self.let_input_go(place)
        return found

    def let_input_go(self, place: int) -> None:
        """A node does not need the object that it would be given; nor, then, do some above it."""
        stack = [place]
        while stack:
            for source in self.program.before[stack.pop()]:
                self.outputs[source].let_go()
                if self.outputs[source].uses <= 0 and self.stops_holding(source):
                    stack.append(source)

    def stops_holding(self, place: int) -> bool:
        """End a node's claim on what feeds it; False if it has none. True for one thread only."""
        try:
            self.holding.remove(place)
        except KeyError:
            return False
        return True

    def lookup(self, key: str | None) -> ActionRecord | None:
        """Return what is recorded under a key."""
        if key is None or self.store is None:
            return None
        try:
            return self.store.lookup(key)
        except Exception as error:  # noqa: BLE001  # nothing kept is worth a failed run
            self.broken("looked up", error)
            return None

    def has(self, digest: str) -> bool:
        """Say whether the store seems to have a blob."""
        try:
            return self.store is not None and self.store.has(digest)
        except Exception:  # noqa: BLE001  # as above
            return False

    def claim(self, key: str) -> AbstractContextManager[None] | None:
        """Return the claim on a key; None where the store cannot give one."""
        if self.store is None:
            return None
        try:
            return self.store.claim(key)
        except Exception as error:  # noqa: BLE001  # as above
            self.broken("claimed", error)
            return None

    def write(self, place: int, encoded: Encoded) -> bool:
        """Keep a frame; False, and a line, where that cannot be."""
        if self.store is None:
            return False
        try:
            self.store.write((encoded.header, encoded.buffers), encoded.digest)
        except Exception as error:  # noqa: BLE001  # as above
            self.not_kept(place, error)
            return False
        return True

    def commit(self, place: int, record: ActionRecord) -> None:
        """Make a record visible; a line, where that cannot be."""
        if self.store is None:
            return
        try:
            self.store.commit(record)
        except Exception as error:  # noqa: BLE001  # as above
            self.not_kept(place, error)

    def end_claim(self, claim: AbstractContextManager[None]) -> None:
        """Let go of a claim, whatever the store makes of that."""
        try:
            claim.__exit__(None, None, None)
        except Exception as error:  # noqa: BLE001  # as above
            self.broken("claimed", error)

    def broken(self, what: str, error: Exception) -> None:
        """Say that the cache does not do what it should."""
        text = describe_error(error)
        message = f"nothing can be {what} in the cache, so it is computed: {text}"
        self.notice("NodeNotKept", "", message, once=(what, text))

    def keeps_output(self, place: int, nbytes: int, duration_ms: float) -> bool:
        """Say whether an output is worth its bytes."""
        return (
            nbytes < KEEP_BELOW
            or not self.program.after[place]
            or self.program.entries[place].cached
            or duration_ms > nbytes / _BYTES_PER_MS
            or os.environ.get("SOMA_CACHE_KEEP") == "all"
        )

    def done(self, place: int, what: str, outcome: str, duration_ms: float, nbytes: int) -> None:
        """Enter one action into the report."""
        if outcome == "hit" and (self.program.ids[place], what) in self.made:
            return  # this very call has computed it, before it started over
        self.report.actions.append(
            NodeRun(self.program.ids[place], what, outcome, duration_ms, nbytes)
        )

    def notice(self, kind: str, node: str, message: str, *, once: Any = None) -> None:
        """Enter a notice into the report; with ``once``, say it on stderr as well."""
        self.report.notices.append(Notice(kind, node, message))
        if once is not None:
            tell_once((kind, once), message)

    def not_kept(self, place: int, why: str | BaseException) -> None:
        """Say that what a node made cannot be kept."""
        id_, label = self.program.ids[place], self.program.traits[place].label
        text = describe_error(why) if isinstance(why, BaseException) else why
        self.notice(
            "NodeNotKept",
            id_,
            f"what {id_!r} ({label}) made could not be kept and is computed every time: {text}",
            once=text,
        )

    def check_stopped(self) -> None:
        """Leave, where nobody waits any more."""
        if self.stopped:
            raise Stopped

    def abandon(self) -> None:
        """Let go of every claim and start nothing new; what runs is on its own."""
        self.stopped = True
        for claim in list(self.claims):
            self.end_claim(claim)


def _hash_of(value: VirtualValue) -> str:
    return value.digest or value.hash()


_NOTHING = VirtualValue(None)
"""Stands where no output has been made yet."""
