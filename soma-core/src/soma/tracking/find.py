"""Runs under a root: all of them, the one that somebody means, and without one.

    .soma/runs/run_20261130T041500Z_3fa9     "run_20261130T041500Z_3fa9", "run_20261130", "3fa9",
                                             "last", or the name that it was given

What does not look like a run is left alone, and so is what a link leads to when it is removed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from soma.errors import InvalidInput, UnknownName, did_you_mean
from soma.tracking.reading import stamp_of
from soma.tracking.view import MANIFEST, RunView

__all__ = ["RUNS", "find_run", "remove_run", "runs"]

RUNS = "runs"
"""The folder under the root that the runs are in."""
_STAMP = re.compile(r"_(\d{8}T\d{6})Z_")
_DIGITS = re.compile(r"[0-9a-f]{3,}")
"""What is taken for the end of an id; less would be found by accident."""
_NAMED = 20


def runs(root: str | os.PathLike[str] = ".soma") -> list[RunView]:
    """Return the tracked runs under a root, the newest first.

    A run that cannot be read is among them, and says so; what is no run is not. Where there is no
    such root there are no runs.

    Raises:
        InvalidInput: the root is no folder, or cannot be read.
    """
    return sorted(_views(Path(root)), key=_age, reverse=True)


def find_run(root: str | os.PathLike[str], text: str) -> RunView:
    """Return the run that a text means.

    Args:
        root: where the runs are.
        text: an id; the name of a run, of which the newest is taken; a beginning of an id, or its
            last digits (three or more), if only one run has them; ``"last"`` for the newest of
            all; or the path of a folder, with a separator in it.

    Raises:
        UnknownName: no run is meant, or several are; the message has those that come near.
        InvalidInput: the root, or the path, is no folder of runs, or of a run.
    """
    if text == "last":
        found = runs(root)
        if not found:
            raise UnknownName(f"There is no last run: no run is in {Path(root)}.")
        return found[0]
    views = {one.id: one for one in _views(Path(root))}
    if text in views:
        return views[text]
    if os.sep in text:  # without one, a folder nearby would hide a run of its name
        return RunView(text)
    named = [one for one in views.values() if text and _name(one) == text]
    if named:
        return max(named, key=_age)
    begun = [
        one
        for id_, one in views.items()
        if text and (id_.startswith(text) or _ends_with(id_, text))
    ]
    if len(begun) == 1:
        return begun[0]
    raise UnknownName(_unknown(Path(root), text, views, begun))


def remove_run(view: RunView, *, force: bool = False) -> None:
    """Remove a run for good; it is gone from every list before the first of its files is.

    Args:
        view: the run.
        force: also one that is running, and one of which nobody can tell whether it is.

    Raises:
        InvalidInput: it is running, was written by a newer Soma, is a link or no run, is gone
            already, or the system does not allow it. What is left then is no run any more, or
            untouched.
    """
    path = view.path
    if path.is_symlink():
        raise InvalidInput(f"{path} is a link: remove the link, or the run that it leads to")
    if not stamp_of(path / MANIFEST):
        raise InvalidInput(f"{path} is no run, or is gone: it has no {MANIFEST}")
    if view.is_newer:
        raise InvalidInput(f"{view.note}; or remove the folder yourself")
    state = view.state
    is_placed = path.parent.name == RUNS and _STAMP.search(path.name) is not None
    if state == "unreadable" and not is_placed:
        raise InvalidInput(f"{path} may be no run at all ({view.note}): remove it yourself")
    if not force and state == "running":
        raise InvalidInput(f"{view.id} is running: end it first, or remove it with force (--force)")
    if not force and state in ("unreadable", "unknown"):
        raise InvalidInput(
            f"{view.id} may be running ({view.note or state}): remove it with force (--force)"
        )
    aside = path.with_name(f".removed-{os.urandom(8).hex()}")
    try:
        path.rename(aside)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be removed: {error.strerror}") from error
    try:
        shutil.rmtree(aside)  # which follows no links
    except OSError as error:
        raise InvalidInput(
            f"{view.id} is no run any more, but not all of it could be removed; what is left lies "
            f"in {aside}: {error.strerror}"
        ) from error


def _views(root: Path) -> Iterator[RunView]:
    """Yield what there is, in no order."""
    try:
        with os.scandir(root / RUNS) as entries:
            names = [one.name for one in entries if not one.name.startswith(".")]
    except FileNotFoundError:
        if root.name == RUNS and root.is_dir():
            raise InvalidInput(f"{root} holds runs itself: give the folder around it") from None
        return
    except (OSError, ValueError) as error:  # ValueError: a name that no system takes
        why = getattr(error, "strerror", None) or error
        raise InvalidInput(f"{root} is no folder of runs that can be read: {why}") from error
    for name in names:
        with suppress(InvalidInput):  # something else, or removed meanwhile
            yield RunView(root / RUNS / name)


def _age(view: RunView) -> tuple[datetime, str]:
    """Return what runs are ordered by; of one that cannot be read, what its name says."""
    try:
        return view.created_at, view.id
    except InvalidInput:
        pass
    said = _STAMP.search(view.id)
    with suppress(ValueError):
        if said is not None:
            return datetime.strptime(said[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC), view.id
    stamp = stamp_of(view.path)
    return datetime.fromtimestamp(stamp.mtime_ns / 1e9 if stamp else 0, UTC), view.id


def _ends_with(id_: str, text: str) -> bool:
    end = id_.rpartition("_")[2]
    return _DIGITS.fullmatch(text) is not None and id_ != end and end.endswith(text)


def _name(view: RunView) -> str:
    with suppress(InvalidInput):
        return view.name
    return ""


def _unknown(root: Path, text: str, views: dict[str, RunView], begun: list[RunView]) -> str:
    if begun:
        several = sorted(begun, key=_age, reverse=True)
        listed = ", ".join(repr(one.id) for one in several[:_NAMED])
        more = f" and {len(several) - _NAMED} more" if len(several) > _NAMED else ""
        return f"{text!r} may be any of {listed}{more}."
    if not views:
        return f"There is no run {text!r}: no run is in {root}."
    newest = sorted(views.values(), key=_age, reverse=True)
    known = [one.id for one in newest[:_NAMED]]
    known += [name for one in newest[:200] if (name := _name(one))]
    return f"There is no run {text!r} in {root}.{did_you_mean(text, known)}"
