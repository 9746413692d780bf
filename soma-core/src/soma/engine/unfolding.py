"""How branches and loops become nodes of a run: a graph that grows while it is walked.

    branch   its condition is read, and the nodes of one arm get positions of their own
    loop     the nodes of its body get positions of their own, once for each pass

What is entered is wired like any other node: the first nodes of an arm wait for what feeds the
branch, those of the second pass for the last node of the first. So keys, hits, recomputing and
sharing need to know nothing of branches and loops. When a body is done, its last node stands for
the branch or loop.

``decide`` may run user code and is called like a node; ``finish`` only wires, and is called by one
thread at a time.
"""

from __future__ import annotations

from typing import Any

from soma.engine.checks import check_arm, check_labels
from soma.engine.program import Branching, Looping, Scope
from soma.engine.recompute import Inputs
from soma.engine.run import Run
from soma.engine.signals import arm_of, says_stop
from soma.events.human import times

__all__ = ["Unfolding"]


class _Entered:
    """One time that a body was entered."""

    __slots__ = ("base", "control", "left", "outside", "passes", "scope", "shift")

    def __init__(
        self,
        scope: Scope,
        base: int,
        control: int,
        outside: _Entered | None,
        passes: tuple[int, ...],
    ) -> None:
        self.scope = scope
        self.base = base
        self.shift = base - scope.start
        """From a place to its position in the run."""
        self.control = control
        """The position of the branch or loop."""
        self.outside = outside
        """What the branch or loop lies in; None for the graph itself."""
        self.passes = passes
        self.left = scope.stop - scope.start
        """Nodes that are not done yet."""


