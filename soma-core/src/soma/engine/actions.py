"""The one place where a node runs: key, lookup, hit, or compute, write, record.

    fit      state key  ──hit──►  the state is held, nothing is read into objects
                        ──miss─►  inputs, call, write, record
    forward  output key ──hit──►  its hash is known, which is all that the next key needs
                        ──miss─►  inputs (in hand, read, or recomputed), call, write, record

Whatever cannot be keyed is computed every time. Nothing that goes wrong with keeping is worth a
failed run.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import Any

from soma.contracts import ActionRecord
from soma.engine import recording
from soma.engine.calls import call_fit, call_forward
from soma.engine.elsewhere import Seat
from soma.engine.holding import NOTHING_GIVEN, Given, is_held
from soma.engine.key_parts import key_parts
from soma.engine.node_keys import Claimed, NodeKey, fit_key, forward_key, options_of, rng_of
from soma.engine.parcels import Parcel
from soma.engine.placed import Made, fit_elsewhere, forward_elsewhere, turn_of
from soma.engine.program import Program
from soma.engine.run import Run
from soma.engine.states import NodeState
from soma.engine.telling import changed_itself, tell_if_different, tell_learned_inside
from soma.engine.values import IMMUTABLE, NOT_IN_HAND, VirtualValue, is_plain_array, private_copy
from soma.errors import CodecError
from soma.frame import Encoded, encode
from soma.values import Opaque

__all__ = ["compute_output", "keep_result", "run_node", "start_of", "turn_of"]


def run_node(run: Run, at: int, inputs: Any) -> None:
    """Fit a node if this is a fit and it learns, and forward it if somebody needs that.

    Args:
        run: the run.
        at: the node.
        inputs: gathers what a node is given: ``inputs(run, at) -> object``.
    """
    if run.call.fitting:
        place = run.node[at]
        if run.program.traits[place].trainable:
            run.learn(at, _fit(run, at, inputs))
        if not run.program.needs.forwards[place]:
            return
        if at in run.spared:
            run.let_input_go(at)
            return
    run.outputs[at] = _forward(run, at, inputs)


def _fit(run: Run, at: int, inputs: Any) -> NodeState:
    init, keeps = start_of(run, at)
    if keeps and init is not None:
        run.let_input_go(at)
        return init
    found, began = fit_key(run, at, init), run.call.clock()
    record = _recorded(run, at, "state", found)
    state = _held_state(run, record)
    if record is not None and state is not None:
        run.let_input_go(at)
        recording.hit(run, at, "state", record, began)
        return state
    if found.recorded:
        recording.missed(run, at, "state", found.key)
    x = inputs(run, at)
    with turn_of(run, at, "state") as seat, Claimed(run, found):
        again = _recorded(run, at, "state", found) if found.recorded else None
        state = _held_state(run, again)
        if again is not None and state is not None:  # another has computed it meanwhile
            recording.hit(run, at, "state", again, began)
            return state
        before = again
        if found.recorded and _is_refreshed(run, run.node[at]):
            before = run.cache.lookup(found.key)  # which was passed over so far
        return _compute_state(run, at, found, x, init, seat=seat, before=before)


def start_of(run: Run, at: int) -> tuple[NodeState | None, bool]:
    """Return the state that a fit goes on from, if any, and whether that is kept as it is."""
    id_, frozen = run.id_of(at), run.is_frozen(run.node[at])
    earlier = run.states.get(id_)  # of an earlier pass
    if earlier is not None:
        return earlier, frozen
    present = run.call.states.get(id_)
    if present is None or not (present.loaded or (run.call.warm_start and not frozen)):
        return None, False
    return present, frozen


def _compute_state(
    run: Run,
    at: int,
    found: NodeKey,
    x: Any,
    init: NodeState | None,
    *,
    seat: Seat | None,
    before: ActionRecord | None,
) -> NodeState:
    program, place = run.program, run.node[at]
    run.check_stopped()
    private = _private_attributes(program.filters[place])
    if seat is None:
        made = _fit_here(run, at, found, x, init)
    else:
        made = fit_elsewhere(run, at, found, x, init, seat=seat)
    run.refreshed.add((run.site(at), "state"))
    learned = made.found
    if learned is None or (
        isinstance(learned, dict)
        and not learned
        and (made.inside or (seat is None and _differs(private, program, place)))
    ):
        tell_learned_inside(run, place, learned)
        recording.done(run, at, "state", "computed", made, key=None)
        return NodeState.unshown(learned)
    if run.store is None:
        recording.done(run, at, "state", "computed", made, key=None)
        return NodeState.of(learned) if made.parcel is None else NodeState.packed(made.parcel)
    written = _written(run, place, made)
    outcome = "computed" if before is None or _is_refreshed(run, place) else "recomputed"
    key, nbytes = found.key if found.recorded else None, written.nbytes if written else 0
    recording.done(run, at, "state", outcome, made, key=key, nbytes=nbytes)
    if written is None:
        return NodeState.as_is(learned) if made.parcel is None else NodeState.packed(made.parcel)
    if found.recorded and not changed_itself(run, place, found, "fit", made.stays):
        kept = run.cache.write(place, written)
        tell_if_different(run, place, "state", before, written)
        if kept:
            _commit(run, at, "state", found, written, duration_ms=made.duration_ms)
            state = NodeState.stored(run.store, written.digest)
            if state is not None:
                return state
    return NodeState.packed(written) if isinstance(written, Parcel) else NodeState.framed(written)


def _fit_here(run: Run, at: int, found: NodeKey, x: Any, init: NodeState | None) -> Made:
    place = run.node[at]
    takes = run.program.traits[place].fit_takes
    extras: dict[str, Any] = options_of(run, place)
    if "rng" in takes:
        extras["rng"] = rng_of(run, at, found)
    if "state" in takes:
        extras["state"] = None if init is None else init.take()
    y = run.y.take()
    started = run.call.clock()
    learned = call_fit(run, at, x, y, extras)
    return Made(learned, (run.call.clock() - started) * 1e3)


def _held_state(run: Run, record: ActionRecord | None) -> NodeState | None:
    """Return the recorded state; None where there is none, or its blob is gone."""
    if record is None or run.store is None:
        return None
    return NodeState.stored(run.store, record.outputs["state"])


def _forward(run: Run, at: int, inputs: Any) -> VirtualValue:
    found = forward_key(run, at)
    if run.store is None:
        x = inputs(run, at)
        if run.placement is None:
            return compute_output(run, at, found, x, seat=None, outcome="computed")
        with turn_of(run, at) as seat:
            return compute_output(run, at, found, x, seat=seat, outcome="computed")
    fixed = run.fixed.get(run.site(at)) if run.fixed else None
    if fixed is not None and fixed.basis and fixed.basis == found.basis:
        run.let_input_go(at)
        return fixed
    began = run.call.clock()
    record = _recorded(run, at, "output", found)
    if record is not None:
        if run.uses[run.node[at]] and not run.cache.has(record.outputs["output"]):
            run.holding.add(at)
        else:
            run.let_input_go(at)
        return _hit(run, at, record, began)
    if found.recorded:
        recording.missed(run, at, "output", found.key)
    x = inputs(run, at)
    with turn_of(run, at) as seat, Claimed(run, found):
        record = _recorded(run, at, "output", found) if found.recorded else None
        if record is not None:  # another has computed it meanwhile
            return _hit(run, at, record, began)
        return compute_output(run, at, found, x, seat=seat, outcome="computed")


def _hit(run: Run, at: int, record: ActionRecord, began: float) -> VirtualValue:
    digest, nbytes = record.outputs["output"], record.bytes["output"]
    recording.hit(run, at, "output", record, began)
    return VirtualValue(
        NOT_IN_HAND,
        digest=digest,
        nbytes=nbytes,
        uses=run.uses[run.node[at]],
        basis=record.key,
        kept_by=run.store,
    )


def compute_output(
    run: Run, at: int, found: NodeKey, x: Any, *, seat: Seat | None, outcome: str
) -> VirtualValue:
    """Forward a node and keep what it gives.

    Args:
        run: the run.
        at: the node.
        found: the key of the action.
        x: what the node is given; its own.
        seat: the process in which it runs; None for this one.
        outcome: ``"computed"``, or ``"recomputed"`` where it had been known.
    """
    place = run.node[at]
    traits = run.program.traits[place]
    run.check_stopped()
    if seat is None:
        made = _forward_here(run, at, found, x)
    else:
        made = forward_elsewhere(run, at, found, x, seat=seat)
    if run.store is None:
        recording.done(run, at, "output", outcome, made, key=None)
        # Of several takers the last gets what the first got: what copying gives.
        takers = run.uses[place] - (place in run.takers.lookers)
        owned = takers < 2 or made.parcel is not None or is_plain_array(made.found)  # noqa: PLR2004  # several
        return VirtualValue(made.found, uses=run.uses[place], owned=owned, parcel=made.parcel)
    written = _written(run, place, made)
    nbytes = written.nbytes if written is not None else 0
    key = found.key if found.recorded else None
    recording.done(run, at, "output", outcome, made, key=key, nbytes=nbytes)
    recorded = (
        written is not None
        and found.recorded
        and not changed_itself(run, place, found, "forward", made.stays)
    )
    keeps = recorded and run.keeps_output(place, nbytes, made.duration_ms)
    # The store takes the hash of what it writes, so it is asked first.
    kept = keeps and written is not None and run.cache.write(place, written)
    value = VirtualValue(
        written.value if isinstance(written, Encoded) else made.found,
        digest="" if written is None else written.digest,
        nbytes=nbytes,
        uses=run.uses[place],
        sticky=run.site(at) in run.sticky or not (traits.deterministic or found.recorded),
        basis=found.basis,
        kept_by=run.store if kept else None,
        parcel=made.parcel,
    )
    value.unhashable = written is None
    run.refreshed.add((run.site(at), "output"))
    if written is not None and recorded:
        if outcome == "recomputed" or _is_refreshed(run, place):  # else there was none just now
            tell_if_different(run, place, "output", run.cache.lookup(found.key), written)
        if kept or not keeps:
            _commit(run, at, "output", found, written, duration_ms=made.duration_ms)
    return value


def _forward_here(run: Run, at: int, found: NodeKey, x: Any) -> Made:
    traits = run.program.traits[run.node[at]]
    learned = run.state_of(at) if traits.trainable else None
    state = None if learned is None else learned.take()
    extras = {"rng": rng_of(run, at, found)} if "rng" in traits.forward_takes else _NO_EXTRAS
    clock = run.call.clock
    given = NOTHING_GIVEN if type(x) in IMMUTABLE else Given(x).count()
    started = clock()
    made = call_forward(run, at, x, state, extras)
    duration_ms = (clock() - started) * 1e3
    del state  # which may hold what was returned, and was the call's own
    if type(made) not in IMMUTABLE and type(made) is not Opaque and is_held(made, given):
        made = private_copy(made)  # at once: its producer may write into it when it is called again
    return Made(made, duration_ms)


_NO_EXTRAS: Mapping[str, Any] = {}


def keep_result(run: Run, at: int) -> None:
    """Keep an output that turns out to be the graph's, however large, where that may be kept."""
    value = run.outputs[at]
    if value.kept_by is not None or not value.in_hand or not value.digest:
        return
    record = run.cache.lookup(value.basis)
    if record is not None and record.outputs.get("output") == value.digest:
        written: Encoded | Parcel | None = value.parcel
        try:
            written = encode(value.peek()) if written is None else written
        except CodecError:
            return
        if run.cache.write(run.node[at], written, value.digest):
            value.kept_by = run.store


