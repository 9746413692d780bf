"""What a fit and a forward of the engine are, from the checks to what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal

from soma.contracts import ActionStore
from soma.engine import checks
from soma.engine.announcer import new_run_id
from soma.engine.elsewhere import Placement
from soma.engine.parcels import Parcel
from soma.engine.program import Program
from soma.engine.recompute import Inputs
from soma.engine.report import RunReport
from soma.engine.run import Call, Run
from soma.engine.schedule import run_all
from soma.engine.states import NodeState
from soma.errors import CacheConfigError, Nameless, describe_error
from soma.events import Bus

__all__ = [
    "check_targets",
    "fit",
    "forward",
    "new_report",
    "of_arms_not_taken",
    "read_identities",
]


def new_report(phase: str, run_id: Any = None) -> RunReport:
    """Return the empty report of a run; without an id it gets one that no other run has.

    Raises:
        InvalidInput: the id is no text, or an empty one.
    """
    return RunReport(phase, run_id=checks.check_run_id(run_id) or new_run_id())


def fit(
    program: Program,
    store: ActionStore | None,
    x: Any,
    y: Any = None,
    *,
    states: Mapping[str, NodeState],
    report: RunReport,
    bus: Bus | None = None,
    placement: Placement | None = None,
    seed: Any = None,
    epochs: Any = 1,
    batch_size: Any = None,
    shuffle: Any = False,
    warm_start: bool = False,
    refresh: Any = (),
    anywhere: bool = False,
) -> dict[str, NodeState]:
    """Fit every node that learns.

    With ``anywhere`` each node runs in this process where ``placement`` places it nowhere else,
    whatever target it names: it is the process that somebody has sent the whole program to.

    Returns:
        Node id -> its new state. Nothing of the caller's is changed but the report, which is
        written also where an error is raised.

    Raises:
        InvalidInput: the data, the seed or an option cannot be taken.
        SomaError: whatever else checks.py refuses.
        Exception: what a filter raises, with a note.
    """
    with _Reported(report):
        (x, x_parcel), (y, y_parcel) = _opened(x), _opened(y)
        checks.check_data(program, x, y)
        checks.check_learners(program)
        call = Call(
            fitting=True,
            x=x,
            y=y,
            x_parcel=x_parcel,
            y_parcel=y_parcel,
            seed=checks.check_seed(seed),
            options=checks.check_options(epochs, batch_size, shuffle),
            states=states,
            warm_start=warm_start,
            refresh=checks.check_refresh(program, refresh),
        )
        check_targets(program, placement, anywhere=anywhere)
        run = _done(program, store, call, report, bus=bus, placement=placement)
        fitted = {**of_arms_not_taken(program, call, run.states), **run.states}
        for id_, state in fitted.items():
            state.settle(id_)  # so that whoever misses it can be told whose it was
        return fitted


def forward(
    program: Program,
    store: ActionStore | None,
    x: Any,
    *,
    states: Mapping[str, NodeState],
    report: RunReport,
    bus: Bus | None = None,
    placement: Placement | None = None,
    seed: Any = None,
    refresh: Any = (),
    anywhere: bool = False,
    wants: Literal["objects", "parcels"] = "objects",
) -> Any:
    """Run every node.

    Args:
        program: what runs.
        store: where results are kept, if anywhere.
        x: the input of every node that nothing feeds; a ``Parcel`` stands for what it holds.
        states: node id -> what it has learned.
        report: what is done is entered there.
        bus: who listens.
        placement: which nodes run in other processes.
        seed: the seed, if there is one.
        refresh: nodes to be computed anew.
        anywhere: as in ``fit``.
        wants: ``"parcels"`` for a dict of leaf id -> ``Parcel``, or the hash alone of what the
            store has, which is then not read.

    Returns:
        The output of the leaf, or a dict of them by node id where there are several. The report is
        written also where an error is raised.

    Raises:
        NotFittedError: nodes that learn have no state yet.
        SomaError: whatever else checks.py refuses.
        Exception: what a filter raises, with a note.
    """
    with _Reported(report):
        x, x_parcel = _opened(x)
        checks.check_fitted(program, states)
        checks.check_input("x", x)
        call = Call(
            fitting=False,
            x=x,
            x_parcel=x_parcel,
            seed=checks.check_seed(seed),
            states=states,
            refresh=checks.check_refresh(program, refresh),
            packed=wants == "parcels",
        )
        check_targets(program, placement, anywhere=anywhere)
        results = _done(program, store, call, report, bus=bus, placement=placement).results
        if wants == "parcels":
            return {program.ids[leaf]: results[leaf] for leaf in program.leaves}
        if len(program.leaves) == 1:
            return results[program.leaves[0]]
        return {program.ids[leaf]: results[leaf] for leaf in program.leaves}


def _opened(given: Any) -> tuple[Any, Parcel | None]:
    """Return what a caller gives as an object, and its bytes where it came as such."""
    return (given.open(), given) if type(given) is Parcel else (given, None)


class _Reported:
    """Enters into a report what ends a call, be it a run or refused before it is one.

    A class, since contextlib's generator form assigns to ``__traceback__``, which a frozen
    exception refuses.
    """

    def __init__(self, report: RunReport) -> None:
        self._report = report

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._report.error = describe_error(error)


def of_arms_not_taken(
    program: Program, call: Call, fitted: Mapping[str, NodeState]
) -> dict[str, NodeState]:
    """Return what a fit leaves as it was: states that were put there, of nodes it did not reach."""
    reached = len(fitted) == len(program.learners)
    return (
        {}
        if reached
        else {
            id_: state
            for id_, state in call.states.items()
            if id_ not in fitted and (state.loaded or call.warm_start)
        }
    )


def check_targets(program: Program, placement: Placement | None, *, anywhere: bool) -> None:
    """Refuse nodes whose target nobody is, unless this process is where they shall run.

    Raises:
        GraphError: a node has such a target.
    """
    if not anywhere:
        checks.check_targets(program, () if placement is None else placement.targets)


def _done(
    program: Program,
    store: ActionStore | None,
    call: Call,
    report: RunReport,
    *,
    bus: Bus | None,
    placement: Placement | None,
) -> Run:
    """Run what was asked for; what is refused before that is no run, and has no events."""
    if store is not None:
        checks.check_cached(program)
        read_identities(program)
    report.refreshed = call.refresh
    run = Run(program, store, call, report, bus=bus, placement=placement)
    started = call.clock()
    try:
        run.announcer.run_started(
            report.phase, program.plan, seed=call.seed, refreshed=call.refresh
        )
        run_all(run, Inputs())
    except BaseException as error:
        report.duration_ms = (call.clock() - started) * 1e3
        run.announcer.run_failed(error)
        if isinstance(error, Exception):  # and not Ctrl-C, after which nobody waits
            run.cache.after_run()
        raise
    report.duration_ms = (call.clock() - started) * 1e3
    run.announcer.run_completed(report.duration_ms)
    run.cache.after_run()
    return run


def read_identities(program: Program) -> None:
    """Read those that were never read, so that what cannot be hashed is refused at the start."""
    if len(program.identities) >= len(program.ids):
        return
    for place, traits in enumerate(program.traits):
        needless = not (traits.trainable or traits.cacheable or "rng" in traits.forward_takes)
        if not needless and program.ids[place] not in program.identities:
            try:
                program.identity(place).read()
            except Nameless:
                continue  # such a node runs every time
            except CacheConfigError:
                program.identities.pop(program.ids[place], None)  # read again the next time
                raise
