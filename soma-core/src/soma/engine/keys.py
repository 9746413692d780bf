"""The keys of actions: BLAKE3 over a tagged, length-prefixed list of texts.

    state key   H("state",  code, config, init, x, y, options, seed)
    output key  H("output", code, config, state, input, seed)
    fan-in      H("fan-in", (predecessor id, hash) in the order of ids)
    rows        H("rows", hash of the whole, start, stop)

``code`` and ``config`` are those of ``soma.identity``; the rest are content hashes. A part that is
absent is written as absent, which no hash is. Node ids are in no key but a fan-in's, where the
filter sees them, in the order in which it sees them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from blake3 import blake3

from soma.frame import content_hash
from soma.identity import Identity

__all__ = [
    "fan_in_hash",
    "options_hash",
    "output_key",
    "rng_for",
    "rows_hash",
    "seed_text",
    "state_key",
]

_ABSENT = "-"


def _h(tag: str, parts: Iterable[str | None]) -> str:
    raw = bytearray(b"soma-key-1")
    for part in (tag, *parts):
        one = (_ABSENT if part is None else part).encode("utf-8", "surrogatepass")
        raw += len(one).to_bytes(8, "little")
        raw += one
    return blake3(raw).hexdigest()


def state_key(
    identity: Identity,
    *,
    init: str | None,
    x: str,
    y: str,
    options: str,
    seed: str | None,
) -> str:
    """Return the key of a fit. ``init`` is the hash of the state it goes on from, if it does."""
    return _h("state", (identity.code, identity.config, init, x, y, options, seed))


def output_key(identity: Identity, *, state: str | None, x: str, seed: str | None) -> str:
    """Return the key of a forward. ``state`` is absent for a node that learns nothing."""
    return _h("output", (identity.code, identity.config, state, x, seed))


def fan_in_hash(hashes: Mapping[str, str]) -> str:
    """Return the hash that stands for several inputs: predecessor id -> hash of its output."""
    return _h("fan-in", (part for id_ in sorted(hashes) for part in (id_, hashes[id_])))


def rows_hash(digest: str, start: int, stop: int) -> str:
    """Return the hash that stands for rows of a value: from ``start`` to ``stop``, excluded."""
    return _h("rows", (digest, str(start), str(stop)))


def options_hash(options: Mapping[str, Any]) -> str:
    """Return the hash of the fit options that reach a node."""
    return content_hash(sorted(options.items()))


def rng_for(key: str) -> Any:
    """Return the ``numpy.random.Generator`` of an action: a function of its key alone."""
    import numpy as np

    return np.random.default_rng(int(key, 16))


def seed_text(seed: int | None, passes: tuple[int, ...]) -> str | None:
    """Return a seed as it stands in a key.

    Args:
        seed: the seed, if there is one.
        passes: pass numbers of the loops around a node that draws numbers; of one that does not,
            and in the first pass, they are nothing.
    """
    text = None if seed is None else f"seed {seed:x}"
    if not passes or all(number == 1 for number in passes):
        return text
    return f"{text or 'no seed'} pass {'.'.join(map(str, passes))}"
