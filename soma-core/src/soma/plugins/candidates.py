"""Who says that it is a plugin: the entry points of the group ``soma``.

Only metadata is read here; nothing of a plugin is imported. Python's own ``entry_points()`` gives
up altogether when one distribution has damaged metadata, so then each is asked on its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distributions, entry_points

from packaging.utils import canonicalize_name

__all__ = ["GROUP", "Candidate", "find_candidates", "let_in_by_environment"]

GROUP = "soma"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An entry point, and what the metadata beside it says."""

    dist: str
    version: str
    entry_point: str
    module: str
    requires: tuple[str, ...] = ()
    """The Requires-Dist lines of its distribution."""
    damage: str = ""
    """What is wrong with the metadata itself; empty when it can be read."""


def find_candidates(points: Iterable[EntryPoint] | None = None) -> tuple[Candidate, ...]:
    """Return every candidate, sorted by (distribution, entry-point name).

    Args:
        points: the entry points to look at; None asks the metadata of everything on ``sys.path``.
    """
    if points is not None:
        found = [_candidate(point) for point in points]
    else:
        try:
            found = [_candidate(point) for point in entry_points(group=GROUP)]
        except Exception:  # noqa: BLE001  # one damaged distribution; find out which, keep the rest
            found = list(_one_by_one())
    return tuple(sorted(found, key=lambda one: (one.dist, one.entry_point)))


def let_in_by_environment() -> frozenset[str] | None:
    """Return the distributions that ``SOMA_LOAD_PLUGINS`` lets in; None when it is not set."""
    value = os.environ.get("SOMA_LOAD_PLUGINS")
    if value is None:
        return None
    return frozenset(canonicalize_name(name.strip()) for name in value.split(",") if name.strip())


def _one_by_one() -> Iterator[Candidate]:
    seen: set[str] = set()
    for dist in distributions():
        try:
            name = canonicalize_name(dist.name)
            if name in seen:
                continue  # a second path entry holds it too; the first one wins, as in Python
            seen.add(name)
            points = list(dist.entry_points.select(group=GROUP))
        except Exception as error:  # noqa: BLE001  # whatever damaged metadata raises
            if _mentions_group(dist):
                yield _damaged(dist, "?", "?", f"{type(error).__name__}: {error}")
            continue
        yield from (_candidate(point) for point in points)


def _candidate(point: EntryPoint) -> Candidate:
    dist = point.dist
    if dist is None:
        return _damaged(None, point.name, point.value, "it belongs to no distribution")
    try:
        metadata = dist.metadata  # parsed anew each time it is asked for
        return Candidate(
            dist=canonicalize_name(metadata["Name"]),
            version=str(metadata["Version"] or "?"),
            entry_point=point.name,
            module=point.value.strip(),
            requires=tuple(metadata.get_all("Requires-Dist") or ()),
        )
    except Exception as error:  # noqa: BLE001  # whatever damaged metadata raises
        return _damaged(dist, point.name, point.value, f"{type(error).__name__}: {error}")


def _damaged(dist: Distribution | None, entry_point: str, module: str, why: str) -> Candidate:
    return Candidate(
        dist=_folder_name(dist),
        version="?",
        entry_point=entry_point,
        module=module,
        damage=f"its metadata cannot be read: {why}",
    )


def _mentions_group(dist: Distribution) -> bool:
    """Say whether the unreadable metadata is any of our business."""
    try:
        return f"[{GROUP}" in (dist.read_text("entry_points.txt") or "")
    except (OSError, ValueError):
        return False


def _folder_name(dist: Distribution | None) -> str:
    """Return the best name there is for a distribution that cannot say its own."""
    folder = getattr(dist, "_path", None)  # the only way to a name when METADATA is damaged
    return canonicalize_name(folder.name.split("-")[0]) if folder is not None else "unknown"
