"""A store that cannot make a run fail: what goes wrong with it is told, and the run goes on."""

from __future__ import annotations

from contextlib import AbstractContextManager

from soma._notices import tell_once
from soma.contracts import ActionRecord, ActionStore
from soma.engine.notices import Notices
from soma.engine.parcels import Parcel
from soma.engine.values import is_found_by_hash
from soma.errors import describe_error
from soma.frame import Encoded

__all__ = ["GuardedStore"]


class GuardedStore:
    """What a run asks of its store. Without a store it knows nothing and keeps nothing.

    Args:
        store: the store.
        notices: where it is told what goes wrong. (Not the run, which would then hold itself.)
    """

    def __init__(self, store: ActionStore | None, notices: Notices) -> None:
        self._store = store
        self._notices = notices

    def lookup(self, key: str | None) -> ActionRecord | None:
        """Return what is recorded under a key."""
        if key is None or self._store is None:
            return None
        try:
            return self._store.lookup(key)
        except Exception as error:  # noqa: BLE001  # nothing kept is worth a failed run
            self.broken("looked up", error)
            return None

    def has(self, digest: str) -> bool:
        """Say whether the store seems to have a blob."""
        try:
            return self._store is not None and self._store.has(digest)
        except Exception:  # noqa: BLE001  # as above
            return False

    def finds(self, digest: str, nbytes: int) -> bool:
        """Say whether whoever has the same store finds a blob by its hash alone."""
        try:
            return self._store is not None and is_found_by_hash(self._store, digest, nbytes)
        except Exception:  # noqa: BLE001  # as above
            return False

    def claim(self, key: str) -> AbstractContextManager[None] | None:
        """Return the claim on a key; None where the store cannot give one."""
        if self._store is None:
            return None
        try:
            return self._store.claim(key)
        except Exception as error:  # noqa: BLE001  # as above
            self.broken("claimed", error)
            return None

    def end_claim(self, claim: AbstractContextManager[None]) -> None:
        """Let go of a claim, whatever the store makes of that."""
        try:
            claim.__exit__(None, None, None)
        except Exception as error:  # noqa: BLE001  # as above
            self.broken("claimed", error)

    def write(self, place: int, written: Encoded | Parcel, digest: str = "") -> bool:
        """Keep a frame, whose hash may be known; False, and a line, where that cannot be.

        Where it is not known, the store takes it, beside the writing where it can.
        """
        if self._store is None:
            return False
        try:
            _write(self._store, written, digest)
        except Exception as error:  # noqa: BLE001  # as above
            self._notices.not_kept(place, error)
            return False
        return True

    def commit(self, place: int, record: ActionRecord) -> None:
        """Make a record visible; a line, where that cannot be."""
        if self._store is None:
            return
        try:
            self._store.commit(record)
        except Exception as error:  # noqa: BLE001  # as above
            self._notices.not_kept(place, error)

    def after_run(self) -> None:
        """Have the store look after itself, now that the run is over; a line, where it cannot."""
        try:
            after_run = getattr(self._store, "after_run", None)
            if after_run is not None:
                after_run()
        except Exception as error:  # noqa: BLE001  # as above
            text = describe_error(error)
            tell_once(("after run", text), f"the cache cannot look after itself: {text}")

    def broken(self, what: str, error: Exception) -> None:
        """Say that the cache does not do what it should."""
        text = describe_error(error)
        message = f"nothing can be {what} in the cache, so it is computed: {text}"
        self._notices.tell("NodeNotKept", "", message, once=(what, text))


def _write(store: ActionStore, written: Encoded | Parcel, digest: str) -> None:
    if isinstance(written, Encoded):
        known = digest or written.known_digest or None
        written.know_digest(store.write((written.header, written.buffers), known))
        return
    digest = digest or written.hash()
    adopt = getattr(store, "adopt", None)  # what lies in memory already need not be copied
    if adopt is not None:
        adopt(written.blob, digest)
    else:
        store.write(written.blob.frame(), digest)
