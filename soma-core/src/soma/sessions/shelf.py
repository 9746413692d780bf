"""What was put into a session, and what a reference to it stands for.

    put(value) ──► Ref ──► rows(a, b) ──► Rows
                     └───────────┴── find ──► Found: which value, which rows, its hash

Values are held as bytes that nobody else has, and opened anew for every call. Rows are cut where
the call runs: a session in another process sends digest, start and stop, and ``take_rows`` is
called there. What they are called in keys is made of the hash of the whole, and not of what is cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from soma._numbers import whole_number
from soma.contracts import DataRef, Ref, Rows
from soma.engine.keys import rows_hash
from soma.engine.parcels import Parcel, pack, parcel_of
from soma.errors import InvalidInput, shown
from soma.frame import encode
from soma.sessions.capabilities import missing

__all__ = ["Found", "Shelf", "cut", "rows_of", "take_rows"]


@dataclass(frozen=True, slots=True)
class Found:
    """What a reference stands for: a value that was put, or some rows of it."""

    parcel: Parcel
    """The whole value, with its digest."""
    start: int | None = None
    """First row, included; None for the whole."""
    stop: int | None = None
    """Last row, excluded; None for the whole."""
    rows: int = 0
    """How many rows that are; 0 for what has none."""

    @property
    def digest(self) -> str:
        """The hash that stands for it in keys; of the whole it is the content hash."""
        if self.start is None or self.stop is None:
            return self.parcel.digest
        return rows_hash(self.parcel.digest, self.start, self.stop)

    def packed(self) -> Parcel:
        """Return it as bytes, under its digest: what the engine takes for an x or a y."""
        if self.start is None or self.stop is None:
            return self.parcel
        return take_rows(self.parcel, self.start, self.stop)

    def open(self) -> Any:
        """Return it as an object of the caller's own."""
        return cut(self.parcel.open(), self.start, self.stop)


class Shelf:
    """The values that were put into one session.

    Args:
        session: the id of the session.
        name: what messages call it.
        capabilities: what it can do.
    """

    def __init__(self, session: str, name: str, capabilities: frozenset[str]) -> None:
        self._session = session
        self._name = name
        self._capabilities = capabilities
        self._held: dict[str, tuple[Parcel, int | None]] = {}

    def put(self, value: Any) -> Ref:
        """Hold a value, and return what stands for it in a call. The object stays the caller's.

        Raises:
            CodecError: nothing says how to write it down.
        """
        encoded = encode(value)
        digest = encoded.digest
        if digest not in self._held:
            self._held[digest] = (parcel_of(encoded), rows_of(value))
        return Ref(session=self._session, digest=digest)

    def find(self, given: Any, what: str) -> Found | None:
        """Return what a reference stands for; None where it is a plain value.

        Args:
            given: an x, a y or a state.
            what: which of them, for messages: ``"x"``.

        Raises:
            InvalidInput: it belongs to another session, is not here, or has no such rows.
            MissingCapability: it lies in a data store, which this session does not read.
        """
        if isinstance(given, Rows):
            parcel, rows = self._kept(given.source, what)
            start, stop = _checked(given, rows, what)
            return Found(parcel, start, stop, rows=stop - start)
        if isinstance(given, Ref):
            parcel, rows = self._kept(given, what)
            return Found(parcel, rows=rows or 0)
        if isinstance(given, DataRef):
            raise missing(self._name, f"{what}=DataRef({given.key!r})", "data", self._capabilities)
        return None

    def open(self, given: Any, what: str) -> Any:
        """Return the object that a reference stands for; a plain value as it is.

        Raises:
            InvalidInput: as ``find``.
            MissingCapability: as ``find``.
        """
        found = self.find(given, what)
        return given if found is None else found.open()

    def clear(self) -> None:
        """Let go of everything."""
        self._held.clear()

    def _kept(self, ref: Any, what: str) -> tuple[Parcel, int | None]:
        if not isinstance(ref, Ref):
            raise InvalidInput(f"{what}: Rows are rows of a Ref, not of {shown(ref)}")
        if ref.session != self._session:
            raise InvalidInput(
                f"{what} is a Ref of another session ({ref.session}), and this is session "
                f"{self._name!r} ({self._session}). What is put into a session stays there: put "
                "the value into this one as well"
            )
        kept = self._held.get(ref.digest)
        if kept is None:
            raise InvalidInput(
                f"{what} is a Ref to {ref.digest[:12]}..., which was not put into session "
                f"{self._name!r}: a Ref is what put(value) returns"
            )
        return kept


def rows_of(value: Any) -> int | None:
    """Return the length of the first axis; None for what has no rows that could be cut."""
    if type(value) is list:
        return len(value)
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape and isinstance(shape[0], int):
        return shape[0]
    return None


def cut(value: Any, start: int | None, stop: int | None) -> Any:
    """Return rows of a value, along its first axis; the whole where either bound is None."""
    if start is None or stop is None:
        return value
    by_position = getattr(value, "iloc", None)  # a table's own [a:b] may go by labels
    return (value if by_position is None else by_position)[start:stop]


def take_rows(parcel: Parcel, start: int, stop: int) -> Parcel:
    """Return rows of a value as bytes; their digest is what rows of it are called in keys."""
    rows = pack(cut(parcel.open(), start, stop))
    return replace(rows, digest=rows_hash(parcel.digest, start, stop))


def _checked(given: Rows, rows: int | None, what: str) -> tuple[int, int]:
    """Return start and stop, which lie in the value."""
    if rows is None:
        raise InvalidInput(
            f"{what}: rows {shown(given.start)} to {shown(given.stop)} of a value without rows. "
            "Rows are cut from arrays, tables and lists, along the first axis"
        )
    start, stop = whole_number(given.start), whole_number(given.stop)
    if start is None or stop is None or not 0 <= start <= stop <= rows:
        raise InvalidInput(
            f"{what}: rows {shown(given.start)} to {shown(given.stop)} do not lie in the value, "
            f"which has rows 0 to {rows} (the last excluded)"
        )
    return start, stop
