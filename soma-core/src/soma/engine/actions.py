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
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from soma.contracts import ActionRecord
from soma.engine.calls import call_fit, call_forward
from soma.engine.holding import is_held
from soma.engine.keys import options_hash, output_key, rng_for, state_key
from soma.engine.run import Run
from soma.engine.states import NodeState
from soma.engine.values import IMMUTABLE, NOT_IN_HAND, VirtualValue
from soma.errors import CodecError
from soma.frame import Encoded, encode
from soma.identity import Identity, differences
from soma.values import Opaque

__all__ = ["compute_output", "forward_key", "run_node"]


@dataclass(frozen=True, slots=True)
class _Key:
    """The key of one action, as far as it has one."""

    key: str | None
    """None: it cannot be keyed, and is computed every time."""
    identity: Identity | None
    recorded: bool
    """Whether it may be looked up and recorded."""


_UNKEYED = _Key(None, None, recorded=False)


def run_node(run: Run, place: int, inputs: Any) -> None:
    """Fit a node if this is a fit and it learns, and forward it if somebody needs that.

    Args:
        run: the run.
        place: the node.
        inputs: gathers what a node is given: ``inputs(run, place) -> object``.
    """
    traits = run.program.traits[place]
    if run.call.fitting:
        if traits.trainable:
            run.states[run.program.ids[place]] = _fit(run, place, inputs)
        if not run.program.feeds_learner[place]:
            return
    run.outputs[place] = _forward(run, place, inputs)


def _fit(run: Run, place: int, inputs: Any) -> NodeState:
    id_ = run.program.ids[place]
    present = run.call.states.get(id_)
    if run.program.entries[place].frozen and present is not None and present.loaded:
        run.let_input_go(place)
        return present
    init = present if present is not None and (present.loaded or run.call.warm_start) else None
    found = _fit_key(run, place, init)
    record = _recorded(run, place, "state", found)
    state = _held_state(run, record)
    if record is not None and state is not None:
        run.let_input_go(place)
        run.done(place, "state", "hit", 0.0, record.bytes["state"])
        return state
    x = inputs(run, place)
    with _Claimed(run, found):
        again = _recorded(run, place, "state", found) if found.recorded else None
        state = _held_state(run, again)
        if again is not None and state is not None:  # another has computed it meanwhile
            run.done(place, "state", "hit", 0.0, again.bytes["state"])
            return state
        return _compute_state(run, place, found, x, init, before=again or record)


def _fit_key(run: Run, place: int, init: NodeState | None) -> _Key:
    traits = run.program.traits[place]
    wants_rng = "rng" in traits.fit_takes
    if run.store is None and not wants_rng:
        return _UNKEYED
    identity = run.identity_of(place)
    x, y = run.input_hash(place), run.hash_of(run.y, "")
    start: str | None = None
    if init is not None and "state" in traits.fit_takes:
        start = init.hash()
        if not start:
            return _Key(None, identity, recorded=False)
    if identity is None or not x or not y:
        return _Key(None, identity, recorded=False)
    key = state_key(
        identity,
        init=start,
        x=x,
        y=y,
        options=options_hash(_options(run, place)),
        seed=run.seed_of(place),
    )
    return _Key(key, identity, recorded=run.store is not None)


def _options(run: Run, place: int) -> dict[str, Any]:
    """Return the fit options that reach a node: those that its fit names."""
    takes = run.program.traits[place].fit_takes
    return {name: value for name, value in run.call.options.items() if name in takes}


def _compute_state(
    run: Run,
    place: int,
    found: _Key,
    x: Any,
    init: NodeState | None,
    *,
    before: ActionRecord | None,
) -> NodeState:
    program = run.program
    traits = program.traits[place]
    extras: dict[str, Any] = _options(run, place)
    if "rng" in traits.fit_takes:
        extras["rng"] = _rng(run, place, found)
    if "state" in traits.fit_takes:
        extras["state"] = None if init is None else init.take()
    y = run.y.take()
    run.check_stopped()
    started = run.call.clock()
    learned = call_fit(program, place, x, y, extras)
    duration_ms = (run.call.clock() - started) * 1e3
    run.refreshed.add((place, "state"))
    if learned is None:
        _tell_learned_nothing(run, place)
        run.done(place, "state", "computed", duration_ms, 0)
        return NodeState.unshown()
    if run.store is None:
        run.done(place, "state", "computed", duration_ms, 0)
        return NodeState.of(learned)
    encoded = _encoded(run, place, learned)
    outcome = "computed" if before is None else "recomputed"
    run.done(place, "state", outcome, duration_ms, encoded.nbytes if encoded is not None else 0)
    if encoded is None:
        return NodeState.as_is(learned)
    if found.recorded and not _changed_itself(run, place, found, "fit"):
        _tell_if_different(run, place, "state", before, encoded)
        if _write(run, place, encoded):
            _commit(run, place, "state", found, encoded, duration_ms=duration_ms)
            state = NodeState.stored(run.store, encoded.digest)
            if state is not None:
                return state
    return NodeState.framed(encoded)


