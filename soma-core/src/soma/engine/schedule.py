"""Which node runs when: by ready counts, without barriers and without recursion.

    one thread   the calling one, until two nodes are ready and one has been slow, or both were so
                 in an earlier run
    threads      a few daemon threads pull from one deque; the calling thread only waits

Threads are started only when there is something to gain; where nodes prove quick after all, the
calling thread goes on alone. They end with the run. The calling thread
waits, so that Ctrl-C raises at once whatever the others do: nothing new starts, and a node that is
in the middle of a long C call is left to itself (exits.py).
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections import deque

from soma.engine import exits
from soma.engine.actions import run_node
from soma.engine.recompute import Changed, Inputs
from soma.engine.run import Run, Stopped
from soma.engine.states import StateGone
from soma.engine.unfolding import Unfolding
from soma.events.bus import in_callback

__all__ = ["run_all"]

SLOW_S = 1e-3
"""A node that takes longer is slow: threads may be worth starting."""
_SLOW_SHARE = 0.5
"""Share of the time that slow nodes must take: one that was merely interrupted is not enough."""
_WINDOW = 64
_SLOW_IN_WINDOW = 16
"""Fewer slow ones among so many nodes, and threads only get into each other's way."""
_WAIT_S = 0.1
"""A signal may be delivered to another thread, and this one then sees it when it wakes up."""
_FEW = 4
_MOST = 16


def run_all(run: Run, inputs: Inputs) -> None:
    """Run every node of the plan.

    Raises:
        Exception: the first thing that user code raises; nodes under way are waited for.
        KeyboardInterrupt: at once; nodes under way are left to themselves.
    """
    while True:
        try:
            _Schedule(run, inputs).run()
            if not run.call.fitting:
                run.results = inputs.results(run)
        except Changed as changed:
            run.start_over(changed.values)
            inputs.start_over()
        except StateGone:
            run.keeps_states = True
            run.start_over({})
            inputs.start_over()
        except BaseException:
            run.abandon()
            raise
        else:
            return


