"""How user code is called: with what it names, and with a note on what it raises."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import CoroutineType
from typing import Any

from soma.codecs import find_codec
from soma.engine import recording
from soma.engine.run import Run
from soma.engine.values import IMMUTABLE
from soma.errors import InvalidOutput

__all__ = ["add_note", "call_fit", "call_forward", "is_read_once", "refuse_once_only"]


def call_fit(run: Run, at: int, x: Any, y: Any, extras: Mapping[str, Any]) -> Any:
    """Return what a node learns.

    Raises:
        InvalidOutput: it is a generator or a coroutine.
        Exception: whatever the filter raises, with a note that names the node.
    """
    node = run.program.filters[run.node[at]]
    try:
        recording.started(run, at, "state")
        found = node.fit(x, y, **extras)
        _refuse_once_only(run, at, "fit", found)
    except BaseException as error:
        add_note(error, run, at, "fit", (x, y))
        recording.failed(run, at, "state", error)
        raise
    return found


def call_forward(run: Run, at: int, x: Any, state: Any, extras: Mapping[str, Any]) -> Any:
    """Return what a node makes of its input.

    Raises:
        InvalidOutput: it is a generator, an iterator or a coroutine.
        Exception: whatever the filter raises, with a note that names the node.
    """
    place = run.node[at]
    node, traits = run.program.filters[place], run.program.traits[place]
    try:
        recording.started(run, at, "output")
        found = node(x, **extras) if traits.is_function else node.forward(x, state, **extras)
        if type(found) not in IMMUTABLE:
            _refuse_once_only(run, at, "forward", found)
    except BaseException as error:
        add_note(error, run, at, "forward", (x, x))
        recording.failed(run, at, "output", error)
        raise
    return found


def add_note(
    error: BaseException, run: Run, at: int, phase: str, given: tuple[Any, Any] | None = None
) -> None:
    """Say in which node it happened; once, and where the exception can carry it.

    Args:
        error: what was raised.
        run: the run.
        at: the node.
        phase: ``"fit"`` or ``"forward"``.
        given: its input and its labels, where they are at hand.
    """
    if not isinstance(error, Exception) or isinstance(error, InvalidOutput):
        return  # nobody's fault, or it says so itself
    with suppress(Exception):  # somebody else's class: it may refuse a note, or to be read
        remark = "" if given is None else _on_nothing(error, *given)
        label = run.program.traits[run.node[at]].label
        note = f"in node {run.id_of(at)!r} ({label}), during {phase}{run.where(at)}"
        if note + remark not in getattr(error, "__notes__", ()):
            error.add_note(note + remark)


def _on_nothing(error: BaseException, x: Any, y: Any) -> str:
    """Return what the note says of a None that the filter stumbled over."""
    if not (isinstance(error, TypeError | AttributeError) and "NoneType" in str(error)):
        return ""
    if x is None:
        return "; its input is None: did the node before it return nothing?"
    return "; y is None: g.fit was given no labels" if y is None else ""


def is_read_once(cls: type) -> bool:
    """Say whether objects of a class are used up by reading them, and cannot be written down."""
    once = any(hasattr(cls, method) for method in ("__next__", "__anext__", "__await__"))
    return once and find_codec(cls) is None


def _refuse_once_only(run: Run, at: int, phase: str, found: Any) -> None:
    refuse_once_only(run.id_of(at), run.program.traits[run.node[at]].label, phase, found)


def refuse_once_only(id_: str, label: str, phase: str, found: Any) -> None:
    """Refuse what can be read only once: it could be neither kept nor given to two nodes.

    Raises:
        InvalidOutput: it is a generator, an iterator or a coroutine.
    """
    cls = type(found)
    if not is_read_once(cls):
        return
    if isinstance(found, CoroutineType):
        found.close()  # or Python would warn that nobody has awaited it
    raise InvalidOutput(
        f"Node {id_!r} ({label}): {phase} returned a "
        f"{cls.__name__}, which can be read only once. Return its items in a list or an array, or "
        "the whole of it in soma.Opaque"
    )
