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

from collections.abc import Callable
from typing import Any, TypeVar

from soma.engine import recording
from soma.engine.checks import check_arm, check_learnable
from soma.engine.program import Branching, Looping, Scope
from soma.engine.recompute import Inputs
from soma.engine.run import Run
from soma.engine.signals import arm_of, stop_of, unreadable_stop
from soma.events.human import passes_text
from soma.values import Opaque

__all__ = ["Unfolding"]

_T = TypeVar("_T")


class _Entered:
    """A body that is running."""

    __slots__ = ("control", "left", "number", "outside", "passes", "scope", "shift")

    def __init__(self, number: int, scope: Scope, control: int, outside: _Entered | None) -> None:
        self.number = number
        self.scope = scope
        self.control = control
        """The position of the branch or loop."""
        self.outside = outside
        """What the branch or loop lies in; None for the graph itself."""
        self.passes: tuple[int, ...] = () if outside is None else outside.passes
        self.shift = 0
        """From a place to its position in the run."""
        self.left = scope.stop - scope.start
        """Nodes that are not done yet."""


class Unfolding:
    """What has been entered so far in one run."""

    def __init__(self, run: Run) -> None:
        run.unfold()
        self._run = run
        program = run.program
        self._program = program
        self._home = dict.fromkeys(range(program.size), _Entered(0, program.scopes[0], -1, None))
        """At -> what it lies in, until it is done."""
        self._waiting = list(program.waiting[: program.size])
        self._decided: dict[int, int] = {}
        """Branch or loop -> the scope to be entered, until it is."""
        self._pass: dict[int, _Entered] = {}
        """Loop -> its body, between its first pass and its last."""

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
        branch, condition = f"{ids[place]!r}{self._when(at)}", ids[branching.condition]
        label = _read(
            run, asked, inputs, lambda said: arm_of(branch, condition, said, branching.arms)
        )
        scope = branching.arms[label]
        if not run.call.fitting:
            check_arm(self._program, scope, run.states, self._when(at))
        else:
            check_learnable(self._program, scope, run.call.x, run.call.y)
        recording.took_arm(run, at, label)
        return scope

    def _is_over(self, at: int, looping: Looping, inputs: Inputs) -> bool:
        run, count = self._run, self._pass[at].passes[-1]
        stopped = self._is_stopped(at, looping, inputs) if looping.until >= 0 else None
        if not stopped and count < looping.max_iterations:
            return False
        recording.looped(run, at, count, stopped=stopped)
        return True

    def _is_stopped(self, at: int, looping: Looping, inputs: Inputs) -> bool:
        run, ids, present = self._run, self._program.ids, self._pass[at]
        asked = self._standing_for(looping.until + present.shift)

        def stops(said: Any) -> bool:
            found = stop_of(said)
            if found is None:
                when = passes_text(present.passes)
                own = looping.until != present.scope.terminal
                raise unreadable_stop(run.id_of(at), ids[looping.until], said, when, has_until=own)
            return found

        return _read(run, asked, inputs, stops)

    def _when(self, at: int) -> str:
        """Return what messages say of the loops around a branch."""
        passes = self._run.passes_of(at)
        return f" in {passes_text(passes)}" if passes else ""

    def finish(self, at: int) -> list[int]:
        """Enter what was decided, or hand on what is done; return what may run now."""
        if self._run.node[at] not in self._program.controls:
            return self._done(at)
        scope = self._decided.pop(at, None)
        if scope is not None:
            return self._enter(at, scope)
        return self._complete(at, self._pass.pop(at, None))

    def _done(self, at: int) -> list[int]:
        """Count down what waits for a node, and for the body that it lies in."""
        run, home = self._run, self._home.pop(at)
        place, shift = run.node[at], home.shift
        ready = []
        for follower in self._program.after[place]:
            one = follower + shift
            self._waiting[one] -= 1
            if not self._waiting[one]:
                if follower in self._program.fed_by_control:
                    run.rewire(one, tuple(map(self._standing_for, run.before[one])))
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
            return self._pass_again(home)
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
        """Let a body run on what its branch or loop is given, or a loop's on what it gave."""
        run = self._run
        entered = self._pass.get(at)
        if entered is not None:
            return self._pass_again(entered)
        entered = _Entered(number, self._program.scopes[number], at, self._home[at])
        if entered.scope.arm is None:
            self._pass[at] = entered
            entered.passes = (*entered.passes, 1)
        return self._wire(entered, run.before[at], run.names[at])

    def _pass_again(self, entered: _Entered) -> list[int]:
        *outer, number = entered.passes
        entered.passes = (*outer, number + 1)
        source = self._standing_for(entered.scope.terminal + entered.shift)
        return self._wire(entered, (source,), ())  # one input has no name

    def _wire(
        self, entered: _Entered, sources: tuple[int, ...], names: tuple[str, ...]
    ) -> list[int]:
        """Give the nodes of a body positions of their own; return those that may run now."""
        run, program, scope = self._run, self._program, entered.scope
        base = run.grow(scope.start, scope.stop, entered.passes)
        entered.shift = shift = base - scope.start
        entered.left = scope.stop - scope.start
        for place in range(scope.start, scope.stop):
            before = program.before[place]
            run.wire(
                tuple([one + shift for one in before]) if before else sources,
                program.names[place] if before else names,
            )
            self._home[place + shift] = entered
        self._waiting += program.waiting[scope.start : scope.stop]
        if program.needs.spared[entered.number]:
            self._spare(entered)
        takers = run.takers.entering[entered.number]
        for source in sources:
            run.exchange_taker(source, takers)
        return [place + shift for place in program.roots[entered.number]]

    def _spare(self, entered: _Entered) -> None:
        """Note which nodes of the last pass of a fit nobody needs the output of."""
        looping = self._program.controls[entered.scope.control]
        is_last = isinstance(looping, Looping) and entered.passes[-1] == looping.max_iterations
        if is_last and self._run.call.fitting:
            spared = self._program.needs.spared[entered.number]
            self._run.spared.update(place + entered.shift for place in spared)


def _read(run: Run, at: int, inputs: Inputs, read: Callable[[Any], _T]) -> _T:
    """Return what is read out of an output.

    It is looked at before it is let go of, so that nobody writes into it and nothing is copied.
    """
    inputs.ensure(run, [at])
    found = run.outputs[at].peek()
    try:
        return read(found.value if type(found) is Opaque else found)
    finally:
        run.exchange_taker(at, 0)
