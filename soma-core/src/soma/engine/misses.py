"""Why something was computed: which part of its key is another than in what is recorded.

    the record of what was computed            input 6b1f..  attribute factor 02d3..  ...
    the nearest record of the same class       input 6b1f..  attribute factor 9c40..  ...
                                                             ─────────────────
    "the attribute 'factor' is another"

Nearest is the one with the fewest parts that differ; of several the same node's, then the newest.
Records hold four bytes of hash for each part, so it can be said what differs and never how.

The surprise: the record that is explained was made by the very run that missed. What counts is
what was there before it, so what the same call has recorded is looked at only if nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias

from soma._html import preformatted
from soma.contracts import ActionRecord, ActionStore
from soma.engine.key_parts import INPUT, INPUT_FROM
from soma.events.human import moment_text, passes_text, printable

__all__ = [
    "GONE",
    "REFRESHED",
    "Miss",
    "MissReport",
    "PartDiffers",
    "explain_record",
    "look_up",
    "of_class",
]

REFRESHED = "refresh= asked for it to be computed anew"
GONE = (
    "it was known, and its value was needed and not there: a gc took it, it was damaged, or it was "
    "too large to be kept"
)
_MOST_COMPARED = 1000
_MOST_LISTED = 12
How: TypeAlias = Literal["changed", "new", "gone"]
_WORDS: Mapping[How, str] = {"changed": "is another", "new": "is new", "gone": "is gone"}
_NAMES = {
    INPUT: "its input",
    "labels": "y",
    "initial state": "the state that it went on from",
    "state": "what it has learned",
    "seed": "the seed",
    "python": "the version of Python",
}
_GIVEN = frozenset(_NAMES) - {"python"}
_QUOTED = {
    "attribute ": "the attribute",
    "option ": "the option",
    INPUT_FROM: "what it was given by node",
    "method ": "the method",
    "class attribute ": "the class attribute",
    "global ": "the global",
}


class PartDiffers(NamedTuple):
    """One part of a key that is not as it was."""

    part: str
    """As in ``ActionRecord.parts``: ``"attribute factor"``, ``"method forward"``, ``"input"``."""
    how: How

    def __str__(self) -> str:
        return f"{_told(self.part)} {_WORDS[self.how]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """Why one fit or forward of a node was computed."""

    node: str
    what: str
    """``"state"`` for a fit, ``"output"`` for a forward."""
    passes: tuple[int, ...] = ()
    """Pass numbers of the loops around it, outermost first."""
    key: str = ""
    """Empty where it was not looked up."""
    reason: str
    """In words."""
    differs: tuple[PartDiffers, ...] = ()
    """What differs from the nearest record."""
    nearest: ActionRecord | None = None
    """The record that it was compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissReport:
    """Why a node was computed: ``print`` it, or look at ``misses``."""

    node: str
    misses: tuple[Miss, ...]
    """One for each fit and forward that was computed; none where all of it was known."""
    hits: int = 0
    """How many were known."""

    def to_text(self) -> str:
        """Return what is known, a paragraph for each fit and forward that was computed."""
        name = printable(self.node)
        if not self.misses and not self.hits:
            return f"{name} did not run"
        if not self.misses:
            return f"{name} did not miss: all of it was known"
        lines = [f"{name}: {_counted(self)}"]
        for one in islice(_folded(self.misses), _MOST_LISTED):
            lines += one
        kinds = sum(1 for _ in _folded(self.misses))
        if kinds > _MOST_LISTED:
            lines.append(f"  ... and {kinds - _MOST_LISTED} more (.misses has all)")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return preformatted(self.to_text())


def explain_record(
    record: ActionRecord, others: Iterable[ActionRecord], sources: Sequence[str] | None = None
) -> Miss:
    """Return why what a record says was computed, when it was.

    Args:
        record: the record.
        others: records of the same class, and perhaps itself, and others.
        sources: ids of the nodes that feed the node; none: it gets the input of the graph. None
            where that is not known.
    """
    node, what = record.origin.get("node", ""), _what_of(record)
    found = _nearest(record, others)
    if found is None:
        return Miss(
            node=node,
            what=what,
            key=record.key,
            reason=f"the cache had no {what} of {printable(record.name)} yet: it is new, or had "
            "another name",
        )
    nearest, differs = found
    if differs:
        reason = "; ".join(f"{one}{_whose(one, sources)}" for one in differs)
    elif _tells_inputs(nearest):
        reason = (
            "nothing that records tell differs from one that was there: what is secret is in none"
        )
    else:
        reason = "what it was given; the record that was there is an early one, which tells no more"
    return Miss(
        node=node, what=what, key=record.key, reason=reason, differs=differs, nearest=nearest
    )


