"""What a node has learned, as the graph keeps it.

Held as a frame, so that every forward gets an object of its own and nobody can change what was
learned. A frame that a store holds as well is read from there while it can be, and outlives the
store's copy. A state that cannot be written down is held as it is.

The surprise: a frame that came from a store may be a map of its file. Where the file is written to
afterwards, the map shows what is there now, and where it is cut, looking at the map ends the
process. So what is held is looked at again before it is used without the store.
"""

from __future__ import annotations

import errno
import mmap
import weakref
from collections.abc import Iterator
from typing import Any

from soma._notices import tell_once
from soma.contracts import ActionStore, Frame
from soma.engine.blobs import Blob, private_frame
from soma.engine.parcels import Parcel, pack
from soma.engine.values import read_frame, shared_parcel
from soma.errors import CodecError, FrameError, NotFittedError
from soma.frame import Encoded, decode_parts, encode, hash_parts, names_codec
from soma.values import Opaque

__all__ = ["NodeState", "StateGone"]


class StateGone(NotFittedError):
    """A state that a run has made is needed again in it, and is gone: a signal to make it again."""


class _Stored:
    """A frame that a store holds, and that stays here when the store lets it go."""

    __slots__ = ("_digest", "_held", "store")

    def __init__(self, store: ActionStore, digest: str, frame: Frame) -> None:
        self.store = store
        self._digest = digest
        self._held: Frame | Blob = frame

    def frame(self) -> Frame:
        found = read_frame(self.store, self._digest)
        if found is not None:
            return found
        held = self._held
        if not isinstance(held, Blob):
            if all(type(one) in _OURS for one in _memory_of(held)):
                return private_frame(*held)
            held = self._held = self._rescued(held)  # once: from here on it lies in our memory
        return held.frame()

    def _rescued(self, frame: Frame) -> Blob:
        """Return a copy of what lies in memory that others can change, if it is right still.

        Raises:
            StateGone: it was changed.
        """
        if not all(_is_there(one) for one in _memory_of(frame)):
            raise StateGone(self._digest)
        copy = Blob(bytes(frame[0]), frame[1])
        header, *buffers = copy.parts()
        if hash_parts(header, [memoryview(one) for one in buffers]) != self._digest:
            raise StateGone(self._digest)
        return copy


_OURS = (bytes, bytearray)
"""Memory of this process, which nobody else changes."""


def _memory_of(frame: Frame) -> Iterator[Any]:
    """Yield the objects whose memory a frame lies in. None of it is looked at."""
    for one in (frame[0], *frame[1]):
        yield one.obj if isinstance(one, memoryview) else one


def _is_there(memory: Any) -> bool:
    """Say whether memory can be looked at: a map reaches no further than its file, as it is now."""
    if not isinstance(memory, mmap.mmap):
        return True
    try:
        return memory.size() >= len(memory)
    except OSError as error:
        return error.errno == errno.EBADF  # it is of no file; else the file cannot be asked
    except ValueError:  # it has kept nothing of its file
        return False


class _Recalled:
    """A frame that only a store holds."""

    __slots__ = ("_digest", "store")

    def __init__(self, store: ActionStore, digest: str) -> None:
        self.store = store
        self._digest = digest

    def frame(self) -> Frame:
        found = read_frame(self.store, self._digest)
        if found is None:
            raise StateGone(self._digest)
        return found


