"""One writing for each value, so that what is the same hashes the same, in every process.

Every value is written with its type and its length: 1, 1.0, True and "1" differ, and no two values
have one writing. Members of dicts and sets are put in the order of their own writings. The walk is
iterative: each kind of value is a small generator that yields its parts, and a loop drives them, so
nesting costs no recursion.

Functions and classes are written as code (identity.code). What code has been met in this writing is
written as its position: functions and classes refer to each other in circles.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from blake3 import blake3

from soma.errors import CacheConfigError, MissingCodec, SomaError, describe_error
from soma.identity import writers
from soma.identity.names import is_foreign, is_library

__all__ = ["MAX_NESTING", "Canon", "Step", "Unhashable"]

MAX_NESTING = 1000
"""How deep values may lie in each other, included."""

Step = tuple[str, Any]
"""(where it stands in its container, the value)"""

_SHOWN = 8
"""Steps of a path that a message shows."""


class Unhashable(CacheConfigError):
    """A value without a hash, and the path to it; caught by whoever knows what it belongs to."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class Canon:
    """The writing of one value.

    Args:
        roots: classes that are being described: inside, they are written as their positions.
        home: the package that the node belongs to, whose code is never somebody else's.
        tolerant: write what has no hash by its type, and note it, instead of raising.
    """

    def __init__(
        self, roots: tuple[type, ...] = (), *, home: str = "", tolerant: bool = False
    ) -> None:
        self.out = bytearray()
        self.home = home
        self.tolerant = tolerant
        self.skipped: list[Unhashable] = []
        """What a tolerant writing passed over."""
        self.seen: dict[int, int] = {}
        self.open: dict[int, int] = {}
        """Objects that are being written -> how many were around them."""
        self.kept: list[Any] = []
        """What was met, kept so that no id is used twice."""
        self.volatile = False
        """Whether something was met that may change without becoming another object."""
        self.functions: list[types.FunctionType] = []
        """Functions whose code was written, in order: their names lead to other code."""
        self.classes: list[type] = []
        """Classes whose attributes were written."""
        for root in roots:
            self.mark(root)

    def digest(self) -> bytes:
        """Return the hash of what was written: 32 bytes."""
        return blake3(self.out).digest()

    def emit(self, tag: str, raw: bytes = b"") -> None:
        """Write one atom."""
        self.out += b"%b\0%b" % (tag.encode(), len(raw).to_bytes(8, "little"))
        self.out += raw

    def mark(self, entity: Any) -> bool:
        """Say whether the entity is new here; if it is not, write its position."""
        place = self.seen.get(id(entity))
        if place is not None:
            self.emit("seen", place.to_bytes(8, "little"))
            return False
        self.seen[id(entity)] = len(self.seen)
        self.kept.append(entity)
        return True

    def write(self, value: Any, where: str = "") -> Canon:
        """Write a value and everything in it.

        Raises:
            Unhashable: something in it has no hash; the path starts with ``where``.
        """
        stack: list[tuple[str, Any, Iterator[Step]]] = []
        step: Step | None = (where, value)
        while step is not None or stack:
            try:
                if step is not None:
                    self._begin(step, stack)
                step = self._following(stack)
            except Exception as error:  # noqa: BLE001  # reading an attribute may raise anything
                trouble = _located(error, stack, step)
                if not self.tolerant:
                    raise trouble from None
                self.skipped.append(trouble)
                cls = type(step[1]) if step is not None else object
                self.emit("unhashable", f"{cls.__module__}.{cls.__qualname__}".encode())
                step = None  # what raised is finished; what it was in goes on
        return self

    def _begin(self, step: Step, stack: list[tuple[str, Any, Iterator[Step]]]) -> None:
        label, value = step
        if id(value) in self.open and type(value) in writers.CONTAINERS:
            raise Unhashable("", "it contains itself")
        parts = self._parts(value)
        if parts is not None:
            if len(stack) >= MAX_NESTING:
                raise Unhashable("", f"it nests deeper than {MAX_NESTING} values")
            self.open.setdefault(id(value), len(stack))
            stack.append((label, value, parts))

    def _following(self, stack: list[tuple[str, Any, Iterator[Step]]]) -> Step | None:
        """Return the next value to write, leaving what is finished."""
        while stack:
            step = next(stack[-1][2], None)
            if step is not None:
                return step
            _, value, _ = stack.pop()
            if self.open.get(id(value)) == len(stack):
                del self.open[id(value)]
        return None

    def sub(self, value: Any) -> bytes:
        """Return the writing of a value on its own, for putting members in order."""
        canon = Canon(home=self.home)
        try:
            canon.write(value)
        except RecursionError:
            raise Unhashable("", "sets or keys nest too deep in each other") from None
        self.volatile |= canon.volatile
        self.functions += canon.functions
        self.classes += canon.classes
        self.kept += canon.kept
        return bytes(canon.out)

    def _parts(self, value: Any) -> Iterator[Step] | None:
        """Write what can be written at once; return the parts of what has some."""
        cls = type(value)
        plain = writers.PLAIN.get(cls)
        if plain is not None:
            self.emit(cls.__name__, plain(value))
            return None
        container = writers.CONTAINERS.get(cls)
        if container is not None:
            return container(self, value)
        if cls.__module__ == "numpy" and writers.write_numpy_scalar(self, value):
            return None
        return self._object(value, cls)

    def _object(self, value: Any, cls: type) -> Iterator[Step] | None:
        from soma.identity import code

        written = code.parts_of_code(self, value)
        if written is not None:
            return written
        for fits, write in writers.OBJECTS:
            if fits(value, cls):
                return write(self, value)
        try:
            self.by_frame(value, cls)
        except Unhashable as error:
            module = cls.__module__
            if not self.tolerant or is_foreign(module) or is_library(module, self.home):
                raise
            self.skipped.append(error)
            return writers.configured(self, value)  # of what cannot be hashed whole, what can
        return None

    def by_frame(self, value: Any, cls: type) -> None:
        """Write the content hash: arrays, dates, paths, and whatever has a codec."""
        from soma.frame import encode

        try:
            digest = encode(value).digest
        except MissingCodec as error:
            where, _, what = str(error).partition(" is a ")
            what = what.partition(",")[0] or f"{cls.__module__}.{cls.__qualname__}"
            inside = where.removeprefix("value") if where.startswith("value") else ""
            raise Unhashable(inside, f"it is a {what}, which has no hash") from None
        top = cls.__module__.partition(".")[0]
        is_scalar = top == "numpy" and cls.__name__ not in ("ndarray", "void", "memmap")
        if top not in _FIXED_TYPES and not is_scalar:
            self.volatile = True
        self.emit("content", bytes.fromhex(digest))


_FIXED_TYPES = frozenset({"datetime", "decimal", "pathlib", "uuid", "zoneinfo"})
"""Modules whose values never change."""


def _located(
    error: Exception, stack: list[tuple[str, Any, Iterator[Step]]], step: Step | None
) -> Unhashable:
    """Say where in the whole value the trouble lies."""
    labels = [label for label, _, _ in stack]
    if step is not None and (not stack or stack[-1][1] is not step[1]):
        labels.append(step[0])
    if len(labels) > _SHOWN:
        labels = [*labels[:_SHOWN], "..."]
    path = "".join(labels)
    if isinstance(error, Unhashable):
        return Unhashable(path + error.path, error.why)
    if isinstance(error, SomaError):
        return Unhashable(path, str(error))
    return Unhashable(path, f"reading it raised {describe_error(error)}")