class Unfolding:
    """What has been entered so far in one run."""

    def __init__(self, run: Run) -> None:
        run.unfold()
        self._run = run
        program = run.program
        self._program = program
        graph = _Entered(program.scopes[0], 0, -1, None, ())
        self._home = [graph] * program.size
        """At -> what it lies in."""
        self._waiting = list(program.waiting[: program.size])
        self._decided: dict[int, int] = {}
        """Branch or loop -> the scope to be entered, until it is."""
        self._pass: dict[int, _Entered] = {}
        """Loop -> its present pass."""

    def decide(self, at: int, inputs: Inputs) -> None:
        """Find what a branch or loop does next.

        Raises:
            InvalidOutput: a condition or an ``until`` says nothing that could be followed.
            NotFittedError: the arm that is taken was never fitted.
            InvalidInput: the arm that is taken learns from labels, and there are none.
            Changed: what is read came out differently than it had been recorded.
        """
        run, place = self._run, self._run.node[at]
        if run.call.fitting and not self._program.needs.active[place]:
            return
        control = self._program.controls[place]
        if isinstance(control, Branching):
            self._decided[at] = self._arm(at, control, inputs)
        elif at not in self._pass or not self._is_over(at, control, inputs):
            self._decided[at] = control.body

    def _arm(self, at: int, branching: Branching, inputs: Inputs) -> int:
        run = self._run
        ids, place = self._program.ids, run.node[at]
        asked = self._standing_for(branching.condition + self._home[at].shift)
        said = _read(run, asked, inputs)
        label = arm_of(ids[place], ids[branching.condition], said, branching.arms)
        scope = branching.arms[label]
        if not run.call.fitting:
            check_arm(self._program, scope, run.states)
        elif run.call.y is None:
            check_labels(self._program, scope)
        run.decided(at, f"took arm {label!r}")
        run.announcer.branch_taken(ids[place], label, run.passes_of(at))
        return scope

    def _is_over(self, at: int, looping: Looping, inputs: Inputs) -> bool:
        run, count = self._run, self._pass[at].passes[-1]
        stopped = looping.until >= 0 and self._is_stopped(at, looping, inputs)
        if not stopped and count < looping.max_iterations:
            return False
        why = "" if looping.until < 0 else ", stopped" if stopped else ", the most there may be"
        run.decided(at, f"{times(count, 'pass')}{why}")
        run.announcer.loop_completed(run.id_of(at), count, run.passes_of(at), stopped=stopped)
        return True

    def _is_stopped(self, at: int, looping: Looping, inputs: Inputs) -> bool:
        run, ids = self._run, self._program.ids
        asked = self._standing_for(looping.until + self._pass[at].shift)
        said = _read(run, asked, inputs)
        return says_stop(run.id_of(at), ids[looping.until], said, run.where(asked))

    def finish(self, at: int) -> list[int]:
        """Enter what was decided, or hand on what is done; return what may run now."""
        if self._run.node[at] not in self._program.controls:
            return self._done(at)
        scope = self._decided.pop(at, None)
        if scope is not None:
            return self._enter(at, scope)
        present = self._pass.pop(at, None)
        return self._complete(at, present)

    def _done(self, at: int) -> list[int]:
        """Count down what waits for a node, and for the body that it lies in."""
        run, home = self._run, self._home[at]
        place, shift = run.node[at], home.shift
        ready = []
        for follower in self._program.after[place]:
            one = follower + shift
            self._waiting[one] -= 1
            if not self._waiting[one]:
                if follower in self._program.fed_by_control:
                    run.before[one] = tuple(map(self._standing_for, run.before[one]))  # type: ignore[index]  # a list by now
                ready.append(one)
        home.left -= 1
        if not home.left and home.outside is not None:
            ready += self._body_done(home)
        ready.reverse()
        return ready

    def _body_done(self, home: _Entered) -> list[int]:
        control = self._program.controls[home.scope.control]
        if isinstance(control, Branching):
            return self._complete(home.control, home)
        if control.until < 0 and home.passes[-1] < control.max_iterations:
            return self._enter(home.control, control.body)
        return [home.control]  # which decides whether it goes on

    def _complete(self, at: int, last: _Entered | None) -> list[int]:
        """Let the last node of a body stand for its branch or loop."""
        if last is not None:
            run = self._run
            stands = self._standing_for(last.scope.terminal + last.shift)
            run.stands_for[at] = stands
            run.exchange_taker(stands, run.uses[run.node[at]])
        return self._done(at)

    def _standing_for(self, at: int) -> int:
        return self._run.stands_for.get(at, at)

    def _enter(self, at: int, number: int) -> list[int]:
        """Give the nodes of a body positions of their own, wired to what they are given."""
        run, program = self._run, self._program
        scope, outside = program.scopes[number], self._home[at]
        sources, names, passes = run.before[at], run.names[at], outside.passes
        if scope.arm is None:
            before = self._pass.get(at)
            passes = (*passes, 1 if before is None else before.passes[-1] + 1)
            if before is not None:
                sources = (self._standing_for(scope.terminal + before.shift),)
                names = (program.ids[scope.terminal],)
        entered = _Entered(scope, len(self._home), at, outside, passes)
        self._wire(entered, sources, names)
        if scope.arm is None:
            self._pass[at] = entered
            self._spare(entered, number)
        for source in sources:
            run.exchange_taker(source, run.takers.entering[number])
        return [
            place + entered.shift
            for place in reversed(range(scope.start, scope.stop))
            if not program.waiting[place]
        ]

    def _wire(self, entered: _Entered, sources: tuple[int, ...], names: tuple[str, ...]) -> None:
        run, program, shift = self._run, self._program, entered.shift
        node: Any = run.node
        run_before: Any = run.before
        run_names: Any = run.names
        for place in range(entered.scope.start, entered.scope.stop):
            before = program.before[place]
            node.append(place)
            run_before.append(tuple(one + shift for one in before) if before else sources)
            run_names.append(program.names[place] if before else names)
            self._waiting.append(program.waiting[place])
            self._home.append(entered)
            run.grow(entered.passes)

    def _spare(self, entered: _Entered, number: int) -> None:
        """Note which nodes of a last pass nobody needs the output of."""
        spared = self._program.needs.spared[number]
        if not spared or not self._run.call.fitting:
            return
        looping = self._program.controls[entered.scope.control]
        if isinstance(looping, Looping) and entered.passes[-1] == looping.max_iterations:
            self._run.spared.update(place + entered.shift for place in spared)


def _read(run: Run, at: int, inputs: Inputs) -> Any:
    """Return what a node says, for the branch or loop that asked it."""
    inputs.ensure(run, [at])
    return run.take(at)
