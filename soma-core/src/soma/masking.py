"""What may be written down of a filter: its constructor arguments, and nothing that is secret.

    class Fetch(Filter):
        _secret = ("token",)
        def __init__(self, token, page): ...

    arguments_of(Fetch("abc-123", page=2)) ──► {"token": "***", "page": 2}

A secret shows up in places where nobody put it, such as the message of an exception. So the values
themselves are known to a ``Mask``, which takes them out of every text that it is given, also where
they stand there escaped or cut.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from os.path import commonprefix
from types import MemberDescriptorType
from typing import Any
from urllib.parse import quote

from soma._weak import remember_weakly
from soma.arguments import NotPlain, bound, is_captured, parameter_names
from soma.errors import InvalidFilter, did_you_mean, shown

__all__ = [
    "HIDDEN",
    "Mask",
    "arguments_of",
    "check_secret",
    "masked_argv",
    "may_hold_secrets",
    "secrets_of",
]

HIDDEN = "***"
"""Stands where a secret was."""

_SHORTEST = 4
"""Shorter secrets are hidden as arguments, and not looked for in texts, where they are anywhere."""
_LINE = 8
"""From this length on a line of a longer secret, such as a key in a file, counts by itself."""
_LONGEST_TEXT = 200
_MOST_ITEMS = 20
_NESTED = 3
_ATOMS = (type(None), bool, int, float)
_CUT = ("…", "...")
"""What ends a text of which only the start is shown."""
_SECRET_ENDS = (
    *("token", "password", "passwd", "pwd", "passphrase", "secret", "secrets", "apikey"),
    *("credential", "credentials"),
)
"""What the last word of an option ends in that is followed by a secret."""
_SECRET_WORDS = frozenset({"tokens", "pass", "bearer", "auth"})
"""Options of one word."""
_LOGIN = re.compile(r"(\w://)[^/\s:@]*:[^/\s@]*@")
_NONE: frozenset[str] = frozenset()
_KEY_KINDS = frozenset({"api", "access", "private", "secret", "auth"})
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def secret_names(node: Any) -> frozenset[str]:
    """Return the names that an object, its class and the bases of that call secret."""
    cls = type(node)
    own = _own(node.func if cls is functools.partial else node)  # of a function, its attributes
    found: list[Any] = []
    for names in (own.get("_secret"), *[base.__dict__.get("_secret") for base in cls.__mro__]):
        if names and isinstance(names, tuple | list):
            found += names
    return frozenset([name for name in found if isinstance(name, str)]) if found else _NONE


def check_secret(node: Any) -> None:
    """Refuse a ``_secret`` that hides nothing, as a misspelt one would.

    Raises:
        InvalidFilter: it is no tuple of names, or there is no such argument or attribute.
    """
    cls = type(node)
    label = getattr(node, "__name__", cls.__name__)
    for base in cls.__mro__:
        stated = vars(base).get("_secret", ())
        if not isinstance(stated, tuple | list) or not all(isinstance(n, str) for n in stated):
            raise InvalidFilter(
                f"{base.__name__}._secret is {type(stated).__name__} and must be a tuple of the "
                'names of constructor arguments: _secret = ("token",)'
            )
    names = secret_names(node)
    known = _nameable(node) if names else None
    if known is None:
        return
    for name in names:
        if name not in known:
            raise InvalidFilter(
                f"{label}._secret names {shown(name)}, which is no argument of it, so that nothing "
                f"would be hidden.{did_you_mean(name, known)}"
            )


def _nameable(node: Any) -> frozenset[str] | None:
    """Return what ``_secret`` may name; None where there may be any arguments."""
    if isinstance(node, functools.partial) or inspect.isroutine(node):
        inner = node.func if isinstance(node, functools.partial) else node
        try:
            return frozenset(inspect.signature(inner).parameters)
        except (TypeError, ValueError):  # written in C
            return None
    own = {spelt for name in _own(node) for spelt in (name, name.lstrip("_").rpartition("__")[2])}
    if not is_captured(node):
        return frozenset(own)
    parameters = parameter_names(node)
    return None if parameters is None else frozenset({*parameters, *own})


def arguments_of(node: Any) -> dict[str, Any]:
    """Return name -> constructor argument as plain data, secret ones hidden.

    Where the object has a public attribute of that name, its present value. Of an object whose
    construction nobody saw, its public attributes; of a partial, what it binds by name.
    """
    own, hidden = _own(node), secret_names(node)
    if isinstance(node, functools.partial):
        given = node.keywords
    elif is_captured(node):
        given = bound(node)
    else:
        given = {name: value for name, value in own.items() if name[:1] != "_"}
    return {
        name: HIDDEN if name in hidden else _described(own.get(name, value))
        for name, value in given.items()
    }


def secrets_of(node: Any) -> set[str]:
    """Return the texts that are secret in an object, and in filters that it holds."""
    return set(_secret_texts(node, _NESTED))


def may_hold_secrets(node: Any) -> bool:
    """Say whether an object may have secrets, now or later."""
    return bool(secret_names(node)) or any(True for _ in _held(_own(node)))


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


def _own(node: Any) -> dict[str, Any]:
    """Return the attributes of an object, those in slots included."""
    own = getattr(node, "__dict__", None)
    found = own if isinstance(own, dict) else {}
    for name, slot in _slots(type(node)):
        with suppress(AttributeError):  # it has no value yet
            found = {name: slot.__get__(node), **found}
    return found


@remember_weakly
def _slots(cls: type) -> tuple[tuple[str, MemberDescriptorType], ...]:
    return tuple(
        (name, one)
        for base in reversed(cls.__mro__)
        if "__slots__" in vars(base)
        for name, one in vars(base).items()
        if isinstance(one, MemberDescriptorType)
    )


def _described(value: Any) -> Any:
    """Return plain data as it is where it is short, and in words what is not."""
    if isinstance(value, NotPlain):
        return f"<{value.type_name.rpartition('.')[2]}>"
    if type(value) in _ATOMS:
        return value
    if type(value) is str:
        return value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}…"
    if type(value) in (list, tuple) and len(value) <= _MOST_ITEMS and _is_flat(value):
        return list(value)
    if type(value) in (list, tuple, dict, set, frozenset, bytes):
        return f"<{type(value).__name__} of {len(value)}>"
    return f"<{type(value).__name__}>"


def _is_flat(values: Iterable[Any]) -> bool:
    return all(
        type(one) in _ATOMS or (type(one) is str and len(one) <= _LONGEST_TEXT) for one in values
    )


def _secret_texts(node: Any, depth: int) -> Iterator[str]:
    own, hidden = _own(node), secret_names(node)
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
