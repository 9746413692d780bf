"""What each kind of plugin object must be able to do: types only, nothing here runs.

    Graph ──► Program ──► Runner.open ──► Session ──► PlanExecutor ──► one node
                              │                            │
                         Transport, DataStore        ActionStore, CacheTier, Codec

The protocols are structural: a class fulfils one by having the methods, without importing it.
Two conventions hold throughout. A value that crosses a boundary is a *frame*, a header and the
buffers behind it, so that nothing large is copied on the way. And whatever can fail says in
``Raises`` which error of ``soma.errors`` (or which built-in) it raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

__all__ = [
    "ActionRecord",
    "ActionStore",
    "CacheTier",
    "Codec",
    "DataRef",
    "DataStore",
    "DriverExecutor",
    "Event",
    "EventSink",
    "Finding",
    "FitReport",
    "Frame",
    "Gradients",
    "PlanExecutor",
    "Program",
    "Ref",
    "Rows",
    "Runner",
    "Session",
    "Strategy",
    "StrategyContext",
    "Transport",
    "TransportServer",
    "WorkerInfo",
]

_Bytes: TypeAlias = bytes  # a class below has a field of that name
Frame: TypeAlias = tuple[bytes, Sequence[memoryview]]
"""(header, buffers): the bytes of one value. Their concatenation is what is hashed and stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRecord:
    """What one fit, forward, chunk or effect produced."""

    key: str
    """The key of the action, in hexadecimal."""
    outputs: Mapping[str, str]
    """Output name -> content hash of its frame, in hexadecimal."""
    bytes: Mapping[str, int]
    """Output name -> size of its frame in bytes."""
    compute_ms: float
    """Time the computation took, in milliseconds; what a hit saves."""
    name: str = ""
    """Class or function of the node that did it."""
    parts: Mapping[str, _Bytes] = field(default_factory=dict, repr=False)
    """``"attribute alpha"``, ``"method forward"``, ... -> 4 bytes of hash: enough to say what
    differs from another record, too short to read a value from. What is secret is left out."""
    pickled: bool = False
    """Whether some of it was written with pickle: it never leaves this machine."""
    effect: Literal["pure", "impure"] = "pure"
    """``"impure"`` where it is no function of its input: a model was asked, a tool was called."""
    expensive: bool = False
    """Whether it cannot be had again by computing it, so that gc lets other blobs go first."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """Who made it: ``"node"``, ``"run"``, and what the store adds (``"host"``, ``"soma"``, ...)."""
    created_at: float = 0.0
    """When it was committed, in seconds since the epoch; 0.0 has the store say so."""
    tier: str = field(default="", compare=False)
    """Where a lookup has found it: ``"Memory"``, ``"Local"``, ``"Remote"``. Not a part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check of an installation has found; ``soma doctor`` prints it."""

    about: str
    """What was looked at, in a few words: ``"free disk"``."""
    state: Literal["fine", "note", "wrong"]
    """``"wrong"`` where something does not work; ``"note"`` where it works and could be better."""
    text: str
    """What was found, in one sentence."""
    advice: str = ""
    """What to do about it: the line to type, where there is one. Empty where nothing is to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRef:
    """A value that lies in a data store, by reference."""

    key: str
    """Its name in the store."""
    digest: str
    """Content hash of its frame, in hexadecimal."""
    bytes: int
    """Size of its frame in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """A value that was put into a session and stays there."""

    session: str
    """The id of the session that holds it."""
    digest: str
    """Content hash of its frame, in hexadecimal."""

    def rows(self, start: int, stop: int) -> Rows:
        """Return the rows from ``start`` to ``stop``, the last excluded, to be used in a call."""
        return Rows(source=self, start=start, stop=stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A range of rows of a value that was put into a session: cut there, along the first axis."""

    source: Ref
    start: int
    """First row, included."""
    stop: int
    """Last row, excluded."""

    def rows(self, start: int, stop: int) -> Rows:
        """Return rows of these rows, counted from ``start`` of this range."""
        return Rows(source=self.source, start=self.start + start, stop=self.start + stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """What a runner says of the place where it opens programs."""

    name: str
    tags: tuple[str, ...]
    cpus: int
    memory_bytes: int
    gpus: int
    python: str
    """``"3.11"``: major and minor."""
    plugins: Mapping[str, str]
    """Distribution -> version, of every plugin loaded there."""
    capabilities: frozenset[str]
    """What its sessions can do beyond fit and forward: ``"gradients"``, ``"call"``, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitReport:
    """What one fit of a session brought."""

    states: Mapping[str, Any]
    """Node id -> what the node learned."""
    metrics: Mapping[str, float]
    rows: int
    """Rows that were fitted; the weight of this session in an average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """One backward pass over one batch."""

    loss: float
    """Mean loss over the rows."""
    rows: int
    tensors: Mapping[str, Any]
    """Parameter name -> gradient of the mean loss, in the shape and dtype of the parameter."""


class Program(Protocol):
    """A plan with its nodes, states, seed and settings: all that another process needs."""

    @property
    def states(self) -> Mapping[str, Any]:
        """Node id -> state, for the nodes that have one."""

    @property
    def seed(self) -> int | None:
        """The seed of the graph, if one was given."""


class Event(Protocol):
    """A frozen record of something that happened."""

    @property
    def event_type(self) -> str:
        """``"NodeStarted"``, ``"RunCompleted"``, ..."""


@runtime_checkable
class Codec(Protocol):
    """How one type is written down.

    A codec may also have ``dump_buffers(obj) -> (meta, [memoryview])`` and
    ``load_buffers(meta, [memoryview]) -> obj``; they are used wherever both are present, so that
    nothing large is copied.
    """

    @property
    def kind(self) -> str:
        """The name that stands beside the bytes for ever; named after the type."""

    @property
    def type_name(self) -> str:
        """Module and qualified name of the type."""

    def dump(self, obj: Any, /) -> bytes:
        """Return the bytes of ``obj``; equal objects give equal bytes, in every process."""

    def load(self, raw: bytes, /) -> Any:
        """Return the object written in ``raw``; it belongs to no graph any more.

        Raises:
            ValueError: the bytes are damaged or were written by something else.
        """


class ActionStore(Protocol):
    """Where actions are recorded and their outputs kept. Safe for many threads and processes.

    Used where they are present: ``adopt(blob, digest)`` and ``share(digest)``, which keep and give
    the bytes of a frame as they lie in memory; ``try_claim(key, who)`` and ``holds_claim()``;
    ``tier``, what a hit is called; ``open_options``, by which another process opens the same store
    (None where none can); ``inline_bytes``, up to which size a frame lies in the record that names
    it, so that another process finds it once it has looked that up; ``flush(timeout_s)``, which
    waits until what it sends on in the background is there; ``after_run()``, which is called when a
    run is over, so that the store may look after itself: nothing it raises harms the run;
    ``recent(name, limit)``, the newest records of a class, the last one first; ``peek(key)``, a
    lookup that changes nothing anywhere, so that nothing of a tier is kept here.
    """

    def lookup(self, key: str) -> ActionRecord | None:
        """Return the record of ``key``; None is a miss. Takes no lock."""

    def write(self, frame: Frame, digest: str | None = None) -> str:
        """Keep a frame and return its content hash, which is ``digest`` where that is given.

        A frame that no record names may go at any time: its record is committed next.

        Raises:
            OSError: it could not be kept; nothing is half written.
        """

    def read(self, digest: str) -> Frame | None:
        """Return the frame, or None when it is gone or its hash is wrong.

        Its buffers are the caller's own: it may write to them, and nobody else sees it. They come
        as they were written, one by one with the padding between them.
        """

    def has(self, digest: str) -> bool:
        """Say whether a blob seems to be there, without reading it."""

    def commit(self, record: ActionRecord) -> None:
        """Make the record visible. Its blobs were written before: this is the commit point.

        Raises:
            OSError: the record could not be written; it is not visible.
        """

    def claim(self, key: str) -> AbstractContextManager[None]:
        """Hold ``key`` while computing it, so that others wait for the result."""

    def records(self) -> Iterator[ActionRecord]:
        """Yield every record, in no particular order."""

    def pin(self, name: str, key: str) -> None:
        """Keep the blobs of ``key`` from every gc, under a name."""

    def unpin(self, name: str) -> None:
        """Take a pin away.

        Raises:
            KeyError: there is no pin of that name.
        """

    def stats(self) -> Mapping[str, float]:
        """Return counts, sizes in bytes and milliseconds of compute banked.

        At least ``records``, ``blobs``, ``bytes`` (those of the blobs) and ``compute_ms``.
        """

    def gc(self, *, max_bytes: int, min_age_s: float = 0.0, dry_run: bool = False) -> int:
        """Remove blobs of the least value until ``max_bytes`` remain; return bytes freed."""

    def verify(self) -> Sequence[str]:
        """Return the digests whose blob does not have that hash."""


class CacheTier(Protocol):
    """A remote tier under the names ``actions/...`` and ``cas/...``."""

    def get(self, name: str) -> Frame | None:
        """Return the frame of that name; None when there is none."""

    def put(self, name: str, frame: Frame) -> None:
        """Write the frame under that name, whole or not at all.

        Raises:
            OSError: the tier could not take it.
        """

    def exists(self, name: str) -> bool:
        """Say whether the name is there."""

    def delete(self, name: str) -> None:
        """Remove the name; no error when it is not there."""

    def list(self, prefix: str) -> Iterator[str]:
        """Yield the names that start with ``prefix``."""


class DataStore(Protocol):
    """Where values live between runs and machines."""

    def put(self, key: str, frame: Frame) -> DataRef:
        """Write a value under a key; a reader sees the old value or the new one, never half.

        Raises:
            OSError: the store could not take it.
        """

    def get(self, ref: DataRef) -> Frame:
        """Return the value.

        Raises:
            KeyError: there is no such key.
        """

    def open(self, ref: DataRef, start: int, length: int) -> bytes:
        """Return ``length`` bytes of the frame from byte ``start``.

        Raises:
            KeyError: there is no such key.
        """

    def exists(self, ref: DataRef) -> bool:
        """Say whether the key is there."""

    def delete(self, ref: DataRef) -> None:
        """Remove the key; no error when it is not there."""

    def list(self, prefix: str) -> Iterator[DataRef]:
        """Yield what is stored under keys that start with ``prefix``."""


class Transport(Protocol):
    """How a frame travels between a client and a worker: the client half."""

    @property
    def min_bytes(self) -> int:
        """Smallest payload it is meant for, in bytes, included."""

    def send(self, header: bytes, buffers: Iterator[memoryview]) -> str:
        """Send a frame and return the name under which the other side finds it.

        Raises:
            ConnectionError: the other side is gone or does not answer in time.
        """

    def receive(self, name: str) -> tuple[bytes, Iterator[memoryview]]:
        """Return the frame that the other side sent under ``name``.

        Raises:
            ConnectionError: the other side is gone or does not answer in time.
        """

    def close(self) -> None:
        """Release the connection. May be called twice."""


class TransportServer(Protocol):
    """How a frame travels between a client and a worker: the server half."""

    def receive(self, name: str) -> tuple[bytes, Iterator[memoryview]]:
        """Return the frame that the client sent under ``name``.

        Raises:
            KeyError: nothing was sent under that name, or it has expired.
        """

    def offer(self, header: bytes, buffers: Iterator[memoryview]) -> str:
        """Hold a frame for the client and return the name under which it asks for it."""

    def close(self) -> None:
        """Stop serving. May be called twice."""


class Session(Protocol):
    """A program that is open somewhere and takes calls.

    Every x, y and state may be a value or a reference to one that is already there (``Ref``,
    ``DataRef``). A method beyond fit and forward needs the capability of its name.
    """

    @property
    def capabilities(self) -> frozenset[str]:
        """``"gradients"``, ``"stages"``, ``"group"``, ``"call"``, ..."""

    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        seed: int | None,
        init: Mapping[str, Any] | None = None,
        options: Mapping[str, Any],
    ) -> FitReport:
        """Fit every trainable node, from ``init`` where it is given."""

    def forward(self, x: Any, *, seed: int | None = None, run_id: str | None = None) -> Any:
        """Return the output of the leaf, or a dict of them by node id when there are several."""

    def stream(
        self,
        chunks: Iterator[Any],
        *,
        run_id: str,
        start_at: int = 0,
        checkpoint_every: int | None = None,
    ) -> Iterator[Any]:
        """Yield one output per chunk, from chunk number ``start_at`` on."""

    def put(self, value: Any) -> Ref:
        """Ship a value once, to be used by many calls."""

    def call(
        self, fn: Callable[..., Any], *args: Any, on_message: Callable[[Any], None] | None = None
    ) -> Any:
        """Run a function there and return what it returns."""

    def gradients(self, x: Any, y: Any) -> Gradients:
        """Return the gradients of one batch; nothing is stepped."""

    def apply_gradients(self, gradients: Gradients, *, clip: float | None = None) -> None:
        """Take one optimizer step with these gradients, clipped to norm ``clip``."""

    def stage_forward(self, x: Any, microbatch: int) -> Any:
        """Run one stage forward and return its activation."""

    def stage_backward(self, microbatch: int, grad: Any = None, y: Any = None) -> tuple[Any, float]:
        """Run one stage backward and return (gradient of its input, loss)."""

    def state(self) -> Mapping[str, Any]:
        """Return node id -> state."""

    def load_state(self, states: Mapping[str, Any]) -> None:
        """Put states in place."""

    def train_state(self) -> Mapping[str, Any]:
        """Return optimizer, epoch and random state."""

    def load_train_state(self, train_state: Mapping[str, Any]) -> None:
        """Put optimizer, epoch and random state in place."""

    def join(self, group: Any) -> None:
        """Join a process group."""

    def leave(self) -> None:
        """Leave the process group."""

    def cancel(self) -> None:
        """Stop the call in progress."""

    def close(self) -> None:
        """Close the session. May be called twice."""


