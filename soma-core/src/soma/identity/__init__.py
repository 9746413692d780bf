"""What a node is: its code and its config, as two hashes that change when its behaviour may.

    NodeIdentity("scaler", Scaler(2)).read() ──► Identity(name, code, config, parts)

    code    the class as loaded, and what it names in its own module; or its ``_cache_version``
    config  its public attributes, read at every run

A key may never lie: what cannot be hashed is an error that names node and attribute, never a
constant, an address or a random number. Node ids are not part of it.
"""

from __future__ import annotations

import os
import sys
import threading
import types
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from blake3 import blake3

from soma.errors import CacheConfigError, IdentityWarning, Nameless, shown
from soma.identity import code
from soma.identity.canonical import Canon, Unhashable
from soma.identity.collect import (
    CodeParts,
    collect,
    members_of_mro,
    parts_of_attribute,
    parts_of_version,
)
from soma.identity.config import config_items, has_plain_config
from soma.identity.names import is_foreign, is_reachable, module_name, qualified_name, version_of

__all__ = ["Identity", "NodeIdentity", "differences", "identify"]

_SHORT = 4
"""Bytes of a part's digest that are kept: enough to compare, too few to read a value from."""
_IMMUTABLE = frozenset({type(None), bool, int, float, complex, str, bytes})
_REMEMBERED = 1024
"""Classes and functions whose code is remembered; the oldest is forgotten first."""


class _Known:
    """The code of one class or function, as it was found."""

    __slots__ = ("__weakref__", "hashed", "parts", "root")

    def __init__(self, root: Any, parts: CodeParts) -> None:
        self.root = root
        self.parts = parts
        self.hashed: tuple[str, str, dict[str, bytes]] | None = None
        """Name, hash and short digests of the code where nothing else joins it: many nodes have
        the same."""


_memo: dict[int, _Known] = {}
_passing: WeakValueDictionary[int, _Known] = WeakValueDictionary()
"""Of what was defined inside a function: known as long as some node has it, since it may hold
whatever that function held."""
_memo_lock = threading.Lock()


def _after_fork() -> None:
    global _memo_lock  # noqa: PLW0603  # a thread that did not come along may have held it
    _memo_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
