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
from collections.abc import Iterator, Mapping
from typing import Any

from blake3 import blake3

from soma._notices import tell_once
from soma.errors import CacheConfigError
from soma.identity import code
from soma.identity.canonical import Canon, Unhashable

__all__ = ["CodeParts", "collect", "members_of_mro", "parts_of_attribute", "parts_of_version"]

_MISSING = object()


class CodeParts:
    """The parts of one class or function, as they were found."""

    __slots__ = ("_functions", "_names", "_sizes", "_volatile", "digest", "parts")

    def __init__(self, found: _Collector) -> None:
        self.parts: Mapping[str, bytes] = types.MappingProxyType(dict(sorted(found.parts.items())))
        hasher = blake3()
        for label, digest in self.parts.items():
            raw = label.encode("utf-8", "surrogatepass")
            hasher.update(len(raw).to_bytes(8, "little") + raw + digest)
        self.digest: bytes = hasher.digest()
        self._names = tuple(found.names)
        self._sizes = tuple(found.sizes)
        self._functions = tuple(found.functions)
        self._volatile = tuple(found.volatile)

    def unchanged(self, roots: tuple[type, ...]) -> bool:
        """Say whether everything that was looked at is still what it was."""
        for mapping, name, value in self._names:
            if mapping.get(name, _MISSING) is not value:
                return False
        for mapping, size in self._sizes:
            if len(mapping) != size:
                return False
        for function, its_code, defaults, keywords, inside in self._functions:
            if (
                function.__code__ is not its_code
                or function.__defaults__ is not defaults
                or not (function.__kwdefaults__ is keywords or _same_keywords(function, keywords))
                or (inside is not None and not _same_cells(function, inside))
            ):
                return False
        return not self._volatile or all(
            _digest_again(roots, label, value) == digest for label, value, digest in self._volatile
        )


def collect(root: Any, roots: tuple[type, ...], depends: Any) -> CodeParts:
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
    if not roots:
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
        self.home = sys.modules.get(root.__module__ or "")
        self.parts: dict[str, bytes] = {}
        self.names: list[tuple[Mapping[str, Any], str, Any]] = []
        self.sizes: list[tuple[Mapping[str, Any], int]] = []
        self.functions: list[tuple[Any, Any, Any, Any, Any]] = []
        """(function, its code, defaults, keyword defaults, what its closure holds)"""
        self.volatile: list[tuple[str, Any, bytes]] = []
        self.queue: deque[tuple[dict[str, Any], str]] = deque()
        self.known: set[tuple[int, str]] = set()
        self.watched: set[int] = set()

    def add(self, label: str, value: Any) -> None:
        """Write one part and remember what it was made of."""
        while label in self.parts:  # a class may be derived from one of the same name
            label += " (another)"
        canon = Canon(self.roots)
        canon.write(value, label)
        digest = canon.digest()
        self.parts[label] = digest
        if canon.volatile:
            self.volatile.append((label, value, digest))
        for cls in canon.classes:
            self.watch_class(cls)
        for function in canon.functions:
            self.watch_function(function)

    def add_class(self, cls: type) -> None:
        """Add the attributes of one class, each as a part."""
        self.watch_class(cls)
        of = "" if cls is self.root else f" of {cls.__qualname__}"
        if "__dataclass_fields__" in vars(cls):
            self.add(f"fields{of}", code.dataclass_fields(cls))
        if not code.is_by_name(type(cls)):
            self.add(f"metaclass{of}", type(cls))
        for base in cls.__bases__:
            if base not in self.roots:
                self.add(f"base {base.__qualname__}{of}", base)
        for label, value in code.class_members(cls):
            self.add(f"{label}{of}", value)

    def add_dependency(self, one: Any) -> None:
        """Add what ``_cache_depends`` names."""
        if isinstance(one, types.ModuleType):
            names = vars(one)
            self.sizes.append((names, len(names)))
            for name, value in list(names.items()):
                own = getattr(value, "__module__", one.__name__) == one.__name__
                if not (name.startswith("__") and name.endswith("__")) and own:
                    self.add_name(names, name)
        elif isinstance(one, type) or code.is_code(one):
            self.add(f"dependency {code.qualified_name(one)}", one)
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
        self.names.append((names, name, value))
        if value is _MISSING and name in vars(sys.modules["builtins"]):
            return
        module = str(names.get("__name__"))
        at_home = self.home is not None and names is vars(self.home)
        label = f"global {name}" if at_home else f"global {module}.{name}"
        if value is _MISSING:
            self.add(label, "(missing)")
        elif self._is_elsewhere(value, module):
            self.add(label, ("elsewhere", code.qualified_name(value)))
        else:
            self._add_or_tell(label, value, module)

    def _is_elsewhere(self, value: Any, module: str) -> bool:
        is_definition = isinstance(value, type | types.FunctionType | types.BuiltinFunctionType)
        return is_definition and value not in self.roots and value.__module__ != module

    def _add_or_tell(self, label: str, value: Any, module: str) -> None:
        try:
            self.add(label, value)
        except Unhashable as error:
            cls = f"{type(value).__module__}.{type(value).__qualname__}"
            tell_once(
                ("global", module, label, cls),
                f"{label} of {module}, which {code.qualified_name(self.root)} uses, does not count "
                f"in its identity: {error.why}",
            )
            self.add(label, ("unhashable", cls))

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
        self.names += [(attributes, name, value) for name, value in attributes.items()]

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
            )
        )
        if self._is_followed(function.__module__):
            names = function.__globals__
            self.queue += [(names, name) for name in code.global_names(function)]

    def _is_followed(self, module: str | None) -> bool:
        """Say whether what code of a module names is looked up: not in installed libraries."""
        top = (module or "").partition(".")[0]
        if top == (self.root.__module__ or "").partition(".")[0]:
            return True
        file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
        return not any(part in file for part in ("site-packages", "dist-packages"))


def _same_keywords(function: types.FunctionType, keywords: dict[str, Any] | None) -> bool:
    now = function.__kwdefaults__
    if now is None or keywords is None:
        return False
    return len(now) == len(keywords) and all(
        now.get(name, _MISSING) is value for name, value in keywords.items()
    )


def _same_cells(function: types.FunctionType, inside: tuple[Any, ...]) -> bool:
    cells = function.__closure__ or ()
    return all(_inside(cell) is value for cell, value in zip(cells, inside, strict=True))


def _inside(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _digest_again(roots: tuple[type, ...], label: str, value: Any) -> bytes:
    try:
        return Canon(roots).write(value, label).digest()
    except CacheConfigError:
        return b""


def members_of_mro(cls: type) -> Iterator[type]:
    """Yield the classes whose code is a class's own: its MRO up to Filter, Python's left out."""
    for base in cls.__mro__:
        if not code.is_by_name(base):
            yield base
