"""A value as bytes, wherever it came from: what a session takes and gives.

    object ──pack──► Parcel(form, blob, digest) ──open──► an object of the taker's own

A frame says all of itself and has a hash. What no codec covers travels as a pickle, between
processes of one user on one machine alone, and has none: it is kept nowhere. Large arrays lie in an
anonymous file in both forms, so that only a descriptor has to travel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from soma.engine.blobs import Blob
from soma.errors import CodecError, NotSendable
from soma.frame import Encoded, decode_parts, encode, hash_parts
from soma.pickling import dumps, loads
from soma.values import Opaque

__all__ = ["Parcel", "pack", "parcel_of"]


@dataclass(frozen=True, slots=True)
class Parcel:
    """One value as bytes."""

    form: Literal["frame", "pickle"]
    blob: Blob
    """The frame; or a pickle of protocol 5 as header, and its buffers."""
    digest: str = ""
    """Content hash of the frame, in hexadecimal; empty where it was not taken."""
    pickled: bool = False
    """Whether some of the frame was written with pickle."""
    why: str = ""
    """Of a pickle: why there is no frame."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.blob.nbytes

    def hash(self) -> str:
        """Return the content hash of a frame; empty for a pickle, which has none."""
        if self.digest or self.form == "pickle":
            return self.digest
        header, *buffers = self.blob.parts()
        return hash_parts(header, [memoryview(one) for one in buffers])

    def abroad(self) -> Parcel:
        """Return the value as bytes that another process can read.

        A frame names the class of an Enum and does not hold it, and nobody else has that of a
        script: then it is a pickle, in which the class goes by value.
        """
        if self.form == "pickle" or b"__main__" not in self.blob.header:
            return self
        return _pickled(self.open(), self.why)

    def open(self) -> Any:
        """Return the value as an object of the caller's own.

        Raises:
            CodecError: its codec cannot read it here.
            Exception: whatever unpickling raises.
        """
        header, buffers = self.blob.frame()
        if self.form == "frame":
            return decode_parts(header, buffers, allow_pickle=True)
        return loads(header, buffers)


def parcel_of(encoded: Encoded) -> Parcel:
    """Return the parcel of what was encoded, with its hash where that is known."""
    blob = Blob(encoded.header, encoded.buffers)
    return Parcel("frame", blob, encoded.known_digest, encoded.pickled)


def pack(value: Any, *, hashed: bool = False) -> Parcel:
    """Return a value as bytes: as a frame, or a pickle where no codec covers it.

    Args:
        value: the object; it stays the caller's.
        hashed: take the hash of the frame as well.

    Raises:
        NotSendable: it is, or holds, something that exists in this process alone.
    """
    try:
        encoded = encode(value)
        if hashed:
            encoded.digest  # noqa: B018  # taken now
        return parcel_of(encoded)
    except CodecError as error:
        if type(value) is Opaque:
            raise NotSendable(
                f"it is Opaque, and exists only in the process that made it ({error})"
            ) from None
        return _pickled(value, str(error))


def _pickled(value: Any, why: str) -> Parcel:
    try:
        raw, views = dumps(value)
    except Exception as error:
        name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        raise NotSendable(
            f"nothing says how to write a {name} down, and it cannot be pickled: {error}. "
            "Register a codec: soma.codec(kind, type, dump=..., load=...)"
        ) from error
    return Parcel("pickle", Blob(raw, views), why=why)
