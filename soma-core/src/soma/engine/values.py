"""A value on an edge: a content hash, and ways to get the object.

    in hand          the producer's object, or the caller's; or its bytes, from another process
    read             the store has its blob
    recompute        its producer is asked again (engine/recompute.py)

Keys need only the hash, so where everything hits no object is ever made. The rule of ownership: an
object that is handed to user code is nobody else's. The last taker of an output gets the
producer's object, earlier ones a private copy; the caller's own objects are copied for everybody.
What cannot be written down, or is wrapped in Opaque, cannot be copied either and goes to everybody
as it is.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from soma._notices import tell_once
from soma.contracts import ActionStore, Frame
from soma.engine.blobs import MAP_FROM, private_frame
from soma.engine.parcels import Parcel, pack, parcel_of
from soma.errors import CodecError, FrameError, describe_error
from soma.frame import Encoded, decode_parts, encode
from soma.values import Opaque

__all__ = [
    "IMMUTABLE",
    "NOT_IN_HAND",
    "VirtualValue",
    "is_found_by_hash",
    "is_plain_array",
    "private_copy",
    "read_frame",
    "read_value",
    "shared_parcel",
]

IMMUTABLE = frozenset({type(None), bool, int, float, complex, str, bytes, type(...), range})
"""Types whose objects may be shared by everybody."""

NOT_IN_HAND: Any = object()


class VirtualValue:
    """One value of one run.

    Args:
        found: the object; ``NOT_IN_HAND`` where only its hash is known.
        digest: its content hash; empty where it is not known, or cannot be.
        nbytes: size of its frame; 0 where not known.
        uses: how many takers there may be.
        owned: False for an object of the caller's, which nobody may be handed.
        sticky: keep the object although every taker was served.
        basis: what it was made from: the key of its action, or a hash of what that would be; empty
            where that has no hash.
        kept_by: the store that has its blob.
        parcel: its bytes, where another process has made it.
    """

    __slots__ = (
        "_lock",
        "_object",
        "_opaque",
        "_parcel",
        "basis",
        "digest",
        "kept_by",
        "nbytes",
        "owned",
        "sticky",
        "unhashable",
        "uses",
    )

    def __init__(
        self,
        found: Any,
        *,
        digest: str = "",
        nbytes: int = 0,
        uses: int = 1,
        owned: bool = True,
        sticky: bool = False,
        basis: str = "",
        kept_by: ActionStore | None = None,
        parcel: Parcel | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._opaque = type(found) is Opaque
        self._object = found
        self._parcel = parcel
        self.digest = digest
        self.nbytes = nbytes
        self.uses = uses
        self.owned = owned
        self.sticky = sticky
        self.basis = basis
        self.kept_by = kept_by
        self.unhashable = parcel is not None and parcel.form == "pickle"
        """Whether it is known that nothing says how to write it down."""

    @property
    def in_hand(self) -> bool:
        """Whether the object is here, or its bytes are."""
        return self._object is not NOT_IN_HAND or self._parcel is not None

    @property
    def parcel(self) -> Parcel | None:
        """Its bytes, where they are here."""
        return self._parcel

    def hash(self) -> str:
        """Return the content hash; empty if it has none. The object must not have been taken."""
        with self._lock:
            if not self.digest and not self.unhashable:
                if self._parcel is not None:
                    self.digest = self._parcel.hash()
                    return self.digest
                try:
                    encoded = encode(self._object)
                    self.nbytes = encoded.nbytes
                    self.digest = encoded.digest
                except CodecError:
                    self.unhashable = True
            return self.digest

    def type_name(self) -> str:
        """Return the name of the object's class, for messages."""
        inner = self._object.value if self._opaque else self._object
        return f"{type(inner).__module__}.{type(inner).__qualname__}".removeprefix("builtins.")

    def give(self, found: Any) -> None:
        """Put the object in hand again: it was read or recomputed, and belongs to nobody yet."""
        with self._lock:
            self._opaque = type(found) is Opaque
            self._object = found

    def give_packed(self, parcel: Parcel) -> None:
        """Put its bytes in hand again."""
        with self._lock:
            self._parcel = parcel

    def take_over(self, other: VirtualValue) -> None:
        """Put what another has in hand here: it is the same value, and the other is done with."""
        with self._lock:
            self._opaque = other._opaque
            self._object = other._object
            self._parcel = other._parcel

    def take(self) -> Any:
        """Return the object for one of the takers. It must be in hand."""
        with self._lock:
            self.uses -= 1
            return self._hand_out()

    def take_packed(self) -> Parcel:
        """Return the bytes for one of the takers, who is in another process.

        Raises:
            NotSendable: it exists in this process alone.
        """
        with self._lock:
            self.uses -= 1
            found = self._packed()
            self._drop_if_done()
            return found

    def peek_packed(self) -> Parcel:
        """Return the bytes for somebody who was not counted.

        Raises:
            NotSendable: it exists in this process alone.
        """
        with self._lock:
            return self._packed()

    def take_beside(self) -> Any:
        """Return a copy for somebody who was not counted. Only of what stays in hand."""
        with self._lock:
            return self._hand_out()

    def peek(self) -> Any:
        """Return the object as it stands here, for who only looks at it."""
        with self._lock:
            if self._object is NOT_IN_HAND and self._parcel is not None:
                self._object = self._parcel.open()
            return self._object

    def let_go(self, uses: int = 1) -> None:
        """So many of the takers do not need it; below 0: there are so many more."""
        with self._lock:
            self.uses -= uses
            self._drop_if_done()

    def _hand_out(self) -> Any:
        found = self._object
        if found is NOT_IN_HAND and self._parcel is not None:
            result = self._parcel.open()
        elif type(found) in IMMUTABLE:
            result = found
        elif self._opaque:
            result = found.value
        elif self.owned and self.uses <= 0 and not self.sticky:
            result = found
        else:
            result = self._copy(found)
        self._drop_if_done()
        return result

    def _drop_if_done(self) -> None:
        if self.uses <= 0 and not self.sticky:
            self._object = NOT_IN_HAND
            self._parcel = None

    def _copy(self, found: Any) -> Any:
        if self.kept_by is not None and self.nbytes >= MAP_FROM:
            kept = read_value(self.kept_by, self.digest)
            if kept is not NOT_IN_HAND:
                return kept
        if self._parcel is None:
            if self.uses < 1 or (self.nbytes and self.nbytes < MAP_FROM):
                return private_copy(found)
            try:
                encoded = encode(found)
            except CodecError:
                return found
            if encoded.nbytes < MAP_FROM:
                return _copy_of(encoded, found)
            self._parcel = parcel_of(encoded)
        if self._parcel.form == "pickle":
            return found
        again = _decoded_or_gone(*self._parcel.blob.frame())
        return found if again is NOT_IN_HAND else again

    def _packed(self) -> Parcel:
        if self._parcel is None and self.kept_by is not None:
            self._parcel = shared_parcel(self.kept_by, self.digest)
        if self._parcel is None:
            self._parcel = replace(pack(self._object), digest=self.digest)
        return self._parcel


