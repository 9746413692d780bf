"""One call gone through without running it: which key each node has, and what is known of it.

    a record               its hash goes on, as in a run
    no record              a promise goes on: a text that stands for the hash which only a run knows
    something below it     has a key that is made of promises; nothing has that key, so nobody asks

Promises are made of keys. So the same node on the same input has the same key in a fit and in the
forward after it, also where that input is only promised: what the one computes, the other finds.

The surprise: a condition is never called. What it said is read, where that is recorded; else it is
not known which arm is taken, and whether there is another pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from soma.contracts import ActionStore
from soma.engine.actions import start_of
from soma.engine.estimate_actions import Action, Promises, is_promise
from soma.engine.estimate_causes import cause
from soma.engine.estimate_views import Peeked, Quiet
from soma.engine.node_keys import NodeKey, fit_key, forward_key
from soma.engine.program import Program
from soma.engine.recompute import Inputs
from soma.engine.report import RunReport
from soma.engine.run import Call, Run
from soma.engine.states import NodeState
from soma.engine.unfolding import Unfolding
from soma.engine.values import NOT_IN_HAND, VirtualValue

__all__ = ["UNKNOWN", "Walk", "Wanted"]

UNKNOWN: Any = ...
"""Stands for an x of which nothing is known."""


class Wanted(NamedTuple):
    """An output that a branch or loop reads, or gives to a body that is not known."""

    after: int
    """So many actions were entered before."""
    at: int


class _UntilRun(Exception):  # a signal, not an error
    """What a condition says is not known."""


class _Readable(Inputs):
    """Puts in hand what is recorded of a condition; computes nothing."""

    def __init__(self, walk: Walk) -> None:
        super().__init__()
        self._walk = walk

    def ensure(self, run: Run, places: Iterable[int]) -> None:  # noqa: ARG002  # of one run
        for at in places:
            self._walk.read(at)


class _Foreseeing(Unfolding):
    """Branches and loops, as far as it is known what they do."""

    def give_up(self, at: int) -> tuple[int, ...]:
        """End a branch or loop of which it is not known how it goes on; return what feeds it."""
        present = self._pass.pop(at, None)
        if present is None:
            return self._run.before[at]
        return (self._standing_for(present.scope.terminal + present.shift),)


class Walk:
    """One fit or forward, gone through.

    Args:
        program: what would run.
        store: what is known; it is not written to.
        call: what is asked for; its x may be ``UNKNOWN``.
        promises: what stands for what an earlier call will have made.
    """

    def __init__(
        self, program: Program, store: ActionStore | None, call: Call, promises: Promises
    ) -> None:
        self.report = RunReport("fit" if call.fitting else "forward")
        self.run = run = Run(program, store, call, self.report)
        run.notices = Quiet(program, self.report, run.announcer)
        self.cache = run.cache = Peeked(store, run.notices)
        self.actions: list[Action] = []
        """In an order in which they could be done."""
        self.outputs: dict[int, Action] = {}
        """At -> its forward."""
        self.states: dict[int, Action] = {}
        """At -> its fit."""
        self.learned: dict[str, Action] = {}
        """Node id -> its last fit."""
        self.wanted: list[Wanted] = []
        """In the order in which they are."""
        self._promises = promises
        if call.x is UNKNOWN:
            run.x, run.y = self._promised(), self._promised()

    def go(self) -> None:
        """Go through all of it."""
        run, program = self.run, self.run.program
        unfolding = _Foreseeing(run) if program.controls else None
        inputs, waiting = _Readable(self), list(program.waiting)
        ready = list(program.roots[0])
        while ready:
            at = ready.pop()
            if unfolding is None:
                self._node(at)
                for one in reversed(program.after[at]):
                    waiting[one] -= 1
                    if not waiting[one]:
                        ready.append(one)
                continue
            if run.node[at] in program.controls:
                self._control(at, unfolding, inputs)
            else:
                self._node(at)
            ready += unfolding.finish(at)

    def read(self, at: int) -> None:
        """Put in hand what a branch or loop asks.

        Raises:
            _UntilRun: it is not recorded, or its value is not there.
        """
        self._want(at)
        value, action = self.run.outputs[at], self.outputs.get(at)
        if value.in_hand:
            return
        if action is None or action.record is None:
            raise _UntilRun
        found = self.cache.value(action.record, "output")
        if found is NOT_IN_HAND:
            raise _UntilRun
        value.give(found)

    def _want(self, at: int) -> None:
        self.wanted.append(Wanted(len(self.actions), at))

    # What a run does at each node

    def _node(self, at: int) -> None:
        run = self.run
        if run.call.fitting:
            place = run.node[at]
            if run.program.traits[place].trainable:
                self._fit(at)
            if not run.program.needs.forwards[place] or at in run.spared:
                return
        self._forward(at)

    def _fit(self, at: int) -> None:
        run, id_ = self.run, self.run.id_of(at)
        init, keeps = start_of(run, at)
        if init is not None and keeps:
            run.learn(at, init)
            return
        found = fit_key(run, at, init)
        starts = init is not None and "state" in run.program.traits[run.node[at]].fit_takes
        promised = self._is_fed_by_promises(at) or is_promise(run.y.digest)
        if init is not None and starts:
            promised = promised or is_promise(init.digest)
        action = self._action(at, "state", found, promised=promised)
        if action.outcome == "always":
            action.why = cause(run, at, "state", init if starts else None)
        if starts:
            action.init = self.learned.get(id_)
        self.states[at] = self.learned[id_] = action
        run.learn(at, NodeState(action.digest, None))

    def _forward(self, at: int) -> None:
        run = self.run
        found = forward_key(run, at)
        state = run.state_of(at) if run.program.traits[run.node[at]].trainable else None
        promised = self._is_fed_by_promises(at) or (state is not None and is_promise(state.digest))
        action = self.outputs[at] = self._action(at, "output", found, promised=promised)
        if action.outcome == "always":
            action.why = cause(run, at, "output", state)
        run.outputs[at] = VirtualValue(NOT_IN_HAND, digest=action.digest, uses=0)

    def _action(self, at: int, what: str, found: NodeKey, *, promised: bool) -> Action:
        """Enter what would be done, and what it would give."""
        run = self.run
        action = Action(at, run.node[at], what, run.passes_of(at))
        self.actions.append(action)
        if found.recorded and found.key is not None:
            self._look_up(action, found.key, promised=promised)
        else:
            action.outcome = "computed" if run.store is None else "always"
            again = what == "output" and run.program.traits[action.place].deterministic
            action.digest = (
                self._promises.of(found.basis) if again and found.basis else self._promises.new()
            )
        return action

    def _look_up(self, action: Action, key: str, *, promised: bool) -> None:
        run = self.run
        action.key = "" if promised else key
        site = (run.site(action.at), action.what)
        refreshed = run.program.ids[action.place] in run.call.refresh and site not in run.refreshed
        kept = None if refreshed else self._promises.kept(key)
        record = None if refreshed or promised or kept else run.cache.lookup(key)
        if kept is not None:
            action.outcome, action.digest = "reused", kept
        elif record is not None and action.what in record.outputs:
            action.record, action.digest = record, record.outputs[action.what]
            action.outcome = "reused"
        else:
            action.outcome = "unknown" if promised and not refreshed else "computed"
            action.digest = self._promises.keep(key)
            run.refreshed.add(site)

    def _is_fed_by_promises(self, at: int) -> bool:
        run, sources = self.run, self.run.before[at]
        if not sources:
            return is_promise(run.x.digest)
        return any(is_promise(run.outputs[one].digest) for one in sources)

    def _promised(self) -> VirtualValue:
        return VirtualValue(NOT_IN_HAND, digest=self._promises.new(), uses=0)

    # Branches and loops

    def _control(self, at: int, unfolding: _Foreseeing, inputs: Inputs) -> None:
        run = self.run
        try:
            unfolding.decide(at, inputs)
        except _UntilRun:
            for one in unfolding.give_up(at):
                self._want(one)
            run.outputs[at] = self._promised()
            self._rest_of(run.node[at], run.passes_of(at))

    def _rest_of(self, control: int, passes: tuple[int, ...]) -> None:
        """Enter a row for whatever may be done in the bodies of a branch or loop."""
        run, program = self.run, self.run.program
        for place in _places_in(program, control):
            traits = program.traits[place]
            if run.call.fitting and traits.trainable:
                action = self._rest(place, "state", passes)
                self.learned[program.ids[place]] = action
                run.states[program.ids[place]] = NodeState(action.digest, None)
            if not run.call.fitting or program.needs.forwards[place]:
                self._rest(place, "output", passes)

    def _rest(self, place: int, what: str, passes: tuple[int, ...]) -> Action:
        action = Action(-1, place, what, passes)
        action.rest, action.digest = True, self._promises.new()
        self.actions.append(action)
        return action


def _places_in(program: Program, control: int) -> Iterator[int]:
    """Yield the nodes in the bodies of a branch or loop, and in those in them."""
    for number in program.controls[control].bodies:
        scope = program.scopes[number]
        for place in range(scope.start, scope.stop):
            if place in program.controls:
                yield from _places_in(program, place)  # recurses as bodies nest
            else:
                yield place
