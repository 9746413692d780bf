"""The code identity of a class or function, part by part, and a memo that notices changes.

    class ──► its methods and attributes, over its bases up to Filter ──┐
                                                                        ├──► names in their modules
    _cache_depends ─────────────────────────────────────────────────────┘

Each method, attribute and named global is one part with a digest of its own, so that a later look
can tell which of them changed, and so that code that is named by many is written once.

The memo holds the objects it found and compares them with ``is`` at every run; what may change
without becoming another object (a list, an array) is hashed again. So a helper that is rebound in a
notebook counts at once, and an unchanged class costs microseconds.
"""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from blake3 import blake3

from soma._notices import tell_once
from soma.errors import CacheConfigError
from soma.identity import code
from soma.identity.canonical import Canon, Unhashable
from soma.identity.names import (
    is_foreign,
    is_library,
    is_reachable,
    module_name,
    qualified_name,
    version_of,
)

__all__ = ["CodeParts", "collect", "members_of_mro", "parts_of_attribute", "parts_of_version"]

_MISSING = object()


class CodeParts:
    """The parts of one class or function, as they were found."""

    __slots__ = ("_again", "_bases", "_functions", "_names", "_sizes", "_texts", "digest", "parts")

    def __init__(self, found: _Collector) -> None:
        self.parts: Mapping[str, bytes] = types.MappingProxyType(dict(sorted(found.parts.items())))
        hasher = blake3()
        for label, digest in self.parts.items():
            raw = label.encode("utf-8", "surrogatepass")
            hasher.update(len(raw).to_bytes(8, "little") + raw + digest)
        self.digest: bytes = hasher.digest()
        self._names = tuple(found.names)
        self._sizes = tuple(found.sizes)
        self._bases = tuple(found.bases)
        self._functions = tuple(found.functions)
        self._texts = tuple(found.texts)
        self._again = tuple(found.again)

    def unchanged(self) -> bool:
        """Say whether everything that was looked at is still what it was."""
        for mapping, name, value in self._names:
            if mapping.get(name, _MISSING) is not value:
                return False
        for mapping, size in self._sizes:
            if len(mapping) != size:
                return False
        for cls, bases in self._bases:
            if cls.__bases__ is not bases:
                return False
        for function, its_code, defaults, keywords, inside, attributes in self._functions:
            if (
                function.__code__ is not its_code
                or function.__defaults__ is not defaults
                or not (function.__kwdefaults__ is keywords or _same_keywords(function, keywords))
                or (inside is not None and not _same_cells(function, inside))
                or (function.__dict__ and not _same_items(function.__dict__, attributes))
                or len(function.__dict__) != len(attributes)
            ):
                return False
        return all(tuple(one) == items for one, items in self._texts) and all(
            again() == digest for again, digest in self._again
        )


def collect(root: Any, roots: tuple[type, ...], depends: tuple[Any, ...]) -> CodeParts:
    """Collect the parts of a class or function.

    Args:
        root: the class or function.
        roots: the classes whose code is its own: the MRO up to Filter, empty for a function.
        depends: its ``_cache_depends``: functions, classes and modules that count with it.

    Raises:
        CacheConfigError: something that has to count cannot be hashed; the message names it.
    """
    collector = _Collector(root, roots)
    for cls in roots:
        collector.add_class(cls)
    if roots:
        order = tuple(qualified_name(base) for base in root.__mro__)
        collector.add("order of bases", order)
    else:
        collector.add(f"function {root.__qualname__}", root)
        collector.watch_version()
    for one in depends:
        collector.add_dependency(one)
    collector.follow()
    return CodeParts(collector)


def parts_of_version(root: Any, label: str, value: Any) -> CodeParts:
    """Return parts that consist of one value: a version in the place of code."""
    collector = _Collector(root, ())
    collector.add(label, value)
    if isinstance(root, type):
        collector.watch_class(root)
    else:
        collector.watch_version()
    return CodeParts(collector)


def parts_of_attribute(root: Any, roots: tuple[type, ...], label: str, value: Any) -> CodeParts:
    """Return the parts of a value that has code in it, with the names that the code leads to."""
    collector = _Collector(root, roots)
    collector.add(label, value)
    collector.follow()
    return CodeParts(collector)