def _recorded(run: Run, at: int, what: str, found: NodeKey) -> ActionRecord | None:
    """Return the record of an action, unless it shall be computed anew."""
    if not found.recorded:
        return None
    if _is_refreshed(run, run.node[at]) and (run.site(at), what) not in run.refreshed:
        return None
    record = run.cache.lookup(found.key)
    return record if record is not None and what in record.outputs else None


def _written(run: Run, place: int, made: Made) -> Encoded | Parcel | None:
    """Return the frame of what a node made; None, and a notice, where it has none."""
    if made.parcel is not None:
        if made.parcel.form == "frame":
            return made.parcel
        run.notices.not_kept(place, made.why or f"a {made.told} has no codec")
        return None
    try:
        return encode(made.found)
    except CodecError as error:
        if type(made.found) is not Opaque:
            run.notices.not_kept(place, error)
        return None


def _commit(
    run: Run,
    at: int,
    what: str,
    found: NodeKey,
    written: Encoded | Parcel,
    *,
    duration_ms: float,
) -> None:
    if found.key is None or found.identity is None:
        return
    record = ActionRecord(
        key=found.key,
        outputs={what: written.digest},
        bytes={what: written.nbytes},
        compute_ms=duration_ms,
        name=found.identity.name,
        parts=key_parts(run, at, what, found),
        pickled=written.pickled,
        origin={"node": run.id_of(at), "run": run.report.run_id},
        created_at=time(),
    )
    run.cache.commit(run.node[at], record)


def _is_refreshed(run: Run, place: int) -> bool:
    return run.program.ids[place] in run.call.refresh


def _private_attributes(node: Any) -> dict[str, Any]:
    attributes = dict(getattr(node, "__dict__", {}))  # another thread may set one meanwhile
    return {name: one for name, one in attributes.items() if name[:1] == "_"}


def _differs(before: dict[str, Any], program: Program, place: int) -> bool:
    """Say whether a fit has added or rebound a private attribute."""
    now = _private_attributes(program.filters[place])
    return any(before.get(name, program) is not one for name, one in now.items())
