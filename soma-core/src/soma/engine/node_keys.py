"""The keys of a node's actions, as far as they have any.

A node whose config, input or state has no hash has no key, and runs every time. One that is not
recorded for other reasons (it is not deterministic, say) still has a *basis*: what its output was
made from, so that within one run it can be told whether that is still so.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from soma.engine.keys import options_hash, output_key, rng_for, seed_text, state_key
from soma.engine.run import Run
from soma.engine.states import NodeState
from soma.events.bus import in_callback
from soma.frame import content_hash
from soma.identity import Identity

__all__ = ["Claimed", "NodeKey", "fit_key", "forward_key", "options_of", "rng_key", "rng_of"]


@dataclass(frozen=True, slots=True)
class NodeKey:
    """The key of one action, as far as it has one."""

    key: str | None
    """None: it cannot be keyed, and is computed every time."""
    identity: Identity | None
    recorded: bool
    """Whether it may be looked up and recorded."""
    basis: str = ""
    """What it depends on, as far as that has a hash: the key, or something that stands for it."""
    made_of: Mapping[str, str | None] = field(default_factory=dict)
    """What is in the key beside the identity and the options: hashes, and the seed."""


_UNKEYED = NodeKey(None, None, recorded=False)


def fit_key(run: Run, at: int, init: NodeState | None) -> NodeKey:
    """Return the key of a node's fit. The object that it is given must not have been taken."""
    _settle(run, at, init)
    place = run.node[at]
    traits = run.program.traits[place]
    wants_rng = "rng" in traits.fit_takes
    if run.store is None and not wants_rng:
        return _UNKEYED
    identity = run.identity_of(place)
    x, y = run.input_hash(at), run.given_hash(run.y)
    start: str | None = None
    if init is not None and "state" in traits.fit_takes:
        start = init.hash()
        if not start:
            return NodeKey(None, identity, recorded=False)
    if identity is None or not x or not y:
        return NodeKey(None, identity, recorded=False)
    options, seed = options_of(run, place), _seed_of(run, at, draws=wants_rng)
    key = state_key(identity, init=start, x=x, y=y, options=options_hash(options), seed=seed)
    made_of = {"input": x, "labels": y, "initial state": start, "seed": seed}
    return NodeKey(key, identity, recorded=run.store is not None, made_of=made_of)


def options_of(run: Run, place: int) -> dict[str, Any]:
    """Return the fit options that reach a node: those that its fit names."""
    takes = run.program.traits[place].fit_takes
    return {name: value for name, value in run.call.options.items() if name in takes}


def forward_key(run: Run, at: int) -> NodeKey:
    """Return the key of a node's forward. The object that it is given must not have been taken."""
    place = run.node[at]
    traits = run.program.traits[place]
    wants_rng = "rng" in traits.forward_takes
    if run.store is None and not wants_rng:
        return _UNKEYED
    state = run.state_of(at) if traits.trainable else None
    _settle(run, at, state)
    recorded = (
        run.store is not None
        and traits.cacheable
        and (
            traits.deterministic or run.call.seed is not None or run.is_cached(place)  # always keep
        )
        and (state is None or state.shown)
    )
    x = run.input_hash(at)
    state_hash = None if state is None else state.hash()
    if not x or (state is not None and not state_hash):
        return NodeKey(None, run.identity_of(place) if wants_rng else None, recorded=False)
    if not recorded and not wants_rng:
        return NodeKey(None, None, recorded=False, basis=f"{x} {state_hash}")
    identity = run.identity_of(place)
    if identity is None:
        return NodeKey(None, None, recorded=False, basis=f"{x} {state_hash}")
    seed = _seed_of(run, at, draws=wants_rng)
    key = output_key(identity, state=state_hash, x=x, seed=seed)
    made_of = {"input": x, "state": state_hash, "seed": seed}
    return NodeKey(key, identity, recorded=recorded, basis=key, made_of=made_of)


def _settle(run: Run, at: int, state: NodeState | None) -> None:
    """Say whose a state is, and whether the run can make it again: not what was there before it."""
    if state is not None:
        id_ = run.id_of(at)
        state.settle(id_, None if run.call.states.get(id_) is state else run)


def rng_of(run: Run, at: int, found: NodeKey) -> Any:
    """Return the generator of an action. Without a key it depends on what is known of the node."""
    return rng_for(rng_key(run, at, found))


def rng_key(run: Run, at: int, found: NodeKey) -> str:
    """Return what the generator of an action is drawn from, in hexadecimal."""
    if found.key is not None:
        return found.key
    seed = _seed_of(run, at, draws=True)
    if found.identity is not None:
        return output_key(found.identity, state=None, x="", seed=seed)
    return content_hash(seed)


def _seed_of(run: Run, at: int, *, draws: bool) -> str | None:
    """Return the seed as far as it concerns a node.

    One that draws numbers draws new ones in each pass of a loop, also where it is given the same.
    """
    return seed_text(run.seed_of(run.node[at]), run.passes_of(at) if draws else ())


class Claimed:
    """Holds the claim on a key, so that it can be let go from outside when the run is abandoned.

    A class, since contextlib's generator form assigns to ``__traceback__``, which a frozen
    exception refuses.
    """

    __slots__ = ("_claim", "_run")

    def __init__(self, run: Run, found: NodeKey) -> None:
        self._run = run
        self._claim: AbstractContextManager[None] | None = None
        if found.recorded and found.key is not None and not in_callback():
            # In a callback others may wait for this thread, who hold what it would wait for.
            self._claim = run.cache.claim(found.key)

    def __enter__(self) -> None:
        if self._claim is not None:
            self._run.claims.add(self._claim)
            try:
                self._enter()
                self._run.check_stopped()
            except BaseException:
                self.__exit__()
                raise

    def _enter(self) -> None:
        try:
            if self._claim is not None:
                self._claim.__enter__()
        except Exception as error:  # noqa: BLE001  # it is computed without
            self._run.cache.broken("claimed", error)

    def __exit__(self, *error: object) -> None:
        if self._claim is not None:
            self._run.cache.end_claim(self._claim)
            # Last: where Ctrl-C comes before this, the run ends the claim once more.
            self._run.claims.discard(self._claim)