def _held_state(run: Run, record: ActionRecord | None) -> NodeState | None:
    """Return the recorded state; None where there is none, or its blob is gone."""
    if record is None or run.store is None:
        return None
    return NodeState.stored(run.store, record.outputs["state"])


def _forward(run: Run, place: int, inputs: Any) -> VirtualValue:
    found = forward_key(run, place)
    if run.store is None:
        return compute_output(run, place, found, inputs(run, place), outcome="computed")
    fixed = run.fixed.get(place)
    if fixed is not None and fixed.key == found.key:
        run.let_input_go(place)
        return fixed
    record = _recorded(run, place, "output", found)
    if record is not None:
        run.let_input_go(place)
        return _hit(run, place, record)
    x = inputs(run, place)
    with _Claimed(run, found):
        record = _recorded(run, place, "output", found) if found.recorded else None
        if record is not None:  # another has computed it meanwhile
            return _hit(run, place, record)
        return compute_output(run, place, found, x, outcome="computed")


def _hit(run: Run, place: int, record: ActionRecord) -> VirtualValue:
    digest, nbytes = record.outputs["output"], record.bytes["output"]
    run.done(place, "output", "hit", 0.0, nbytes)
    return VirtualValue(
        NOT_IN_HAND, digest=digest, nbytes=nbytes, uses=run.uses[place], key=record.key
    )


def forward_key(run: Run, place: int) -> _Key:
    """Return the key of a node's forward. The object that it is given must not have been taken."""
    traits = run.program.traits[place]
    wants_rng = "rng" in traits.forward_takes
    if run.store is None and not wants_rng:
        return _UNKEYED
    state = run.states.get(run.program.ids[place]) if traits.trainable else None
    seed = run.seed_of(place)
    recorded = (
        run.store is not None
        and traits.cacheable
        and (traits.deterministic or run.call.seed is not None)
        and (state is None or state.shown)
    )
    if not recorded and not wants_rng:
        return _UNKEYED
    identity = run.identity_of(place)
    x = run.input_hash(place)
    state_hash = None if state is None else state.hash()
    if identity is None or not x or (state is not None and not state_hash):
        return _Key(None, identity, recorded=False)
    key = output_key(identity, state=state_hash, x=x, seed=seed)
    return _Key(key, identity, recorded=recorded)


def compute_output(run: Run, place: int, found: _Key, x: Any, *, outcome: str) -> VirtualValue:
    """Forward a node and keep what it gives.

    Args:
        run: the run.
        place: the node.
        found: the key of the action.
        x: what the node is given; its own.
        outcome: ``"computed"``, or ``"recomputed"`` where it had been known.
    """
    program = run.program
    id_, traits = program.ids[place], program.traits[place]
    state = run.states[id_].take() if traits.trainable else None
    extras = {"rng": _rng(run, place, found)} if "rng" in traits.forward_takes else _NO_EXTRAS
    run.check_stopped()
    clock = run.call.clock
    started = clock()
    made = call_forward(program, place, x, state, extras)
    duration_ms = (clock() - started) * 1e3
    owned = type(made) in IMMUTABLE or not is_held(made, x)
    if run.store is None:
        run.done(place, "output", outcome, duration_ms, 0)
        return VirtualValue(made, uses=run.uses[place], owned=owned, key=found.key)
    encoded = _encoded(run, place, made)
    nbytes = encoded.nbytes if encoded is not None else 0
    run.done(place, "output", outcome, duration_ms, nbytes)
    value = VirtualValue(
        made if encoded is None else encoded.value,
        digest="" if encoded is None else encoded.digest,
        nbytes=nbytes,
        uses=run.uses[place],
        owned=owned,
        key=found.key,
    )
    value.unhashable = encoded is None
    run.refreshed.add((place, "output"))
    if encoded is not None and found.recorded and not _changed_itself(run, place, found, "forward"):
        if found.key is not None:
            _tell_if_different(run, place, "output", run.lookup(found.key), encoded)
        if not run.keeps_output(place, nbytes, duration_ms) or _write(run, place, encoded):
            _commit(run, place, "output", found, encoded, duration_ms=duration_ms)
    return value


_NO_EXTRAS: Mapping[str, Any] = {}