class _Schedule:
    def __init__(self, run: Run, inputs: Inputs) -> None:
        self.graph_run = run
        self.inputs = inputs
        program = run.program
        self.known_slow = program.slow
        if run.placement is not None:  # what takes a process of its own is worth a thread
            placed = map(run.placement.where, range(len(program.ids)))
            self.known_slow = program.slow | {at for at, where in enumerate(placed) if where}
        self.unfolding = Unfolding(run) if program.controls else None
        self.waiting = list(program.waiting)
        # Taken from the end, so that what is nearest to its last taker runs first.
        self.ready = deque(program.roots[0])
        self.changed: threading.Condition  # made when threads are
        self.running = 0
        self.threads = 0
        self.idle = 0
        self.calm = False
        self.finished = 0
        self.slow = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        clock, run, inputs = self.graph_run.call.clock, self.graph_run, self.inputs
        ready, waiting, after = self.ready, self.waiting, run.program.after
        node, unfolding = run.node, self.unfolding
        known_slow, slow_s, began = self.known_slow, 0.0, clock()
        may_wait = not in_callback()
        now = began
        while ready:
            if (
                len(ready) > 1
                and may_wait
                and (
                    (slow_s and slow_s > _SLOW_SHARE * (now - began))
                    or (
                        known_slow
                        and node[ready[-1]] in known_slow
                        and node[ready[-2]] in known_slow
                    )
                )
            ):
                self._run_threads()
                known_slow, slow_s, began = set(), 0.0, clock()  # they may all be hits this time
                now = began
                continue
            at = ready.pop()
            if unfolding is not None and node[at] in run.program.controls:
                unfolding.decide(at, inputs)
            else:
                run_node(run, at, inputs)
            started, now = now, clock()
            if now - started > SLOW_S:
                slow_s += now - started
                self._was_slow(node[at])
            if unfolding is not None:
                ready += unfolding.finish(at)
                continue
            for one in reversed(after[at]):
                waiting[one] -= 1
                if not waiting[one]:
                    ready.append(one)

    def _run_threads(self) -> None:
        """Let threads work until nothing is left, one fails, or there is nothing to gain."""
        self.changed = threading.Condition()
        self.calm, self.finished, self.slow = False, 0, 0
        self.threads = self.idle = 0
        with self.changed:
            self._start_threads()
            while (self.ready or self.running) and not self._is_over():
                self.changed.wait(_WAIT_S)
            self.graph_run.stopped = self.error is not None
            while self.running:
                self.changed.wait(_WAIT_S)
            self.calm = True  # whoever still waits for work goes home
            self.changed.notify_all()
            while self.threads:
                self.changed.wait(_WAIT_S)
        error, self.error = self.error, None
        if error is not None:
            self.graph_run.stopped = False  # a run that starts over goes on with the same
            try:
                raise error
            finally:
                del error  # or its traceback would keep this frame, and this frame it

    def _start_threads(self) -> None:
        """Start as many threads as there is work for. The condition is held."""
        most = min(_MOST, max(_FEW, os.cpu_count() or 1))
        placement = self.graph_run.placement
        if placement is not None:
            most += placement.seats  # threads that only wait for another process
        while self.threads < most and len(self.ready) > self.idle:
            context = contextvars.copy_context()
            thread = threading.Thread(
                target=context.run, args=(self._work,), daemon=True, name=f"soma-{self.threads}"
            )
            try:
                thread.start()
            except RuntimeError:  # the system gives no more: those that there are go on
                self.calm = self.calm or not self.threads
                return
            self.threads += 1
            self.idle += 1

    def _work(self) -> None:
        clock = self.graph_run.call.clock
        with self.changed:
            while True:
                while not self.ready and self.running and not self._is_over():
                    self.changed.wait()
                if self._is_over() or not self.ready:
                    self.threads -= 1
                    self.idle -= 1
                    self.changed.notify_all()
                    return
                at = self.ready.pop()
                self.idle -= 1
                self.running += 1
                self.changed.release()
                error: BaseException | None = None
                exits.enter(self.graph_run)
                started = clock()
                try:
                    self._run_one(at)
                except BaseException as caught:  # noqa: BLE001  # raised on the calling thread
                    error = caught
                finally:
                    exits.leave()
                    self.changed.acquire()
                self.running -= 1
                self.idle += 1
                self._count(at, clock() - started)
                self._finish(at, error)
                del error  # as above

    def _run_one(self, at: int) -> None:
        run = self.graph_run
        if self.unfolding is not None and run.node[at] in run.program.controls:
            self.unfolding.decide(at, self.inputs)
        else:
            run_node(run, at, self.inputs)

    def _count(self, at: int, took_s: float) -> None:
        if took_s > SLOW_S:
            self.slow += 1
            self._was_slow(self.graph_run.node[at])
        self.finished += 1
        if self.finished == _WINDOW:
            self.calm = self.slow < _SLOW_IN_WINDOW
            self.finished = self.slow = 0

    def _was_slow(self, place: int) -> None:
        run = self.graph_run
        if run.placement is None or not run.placement.where(place):  # there all are slow
            run.program.slow.add(place)

    def _finish(self, at: int, error: BaseException | None) -> None:
        if error is not None:
            if self.error is None and not isinstance(error, Stopped):
                self.error = error
            self.changed.notify_all()
            return
        if self.unfolding is not None:
            try:
                self.ready += self.unfolding.finish(at)
            except BaseException as caught:  # noqa: BLE001  # out of memory, say; raised by the caller
                self.error = caught
        else:
            for one in reversed(self.graph_run.program.after[at]):
                self.waiting[one] -= 1
                if not self.waiting[one]:
                    self.ready.append(one)
        if not self._is_over():
            self._start_threads()
        if len(self.ready) != 1 or self._is_over():
            self.changed.notify_all()

    def _is_over(self) -> bool:
        return self.calm or self.error is not None or self.graph_run.stopped
