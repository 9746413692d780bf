"""Which cache a graph has unless another is named, and what each store says of itself.

What is in a cache only its own package knows, so a store brings a check-up with it: a function that
its spec names. It may look at a file system that hangs, which is why it has a thread of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from soma._hints import NAMES, install_line
from soma.contracts import Finding
from soma.doctor.guarded import guarded, patiently
from soma.errors import MissingPackage, SomaError
from soma.plugins import reports
from soma.registry import Offer, default, load_target
from soma.specs import ActionStoreSpec

__all__ = ["look_at_cache"]

_DEFAULT = "disk"
_LIMIT_S = 60.0
_HANGS = (
    "does what the cache lies on answer (ls, df)? A first look at a very large cache takes longer "
    "than later ones: soma cache stats"
)


def look_at_cache() -> Iterator[Finding]:
    """Look at the cache of ``Graph()``, and at the stores that plugins offer."""
    yield from guarded("cache", _of_graphs)
    for offer in _offers():
        if isinstance(offer.spec, ActionStoreSpec) and offer.spec.checkup:
            about = f"cache {offer.spec.name}"
            check = partial(_checkup, offer, offer.spec.checkup)
            yield from patiently(about, check, _LIMIT_S, _HANGS)


def _offers() -> tuple[Offer, ...]:
    """Return what plugins offer, also where a strict environment refuses to use any of it."""
    return tuple(offer for report in reports() for offer in report.offers)


def _of_graphs() -> Iterator[Finding]:
    dist = NAMES["action store", _DEFAULT]
    try:
        offer = default().find(_DEFAULT, ActionStoreSpec)
        default().get(_DEFAULT, ActionStoreSpec)
    except MissingPackage:
        yield Finding(
            about="cache",
            state="note",
            text="there is none on disk: what is computed is gone when its process ends",
            advice=install_line(dist),
        )
    except SomaError as error:
        off = any(one.dist == dist and one.status == "off" for one in reports())
        yield Finding(
            about="cache",
            state="note" if off else "wrong",
            text=f"the one on disk cannot be used, so that results are held in memory: {error}",
            advice=f"add {dist} to SOMA_LOAD_PLUGINS, or unset it" if off else "soma plugins check",
        )
    else:
        text = f"Graph() keeps results by {offer.spec.name!r} of {offer.dist} {offer.version}"
        yield Finding(about="cache", state="fine", text=text)


def _checkup(offer: Offer, target: str) -> Iterator[Finding]:
    try:
        check = load_target(target)
    except (Exception, SystemExit) as error:
        raise ImportError(
            f"{target}, the check-up of {offer.dist} {offer.version}, does not load: "
            f"{type(error).__name__}: {error}"
        ) from error
    yield from check()