def look_up(store: ActionStore, key: str) -> ActionRecord | None:
    """Return the record of a key, and leave the store as it is where it can do so."""
    peek: Callable[[str], ActionRecord | None] = getattr(store, "peek", store.lookup)
    return peek(key)


def of_class(store: ActionStore, name: str) -> Iterator[ActionRecord]:
    """Yield the records of a class, the newest first where the store knows how."""
    recent = getattr(store, "recent", None)
    if recent is not None:
        return iter(recent(name, _MOST_COMPARED))
    found = (one for one in store.records() if one.name == name)
    return iter(nlargest(_MOST_COMPARED, found, key=lambda one: one.created_at))


def _nearest(
    record: ActionRecord, others: Iterable[ActionRecord]
) -> tuple[ActionRecord, tuple[PartDiffers, ...]] | None:
    best: tuple[tuple[bool, int, bool, bool, float], ActionRecord] | None = None
    mine = _identity(record.parts)
    for other in others:
        if not _can_be_compared(record, other):
            continue
        rank = (
            other.origin.get("run") == record.origin.get("run"),
            _count_differences(_told_by_both(record, other), other.parts),
            other.origin.get("node") != record.origin.get("node"),
            _identity(other.parts) != mine,
            -other.created_at,
        )
        if best is None or rank < best[0]:
            best = rank, other
    if best is None:
        return None
    return best[1], _differences(_told_by_both(record, best[1]), best[1].parts)


def _identity(parts: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the parts that say what a node is, without those of what it was given."""
    return {
        one: digest
        for one, digest in parts.items()
        if one not in _GIVEN and not one.startswith((INPUT_FROM, "option "))
    }


def _told_by_both(record: ActionRecord, other: ActionRecord) -> Mapping[str, bytes]:
    """Return the parts of a record that another can have: early ones say only what a node is."""
    return record.parts if _tells_inputs(other) else _identity(record.parts)


def _tells_inputs(record: ActionRecord) -> bool:
    return any(one == INPUT or one.startswith(INPUT_FROM) for one in record.parts)


def _can_be_compared(record: ActionRecord, other: ActionRecord) -> bool:
    return (
        other.name == record.name
        and other.key != record.key
        and other.outputs.keys() == record.outputs.keys()
        and other.created_at <= record.created_at
    )


def _count_differences(parts: Mapping[str, bytes], others: Mapping[str, bytes]) -> int:
    same = sum(others.get(part) == digest for part, digest in parts.items())
    return len(parts) + len(others.keys() - parts.keys()) - same


def _differences(
    parts: Mapping[str, bytes], before: Mapping[str, bytes]
) -> tuple[PartDiffers, ...]:
    changed = [one for one in parts if one in before and before[one] != parts[one]]
    found = [PartDiffers(one, "changed") for one in sorted(changed)]
    found += [PartDiffers(one, "new") for one in sorted(parts.keys() - before.keys())]
    return (*found, *(PartDiffers(one, "gone") for one in sorted(before.keys() - parts.keys())))


def _what_of(record: ActionRecord) -> str:
    return "state" if "state" in record.outputs else "output"


def _told(part: str) -> str:
    if part in _NAMES:
        return _NAMES[part]
    for prefix, words in _QUOTED.items():
        if part.startswith(prefix):
            return f"{words} {printable(part[len(prefix) :])!r}".replace('"', "'")
    return printable(part)


def _whose(one: PartDiffers, sources: Sequence[str] | None) -> str:
    """Return where an input comes from, where that is one thing."""
    if one.part != INPUT or sources is None or len(sources) > 1:
        return ""
    return f" (what node {printable(sources[0])!r} gave)" if sources else " (the x of the graph)"


def _counted(report: MissReport) -> str:
    known = f", {report.hits} known" if report.hits else ""
    return f"{len(report.misses)} computed{known}"


def _folded(misses: Sequence[Miss]) -> Iterator[list[str]]:
    """Yield the lines of each miss; those of many passes that have one reason together."""
    groups: dict[tuple[str, str], list[Miss]] = {}
    for one in misses:
        groups.setdefault((one.what, one.reason), []).append(one)
    for (what, reason), ones in groups.items():
        times = f" ({len(ones)} times)" if len(ones) > 1 else ""
        where = f" in {passes_text(ones[0].passes)}" if ones[0].passes and len(ones) == 1 else ""
        lines = [f"  {what}{where}{times}: {reason}"]
        nearest = ones[0].nearest
        if nearest is not None:
            lines.append(f"    compared with {_named(nearest)}")
        yield lines


def _named(record: ActionRecord) -> str:
    node, call = record.origin.get("node", ""), record.origin.get("run", "")
    what = _what_of(record)
    return (
        f"the {what} of node {printable(node)}, call {printable(call)}, "
        f"{moment_text(record.created_at)} ({record.key[:12]})"
    )
