"""Messages between a function that a session runs and whoever called it.

    session.call(fn, on_message=listen)          fn: answer = send_message({"loss": 0.3})
                               │                                   │
                               └──────── what listen returns ◄─────┘

The function needs no handle: which call it runs in is known by a context variable, in this process
and in a child alike. A thread that the function starts is in no call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, TypeAlias

from soma.errors import SessionError

__all__ = ["Listener", "messages_to", "send_message"]

Listener: TypeAlias = Callable[[Any], Any]
_listener: ContextVar[Listener | None] = ContextVar("soma_listener")


def send_message(message: Any) -> Any:
    """Send something to whoever called this function by ``session.call``, and return the answer.

    Args:
        message: any value that can travel; the other side gets a copy.

    Raises:
        SessionError: this code runs in no call of a session, or nobody listens to that one.
        Exception: what ``on_message`` raises ends the call.
    """
    try:
        listener = _listener.get()
    except LookupError:
        raise SessionError(
            "send_message works in a function that session.call runs, on the thread that runs it, "
            "and this is no such place"
        ) from None
    if listener is None:
        raise SessionError(
            "Nobody listens to this call: give session.call(..., on_message=) a function that "
            "takes the message and returns the answer"
        )
    return listener(message)


class messages_to:  # noqa: N801  # used as a statement: with messages_to(listener)
    """While it lasts, what this thread sends goes to ``listener``; None: nobody listens."""

    __slots__ = ("_before", "_listener")

    def __init__(self, listener: Listener | None) -> None:
        self._listener = listener

    def __enter__(self) -> None:
        self._before: Token[Listener | None] = _listener.set(self._listener)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _listener.reset(self._before)
