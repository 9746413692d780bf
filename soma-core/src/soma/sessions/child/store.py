"""The client's store, as the engine of this process sees it for the length of one call.

    lookup, read, has         one round trip each, where the answer is not known already
    claim                     none, where the key was free when it was looked up
    write, commit, release    no answer; of one node they go together

Round trips are what costs. So a lookup that finds nothing brings the claim along, as whoever looks
up what is not there is going to make it. While a key is claimed here nobody else writes its record,
and looking it up again costs nothing. What was written or read is at hand for a while.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import count
from types import TracebackType
from typing import Any

from soma.contracts import ActionRecord, Frame
from soma.engine.blobs import Blob
from soma.errors import SessionError
from soma.frame import hash_parts
from soma.sessions.child.serving import Call
from soma.sessions.recent import Recent, plain_record

__all__ = ["ProxyStore"]


class ProxyStore:
    """An ``ActionStore`` at the other end of a connection.

    Args:
        call: the call during which it is used.
        tier: what events call it.
    """

    def __init__(self, call: Call, tier: str) -> None:
        self.tier = tier
        self._call = call
        self._blobs = Recent()
        self._there: set[str] = set()
        """Digests that the client has, or had a moment ago."""
        self._claimed: dict[str, ActionRecord | None] = {}
        """Key that is claimed here -> its record."""
        self._offered: dict[str, int] = {}
        """Key that nobody has claimed here yet -> the claim that came with its lookup."""
        self._holds: dict[int, int] = {}
        """Thread -> how many claims it holds."""
        self._later = _Later()
        self._lock = threading.Lock()
        self._numbers = count(1)

    def lookup(self, key: str) -> ActionRecord | None:
        """Return the record of ``key``; None is a miss."""
        if key in self._claimed:
            return self._claimed[key]
        if key in self._offered:
            return None
        number = next(self._numbers)
        fields = self._call.ask("lookup", {"key": key, "claim": number}).fields
        if fields["held"]:
            self._offered[key] = number
        return self._taken_in(fields)

    def _taken_in(self, fields: Mapping[str, Any]) -> ActionRecord | None:
        self._there.update(fields["there"])
        record = fields["record"]
        return None if record is None else ActionRecord(**record)

    def write(self, frame: Frame, digest: str | None = None) -> str:
        """Keep a frame and return its content hash. What goes wrong shows at the client."""
        header, buffers = frame
        name = digest if digest is not None else hash_parts(header, buffers)
        if name not in self._there:
            self.adopt(Blob(header, buffers), name)
        return name

    def adopt(self, blob: Blob, digest: str) -> None:
        """Keep a blob as it is."""
        if digest not in self._there:
            self._there.add(digest)
            self._blobs.add(digest, blob)
            with self._lock:
                self._later.writes.append((digest, blob))
            self._send_unless_claimed()

    def share(self, digest: str) -> Blob | None:
        """Return the blob itself; None when it is gone."""
        blob = self._blobs.get(digest)
        if blob is None:
            self._send()  # it may be among them
            blobs = self._call.ask("read", {"digest": digest}).blobs
            if not blobs:
                self._there.discard(digest)
                return None
            blob = blobs[0]
            self._there.add(digest)
            self._blobs.add(digest, blob)
        return blob

    def read(self, digest: str) -> Frame | None:
        """Return the frame in memory of the caller's own; None when it is gone."""
        blob = self.share(digest)
        return None if blob is None else blob.frame()

    def has(self, digest: str) -> bool:
        """Say whether the client seems to have a blob."""
        if digest in self._there:
            return True
        found: bool = self._call.ask("has", {"digest": digest}).fields["has"]
        if found:
            self._there.add(digest)
        return found

    def commit(self, record: ActionRecord) -> None:
        """Make the record visible. What goes wrong shows at the client."""
        if record.key in self._claimed:
            self._claimed[record.key] = record
        with self._lock:
            self._later.records.append(plain_record(record))
        self._send_unless_claimed()

    def claim(self, key: str) -> AbstractContextManager[None]:
        """Hold ``key`` while computing it, so that others wait for the result."""
        return _Claim(self, key)

    def _take(self, claim: _Claim) -> None:
        """Wait until the key is free; or go on without, where one is held here already."""
        me = threading.get_ident()
        held = self._holds.get(me, 0)
        record = None
        offered = self._offered.pop(claim.key, 0)
        if offered:
            claim.number = offered
        else:
            claim.number = next(self._numbers)
            wait = not held and not self._offered  # who holds something waits for nobody
            asked = {"key": claim.key, "claim": claim.number, "wait": wait}
            fields = self._call.ask("claim", asked).fields
            if not fields["held"]:
                return
            record = self._taken_in(fields)
        self._claimed[claim.key] = record
        self._holds[me] = held + 1
        claim.holder = me

    def _let_go(self, claim: _Claim) -> None:
        holder, claim.holder = claim.holder, 0
        if holder:
            self._holds[holder] -= 1
            self._claimed.pop(claim.key, None)
            with self._lock:
                self._later.claims.append(claim.number)
            self._send()

    def _send_unless_claimed(self) -> None:
        """Send what is to be kept; at once where no claim of this thread is about to be let go."""
        if not self._holds.get(threading.get_ident()):
            self._send()

    def _send(self) -> None:
        with self._lock:
            later, self._later = self._later, _Later()
            if later.writes or later.records or later.claims:
                digests = [digest for digest, _ in later.writes]
                fields = {"writes": digests, "records": later.records, "claims": later.claims}
                self._call.tell("keep", fields, [blob for _, blob in later.writes])

    def records(self) -> Iterator[ActionRecord]:
        """Raise: a call of the engine needs no list of records."""
        raise _at_client("records()")

    def pin(self, name: str, key: str) -> None:
        """Raise: what stays is the client's to say."""
        raise _at_client(f"pin({name!r}, {key!r})")

    def unpin(self, name: str) -> None:
        """Raise: what stays is the client's to say."""
        raise _at_client(f"unpin({name!r})")

    def stats(self) -> Mapping[str, float]:
        """Return nothing: what there is lies at the client."""
        return {}

    def gc(self, *, max_bytes: int, min_age_s: float = 0.0, dry_run: bool = False) -> int:
        """Raise: what goes is the client's to say."""
        raise _at_client(f"gc({max_bytes=}, {min_age_s=}, {dry_run=})")

    def verify(self) -> Sequence[str]:
        """Return nothing: what there is lies at the client."""
        return ()


def _at_client(what: str) -> SessionError:
    return SessionError(f"{what}: the store of a session lies at its client; ask it there")


class _Later:
    """What is sent together."""

    __slots__ = ("claims", "records", "writes")

    def __init__(self) -> None:
        self.writes: list[tuple[str, Blob]] = []
        self.records: list[dict[str, Any]] = []
        self.claims: list[int] = []
        """Numbers of those that are let go of."""


class _Claim:
    """One claim. Leaving it twice, or from another thread, does no harm."""

    __slots__ = ("_store", "holder", "key", "number")

    def __init__(self, store: ProxyStore, key: str) -> None:
        self._store = store
        self.key = key
        self.number = 0
        self.holder = 0
        """The thread that holds it; 0 where none does."""

    def __enter__(self) -> None:
        self._store._take(self)  # noqa: SLF001  # the two are one

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._store._let_go(self)  # noqa: SLF001  # as above