def is_found_by_hash(store: ActionStore, digest: str, nbytes: int) -> bool:
    """Say whether another process that has the same store finds a blob by its hash alone.

    One that lies in a record is found by who looks the record up.
    """
    in_record: int = getattr(store, "inline_bytes", 0)
    return nbytes > in_record and store.has(digest)


def shared_parcel(store: ActionStore, digest: str) -> Parcel | None:
    """Return the bytes that a store in memory has, as they lie there; None where it has none."""
    share = getattr(store, "share", None)
    blob = share(digest) if share is not None else None
    return None if blob is None else Parcel("frame", blob, digest)


def is_plain_array(found: Any) -> bool:
    """Say whether copying an array gives an array that cannot be told from it."""
    if not _is_array(found):
        return False
    flags = found.flags
    contiguous = flags.c_contiguous or flags.f_contiguous
    return bool(contiguous and flags.writeable and flags.aligned)


def _is_array(found: Any) -> bool:
    """Say whether it is a numpy array of values; without importing numpy."""
    cls = type(found)
    return cls.__name__ == "ndarray" and cls.__module__ == "numpy" and not found.dtype.hasobject


def private_copy(found: Any) -> Any:
    """Return an object that shares nothing with this one; itself where that cannot be."""
    cls = type(found)
    if cls in IMMUTABLE:
        return found
    if cls is Opaque:
        return found.value
    if _is_array(found):
        flags = found.flags
        return found.copy(order="F" if flags.f_contiguous and not flags.c_contiguous else "C")
    try:
        return _copy_of(encode(found), found)
    except CodecError:
        return found


def _copy_of(encoded: Encoded, found: Any) -> Any:
    again = _decoded_or_gone(*private_frame(encoded.header, encoded.buffers))
    return found if again is NOT_IN_HAND else again


def read_frame(store: ActionStore, digest: str) -> Frame | None:
    """Return a frame that belongs to the caller; None where it is gone or the store fails."""
    try:
        return store.read(digest)
    except Exception as error:  # noqa: BLE001  # nothing kept is worth a failed run
        text = describe_error(error)
        tell_once(
            ("read", text), f"the cache cannot be read, so what it kept is made again: {text}"
        )
        return None


def read_value(store: ActionStore, digest: str) -> Any:
    """Return the value of a blob as an object of its own; ``NOT_IN_HAND`` where it is gone."""
    frame = read_frame(store, digest)
    if frame is None:
        return NOT_IN_HAND
    header, buffers = bytes(frame[0]), frame[1]
    if buffers or len(header) > _SMALL_BYTES:
        return _decoded_or_gone(header, buffers)
    found = _small.get(header, NOT_IN_HAND)
    if found is NOT_IN_HAND:
        found = _decoded_or_gone(header, buffers)
        if type(found) in IMMUTABLE:
            if len(_small) >= _SMALL_COUNT:
                _small.clear()
            _small[header] = found
    return found


_SMALL_BYTES = 256
_SMALL_COUNT = 1 << 15
_small: dict[bytes, Any] = {}
"""Frame -> the object in it, for small ones that may be shared by everybody."""


def _decoded_or_gone(header: bytes, buffers: Any) -> Any:
    """Return the value of a frame; ``NOT_IN_HAND``, and a line, where its codec fails."""
    try:
        return _decoded(header, buffers)
    except (CodecError, FrameError) as error:
        tell_once(("read", str(error)), f"what was kept cannot be read, and is made again: {error}")
        return NOT_IN_HAND


def _decoded(header: bytes, buffers: Any) -> Any:
    return decode_parts(header, buffers, allow_pickle=True)
