"""The graph that users hold: it declares, and hands each verb to the room that does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, overload

from soma import engine, parameters, sources
from soma._html import preformatted
from soma.compiler import compile_topology, traits_by_id
from soma.compiler.text import plan_text, topology_text
from soma.declaration import Declaration
from soma.dsl import Marks, expand
from soma.engine import NodeState, Program, RunReport
from soma.engine.loading import load_states
from soma.engine.opening import CacheChoice
from soma.errors import GraphError, InvalidInput, SomaError
from soma.events import Bus, DefaultSinks, Subscription, make_event, open_sink
from soma.events.progress import shown_progress
from soma.identity import NodeIdentity
from soma.plan import SHOWN_NODES, Plan
from soma.tracking.source import Source
from soma.tracking.tracked import TrackedRun, track
from soma.values import States

if TYPE_CHECKING:
    from soma.contracts import WorkerInfo
    from soma.engine import Estimate, Placement
    from soma.engine.misses import MissReport
    from soma.pictures import Overlay
    from soma.sessions.placing import Workers
    from soma.sessions.program import Program as SentProgram

__all__ = ["Graph"]


class Graph:
    """Filters and the edges between them, declared once.

    >>> class Double:
    ...     def forward(self, x, state):
    ...         return 2 * x
    >>> g = Graph()
    >>> g.node(Double())
    'double'
    >>> g.node("again", Double())
    'again'
    >>> g.edge("double", "again")
    >>> g.forward(10)
    40

    Args:
        cache: where results are kept: None for the cache on disk that all graphs share (without
            soma-cache one in memory, and a line that says so), ``"memory"`` for one of this
            graph's own that ends with it, ``"off"`` for none, ``"disk"`` for a cache on disk, an
            address such as ``"file:///shared/cache"`` for a tier behind it, or an
            ``ActionStore``.
        cache_path: folder of a cache on disk; ``$SOMA_CACHE_DIR`` or ``~/.soma/cache`` unless
            given.
        cache_max_bytes: bytes that are held in memory; 1 GiB unless given.

    Raises:
        UnknownName: there is no such cache.
        MissingPackage: the package that provides it is not installed.
        InvalidInput: the arguments do not go together.
    """

    def __init__(
        self,
        cache: Any = None,
        cache_path: Any = None,
        cache_max_bytes: int | None = None,
    ) -> None:
        self._cache = CacheChoice(cache, cache_path, cache_max_bytes)
        self._declared = Declaration()
        self._states: dict[str, NodeState] = {}
        self._seed: int | None = None
        self._identities: dict[str, NodeIdentity] = {}
        self._compiled: tuple[int, Program] | None = None
        self._last_run: RunReport | None = None
        self._workers: Workers | None = None
        self._bus: dict[str, tuple[Bus, DefaultSinks]] = {}

    # Declaring

    @overload
    def node(
        self, filter_: Any, /, *, target: str | None = ..., cached: bool = ..., frozen: bool = ...
    ) -> str: ...
    @overload
    def node(
        self,
        id_: str,
        filter_: Any,
        /,
        *,
        target: str | None = ...,
        cached: bool = ...,
        frozen: bool = ...,
    ) -> str: ...
    def node(
        self,
        *declared: Any,
        target: str | None = None,
        cached: bool = False,
        frozen: bool = False,
    ) -> str:
        """Add a node and return its id: ``node(filter)`` or ``node(id, filter)``.

        Without an id the name of the class or function in snake case is taken, made unique with
        ``_2``, ``_3``, ...

        Args:
            declared: the id, if any, and an object with ``forward(x, state)``, or a function of x.
            target: where it shall run: the name or a tag of a worker, or ``"local"``.
            cached: keep every output, however large; sound only for what cannot change.
            frozen: it fits at most once: a state that was loaded stays as it is.

        Raises:
            GraphError: the id is taken, or is not a text.
            InvalidFilter: the object cannot be a node.
            TypeError: neither one nor two arguments.
        """
        if len(declared) not in (1, 2):
            raise TypeError(f"node(filter) or node(id, filter), not {len(declared)} arguments")
        marks = Marks(cached=cached or None, frozen=frozen or None, target=target)
        if len(declared) == 1:
            return self._declared.add(declared[0], marks=marks)
        return self._declared.add(declared[1], declared[0], marks, named=True)

    def edge(self, source: str, target: str) -> None:
        """Feed the output of ``source`` to ``target``. Declaring an edge again changes nothing.

        Raises:
            UnknownNode: there is no node of that id; the message names the nearest.
        """
        self._declared.connect(source, target)

    connect = edge

    def branch(
        self,
        id_: str,
        condition: Any,
        arms: Mapping[str, Any] | Mapping[bool, Any],
        *,
        target: str | None = None,
    ) -> str:
        """Add a node that runs one of its arms on its own input, and return its id.

        Feed it and what follows by edges to and from ``id_``. In a fit only the arm that is taken
        fits.

        Args:
            id_: its id.
            condition: a filter, a function, or the id of a node, whose output names the arm: a
                text, True, False, or ``{"branch": label}``. It gets the input of the branch, unless
                it is a node with edges of its own.
            arms: label -> what runs: a filter, a function, an expression of several, the id of a
                node, or a list of these. True and False are the labels ``"true"`` and ``"false"``;
                ``"default"`` (or ``"else"``) takes what no other arm is named for. Nodes that an
                edge leads to from an arm lie in that arm. An arm ends in one node.
            target: where nodes in it shall run that do not say so themselves.

        Raises:
            GraphError: the id is taken, there are no arms, or a label makes no sense.
            UnknownNode: there is no node of that id.
            InvalidFilter: an object cannot be a node.
        """
        return self._declared.add_branch(id_, condition, arms, target=target)

    def loop(
        self,
        id_: str,
        body: Any,
        until: Any = None,
        max_iterations: int = 100,
        *,
        target: str | None = None,
    ) -> str:
        """Add a node that runs its body on its own output again and again, and return its id.

        The first pass gets the input of the loop, each later one what the last node of the body
        gave; what it gives at last is the output. A node that learns fits at every pass, one whose
        ``fit`` names ``state`` goes on from the pass before, and the last state is kept.

        Args:
            id_: its id.
            body: what runs: a filter, a function, an expression of several, the id of a node, or a
                list of these. Nodes that an edge leads to from there lie in the body. It ends in
                one node, beside ``until``.
            until: a filter, a function, or the id of a node in the body, whose output stops the
                loop: True, ``"done"``, ``"stop"`` or ``{"done": True}``; it goes on at False,
                ``"continue"`` or ``{"done": False}``. It gets what the body gave, unless it is a
                node with edges of its own. None: what the body gave says so itself. False: the
                loop runs ``max_iterations`` times.
            max_iterations: passes after which it stops in any case.
            target: where nodes in it shall run that do not say so themselves.

        Raises:
            GraphError: the id is taken, or an argument makes no sense.
            UnknownNode: there is no node of that id.
            InvalidFilter: an object cannot be a node.
        """
        return self._declared.add_loop(id_, body, until, max_iterations, target=target)

    def edges(self) -> list[tuple[str, str]]:
        """Return the edges that are not cut, in the order of declaration."""
        return list(self._declared.edges)

    def optional(self, source: str, target: str) -> None:
        """Say that an edge may be cut: it becomes a dimension of ``search_space()``.

        Raises:
            UnknownNode: there is no node of that id.
            GraphError: there is no such edge.
        """
        self._declared.make_optional(source, target)

    def optional_edges(self) -> list[tuple[str, str]]:
        """Return the edges that may be cut."""
        return list(self._declared.optional)

    def set_edge(self, source: str, target: str, enabled: bool) -> None:  # noqa: FBT001  # as users of the original know it
        """Cut an optional edge, or put it back at its place.

        Raises:
            UnknownNode: there is no node of that id.
            GraphError: there is no such edge, or it is not optional.
        """
        self._declared.set_edge(source, target, enabled=enabled)

    @classmethod
    def somatize(cls, expression: Any, **settings: Any) -> Graph:
        """Return the graph of an expression: ``Graph.somatize(Scaler() >> Model())``.

        Args:
            expression: a filter, a function, or several with ``>>`` and ``|`` between them. Each
                object written becomes one node.
            settings: what the constructor takes.

        Raises:
            InvalidFilter: something in the expression cannot be a node.
        """
        graph = cls(**settings)
        declared = graph._declared
        expand(expression, lambda one, marks: declared.add(one, marks=marks), declared.connect)
        return graph

    def filter(self, id_: str) -> Any:
        """Return the object behind a node.

        Raises:
            UnknownNode: there is no node of that id.
            GraphError: it is a branch or a loop, which has none.
        """
        return self._declared.filter(id_)

    # Running

    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        seed: int | None = None,
        epochs: int = 1,
        batch_size: int | None = None,
        shuffle: bool = False,
        warm_start: bool = False,
        refresh: Iterable[str] | bool = (),
        progress: bool = False,
    ) -> None:
        """Fit every node that learns, from scratch.

        Args:
            x: the input of every node that nothing feeds.
            y: what every trainable node is to learn from beside its input; None where there is
                nothing. As long as x, where both are arrays or lists.
            seed: the seed of the graph from now on; None leaves it as it was.
            epochs: passes over the data, for filters whose ``fit`` names it.
            batch_size: rows of a batch, for filters whose ``fit`` names it; None: all at once.
            shuffle: whether batches are shuffled, for filters whose ``fit`` names it.
            warm_start: go on from the present states, where a ``fit`` names ``state``. States that
                were loaded are gone on from in any case.
            refresh: ids of nodes to be computed anew although they are known; True for all.
            progress: show on stderr what is done: a live table on a terminal, lines elsewhere.

        Raises:
            GraphError: the graph is empty, its edges go round or its nodes do not fit together.
            InvalidInput: the data, the seed or an option cannot be taken.
            UnknownNode: ``refresh`` names a node that is not there.
            CacheConfigError: something that a node is made of has no hash.
            Exception: whatever a filter raises, with a note naming the node; the states of the
                last fit stay as they were.
        """
        wanted = self._seed if seed is None else engine.check_seed(seed)
        program = self._program()
        bus, report = self._events(), engine.new_report("fit")
        with shown_progress(bus, progress, report, len(program.ids)):
            self._last_run = report
            self._states = engine.fit(
                program,
                self._cache.store,
                x,
                y,
                states=self._states,
                report=report,
                bus=bus,
                placement=self._placement(program),
                seed=wanted,
                epochs=epochs,
                batch_size=batch_size,
                shuffle=shuffle,
                warm_start=warm_start,
                refresh=refresh,
            )
        self._seed = wanted

    def forward(
        self,
        x: Any,
        *,
        seed: int | None = None,
        run_id: str | None = None,
        refresh: Iterable[str] | bool = (),
        progress: bool = False,
    ) -> Any:
        """Return the output of the leaf, or a dict by node id when there are several leaves.

        Args:
            x: the input of every node that nothing feeds.
            seed: a seed for this call; None takes the one of the graph.
            run_id: what events call this run; None for an id that no other run has.
            refresh: ids of nodes to be computed anew although they are known; True for all.
            progress: as in ``fit``.

        Raises:
            NotFittedError: trainable nodes have no state yet; the message names them.
            InvalidOutput: a condition names no arm, or an ``until`` says neither stop nor go on.
            GraphError: the graph is empty, its edges go round or its nodes do not fit together.
            Exception: whatever a filter raises, with a note naming the node.
        """
        program, bus, report = self._program(), self._events(), engine.new_report("forward", run_id)
        with shown_progress(bus, progress, report, len(program.ids)):
            self._last_run = report
            return engine.forward(
                program,
                self._cache.store,
                x,
                states=self._states,
                report=report,
                bus=bus,
                placement=self._placement(program),
                seed=self._seed if seed is None else seed,
                refresh=refresh,
            )

    @property
    def last_run(self) -> RunReport | None:
        """What the last fit or forward did, or tried: its hits, and what it computed."""
        return self._last_run

    def estimate(
        self,
        x: Any = ...,
        y: Any = None,
        *,
        phase: Literal["fit", "forward"] | None = None,
        seed: int | None = None,
        epochs: int = 1,
        batch_size: int | None = None,
        shuffle: bool = False,
        warm_start: bool = False,
        refresh: Iterable[str] | bool = (),
    ) -> Estimate:
        """Return what would be reused, read and computed, and about how long that takes.

        From what is recorded alone: nothing runs, and nothing is recorded.

        Args:
            x: the input of every node that nothing feeds. Left out: nothing is known of it, and so
                of no node more than how long it took the last time.
            y: as in ``fit``.
            phase: ``"fit"``; ``"forward"``, with what was learned; None for a fit, where anything
                learns, and a forward of the same x with what that fit gives.
            seed: as in ``fit``, as all that follow.
            epochs: as there.
            batch_size: as there.
            shuffle: as there.
            warm_start: as there.
            refresh: as there; of a fit and a forward the fit computes it anew.

        Raises:
            InvalidInput: there is no such phase, or ``fit`` or ``forward`` refuses the arguments.
            NotFittedError: as ``forward``, for that alone.
            SomaError: whatever else they refuse before they run.
        """
        program = self._program()
        return engine.estimate(
            program,
            self._cache.store,
            x,
            y,
            states=self._states,
            phase=phase,
            placement=self._placement(program),
            seed=self._seed if seed is None else seed,
            epochs=epochs,
            batch_size=batch_size,
            shuffle=shuffle,
            warm_start=warm_start,
            refresh=refresh,
        )

    def explain_miss(self, node: str, report: RunReport | None = None) -> MissReport:
        """Return why a node was computed: which attribute, method, input, seed or option differs.

        What was looked up and not found is compared with the nearest record of the same class in
        the cache. ``soma cache why RUN NODE`` does the same for a tracked run.

        Args:
            node: its id.
            report: the fit or forward that is asked about; the last one unless given.

        Raises:
            UnknownNode: there is no node of that id.
            GraphError: it is a branch or a loop; or the graph cannot be compiled.
            InvalidInput: nothing has run yet.
        """
        from soma.engine.explaining import explain_miss  # which few runs need

        asked = self._last_run if report is None else report
        program, store = self._program(), self._cache.store
        return explain_miss(program, store, asked, node, states=self._states)

    # Placing

    def add_worker(
        self,
        url: str | Any,
        token: str | None = None,
        tags: Sequence[str] = (),
        *,
        count: int = 1,
        memory: int | str | None = None,
        timeout_s: float | None = None,
        python: str | PathLike[str] | None = None,
    ) -> tuple[str, ...]:
        """Add workers that nodes run at, and return their names.

        From then on nodes without a target run at whichever worker is free, those that simply
        follow each other at the same; ``target=`` names one worker, a tag, or ``"local"`` for this
        process. Keys, results and states are the same wherever a node runs.

        >>> g = Graph()
        >>> g.add_worker("local://", count=2, memory="4G")
        ('local-1', 'local-2')

        Args:
            url: ``"local://"`` for child processes of this machine (``"local://NAME"`` calls them
                ``NAME-1``, ...), another address that a plugin serves, or a runner that is open and
                may serve several graphs.
            token: what lets one in, where the address asks for it.
            tags: further names under which nodes may have it as their target.
            count: how many workers; of ``local://`` so many processes.
            memory: resident memory that each may take, in bytes or as ``"500M"``: one that takes
                more is killed, and its call fails by name.
            timeout_s: seconds that one call, a fit or forward of one node, may take.
            python: the interpreter, of the same Python minor.

        Raises:
            UnknownName: nobody serves such addresses.
            MissingPackage: the package that does is not installed.
            InvalidInput: an argument makes no sense.
        """
        options = {
            "token": token,
            "tags": tags or None,
            "count": None if count == 1 and type(count) is int else count,
            "memory": memory,
            "timeout_s": timeout_s,
            "python": python,
        }
        if self._workers is None:
            from soma.sessions.placing import Workers  # which a graph without workers never needs

            self._workers = Workers()
        return self._workers.open(url, options)

    def workers(self) -> list[WorkerInfo]:
        """Return what each worker is and has."""
        return [] if self._workers is None else self._workers.infos()

    def shutdown_worker(self, name: str) -> None:
        """End the worker of that name, or those of that tag; the graph goes on without.

        Raises:
            InvalidInput: there is none.
        """
        if self._workers is None:
            raise InvalidInput(f"This graph has no worker {name!r}. There are: none")
        self._workers.shutdown(name)

    def shutdown_workers(self) -> None:
        """End every worker that ``add_worker`` has started; the graph goes on without."""
        if self._workers is not None:
            self._workers.shutdown()

    def program(self) -> SentProgram:
        """Return what another process needs to run this graph, as it is now: for ``Runner.open``.

        Raises:
            GraphError: the graph is empty, its edges go round or its nodes do not fit together.
        """
        from soma.sessions.program import Program as SentProgram  # as above

        return SentProgram(
            engine=self._program(),
            topology=self._declared.freeze(),
            store=self._cache.store,
            store_source=self._cache.source,
            node_states=dict(self._states),
            seed=self._seed,
        )

    def _placement(self, program: Program) -> Placement | None:
        return None if self._workers is None else self._workers.placement(program)

    # Listening

    def on_event(self, callback: Callable[[dict[str, Any]], object] | str) -> Subscription:
        """Call a function with every event of this graph, and return what ends that.

        Events come in order, each before the graph goes on, as a dict with ``event_type`` and the
        fields that docs/events.md lists. What the callback raises is one line on stderr and stops
        nothing.

        Args:
            callback: a function of one dict; or the name of a sink that a plugin provides, which
                gets the events themselves.

        Returns:
            A handle: call it to hear no more, also from inside the callback.

        Raises:
            InvalidInput: it cannot be called, or is an async function.
            UnknownName: there is no sink of that name.
        """
        if isinstance(callback, str):
            return self._events().subscribe(open_sink(callback), plain=False, name=callback)
        return self._events().subscribe(callback, plain=True)

    def emit(self, event: Any, /, **fields: Any) -> None:
        """Bring an event of your own to whoever listens: ``g.emit("my_event", loss=0.3)``.

        Args:
            event: any name, with plain data as fields; the name of one of Soma's own, with its
                fields; a dict with ``event_type``; or an object of ``soma.events``.
            fields: the fields, where ``event`` is a name.

        Raises:
            InvalidInput: a field is missing, unknown or of a wrong type; the message names it.
        """
        self._events().emit(make_event(event, fields))

    def track_run(
        self,
        name: str,
        root: str | PathLike[str] = ".soma",
        *,
        tags: Sequence[str] = (),
        params: Mapping[str, Any] | None = None,
    ) -> TrackedRun:
        """Record what this graph does from now on, in a folder of its own under ``root``.

        >>> with g.track_run("baseline", params={"lr": 0.1}) as run:  # doctest: +SKIP
        ...     g.fit(x, y)
        ...     run.log("loss", 0.25, step=3)

        Read it by ``soma.runs(root)``, or ``soma runs show last``. Recording never makes a run
        fail: a folder that cannot be written is one line on stderr.

        Args:
            name: what people call the run; any number of runs may have the same.
            root: folder that holds all runs; made where it is not there.
            tags: texts to find it by.
            params: settings to remember, plain data by name.

        Returns:
            The run, which has begun. Leave its ``with`` block, or call ``finish``, to end it.

        Raises:
            InvalidInput: the name, a tag or a parameter is not what it should be.
        """
        bus = self._events()
        source = Source(
            declared=self._declared,
            compiled=self.compile,
            seed=self._seed,
            bus=bus,
            sinks=self._bus["made"][1],
        )
        return track(source, name, root=root, tags=tags, params=params)

    # What was learned

    def state(self) -> dict[str, Any]:
        """Return node id -> what it learned, as objects of the caller's own.

        A dict, which a notebook shows as a table. Nodes that learn nothing are left out, and so are
        those whose fit returned None.
        """
        return States((id_, state.take()) for id_, state in self._states.items() if state.shown)

    def load_state(self, states: Mapping[str, Any], strict: bool = True) -> None:  # noqa: FBT001, FBT002  # as torch has it
        """Put states in place: forward uses them, and the next fit goes on from them.

        Args:
            states: node id -> state, as ``state()`` returns it. The states of other nodes stay.
            strict: refuse ids that are not in this graph or learn nothing; else warn of them, and
                of nodes that are left without a state.

        Raises:
            UnknownNode: there is no node of that id (strict).
            InvalidInput: it is no mapping, or a node learns nothing (strict).
        """
        self._states = load_states(self._program(), self._states, states, strict=strict)

    # Looking

    def compile(self) -> Plan:
        """Return the plan: what runs after what, side by side, as a block, and where.

        Raises:
            GraphError: the graph is empty, its edges go round or its nodes do not fit together.
        """
        return self._program().plan

    def to_text(self) -> str:
        """Return the plan as a drawing in text; of what cannot be compiled, what is declared."""
        topology = self._declared.freeze()
        if not topology.nodes:
            return "(empty graph)"
        try:
            return plan_text(self.compile())
        except GraphError as error:
            return topology_text(topology, error)

    def to_svg(self, *, overlay: bool = True) -> str:
        """Return a picture of the plan: SVG that needs nothing else.

        Args:
            overlay: show what the last fit or forward did, where there was one.

        Raises:
            GraphError: the graph is empty, its edges go round or its nodes do not fit together.
            InvalidInput: there is too much for a picture; the message says how much would do.
        """
        plan = self.compile()
        return plan.to_svg(self._overlay(plan) if overlay else None)

    def to_mermaid(self, *, overlay: bool = True) -> str:
        """Return the text of a flowchart, as GitHub and others draw it (mermaid).

        Args:
            overlay: show what the last fit or forward did, where there was one.

        Raises:
            GraphError: as ``to_svg``.
        """
        plan = self.compile()
        return plan.to_mermaid(self._overlay(plan) if overlay else None)

    def _overlay(self, plan: Plan) -> Overlay | None:
        return None if self._last_run is None else self._last_run.overlay(plan)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the picture, or the text of what is too large for one."""
        try:
            if 0 < len(self) <= SHOWN_NODES:
                return self.to_svg()
        except SomaError:
            pass  # the text says what is wrong with the graph; or it is too much for a picture
        return preformatted(self.to_text())

    def filter_source(self, id_: str) -> str:
        """Return the source text of a node's class or function; empty, and a warning, without one.

        Raises:
            UnknownNode: there is no node of that id.
        """
        return sources.source_of(id_, self.filter(id_))

    def filter_sources_dict(self) -> dict[str, str]:
        """Return node id -> source text of its class or function."""
        nodes = self._declared.filters
        return {id_: sources.source_of(id_, one.filter) for id_, one in nodes.items()}

    def search_space(self) -> list[dict[str, Any]]:
        """Return every dimension as plain data: ``{"name": "model.lr", "type": "float", ...}``.

        Those that filters declare by ``search``, and the optional edges.
        """
        return parameters.search_space(self._declared)

    def apply_params(self, params: Mapping[str, Any]) -> None:
        """Set parameters by the names of ``search_space()``: all of them, or none.

        Raises:
            UnknownName: there is no such dimension; the message names the nearest.
            InvalidInput: a value does not lie in its dimension.
        """
        parameters.apply_params(self._declared, params)

    def __soma_config__(self) -> Any:
        """Return what counts of a graph that a filter holds."""
        nodes = self._declared.config()
        states = {id_: state.hash() or state.take() for id_, state in self._states.items()}
        return nodes, self._declared.edges, states, self._seed

    def __copy__(self) -> Graph:
        """Return a graph with nodes and edges of its own, and the same filters."""
        return self._copy(self._declared.copy())

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        """Return a graph with filters of its own, that knows what this one knows."""
        return self._copy(deepcopy(self._declared, memo))

    def _copy(self, declared: Declaration) -> Graph:
        copied: Graph = object.__new__(type(self))
        vars(copied).update(vars(self))
        copied._declared = declared
        copied._states = dict(self._states)
        copied._identities = {}
        copied._compiled = None
        copied._bus = {}  # who listens to one graph has not asked for the other
        return copied

    def __getstate__(self) -> Any:
        raise TypeError(
            "A Graph is not pickled: it holds a cache and is tied to this process. Send the code "
            "that declares it, and g.state()"
        )

    def __len__(self) -> int:
        return len(self._declared.nodes)

    def __bool__(self) -> bool:
        return True  # an empty graph is a graph: `graph or default` must not drop it

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        fitted = ", fitted" if self._states else ""
        return f"<Graph: nodes={len(self)}, edges={len(self._declared.edges)}{fitted}>"

    def _events(self) -> Bus:
        """Return the bus; sinks of plugins are looked for when it is first needed."""
        if not self._bus:
            bus = Bus()
            made = (bus, DefaultSinks(bus))
            self._bus.setdefault("made", made)  # two threads may come here at once
        return self._bus["made"][0]

    def _program(self) -> Program:
        version = self._declared.version
        if self._compiled is None or self._compiled[0] != version:
            topology = self._declared.freeze()
            traits = traits_by_id(topology)
            plan = compile_topology(topology, traits)
            program = engine.build_program(plan, topology, traits, self._identities)
            self._compiled = (version, program)
        return self._compiled[1]
