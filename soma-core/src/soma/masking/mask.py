"""A mask knows the texts that are secret, and takes them out of whatever it is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os.path import commonprefix
from typing import Any

__all__ = ["HIDDEN", "Mask"]

HIDDEN = "***"
"""Stands where a secret was."""
_SHORTEST = 4
"""Shorter secrets are hidden as arguments, and not looked for in texts, where they are anywhere."""
_CUT = ("…", "...")
"""What ends a text of which only the start is shown."""


class Mask:
    """Takes secrets out of plain data."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: tuple[str, ...] = ()
        self._kept: set[str] = set()
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Hide these as well, from now on."""
        wanted = {one for one in secrets if len(one) >= _SHORTEST} - set(self._secrets)
        if wanted:  # the longest first: one may be a part of another
            self._secrets = tuple(sorted({*self._secrets, *wanted}, key=len, reverse=True))

    def keep(self, texts: Iterable[str]) -> None:
        """Leave these whole: what every record holds tells nobody a secret that is the same."""
        self._kept.update(texts)

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def __call__(self, value: Any) -> Any:
        """Return the same data without secrets; the very same where there are none to hide."""
        return self._masked(value) if self._secrets else value

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return value if value in self._kept else self._text(value)
        if isinstance(value, Mapping):
            return {self._masked(name): self._masked(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self._masked(one) for one in value]
        return value

    def _text(self, text: str) -> str:
        before = ""
        while before != text:  # what is put in may make another with its neighbours
            before = text
            is_cut = any(end in text for end in _CUT)
            for secret in self._secrets:
                if secret in text:
                    text = text.replace(secret, HIDDEN)
                if is_cut and secret[:_SHORTEST] in text:
                    text = _without_start(text, secret)
        return text


def _without_start(text: str, secret: str) -> str:
    """Hide what of a secret stands before an ellipsis."""
    at = text.find(secret[:_SHORTEST])
    while at >= 0:
        same = commonprefix((text[at : at + len(secret)], secret))  # noqa: RUF071  # not of paths
        end = at + len(same)
        if text.startswith(_CUT, end):
            text = text[:at] + HIDDEN + text[end:]
        at = text.find(secret[:_SHORTEST], at + 1)
    return text
