"""The texts that are secret in an object, in every form in which a message may have them."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from soma.arguments import bound, is_captured
from soma.masking.declared import attributes_of, secret_names

__all__ = ["may_hold_secrets", "secrets_of"]

_LINE = 8
"""From this length on a line of a longer secret, such as a key in a file, counts by itself."""
_NESTED = 3


def secrets_of(node: Any) -> set[str]:
    """Return the texts that are secret in an object, and in filters that it holds."""
    return set(_secret_texts(node, _NESTED))


def may_hold_secrets(node: Any) -> bool:
    """Say whether an object may have secrets, now or later."""
    return bool(secret_names(node)) or any(True for _ in _held(attributes_of(node)))


def _secret_texts(node: Any, depth: int) -> Iterator[str]:
    own, hidden = attributes_of(node), secret_names(node)
    if hidden:
        given = bound(node) if is_captured(node) else _keywords(node)
        bases = [base.__name__.lstrip("_") for base in type(node).__mro__]
        for name in hidden:
            for spelt in (name, f"_{name}", *(f"_{base}__{name}" for base in bases)):
                for values in (own, given):
                    if spelt in values:
                        yield from _texts(values[spelt], _NESTED)
    if depth:
        for one in _held(own):
            if one is not node:
                yield from _secret_texts(one, depth - 1)


def _keywords(node: Any) -> Mapping[str, Any]:
    return node.keywords if isinstance(node, functools.partial) else {}


def _held(own: Mapping[str, Any]) -> Iterator[Any]:
    """Yield what of the attributes may have secrets of its own, also in a list or a dict."""
    for value in list(own.values()):
        inside = value.values() if isinstance(value, dict) else value
        for one in list(inside) if isinstance(value, list | tuple | dict) else (value,):
            if hasattr(type(one), "_secret"):
                yield one


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield from _spellings(str.__str__(value))
    elif isinstance(value, bytes | bytearray):
        raw = bytes(value)
        yield from (repr(raw)[2:-1], raw.hex())
        for encoding in ("utf-8", "latin-1"):
            with suppress(UnicodeDecodeError):
                yield from _spellings(raw.decode(encoding))
    elif isinstance(value, Mapping | list | tuple | set | frozenset):
        inside = value.values() if isinstance(value, Mapping) else value
        for one in list(inside) if depth else ():
            yield from _texts(one, depth - 1)
    elif value is not None and not isinstance(value, bool):
        with suppress(Exception):  # somebody else's __str__, or a huge int
            yield from _spellings(str(value))


def _spellings(text: str) -> Iterator[str]:
    """Yield a text as it is, and as messages have it that quote, escape or trim it."""
    lines = [line.strip() for line in text.splitlines()]
    parts = [line for line in lines if len(line) >= _LINE] if len(lines) > 1 else []
    for one in {text, text.strip(), " ".join(text.split()), "".join(text.split()), *parts}:
        quoted = str.__repr__(one)
        yield from (one, quoted[1:-1], ascii(one)[1:-1])
        if quoted[0] == '"':  # a longer text may have to escape these
            yield quoted[1:-1].replace("'", "\\'")
        yield one.encode("utf-8", "backslashreplace").decode()  # which describe_error does
        yield from (json.dumps(one, ensure_ascii=plain)[1:-1] for plain in (True, False))
        in_url = quote(one, safe="", errors="surrogatepass")
        yield from (in_url, in_url.replace("%2F", "/"), in_url.replace("%20", "+"))
