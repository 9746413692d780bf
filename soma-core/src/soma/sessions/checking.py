"""What a session looks at before a call is made, and when a function has returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soma.engine.calls import is_read_once
from soma.errors import InvalidInput, InvalidOutput, did_you_mean, shown

__all__ = ["FIT_OPTIONS", "check_fit_options", "check_function", "check_returned"]

FIT_OPTIONS = ("epochs", "batch_size", "shuffle", "warm_start", "refresh")
"""What ``options`` of a fit may name; they mean what they mean in ``Graph.fit``."""


def check_function(name: str, given: Any) -> None:
    """Refuse what cannot be called.

    Raises:
        InvalidInput: it is no function; the message names it by ``name``.
    """
    if not callable(given):
        raise InvalidInput(f"{name} must be a function, not {shown(given)}")


def check_returned(found: Any) -> None:
    """Refuse what a function of ``call`` has returned, where it is used up by reading it.

    Raises:
        InvalidOutput: it is a generator, an iterator or a coroutine.
    """
    if is_read_once(type(found)):
        raise InvalidOutput(
            f"The function of a call returned a {type(found).__name__}, which can be read only "
            "once. Return its items in a list or an array"
        )


def check_fit_options(options: Any) -> dict[str, Any]:
    """Return fit options by name; the engine looks at what they say.

    Raises:
        InvalidInput: it is no mapping, or names an option that there is not.
    """
    if not isinstance(options, Mapping):
        raise InvalidInput(f"options is a dict of fit options by name, not {shown(options)}")
    for name in options:
        if name not in FIT_OPTIONS:
            near = did_you_mean(str(name), FIT_OPTIONS)
            raise InvalidInput(f"There is no fit option {shown(name)}.{near}")
    return dict(options)
