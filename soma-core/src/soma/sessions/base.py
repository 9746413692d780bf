"""What all sessions have in common: names, states, seed, what was put, and what they cannot do.

    BaseSession ── InProcessSession     runs calls with the engine of this process
                └─ ChildSession         sends them to a child process

A session remembers at the client what it has: states, seed and values that were put. So a process
that is lost takes nothing along, and what a method cannot do is said by name, whoever is asked.
"""

# ruff: noqa: ARG002  # a method that a session does not have takes its arguments all the same

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, ClassVar, NoReturn, Self

from soma import engine
from soma.contracts import FitReport, Gradients, Ref
from soma.engine import NodeState, RunReport
from soma.engine.loading import load_states
from soma.errors import InvalidInput, SessionError, shown
from soma.sessions.alone import OneAtATime
from soma.sessions.capabilities import missing
from soma.sessions.program import Program
from soma.sessions.shelf import Shelf
from soma.values import States

__all__ = [
    "BaseSession",
    "check_program",
    "metrics_of",
    "shown_states",
]


class BaseSession(OneAtATime, ABC):
    """A session that can do nothing yet. A subclass fits and forwards, and says what else it can.

    Args:
        name: what messages call it.
        program: what is open in it.
    """

    CAPABILITIES: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, name: str, program: Program) -> None:
        super().__init__()
        self.name = name
        self.id = os.urandom(8).hex()
        """No other session has it; a Ref names it."""
        self.closed = False
        self._program = program
        self._states: dict[str, NodeState] = dict(program.node_states)
        self._seed = program.seed
        self._shelf = Shelf(self.id, name, self.capabilities)

    @property
    def capabilities(self) -> frozenset[str]:
        """What it can do beyond fit and forward."""
        return self.CAPABILITIES

    @abstractmethod
    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        seed: int | None,
        init: Mapping[str, Any] | None = None,
        options: Mapping[str, Any],
    ) -> FitReport:
        """Fit every trainable node, from ``init`` where it is given.

        Args:
            x: the input of every node that nothing feeds: a value, or what stands for one.
            y: what trainable nodes learn from beside their input, likewise.
            seed: the seed from now on; None leaves it as it is.
            init: node id -> state to go on from, where a ``fit`` names ``state``.
            options: fit options by name, those of ``Graph.fit``.

        Raises:
            InvalidInput: data, a reference, a seed or an option cannot be taken.
            SessionError: the session is closed, or its process failed.
            Exception: whatever a filter raises; the states stay as they were.
        """

    @abstractmethod
    def forward(self, x: Any, *, seed: int | None = None, run_id: str | None = None) -> Any:
        """Return the output of the leaf, or a dict of them by node id when there are several.

        Args:
            x: the input of every node that nothing feeds: a value, or what stands for one.
            seed: a seed for this call; None takes the one of the session.
            run_id: what its events call it; None for an id that no other run has.

        Raises:
            NotFittedError: nodes that learn have no state yet.
            InvalidInput: data, a reference or the seed cannot be taken.
            SessionError: the session is closed, or its process failed.
            Exception: whatever a filter raises.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Stop the call in progress, from any thread; does nothing where there is none."""

    def put(self, value: Any) -> Ref:
        """Hold a value here, to be used by many calls, and return what stands for it.

        Raises:
            CodecError: nothing says how to write it down.
            MissingCapability: this session holds no values.
            SessionError: the session is closed.
        """
        self._check("put")
        return self._shelf.put(value)

    def call(
        self, fn: Callable[..., Any], *args: Any, on_message: Callable[[Any], Any] | None = None
    ) -> Any:
        """Run a function where the session is, and return what it returns."""
        self._lacks("call")

    def state(self) -> dict[str, Any]:
        """Return node id -> state, as objects of the caller's own."""
        self._check("state")
        return shown_states(self._states)

    def load_state(self, states: Mapping[str, Any]) -> None:
        """Put states in place: forward uses them, and the next fit goes on from them.

        Args:
            states: node id -> state: a value, or what stands for one. The others stay.

        Raises:
            UnknownNode: there is no node of that id.
            InvalidInput: it is no mapping, or a node learns nothing.
        """
        self._check("load_state")
        self._states = self._with_states(states, "state")

    def close(self) -> None:
        """Close the session, and let go of what was put. May be called twice."""
        self.closed = True
        self._shelf.clear()
        self._states = {}

    def stream(
        self,
        chunks: Iterator[Any],
        *,
        run_id: str,
        start_at: int = 0,
        checkpoint_every: int | None = None,
    ) -> Iterator[Any]:
        """Yield one output per chunk."""
        self._lacks("stream")

    def gradients(self, x: Any, y: Any) -> Gradients:
        """Return the gradients of one batch."""
        self._lacks("gradients")

    def apply_gradients(self, gradients: Gradients, *, clip: float | None = None) -> None:
        """Take one optimizer step with these gradients."""
        self._lacks("apply_gradients")

    def stage_forward(self, x: Any, microbatch: int) -> Any:
        """Run one stage forward."""
        self._lacks("stage_forward")

    def stage_backward(self, microbatch: int, grad: Any = None, y: Any = None) -> tuple[Any, float]:
        """Run one stage backward."""
        self._lacks("stage_backward")

    def train_state(self) -> Mapping[str, Any]:
        """Return optimizer, epoch and random state."""
        self._lacks("train_state")

    def load_train_state(self, train_state: Mapping[str, Any]) -> None:
        """Put optimizer, epoch and random state in place."""
        self._lacks("load_train_state")

    def join(self, group: Any) -> None:
        """Join a process group."""
        self._lacks("join")

    def leave(self) -> None:
        """Leave the process group."""
        self._lacks("leave")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self.closed else ""
        nodes = len(self._program.engine.ids)
        return f"<{type(self).__name__} {self.name!r}: {nodes} nodes{closed}>"

    def _check(self, method: str) -> None:
        """Refuse a method of a closed session, or one that this session does not have.

        Raises:
            SessionError: it is closed.
            MissingCapability: it cannot do that.
        """
        needed = _NEEDS.get(method)
        if needed is not None and needed not in self.capabilities:
            raise missing(self.name, f"{method}()", needed, self.capabilities)
        if self.closed:
            raise SessionError(
                f"Session {self.name!r} is closed and takes no {method}(). Open the program again: "
                "runner.open(program)"
            )

    def _lacks(self, method: str) -> NoReturn:
        self._check(method)
        raise SessionError(
            f"{type(self).__name__} says that it can {method}, and does not define it, which is a "
            "mistake in that class. Leave it out of its CAPABILITIES, or define it"
        )

    def _with_states(self, given: Any, what: str) -> dict[str, NodeState]:
        """Return the states with some put in place, references among them opened."""
        if isinstance(given, Mapping):
            given = {id_: self._shelf.open(one, f"{what} of {id_!r}") for id_, one in given.items()}
        return load_states(self._program.engine, self._states, given, strict=True)

    def _fit_states(self, init: Mapping[str, Any] | None) -> dict[str, NodeState]:
        """Return the states that a fit starts with."""
        return self._states if init is None else self._with_states(init, "init")

    def _wanted(self, seed: Any) -> int | None:
        """Return the seed of a call: its own, or else the one of the session."""
        return self._seed if seed is None else engine.check_seed(seed)


_NEEDS = {
    **{name: name for name in ("put", "call", "stream", "gradients")},
    "apply_gradients": "gradients",
    "stage_forward": "stages",
    "stage_backward": "stages",
    "train_state": "train_state",
    "load_train_state": "train_state",
    "join": "group",
    "leave": "group",
}
"""Method -> the capability that it needs."""


def check_program(program: Any) -> Program:
    """Return what a runner was given to open.

    Raises:
        InvalidInput: it is no program.
    """
    if not isinstance(program, Program):
        raise InvalidInput(f"open takes what g.program() returns, not {shown(program)}")
    return program


def metrics_of(report: RunReport) -> dict[str, float]:
    """Return what a ``FitReport`` says of a fit beside states and rows."""
    hits = report.hits
    return {
        "duration_ms": report.duration_ms,
        "hits": float(hits),
        "computed": float(len(report.actions) - hits),
    }


def shown_states(states: Mapping[str, NodeState]) -> dict[str, Any]:
    """Return node id -> state, as objects of the caller's own, without what nobody has shown."""
    return States((id_, state.take()) for id_, state in states.items() if state.shown)
