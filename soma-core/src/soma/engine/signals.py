"""What a condition or an ``until`` may say, and what it means.

    condition   a text, True, False, or {"branch": one of these}
    until       True, "done", "stop", {"done": True}        stop
                False, "continue", {"done": False}          go on

Scalars of numpy and torch count as what they hold. Anything else is an error: a number that is
truthy by chance should stop nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from soma.declaration import FALLBACKS
from soma.errors import InvalidOutput, shown

__all__ = ["arm_of", "stop_of", "unreadable_stop"]

_STOPS = {"done": True, "stop": True, "continue": False}


def arm_of(branch: str, condition: str, said: Any, labels: Collection[str]) -> str:
    """Return the label of the arm that a condition names; ``branch`` is what messages call it.

    Raises:
        InvalidOutput: it says nothing that could be a label, or names no arm and there is none for
            the rest.
    """
    label = _plain(said)
    if isinstance(label, Mapping) and "branch" in label:
        label = _plain(label["branch"])
    if isinstance(label, bool):
        label = str(label).lower()
    if isinstance(label, str):
        if label in labels:
            return label
        for fallback in FALLBACKS:
            if fallback in labels:
                return fallback
    listed = ", ".join(map(repr, labels))
    if not isinstance(label, str):
        raise InvalidOutput(
            f"Branch {branch}: its condition {condition!r} returned {shown(said)}, which names "
            f"no arm. Return a text, True or False, or {{'branch': label}}. The arms are: {listed}"
        )
    raise InvalidOutput(
        f"Branch {branch}: its condition {condition!r} names arm {label!r}, which is not there. "
        f"The arms are: {listed}. An arm 'default' would take the rest"
    )


def stop_of(said: Any) -> bool | None:
    """Say whether a loop shall stop; None where it cannot be told."""
    word = _plain(said)
    if isinstance(word, Mapping) and "done" in word:
        word = _plain(word["done"])
    if isinstance(word, str):
        word = _STOPS.get(word)
    return word if isinstance(word, bool) else None


def unreadable_stop(
    loop: str, until: str, said: Any, when: str, *, has_until: bool
) -> InvalidOutput:
    """Return the error for what says neither stop nor go on."""
    asked = f"{until!r}" if has_until else f"it has no until=, and its last node {until!r}"
    return InvalidOutput(
        f"Loop {loop!r}: {asked} returned {shown(said)} in {when}, which says neither stop nor go "
        "on. To stop: True, 'done', 'stop' or {'done': True}. To go on: False, 'continue' or "
        "{'done': False}. until= takes a node, a filter or a function that says so, or False for "
        "max_iterations passes"
    )


def _plain(said: Any) -> Any:
    """Return what a scalar of numpy or torch holds; anything else as it is."""
    if isinstance(said, str):
        return str(said)
    try:
        return said.item() if getattr(said, "shape", None) == () else said
    except Exception:  # noqa: BLE001  # a tensor without data, say, or somebody else's class
        return said
