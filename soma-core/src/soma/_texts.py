"""Texts that may hold anything, so that they are seen and stay on their line."""

from __future__ import annotations

__all__ = ["one_line", "printable"]


def printable(text: str) -> str:
    """Return a text that is seen and stays on its line; it is allowed in XML, too."""
    return text if text.strip() and text.isprintable() else repr(text)


def one_line(text: str, limit: int = 200) -> str:
    """Return a message on one line, the end of a long one cut off; empty stays empty."""
    joined = " ".join(text.split())
    shown = joined if joined.isprintable() else repr(joined)[1:-1]
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