def _recorded(run: Run, place: int, what: str, found: _Key) -> ActionRecord | None:
    """Return the record of an action, unless it shall be computed anew."""
    if not found.recorded:
        return None
    if run.program.ids[place] in run.call.refresh and (place, what) not in run.refreshed:
        return None
    record = run.lookup(found.key)
    return record if record is not None and what in record.outputs else None


def _rng(run: Run, place: int, found: _Key) -> Any:
    """Return the generator of an action. Without a key it depends on what is known of the node."""
    if found.key is not None:
        return rng_for(found.key)
    if found.identity is not None:
        return rng_for(output_key(found.identity, state=None, x="", seed=run.seed_of(place)))
    seed = run.seed_of(place)
    return rng_for(f"{0 if seed is None else seed & (1 << 64) - 1:x}")


class _Claimed:
    """Holds the claim on a key, so that it can be let go from outside when the run is abandoned.

    A class, since contextlib's generator form assigns to ``__traceback__``, which a frozen
    exception refuses.
    """

    __slots__ = ("_claim", "_run")

    def __init__(self, run: Run, found: _Key) -> None:
        self._run = run
        self._claim: AbstractContextManager[None] | None = None
        if found.recorded and run.store is not None and found.key is not None:
            self._claim = run.store.claim(found.key)

    def __enter__(self) -> None:
        if self._claim is not None:
            self._run.claims.add(self._claim)
            try:
                self._claim.__enter__()
                self._run.check_stopped()
            except BaseException:
                self.__exit__()
                raise

    def __exit__(self, *error: object) -> None:
        if self._claim is not None:
            self._claim.__exit__(None, None, None)
            self._run.claims.discard(self._claim)


def _encoded(run: Run, place: int, made: Any) -> Encoded | None:
    """Return the frame of what a node made; None, and a notice, where it has none."""
    try:
        encoded = encode(made)
        encoded.digest  # noqa: B018  # taken before the object is handed on
    except CodecError as error:
        if type(made) is not Opaque:
            run.not_kept(place, error)
        return None
    return encoded


def _write(run: Run, place: int, encoded: Encoded) -> bool:
    store = run.store
    if store is None:
        return False
    try:
        store.write((encoded.header, encoded.buffers), encoded.digest)
    except (OSError, MemoryError) as error:
        run.not_kept(place, error)
        return False
    return True


def _commit(
    run: Run, place: int, what: str, found: _Key, encoded: Encoded, *, duration_ms: float
) -> None:
    if run.store is None or found.key is None or found.identity is None:
        return
    record = ActionRecord(
        key=found.key,
        outputs={what: encoded.digest},
        bytes={what: encoded.nbytes},
        compute_ms=duration_ms,
        name=found.identity.name,
        parts=found.identity.parts,
        pickled=encoded.pickled,
    )
    try:
        run.store.commit(record)
    except OSError as error:
        run.not_kept(place, error)


def _changed_itself(run: Run, place: int, found: _Key, phase: str) -> bool:
    """Say whether the call changed the node's own config: then its result is not its key's."""
    now, then = run.identity_of(place), found.identity
    if now is None or then is None or now.config == then.config:
        return False
    changed = [one for one in differences(then, now) if one.startswith("attribute ")]
    id_, label = run.program.ids[place], run.program.traits[place].label
    run.notice(
        "NodeNotKept",
        id_,
        f"{id_!r} ({label}) changes itself during {phase} ({', '.join(changed)}), so this {phase} "
        "is not recorded and runs every time. Return what is learned from fit, or prefix the name "
        "with '_' if results do not depend on it",
        once=(id_, label, phase, tuple(changed)),
    )
    return True


def _tell_learned_nothing(run: Run, place: int) -> None:
    id_, label = run.program.ids[place], run.program.traits[place].label
    run.notice(
        "NodeNotKept",
        id_,
        f"{id_!r} ({label}): fit returned None, so what it learned cannot be kept, and it runs "
        "every time: return what it learned, or {} if it learns nothing",
        once=(id_, label, "None") if run.store is not None else None,
    )


def _tell_if_different(
    run: Run, place: int, what: str, before: ActionRecord | None, encoded: Encoded
) -> None:
    if before is None or before.outputs.get(what) == encoded.digest:
        return
    id_, label = run.program.ids[place], run.program.traits[place].label
    run.notice(
        "NodeNotDeterministic",
        id_,
        f"{id_!r} ({label}) is not deterministic: computed again from the same input, its {what} "
        "is another. The new one replaces the old, and what depends on it is looked up again. Say "
        "_deterministic = False, or take randomness from rng",
        once=(id_, label, what),
    )