class _Collector:
    def __init__(self, root: Any, roots: tuple[type, ...]) -> None:
        self.root = root
        self.roots = roots
        self.module = module_name(root)
        self.home = self.module.partition(".")[0]
        self.parts: dict[str, bytes] = {}
        self.names: list[tuple[Mapping[str, Any], str, Any]] = []
        self.sizes: list[tuple[Mapping[str, Any], int]] = []
        self.bases: list[tuple[type, tuple[type, ...]]] = []
        self.functions: list[tuple[Any, Any, Any, Any, Any, Any]] = []
        """(function, its code, defaults, keyword defaults, what its closure holds, attributes)"""
        self.texts: list[tuple[Any, tuple[Any, ...]]] = []
        """(a list that was read, what was in it)"""
        self.again: list[tuple[Callable[[], bytes], bytes]] = []
        """(what hashes something anew that may change in place, the hash it had)"""
        self.queue: deque[tuple[dict[str, Any], str]] = deque()
        self.known: set[tuple[int, str]] = set()
        self.watched: set[int] = set()

    def add(
        self,
        label: str,
        value: Any,
        *,
        tolerant: bool = False,
        now: Callable[[], Any] | None = None,
    ) -> Canon:
        """Write one part and remember what it was made of.

        Args:
            label: what the part is called.
            value: what it consists of.
            tolerant: pass over what has no hash.
            now: returns the value as it is later; None where it stays the same object.
        """
        while label in self.parts:  # a class may be derived from one of the same name
            label += " (another)"
        canon = Canon(self.roots, home=self.home, tolerant=tolerant).write(value, label)
        digest = canon.digest()
        self.parts[label] = digest
        if canon.volatile:
            latest = now if now is not None else partial(_itself, value)
            again = partial(_digest_again, self.roots, self.home, latest, tolerant=tolerant)
            self.again.append((again, digest))
        for cls in canon.classes:
            self.watch_class(cls)
        for function in canon.functions:
            self.watch_function(function)
        return canon

    def add_class(self, cls: type) -> None:
        """Add the attributes of one class, each as a part."""
        self.watch_class(cls)
        of = "" if cls is self.root else f" of {cls.__qualname__}"
        library = is_library(cls.__module__, self.home)
        if "_cache_version" in vars(cls):  # a base that says itself when it is another
            self.add(f"_cache_version{of}", vars(cls)["_cache_version"])
            return
        if "__dataclass_fields__" in vars(cls):
            self.add(f"fields{of}", code.dataclass_fields(cls))
        if not code.is_by_name(type(cls)):
            self.add(f"metaclass{of}", type(cls))
        for base in cls.__bases__:
            if base not in self.roots:
                self.add(f"base {base.__qualname__}{of}", base)
        for label, value in code.class_members(cls):
            try:
                self.add(f"{label}{of}", value)
            except Unhashable:
                if not library:
                    raise
                # Somebody else's base class: its version has to stand for what has no hash.
                version = version_of(cls.__module__)
                self.add(f"{label}{of}", ("version", version))

    def add_dependency(self, one: Any) -> None:
        """Add what ``_cache_depends`` names."""
        if isinstance(one, types.ModuleType):
            names = vars(one)
            self.sizes.append((names, len(names)))
            for name in list(code.module_members(one)):
                self.add_name(names, name)
        elif isinstance(one, type) or code.is_code(one):
            self.add(f"dependency {qualified_name(one)}", one)
        else:
            raise CacheConfigError(
                f"_cache_depends of {self.root.__qualname__} holds {one!r:.80}; it takes "
                "functions, classes and modules"
            )

    def follow(self) -> None:
        """Add every name that is still to be looked up, and those that it leads to."""
        while self.queue:
            self.add_name(*self.queue.popleft())

    def add_name(self, names: dict[str, Any], name: str) -> None:
        """Add one name of a module."""
        if (id(names), name) in self.known:
            return
        self.known.add((id(names), name))
        value = names.get(name, _MISSING)
        if value is _MISSING and name in vars(sys.modules["builtins"]):
            self.names.append((names, name, value))
            return
        module = str(names.get("__name__"))
        module = "__main__" if module == "__mp_main__" else module
        # By name: code that came by value from another process has a namespace of its own.
        label = f"global {name}" if module == self.module else f"global {module}.{name}"
        if value is _MISSING:
            self.names.append((names, name, value))
            self.add(label, "(missing)")
        elif self._is_elsewhere(value, names):
            self.names.append((names, name, value))
            self.add(label, ("elsewhere", qualified_name(value)))
        else:
            self._add_value(label, names, name, value)

    def _add_value(self, label: str, names: dict[str, Any], name: str, value: Any) -> None:
        module = str(names.get("__name__"))
        canon = self.add(label, value, tolerant=True, now=partial(names.get, name, _MISSING))
        if not canon.volatile:
            self.names.append((names, name, value))  # what is hashed anew need not be held
        for trouble in canon.skipped:
            what = f"{trouble.path or label} in {module}, which {qualified_name(self.root)} uses"
            tell_once(
                ("global", module, name, trouble.path, trouble.why),
                f"{what}, does not count in its identity: {trouble.why}",
            )

    def _is_elsewhere(self, value: Any, names: dict[str, Any]) -> bool:
        """Say whether a value is a definition of another module, which its name leads to."""
        if isinstance(value, types.FunctionType):
            own = (
                value.__globals__ is names or value.__globals__.get("__name__") != value.__module__
            )
        elif isinstance(value, type):
            own = value in self.roots or value.__module__ == names.get("__name__")
        elif isinstance(value, types.BuiltinFunctionType):
            own = not isinstance(value.__self__, types.ModuleType | None)
        else:
            return False
        return not own and is_reachable(value)

    def watch_version(self) -> None:
        """Notice a ``_cache_version`` that a function is given, or given anew."""
        attributes = getattr(self.root, "__dict__", {})
        version = attributes.get("_cache_version", _MISSING)
        self.names.append((attributes, "_cache_version", version))

    def watch_class(self, cls: type) -> None:
        if id(cls) in self.watched:
            return
        self.watched.add(id(cls))
        attributes = vars(cls)
        self.sizes.append((attributes, len(attributes)))
        self.bases.append((cls, cls.__bases__))
        self.names += [(attributes, name, value) for name, value in attributes.items()]
        depends = attributes.get("_cache_depends")
        if isinstance(depends, list):
            self.texts.append((depends, tuple(depends)))

    def watch_function(self, function: types.FunctionType) -> None:
        if id(function) in self.watched:
            return
        self.watched.add(id(function))
        keywords = function.__kwdefaults__
        closure = function.__closure__
        self.functions.append(
            (
                function,
                function.__code__,
                function.__defaults__,
                dict(keywords) if keywords is not None else None,
                tuple(map(_inside, closure)) if closure is not None else None,
                dict(function.__dict__),
            )
        )
        names = function.__globals__
        # Where it lives, not where it says: a wrapper takes over the name of what it wraps.
        if self._is_followed(names.get("__name__")):
            self.queue += [(names, name) for name in code.global_names(function)]

    def _is_followed(self, module: str | None) -> bool:
        """Say whether what code of a module names is looked up: not in installed libraries."""
        return not is_library(module, self.home) and not is_foreign(module)


def _itself(value: Any) -> Any:
    return value


def _same_keywords(function: types.FunctionType, keywords: dict[str, Any] | None) -> bool:
    now = function.__kwdefaults__
    if now is None or keywords is None:
        return False
    return len(now) == len(keywords) and _same_items(now, keywords)


def _same_items(now: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    return all(now.get(name, _MISSING) is value for name, value in before.items())


def _same_cells(function: types.FunctionType, inside: tuple[Any, ...]) -> bool:
    cells = function.__closure__ or ()
    return all(_inside(cell) is value for cell, value in zip(cells, inside, strict=True))


def _inside(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _digest_again(
    roots: tuple[type, ...], home: str, latest: Callable[[], Any], *, tolerant: bool
) -> bytes:
    try:
        return Canon(roots, home=home, tolerant=tolerant).write(latest()).digest()
    except CacheConfigError:
        return b""


def members_of_mro(cls: type) -> Iterator[type]:
    """Yield the classes whose code is a class's own: its MRO up to Filter, Python's left out."""
    for base in cls.__mro__:
        if not code.is_by_name(base):
            yield base
