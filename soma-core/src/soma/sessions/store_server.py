"""The store of the client, asked by a child for the length of one call.

Everything is served on the thread that has made the call, in the order in which it comes, but
waiting for a claim: that is done by a thread of its own, which answers when it has it, and which
lets go of it too, as a lock of somebody else's store may belong to the thread that took it.
Whatever is still claimed at the end of the call, or of the child, is let go of. A store that fails
costs what it would have saved, and nothing else: no claim stays, and nobody waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any, Protocol

from soma._notices import tell_once
from soma.contracts import ActionRecord, ActionStore
from soma.engine.blobs import Blob
from soma.engine.claims import claim_at_once
from soma.errors import SessionLost, describe_error
from soma.events.bus import in_callback
from soma.sessions.failures import pack_error
from soma.sessions.recent import Recent, plain_record
from soma.sessions.wire import Message

__all__ = ["StoreServer", "may_wait"]

_LEAVES_S = 2.0
"""How long to wait for a thread that lets go of a claim."""


class Tell(Protocol):
    """Says something to the child, from any thread."""

    def __call__(self, kind: str, fields: dict[str, Any], blobs: Sequence[Blob] = (), /) -> None:
        """Send one message."""


class StoreServer:
    """Serves one call.

    Args:
        store: the store.
        tell: sends to the child.
        who: who computes, for those who wait for it.
    """

    def __init__(self, store: ActionStore, tell: Tell, who: str) -> None:
        self._store: Any = store
        self._tell = tell
        self._who = who
        self._recent = Recent()
        self._failed: set[str] = set()
        self._lock = threading.Lock()
        self._claims: dict[int, AbstractContextManager[None]] = {}
        self._attempt: list[AbstractContextManager[None]] = []
        """A claim on its way into those."""
        self._closed = False
        self._may_wait = may_wait(store)
        self.errors: list[str] = []
        """Why something could not be kept, in words."""
        self.handlers: Mapping[str, Callable[[Message], None]] = {
            "lookup": self._answering(self._lookup),
            "read": self._answering(self._read),
            "has": self._answering(self._has),
            "claim": self._answering(self._claim),
            "keep": self._keep,
        }
        """Kind of message -> what serves it."""

    def blob(self, digest: str) -> Blob | None:
        """Return a blob that has passed by in this call, or that the store has, if it can."""
        found = self._recent.get(digest)
        if found is not None:
            return found
        try:
            return self._shared(digest)
        except Exception as error:  # noqa: BLE001  # somebody else's store: it is asked elsewhere
            text = describe_error(error)
            tell_once(
                ("read", text), f"the cache cannot be read, so what it kept is made again: {text}"
            )
            return None

    def close(self) -> None:
        """Let go of every claim."""
        with self._lock:
            self._closed = True
            claims = [*self._claims.values(), *self._attempt]
            self._claims = {}
        for one in claims:
            _leave(one)

    def _answering(
        self, serve: Callable[[Mapping[str, Any]], tuple[dict[str, Any], list[Blob]] | None]
    ) -> Callable[[Message], None]:
        def handle(message: Message) -> None:
            number = message.fields["id"]
            try:
                found = serve(message.fields)
            except Exception as error:  # noqa: BLE001  # somebody else's store: the child is told
                fields, blobs = pack_error(error)
                self._tell("refused", {**fields, "id": number}, blobs)
                return
            if found is not None:
                self._tell("answer", {**found[0], "id": number}, found[1])

        return handle

    def _lookup(self, fields: Mapping[str, Any]) -> tuple[dict[str, Any], list[Blob]]:
        """Look a key up; what is not there is claimed, as whoever asks is going to make it."""
        found = self._known(fields["key"])
        held = found["record"] is None and self._claims_at_once(fields)
        if held:
            found = self._known_now(fields)  # whoever held it just now may have left a record
        if held and found["record"] is not None:
            self._let_go(fields["claim"])
            held = False
        return {"held": held, **found}, []

    def _known(self, key: str) -> dict[str, Any]:
        record: ActionRecord | None = self._store.lookup(key)
        if record is None:
            return {"record": None, "there": []}
        there = [one for one in record.outputs.values() if self._store.has(one)]
        return {"record": plain_record(record), "there": there}

    def _known_now(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return what there is of a key that was just claimed, or let go of the claim."""
        try:
            return self._known(fields["key"])
        except BaseException:
            self._let_go(fields["claim"])
            raise

    def _read(self, fields: Mapping[str, Any]) -> tuple[dict[str, Any], list[Blob]]:
        blob = self._shared(fields["digest"])
        if blob is None:
            return {}, []
        self._recent.add(fields["digest"], blob)
        return {}, [blob]

    def _shared(self, digest: str) -> Blob | None:
        share = getattr(self._store, "share", None)
        if share is not None:
            found: Blob | None = share(digest)
            return found
        frame = self._store.read(digest)
        return None if frame is None else Blob(bytes(frame[0]), frame[1])

    def _has(self, fields: Mapping[str, Any]) -> tuple[dict[str, Any], list[Blob]]:
        return {"has": bool(self._store.has(fields["digest"]))}, []

    def _keep(self, message: Message) -> None:
        """Write blobs, then records, then let go of claims."""
        fields = message.fields
        for digest, blob in zip(fields["writes"], message.blobs, strict=True):
            self._recent.add(digest, blob)
            self._try(self._write, digest, blob)
        for record in fields["records"]:
            self._try(self._commit, ActionRecord(**record))
        for number in fields["claims"]:
            self._let_go(number)

    def _let_go(self, number: int) -> None:
        with self._lock:
            claim = self._claims.pop(number, None)
        if claim is not None:
            _leave(claim)

    def _try(self, keep: Callable[..., None], *what: Any) -> None:
        try:
            keep(*what)
        except Exception as error:  # noqa: BLE001  # nothing kept is worth a failed run
            self.errors.append(describe_error(error))

    def _write(self, digest: str, blob: Blob) -> None:
        self._failed.add(digest)
        adopt = getattr(self._store, "adopt", None)
        if adopt is not None:
            adopt(blob, digest)
        else:
            self._store.write(blob.frame(), digest)
        self._failed.discard(digest)

    def _commit(self, record: ActionRecord) -> None:
        if self._failed.isdisjoint(record.outputs.values()):
            self._store.commit(record)

    def _claims_at_once(self, fields: Mapping[str, Any]) -> bool:
        if not claim_at_once(self._store, fields["key"], self._who, self._attempt):
            return False
        self._claims[fields["claim"]] = self._attempt[0]
        self._attempt.clear()
        return True

    def _claim(self, fields: Mapping[str, Any]) -> tuple[dict[str, Any], list[Blob]] | None:
        if self._claims_at_once(fields):
            return {"held": True, **self._known_now(fields)}, []
        if fields["wait"] and self._may_wait:
            waiting = threading.Thread(
                target=self._wait, args=(fields,), name="soma-claim", daemon=True
            )
            with suppress(RuntimeError):  # the system gives no thread: it is computed without
                waiting.start()
                return None
        return {"held": False}, []

    def _wait(self, fields: Mapping[str, Any]) -> None:
        """Wait for a claim, say when it is held, and let go of it when that is asked for."""
        waited, answer = _Waited(), {"held": False}
        with suppress(Exception), self._store.claim(fields["key"]):  # somebody else's store
            with suppress(Exception):  # as above: it is computed without
                answer = {"held": True, **self._known(fields["key"])}
            with self._lock:
                closed = self._closed
                if answer["held"] and not closed:
                    self._claims[fields["claim"]] = waited
            if closed:
                return  # nobody is there any more
            if answer["held"]:
                self._say(fields, answer)
                waited.asked.wait()
        waited.left.set()
        if not answer["held"] and not self._closed:
            self._say(fields, answer)

    def _say(self, fields: Mapping[str, Any], answer: dict[str, Any]) -> None:
        with suppress(SessionLost):  # then the call ends, and with it the claim
            self._tell("answer", {**answer, "id": fields["id"]})


def may_wait(store: ActionStore) -> bool:
    """Say whether a child may wait for a claim while this thread waits for the child.

    Not where this very thread may hold what the child would wait for.
    """
    holds = getattr(store, "holds_claim", None)
    return not in_callback() and not (holds is not None and holds())


class _Waited:
    """A claim that another thread holds, and lets go of when it is asked to."""

    __slots__ = ("asked", "left")

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.left = threading.Event()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.asked.set()
        self.left.wait(_LEAVES_S)


def _leave(claim: AbstractContextManager[None]) -> None:
    with suppress(Exception):  # somebody else's store
        claim.__exit__(None, None, None)
