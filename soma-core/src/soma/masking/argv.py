"""A command line without what follows names that sound like those of secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable

from soma.masking.mask import HIDDEN

__all__ = ["masked_argv"]

_SECRET_ENDS = (
    *("token", "password", "passwd", "pwd", "passphrase", "secret", "secrets", "apikey"),
    *("credential", "credentials"),
)
"""What the last word of an option ends in that is followed by a secret."""
_SECRET_WORDS = frozenset({"tokens", "pass", "bearer", "auth"})
"""Options of one word."""
_KEY_KINDS = frozenset({"api", "access", "private", "secret", "auth"})
_LOGIN = re.compile(r"(\w://)[^/\s:@]*:[^/\s@]*@")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def masked_argv(argv: Iterable[str]) -> list[str]:
    """Return a command line without what follows names that sound like those of secrets."""
    found: list[str] = []
    hide_next = False
    for one in argv:
        name, equals, _ = one.partition("=")
        named = _sounds_secret(name)
        if hide_next:
            found.append(HIDDEN)
        else:
            found.append(
                f"{name}={HIDDEN}" if equals and named else _LOGIN.sub(rf"\1{HIDDEN}@", one)
            )
        # Also after what was hidden: that may have been an option, behind one that takes nothing.
        hide_next = named and not equals and one.startswith("-")
    return found


def _sounds_secret(option: str) -> bool:
    words = [word.lower() for word in _WORD.findall(option)]
    if not words:
        return False
    is_key = len(words) > 1 and words[-1] == "key" and words[-2] in _KEY_KINDS
    return (
        is_key
        or words[-1].endswith(_SECRET_ENDS)
        or (len(words) == 1 and words[0] in _SECRET_WORDS)
    )
