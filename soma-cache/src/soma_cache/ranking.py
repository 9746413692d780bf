"""What a value is worth for its bytes, and so which of them go first.

    worth = compute_ms / (bytes x (1 + days since its last use))

The milliseconds are summed over all actions that name the value. First go those that no record
names, then by worth, and by digest where that is equal. What cannot be had again by computing it
(``expensive``, or an effect that is ``"impure"``) goes after all others, among themselves by worth.

There may be a million, so nothing is made for each but a number; a ``Victim`` is, for who goes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal, NamedTuple, TypeAlias

from soma_cache.listing import Use

__all__ = ["ORPHAN_S", "Ranked", "Reason", "Victim", "Worth", "is_orphan", "ranked", "victim"]

ORPHAN_S = 3_600.0
"""So long what no record names is spared: its writer may be about to commit the record."""
_DAY_S = 86_400.0
_ORPHAN = -math.inf
"""The milliseconds, and so the worth, of what no record names: less than nothing."""

Reason: TypeAlias = Literal["orphan", "value"]
Ranked: TypeAlias = tuple[float, bytes, int, float]
"""Worth, digest, bytes, seconds since its last use."""


class Victim(NamedTuple):
    """A blob that went, or would go."""

    digest: str
    nbytes: int
    age_s: float
    """Since its last use."""
    compute_ms: float
    """What making it has taken, over all actions that name it."""
    expensive: bool
    """Whether it cannot be had again by computing it."""
    reason: Reason
    """``"orphan"``: no record names it; ``"value"``: others are worth more for their bytes."""


class Worth(NamedTuple):
    """What records say of blobs, as ``Tables.worth`` gives it."""

    compute_ms: dict[bytes, float]
    expensive: set[bytes]


def ranked(blobs: Sequence[Use], worth: Worth, now_s: float) -> Iterator[Ranked]:
    """Yield blobs in the order in which they go, the first of least worth.

    Args:
        blobs: the blobs, in the order of their digests, which decides where worth is equal.
        worth: what records say of them.
        now_s: the time of the file system. Nothing is younger than that, whatever it says.
    """
    compute_ms_of = worth.compute_ms.get
    worths = [
        compute_ms_of(digest, _ORPHAN)
        / ((nbytes or 1) * (1.0 + (now_s - used_at if used_at < now_s else 0.0) / _DAY_S))
        for digest, nbytes, used_at in blobs  # of which some may have been emptied
    ]
    order: Sequence[int] = sorted(range(len(blobs)), key=worths.__getitem__)
    last: Sequence[int] = ()
    if worth.expensive:
        last = [at for at in order if blobs[at][0] in worth.expensive]
        order = [at for at in order if blobs[at][0] not in worth.expensive]
    for at in chain(order, last):
        digest, nbytes, used_at = blobs[at]
        yield worths[at], digest, nbytes, now_s - used_at if used_at < now_s else 0.0


def is_orphan(one: Ranked) -> bool:
    """Say whether no record names a blob."""
    return one[0] == _ORPHAN


def victim(one: Ranked, worth: Worth) -> Victim:
    """Return a blob that goes, with what there is to say of it."""
    _, digest, nbytes, age_s = one
    return Victim(
        digest=digest.hex(),
        nbytes=nbytes,
        age_s=age_s,
        compute_ms=worth.compute_ms.get(digest, 0.0),
        expensive=digest in worth.expensive,
        reason="orphan" if is_orphan(one) else "value",
    )