class Runner(Protocol):
    """Where programs are opened: this process, children of it, workers, a cluster.

    One whose workers also run single nodes of a graph (the capability ``"nodes"``) has ``members``,
    as ``soma.sessions.LocalRunner`` has; only such a one can be given to ``Graph.add_worker``.
    """

    def open(self, program: Program, *, on_event: Callable[[Event], None] | None = None) -> Session:
        """Open a program and return the session that takes its calls."""

    def info(self) -> WorkerInfo:
        """Say what this place is and has."""

    def shutdown(self) -> None:
        """Close every session and let the place go. May be called twice."""


class StrategyContext(Protocol):
    """What a strategy is given to work with."""

    plan: Any
    options: Mapping[str, Any]
    seed: int | None
    states: Mapping[str, Any]
    run_dir: str | None
    emit: Callable[[Event], None]
    cancelled: Callable[[], bool]
    workers: Sequence[WorkerInfo]

    def open(
        self,
        nodes: Sequence[str] | None = None,
        *,
        tag: str | None = None,
        worker: str | None = None,
    ) -> Session:
        """Open the program, or some of its nodes, on a worker that fits."""

    def reopen(self, session: Session, states: Mapping[str, Any]) -> Session:
        """Open again what a lost session held, from these states."""


class Strategy(Protocol):
    """What a fit means over several sessions."""

    def check(self, plan: Any, workers: Sequence[WorkerInfo]) -> None:
        """Refuse whatever cannot work, before anything is sent.

        Raises:
            ValueError: the plan, the options or the workers do not fit; the message says how.
        """

    def fit(self, ctx: StrategyContext, x: Any, y: Any) -> Mapping[str, Any]:
        """Fit and return node id -> state."""

    def forward(self, ctx: StrategyContext, x: Any) -> Any:
        """Return what a forward of the graph returns."""


class PlanExecutor(Protocol):
    """Runs entries of a plan: simple, stream, composite."""

    def run(self, engine: Any, entry: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run one entry and return output name -> value."""


class DriverExecutor(Protocol):
    """Runs many sessions: study, pbt."""

    def run(self, open_session: Callable[[], Session], task: Any) -> Any:
        """Carry out a task over as many sessions as it opens."""


class EventSink(Protocol):
    """Takes events: synchronous, in order, every one of them."""

    def __call__(self, event: Event, /) -> None:
        """Take one event. What it raises is reported once and never breaks a run."""
