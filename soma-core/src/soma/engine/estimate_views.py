"""A store that is left as it is, and notices that nobody is told: what estimates have of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soma.contracts import ActionRecord, ActionStore
from soma.engine.guarded import GuardedStore
from soma.engine.misses import look_up
from soma.engine.notices import Notices
from soma.engine.values import NOT_IN_HAND, read_value

__all__ = ["Peeked", "Quiet"]


class Quiet(Notices):
    """Notices that are kept, and said to nobody: the run that comes will say them."""

    def tell(self, kind: str, node: str, message: str, *, once: Any = None) -> None:  # noqa: ARG002  # that is the idea
        """Enter a notice into the report."""
        super().tell(kind, node, message)


class Peeked(GuardedStore):
    """A store that is left as it is."""

    def __init__(self, store: ActionStore | None, notices: Notices) -> None:
        super().__init__(store, notices)
        self._inline_bytes: int = getattr(store, "inline_bytes", 0)
        options: Mapping[str, Any] | None = getattr(store, "open_options", None)
        self._keeps_what_it_reads = bool((options or {}).get("url"))

    def lookup(self, key: str | None) -> ActionRecord | None:
        """Return what is recorded under a key, and leave it where it is."""
        if key is None or self._store is None:
            return None
        try:
            return look_up(self._store, key)
        except Exception as error:  # noqa: BLE001  # as in a run
            self.broken("looked up", error)
            return None

    def holds(self, record: ActionRecord, what: str) -> bool:
        """Say whether an output of a record seems to be there."""
        return record.bytes[what] <= self._inline_bytes or self.has(record.outputs[what])

    def value(self, record: ActionRecord, what: str) -> Any:
        """Return an output of a record; ``NOT_IN_HAND`` where it cannot be had without a trace."""
        if self._store is None or record.tier == "Remote":
            return NOT_IN_HAND
        digest = record.outputs[what]
        if record.bytes[what] <= self._inline_bytes:
            super().lookup(record.key)  # it lies in the record, which a peek does not hold
        elif self._keeps_what_it_reads or not self.has(digest):
            return NOT_IN_HAND
        return read_value(self._store, digest)
