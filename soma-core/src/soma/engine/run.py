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

    def __init__(self, program: Program, store: ActionStore | None, call: Call) -> None:
        self.program = program
        self.store = store
        self.call = call
        self.report = RunReport("fit" if call.fitting else "forward")
        self.stopped = False
        self.claims: set[AbstractContextManager[None]] = set()
        self.fixed: dict[int, VirtualValue] = {}
        """Outputs that differ from what had been recorded, and hold for the rest of this call."""
        self.refreshed: set[tuple[int, str]] = set()
        """(place, what) that was asked to be computed anew and has been."""
        self.results: dict[int, Any] = {}
        """Leaf -> what it gave, when all is done."""
        self.started = call.clock()
        self.begin()

    def begin(self) -> None:
        """Forget what was found so far, but for what is fixed."""
        call, program = self.call, self.program
        self.uses = program.uses_in_fit if call.fitting else program.uses_in_forward
        self.x = VirtualValue(call.x, uses=self.uses[-1], owned=False, sticky=True)
        self.y = VirtualValue(call.y, uses=len(program.learners), owned=False, sticky=True)
        self.outputs: list[VirtualValue] = [_NOTHING] * len(program.ids)
        self.states: dict[str, NodeState] = {} if call.fitting else dict(call.states)

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
            return self.hash_of(self.x, "")
        if len(sources) == 1:
            return self.hash_of(self.outputs[sources[0]], self.program.ids[sources[0]])
        hashes = {
            self.program.ids[one]: self.hash_of(self.outputs[one], self.program.ids[one])
            for one in sources
        }
        return fan_in_hash(hashes) if all(hashes.values()) else ""

    def hash_of(self, value: VirtualValue, id_: str) -> str:
        """Return the hash of a value, and say once why it has none."""
        found = value.digest or value.hash()
        if not found and value.in_hand and self.store is not None and not id_:
            name = value.type_name()
            message = (
                f"the input of the graph is, or holds, something that nothing says how to write "
                f"down ({name}): nothing that depends on it is kept. Register a codec: "
                "soma.codec(kind, type, dump=..., load=...)"
            )
            self.notice("NodeNotKept", "", message, once=("input", name))
        return found

    def let_input_go(self, place: int) -> None:
        """A node does not need the object that it would be given."""
        sources = self.program.before[place]
        if not sources:
            self.x.let_go()
        for one in sources:
            self.outputs[one].let_go()

    def lookup(self, key: str | None) -> ActionRecord | None:
        """Return what is recorded under a key."""
        if key is None or self.store is None:
            return None
        try:
            return self.store.lookup(key)
        except OSError as error:
            self.notice("NodeNotKept", "", f"the cache cannot be read: {error}", once="lookup")
            return None

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
            claim.__exit__(None, None, None)


_NOTHING = VirtualValue(None)
"""Stands where no output has been made yet."""
