"""One fit or forward under way: what is known so far, and what is asked of everybody.

What runs is addressed by its position in the run, ``at``. Nodes of the graph itself have the same
position there as in the program, ``place``; those in a body get new ones each time it is entered
(unfolding.py), so that each pass of a loop has its own inputs, state and output.

A run belongs to one call. It is thrown away whole where something in it turns out to have been
wrong (recompute.py), so nothing of it is ever mixed with another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeAlias

from soma.contracts import ActionStore
from soma.engine.announcer import Announcer
from soma.engine.elsewhere import Placement
from soma.engine.guarded import GuardedStore
from soma.engine.keys import fan_in_hash
from soma.engine.notices import Notices
from soma.engine.parcels import Parcel
from soma.engine.program import Program
from soma.engine.report import RunReport
from soma.engine.states import NodeState
from soma.engine.values import VirtualValue, is_plain_array
from soma.errors import Nameless
from soma.events import Bus
from soma.identity import Identity
from soma.plan import Execute

__all__ = ["Call", "Run", "Stopped"]

KEEP_BELOW = 1 << 20
"""Outputs under this many bytes are always kept."""
_BYTES_PER_MS = 1_000_000
"""1 GB/s: larger ones are kept where computing them is slower than reading them would be."""


Site: TypeAlias = int | tuple[int, tuple[int, ...]]
"""A place, and the passes of the loops around it where there are any."""


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
    x_parcel: Parcel | None = None
    """The bytes of x, where it came as such."""
    y_parcel: Parcel | None = None
    packed: bool = False
    """Whether results are asked for as bytes, or by their hash alone where the store has them."""
    clock: Callable[[], float] = perf_counter


class Run:
    """The state of one call."""

    def __init__(
        self,
        program: Program,
        store: ActionStore | None,
        call: Call,
        report: RunReport,
        *,
        bus: Bus | None = None,
        placement: Placement | None = None,
    ) -> None:
        self.program = program
        self.placement = placement
        """Who runs nodes in other processes; None where all of them run here."""
        self.store = store
        self.call = call
        self.report = report
        self.announcer = Announcer(Bus() if bus is None else bus, report.run_id)
        self.notices = Notices(program, report, self.announcer)
        self.cache = GuardedStore(store, self.notices)
        self.stopped = False
        self.claims: set[AbstractContextManager[None]] = set()
        self.fixed: dict[Site, VirtualValue] = {}
        """Outputs that hold for the rest of this call, as long as they are made from the same:
        those that differ from what had been recorded, and those that cannot be made again."""
        self.sticky: set[Site] = set()
        """Nodes that came out differently once: what they make stays in hand."""
        self.made: set[tuple[Site, str]] = set()
        """(site, what) that were computed before the run started over."""
        self.refreshed: set[tuple[Site, str]] = set()
        """(site, what) that was asked to be computed anew and has been."""
        self._told_inputs: set[VirtualValue] = set()
        """Those of x and y of which it was told that they have no hash."""
        self._told: set[tuple[Site, str, str]] = set()
        """(site, what, key) of hits and decisions from before the run started over."""
        self.keeps_states = False
        """Whether states of earlier passes are held, since a store has let one go."""
        self.results: dict[int, Any] = {}
        """Leaf -> what it gave, when all is done."""
        self.takers = program.needs.in_fit if call.fitting else program.needs.in_forward
        self.uses = self.takers.uses
        """Place -> how many certainly take its output."""
        self.x = _given(call.x, call.x_parcel, uses=self.uses[-1])
        self.y = _given(call.y, call.y_parcel, uses=len(program.learners))
        self._begin()

    def _begin(self) -> None:
        program = self.program
        self.unfolds = False
        """Whether nodes get positions of their own while the run goes on."""
        self.node: Sequence[int] = range(program.size)
        """At -> place."""
        self.before: Sequence[tuple[int, ...]] = program.before
        """At -> where the outputs are that feed it; none: the input of the graph."""
        self.names: Sequence[tuple[str, ...]] = program.names
        """At -> their ids, as a fan-in sees them."""
        self.stands_for: dict[int, int] = {}
        """Branch or loop that is done -> where its output is."""
        self.outputs: list[VirtualValue] = [_NOTHING] * program.size
        self._learned: dict[int, NodeState] = {}
        """At -> what was learned there."""
        self._learned_at: dict[str, int] = {}
        """Node id -> where it has learned last."""
        self.spared: set[int] = set()
        """Nodes of a last pass that are not forwarded."""
        self.holding: set[int] = set()
        """Known outputs whose blob is gone: they keep their claim on what feeds them until their
        own takers are served, or each of them would have it made again."""
        self.states: dict[str, NodeState] = {} if self.call.fitting else dict(self.call.states)
        """Node id -> what it learned last."""

    def unfold(self) -> None:
        """Make room for nodes that are not known yet."""
        size = self.program.size
        self.unfolds = True
        self.node = self._node = list(range(size))
        self.before = self._before = list(self.program.before[:size])
        self.names = self._names = list(self.program.names[:size])
        self._passes: list[tuple[int, ...]] = [()] * size

    def grow(self, start: int, stop: int, passes: tuple[int, ...]) -> int:
        """Make room for the nodes of a body, and return the position of the first."""
        count, base = stop - start, len(self.outputs)
        self.outputs += [_NOTHING] * count
        self._node += range(start, stop)
        self._passes += [passes] * count
        return base

    def wire(self, before: tuple[int, ...], names: tuple[str, ...]) -> None:
        """Say what feeds the next of these nodes."""
        self._before.append(before)
        self._names.append(names)

    def rewire(self, at: int, before: tuple[int, ...]) -> None:
        """Say what feeds a node, now that it is known."""
        self._before[at] = before

    def start_over(self, changed: Mapping[int, VirtualValue]) -> None:
        """Forget what was found so far, but for what holds for the rest of the call."""
        for at, value in enumerate(self.outputs):
            if value.sticky:
                self.fixed[self.site(at)] = value
        for at, value in changed.items():
            self.fixed[self.site(at)] = value
            self.sticky.add(self.site(at))
        rows, places = self.report.actions, self.program.places
        for row in rows:
            site = (places[row.node], row.passes) if self.unfolds else places[row.node]
            if row.outcome == "hit":
                self._told.add((site, row.what, row.key))
            else:
                self.made.add((site, row.what))
        rows[:] = [row for row in rows if row.outcome != "hit"]
        for one in self.report.decisions:
            self._told.add(((places[one.node], one.passes), one.outcome, ""))
        self.report.decisions.clear()
        self.notices.start_over()
        self._begin()

    def site(self, at: int) -> Site:
        """Return what a node of this run is called, also after the run has started over."""
        return (self.node[at], self._passes[at]) if self.unfolds else at

    def passes_of(self, at: int) -> tuple[int, ...]:
        """Return the pass numbers of the loops around a node, outermost first."""
        return self._passes[at] if self.unfolds else ()

    def id_of(self, at: int) -> str:
        """Return the id of a node."""
        return self.program.ids[self.node[at]]

    def state_of(self, at: int) -> NodeState | None:
        """Return the state that a node forwards with."""
        if self.call.fitting:
            return self._learned.get(at)
        return self.states.get(self.id_of(at))

    def learn(self, at: int, state: NodeState) -> None:
        """Take in what a node has learned. What it had learned in an earlier pass is let go of."""
        id_ = self.id_of(at)
        earlier = self._learned_at.get(id_)
        if earlier is not None and self.store is None:
            del self._learned[earlier]  # nothing of that pass can be asked for again
        elif earlier is not None and not self.keeps_states:
            self._learned[earlier] = self._learned[earlier].recalled()
        self._learned_at[id_] = at
        self._learned[at] = self.states[id_] = state

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
            self.notices.not_kept(place, str(error))
            return None

    def input_hash(self, at: int) -> str:
        """Return the hash of what a node is given; empty where it has none."""
        sources = self.before[at]
        if not sources:
            return self.given_hash(self.x)
        if len(sources) == 1:
            return _hash_of(self.outputs[sources[0]])
        found = [_hash_of(self.outputs[one]) for one in sources]
        return fan_in_hash(dict(zip(self.names[at], found, strict=True))) if all(found) else ""

    def given_hash(self, value: VirtualValue) -> str:
        """Return the hash of x or y; empty where it has none, and a line says why."""
        found = _hash_of(value)
        if not found and self.store is not None and value not in self._told_inputs:
            self._told_inputs.add(value)
            name = value.type_name()
            which = "y is, or holds" if value is self.y else "the input of the graph is, or holds"
            message = (
                f"{which}, something that nothing says how to write down ({name}): what depends on "
                "it is not kept. Register a codec: soma.codec(kind, type, dump=..., load=...)"
            )
            self.notices.tell("NodeNotKept", "", message, once=("input", name))
        return found

    def take(self, at: int) -> Any:
        """Return the output of a node for one of its takers. It must be in hand."""
        found = self.outputs[at].take()
        self._taken(at)
        return found

    def take_packed(self, at: int) -> Parcel:
        """Return the bytes of an output for one of its takers. It must be in hand.

        Raises:
            NotSendable: it exists in this process alone.
        """
        found = self.outputs[at].take_packed()
        self._taken(at)
        return found

    def _taken(self, at: int) -> None:
        if self.outputs[at].uses <= 0 and self.stops_holding(at):
            self.let_input_go(at)

    def let_input_go(self, at: int) -> None:
        """A node does not need the object that it would be given; nor, then, do some above it."""
        stack = [at]
        while stack:
            for source in self.before[stack.pop()]:
                self.outputs[source].let_go()
                if self.outputs[source].uses <= 0 and self.stops_holding(source):
                    stack.append(source)

    def exchange_taker(self, at: int, takers: int) -> None:
        """One taker of an output turns out to be so many."""
        value = self.outputs[at]
        if value is _NOTHING or takers == 1:
            return
        if (
            takers > 1
            and self.store is None
            and value.parcel is None
            and not is_plain_array(value.peek())
        ):
            value.owned = False  # the last of several gets what the first gets: what copying gives
        value.let_go(1 - takers)
        if value.uses <= 0 and self.stops_holding(at):
            self.let_input_go(at)

    def stops_holding(self, at: int) -> bool:
        """End a node's claim on what feeds it; False if it has none. True for one thread only."""
        try:
            self.holding.remove(at)
        except KeyError:
            return False
        return True

    def keeps_output(self, place: int, nbytes: int, duration_ms: float) -> bool:
        """Say whether an output is worth its bytes."""
        return (
            nbytes < KEEP_BELOW
            or self.program.needs.kept[place]
            or self.is_cached(place)
            or duration_ms > nbytes / _BYTES_PER_MS
            or os.environ.get("SOMA_CACHE_KEEP") == "all"
        )

    def is_cached(self, place: int) -> bool:
        """Say whether every output of a node is kept."""
        entry = self.program.entries[place]
        return isinstance(entry, Execute) and entry.cached

    def placed(self, at: int) -> str:
        """Return in words in which other process a node runs; empty where it runs here."""
        return "" if self.placement is None else self.placement.where(self.node[at])

    def is_frozen(self, place: int) -> bool:
        """Say whether a node keeps what it has learned."""
        entry = self.program.entries[place]
        return isinstance(entry, Execute) and entry.frozen

    def where(self, at: int) -> str:
        """Return what messages say of the loops around a node; nothing where there are none."""
        passes = self.passes_of(at)
        if not passes:
            return ""
        loops = self.program.loops_around(self.node[at])
        told = zip(reversed(passes), reversed(loops), strict=True)
        return "".join(f", in pass {number} of loop {loop!r}" for number, loop in told)

    def is_news(self, at: int, what: str, key: str = "") -> bool:
        """Say whether something is to be announced: a run that starts over repeats itself."""
        return not self._told or (self.site(at), what, key) not in self._told

    def check_stopped(self) -> None:
        """Leave, where nobody waits any more."""
        if self.stopped:
            raise Stopped

    def abandon(self) -> None:
        """Let go of every claim and start nothing new; what runs is on its own."""
        self.stopped = True
        self.announcer.leave()
        if self.placement is not None:
            self.placement.cancel()
        for claim in list(self.claims):
            self.cache.end_claim(claim)


def _hash_of(value: VirtualValue) -> str:
    return value.digest or value.hash()


def _given(found: Any, parcel: Parcel | None, *, uses: int) -> VirtualValue:
    """Return x or y, which stays the caller's."""
    if parcel is None:
        return VirtualValue(found, uses=uses, owned=False, sticky=True)
    return VirtualValue(
        found,
        digest=parcel.digest,
        nbytes=parcel.nbytes,
        uses=uses,
        owned=False,
        sticky=True,
        parcel=parcel,
    )


_NOTHING = VirtualValue(None)
"""Stands where no output has been made yet."""