class NodeState:
    """One state. Made by the functions below.

    Args:
        digest: its content hash; empty where it has none.
        source: its frame, where it has one.
        found: the object itself, where it has no frame.
        loaded: it was put there by the user, and is what the next fit goes on from.
        shown: False where a fit returned None: what it learned is not in it.
    """

    __slots__ = ("_maker", "_node", "_object", "_source", "digest", "loaded", "shown")

    def __init__(
        self,
        digest: str,
        source: Blob | _Stored | _Recalled | None,
        found: Any = None,
        *,
        loaded: bool = False,
        shown: bool = True,
    ) -> None:
        self.digest = digest
        self._source = source
        self._object = found
        self._node = ""
        self._maker: weakref.ref[object] | None = None
        self.loaded = loaded
        self.shown = shown

    @classmethod
    def of(cls, found: Any, *, loaded: bool = False) -> NodeState:
        """Return the state that an object is. The object stays the caller's."""
        try:
            return cls.framed(encode(found), loaded=loaded)
        except CodecError:
            return cls.as_is(found, loaded=loaded)

    @classmethod
    def framed(cls, encoded: Encoded, *, loaded: bool = False) -> NodeState:
        """Return the state that was encoded. It is hashed when its hash is first asked for."""
        made = cls("", Blob(encoded.header, encoded.buffers), loaded=loaded)
        made.digest = encoded.known_digest
        return made

    @classmethod
    def packed(cls, parcel: Parcel, *, loaded: bool = False) -> NodeState:
        """Return the state that another process has made."""
        if parcel.form == "pickle":
            return cls.as_is(parcel.open(), loaded=loaded)
        return cls(parcel.digest, parcel.blob, loaded=loaded)

    @classmethod
    def as_is(cls, found: Any, *, loaded: bool = False) -> NodeState:
        """Return the state that an object is which nothing says how to write down."""
        return cls("", None, found, loaded=loaded)

    @classmethod
    def stored(cls, store: ActionStore, digest: str) -> NodeState | None:
        """Return the state that a store holds; None where it is gone."""
        frame = read_frame(store, digest)
        if frame is None:
            return None
        state = cls(digest, _Stored(store, digest, frame))
        return state if not names_codec(bytes(frame[0])) or state.can_be_read() else None

    @classmethod
    def unshown(cls, found: Any) -> NodeState:
        """Return the state of a fit that has kept what it learned to itself."""
        return cls("", None, found, shown=False)

    def recalled(self) -> NodeState:
        """Return the same state without what a store holds as well; itself where none does.

        Taking it raises ``StateGone`` where the store has let it go by then.
        """
        if not isinstance(self._source, _Stored):
            return self
        return NodeState(self.digest, _Recalled(self._source.store, self.digest))

    def settle(self, node: str, maker: object = None) -> None:
        """Say whose state it is, before it is taken.

        Args:
            node: the node.
            maker: the run that has made it. As long as that goes on, ``StateGone`` tells it that it
                has to make it again.
        """
        self._node = node
        self._maker = None if maker is None else weakref.ref(maker)

    def take(self) -> Any:
        """Return the state as an object of the caller's own.

        Raises:
            NotFittedError: it is gone.
        """
        if self._source is None:
            found = self._object
            return found.value if type(found) is Opaque else found
        header, buffers = self._frame(self._source)
        return decode_parts(header, buffers, allow_pickle=True)

    def _frame(self, source: Blob | _Stored | _Recalled) -> Frame:
        try:
            return source.frame()
        except StateGone:
            maker = None if self._maker is None else self._maker()
            if maker is not None or isinstance(source, _Recalled):
                raise
            whose = f"node {self._node!r}" if self._node else "a node"
            raise NotFittedError(
                f"What {whose} has learned was damaged in the cache, or is gone from it. Call fit "
                "again, without warm_start"
            ) from None

    def pack(self) -> Parcel:
        """Return the state as bytes, for another process.

        Raises:
            NotSendable: it exists in this process alone.
            NotFittedError: as ``take``.
        """
        source = self._source
        if source is None:
            return pack(self._object)
        if isinstance(source, Blob):
            return Parcel("frame", source, self.digest)
        shared = shared_parcel(source.store, self.digest)
        return shared or Parcel("frame", Blob(*self._frame(source)), self.digest)

    def can_be_read(self) -> bool:
        """Say whether its codecs can read it; a line, where they cannot."""
        try:
            self.take()
        except (CodecError, FrameError) as error:
            tell_once(("read", str(error)), f"a state that was kept cannot be read: {error}")
            return False
        except NotFittedError:  # damaged in this very moment
            return False
        return True

    def hash(self) -> str:
        """Return the content hash; empty where it has none."""
        if not self.digest and self._source is not None:
            self.digest = encode(self.take()).digest
        return self.digest