_DECLARED = {
    "_cache_depends": "functions, classes and modules",
    "_cache_env": "distribution names",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a node is, at one moment."""

    name: str
    """Module and qualified name of its class or function."""
    code: str
    """Hash of name and code, in hexadecimal."""
    config: str
    """Hash of the config, in hexadecimal."""
    parts: Mapping[str, bytes] = field(repr=False)
    """``"method forward"``, ``"global helper"``, ``"attribute alpha"``, ... -> 4 bytes of hash."""


def identify(node: Any, name: str = "") -> Identity:
    """Return the identity of a filter, a function, or any object that can be a node.

    Args:
        node: the object.
        name: what messages call it; its class name where it is empty.

    Raises:
        CacheConfigError: something in its config, closure or attributes cannot be hashed.
        Nameless: it is made of nothing that could be named: a dynamic class without code.
    """
    return NodeIdentity(name, node).read()


def differences(
    one: Identity | Mapping[str, bytes], other: Identity | Mapping[str, bytes]
) -> list[str]:
    """Say which parts of two identities differ: ``["attribute alpha changed", ...]``.

    Args:
        one: an identity, or the ``parts`` of one, before.
        other: the same, after.
    """
    before = one.parts if isinstance(one, Identity) else one
    after = other.parts if isinstance(other, Identity) else other
    changed = [
        f"{part} changed" for part in before if part in after and before[part] != after[part]
    ]
    gone = [f"{part} is gone" for part in before if part not in after]
    new = [f"{part} is new" for part in after if part not in before]
    return sorted(changed) + sorted(gone) + sorted(new)


class NodeIdentity:
    """Reads the identity of one node, again and again; cheap while nothing changes.

    Safe for threads: each reading is whole, and at worst the same is computed twice.

    Args:
        name: what messages call the node.
        node: the object.

    Raises:
        CacheConfigError: the node is a class, not an object of it.
    """

    def __init__(self, name: str, node: Any) -> None:
        if isinstance(node, type):
            raise CacheConfigError(
                f"{node.__qualname__} is a class; what has an identity is an object of it: "
                f"{node.__qualname__}(...)"
            )
        self._given_name = name
        self._node = node
        self._with_code: dict[str, tuple[Any, CodeParts]] = {}  # attributes that hold code
        self._known: _Known | None = None
        self._look_at_class()

    def _look_at_class(self) -> None:
        node = self._node
        is_function = isinstance(node, types.FunctionType | types.BuiltinFunctionType)
        self._root: Any = node if is_function else type(node)
        self._name = self._given_name or self._root.__qualname__
        self._roots = () if is_function else tuple(members_of_mro(self._root))
        # Whether the config is the public part of __dict__ and nothing else: the common case.
        self._is_plain = bool(self._roots) and has_plain_config(node)
        self._keys = tuple(getattr(node, "__dict__", ()))
        # (code, the config where all of it is immutable, what was made of the two)
        self._last: tuple[CodeParts, dict[str, Any] | None, Identity] | None = None

    def read(self) -> Identity:
        """Return the identity as it is now.

        Raises:
            CacheConfigError: something cannot be hashed; the message names node and attribute.
            Nameless: there is nothing that could be named.
        """
        if self._roots and type(self._node) is not self._root:  # its __class__ was replaced
            self._look_at_class()
        known = self._read_code()
        parts = known.parts
        last = self._last
        if last is not None and last[0] is parts and self._config_unchanged(last[1]):
            return last[2]
        if self._keys != tuple(getattr(self._node, "__dict__", ())):
            self._look_at_class()
        values = self._config()
        identity = self._build(known, values)
        immutable = all(type(value) in _IMMUTABLE for value in values.values())
        self._last = (parts, values if immutable else None, identity)
        return identity

    def _read_code(self) -> _Known:
        root, known = self._root, self._known
        if known is not None and known.root is root and known.parts.unchanged():
            return known
        for known in (_memo.get(id(root)), _passing.get(id(root))):
            if known is not None and known.root is root and known.parts.unchanged():
                self._known = known
                return known
        try:
            found = self._collect()
        except Unhashable as error:
            raise CacheConfigError(
                f"Node {self._name!r}: {error.path} cannot be hashed: {error.why}. Give the class "
                "a _cache_version, or take it out of the code"
            ) from None
        known = self._known = _Known(root, found)
        with _memo_lock:
            if not is_reachable(root):
                _passing[id(root)] = known
                return known
            _memo[id(root)] = known
            while len(_memo) > _REMEMBERED:
                del _memo[next(iter(_memo))]
        return known

    def _collect(self) -> CodeParts:
        root = self._root
        own = vars(root) if isinstance(root, type) else getattr(root, "__dict__", {})
        version = own.get("_cache_version")
        if version is not None:
            return _by_version(root, version)
        if isinstance(root, types.BuiltinFunctionType) or not self._roots_have_code():
            return _without_code(root, self._name)
        return collect(root, self._roots, self._declared("_cache_depends"))

    def _declared(self, attribute: str) -> tuple[Any, ...]:
        """Return what the class and its bases declare under an attribute, together."""
        found: list[Any] = []
        for owner in self._roots or (self._root,):
            own = getattr(owner, "__dict__", {}).get(attribute, ())
            if not isinstance(own, tuple | list):
                raise CacheConfigError(
                    f"Node {self._name!r}: {attribute} must be a tuple of "
                    f"{_DECLARED[attribute]}, not {shown(own)}"
                )
            found += [one for one in own if not any(one is other for other in found)]
        return tuple(found)

    def _roots_have_code(self) -> bool:
        return isinstance(self._root, types.FunctionType) or any(
            code.is_code(value) for cls in self._roots for value in vars(cls).values()
        )

    def _build(self, known: _Known, values: dict[str, Any]) -> Identity:
        name = qualified_name(self._root)
        code, short = self._code_of(name, known)
        config = blake3(b"config")
        for label, digest in sorted(self._config_parts(values)):
            raw = label.encode("utf-8", "surrogatepass")
            config.update(len(raw).to_bytes(8, "little") + raw + digest)
            short[f"attribute {label}"] = digest[:_SHORT]
        return Identity(
            name=name,
            code=code,
            config=config.hexdigest(),
            parts=types.MappingProxyType(short),
        )

    def _code_of(self, name: str, known: _Known) -> tuple[str, dict[str, bytes]]:
        """Return the hash of the code and its surroundings, and short digests of their parts."""
        wanted = self._declared("_cache_env")
        if not wanted and known.hashed is not None and known.hashed[0] == name:
            return known.hashed[1], known.hashed[2].copy()
        hasher = blake3(b"identity\0" + name.encode("utf-8", "surrogatepass") + b"\0")
        hasher.update(known.parts.digest)
        short = {label: digest[:_SHORT] for label, digest in known.parts.parts.items()}
        for label, digest in self._surroundings(wanted):
            hasher.update(label.encode() + b"\0" + digest)
            short[label] = digest[:_SHORT]
        code = hasher.hexdigest()
        if not wanted:
            known.hashed = name, code, short.copy()
        return code, short

    def _surroundings(self, wanted: tuple[Any, ...]) -> Iterator[tuple[str, bytes]]:
        """Yield the Python version, and the versions that ``_cache_env`` asks for."""
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        yield "python", blake3(python.encode()).digest()
        if not all(isinstance(one, str) for one in wanted):
            raise CacheConfigError(
                f"Node {self._name!r}: _cache_env must be a tuple of {_DECLARED['_cache_env']}, "
                f"not {shown(wanted)}"
            )
        for one in sorted(wanted):
            yield f"version of {one}", blake3(_installed(one).encode()).digest()

    def _config_parts(self, values: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
        for name, value in values.items():
            try:
                yield name, self._digest_of(name, value)
            except Unhashable as error:
                inside = f"at {error.path} " if error.path else ""
                raise CacheConfigError(
                    f"Node {self._name!r}: the attribute {name!r} cannot be hashed: "
                    f"{inside}{error.why}. Prefix its name with '_' if results do not depend on "
                    "it, define __soma_config__(), or register a codec for its type"
                ) from None

    def _config(self) -> dict[str, Any]:
        if isinstance(self._root, types.FunctionType):
            return {}
        if self._is_plain:
            return {name: one for name, one in dict(vars(self._node)).items() if name[:1] != "_"}
        if not self._roots:  # what has no code of its own, such as a partial, is what it holds
            return {"value": self._node}
        try:
            return dict(config_items(self._node))
        except Exception as error:
            error.add_note(f"while the config of node {self._name!r} was read")
            raise

    def _digest_of(self, name: str, value: Any) -> bytes:
        known, parts = self._with_code.get(name, (None, None))
        if parts is not None and known is value and parts.unchanged():
            return parts.digest
        home = module_name(self._root).partition(".")[0]
        canon = Canon(home=home).write(value)
        if not canon.functions and not canon.classes:
            return canon.digest()
        parts = parts_of_attribute(self._root, self._roots, name, value)
        self._with_code[name] = (value, parts)
        return parts.digest

    def _config_unchanged(self, values: dict[str, Any] | None) -> bool:
        if values is None:
            return False
        # A copy: another thread may set an attribute meanwhile.
        now = dict(self._node.__dict__) if self._is_plain else self._config()
        count = 0
        for name, value in now.items():
            if self._is_plain and name[:1] == "_":
                continue
            if values.get(name, self) is not value:
                return False
            count += 1
        return count == len(values)


def _by_version(root: Any, version: Any) -> CodeParts:
    """The first rung of the ladder: the author says when the code is another."""
    if type(version) not in (str, int):
        raise CacheConfigError(
            f"_cache_version of {qualified_name(root)} must be a text or a whole number, "
            f"not {version!r:.80}"
        )
    return parts_of_version(root, "_cache_version", version)


def _without_code(root: Any, name: str) -> CodeParts:
    """The last rung: no Python code, so name and version of the distribution stand for it."""
    version = version_of(root.__module__)
    if not version and not is_foreign(root.__module__):
        raise Nameless(
            f"Node {name!r}: {qualified_name(root)} has no Python code and belongs to no "
            "installed distribution, so nothing says what it does. Give it a _cache_version"
        )
    if is_foreign(root.__module__):
        return parts_of_version(root, "distribution", "of Python")  # whose version counts anyway
    warnings.warn(
        f"{qualified_name(root)} has no Python code; its identity is its name and the "
        f"version of its distribution ({version}). Set _cache_version to say when it changes",
        IdentityWarning,
        stacklevel=5,
    )
    return parts_of_version(root, "distribution", version)


def _installed(dist: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(dist)
    except (PackageNotFoundError, ValueError):  # the latter for a name that is none
        return "(not installed)"
