"""The rows of the index: what was seen of each record and blob when its file was last looked at.

One SQLite database. It is opened for one piece of work and closed again, so nothing of it outlives
a fork. What it says is made from the files, and whoever asks brings it up to date first (merging).
It is never synced: what a power cut leaves of it is thrown away, or rewritten by `verify`.

The surprise: sums are kept for each of the 256 beginnings of a name, and dropped for those where a
row changes. Who asks for them adds up again what is missing, and figures of a million records cost
no more than those of a few. ``missing`` counts the outputs of a record whose blob is not there; it
changes with the blobs, so that what is banked is such a sum as well, and no join.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from soma_cache.forks import holding_off
from soma_cache.rows import (
    APPLICATION,
    DEFINITION,
    DIGEST_BYTES,
    MOST_INTEGER,
    SCHEMA,
    SHARDS,
    SUM_ALL,
    SUM_BLOBS,
    SUM_RECORDS,
    RecordRow,
    Sums,
    name_bytes,
)
from soma_cache.shards import State

__all__ = ["Tables"]


class Tables:
    """The rows, through one connection. For one thread.

    Args:
        connection: to a database that is empty, or one of this schema.

    Raises:
        sqlite3.DatabaseError: it is another.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._run = connection.execute
        self._names: dict[bytes, int] = {}
        self._touched: set[bytes] = set()
        """First bytes of the names whose rows have changed in this transaction."""
        self.unreadable: dict[str, str] = {}
        """Name in the cache -> why it cannot be read: what rows do not say, or no longer rightly.

        In memory only: of what this connection has looked at.
        """
        with holding_off():
            self._prepare()

    def _prepare(self) -> None:
        self._run("PRAGMA synchronous=OFF")
        self._run("PRAGMA cache_size=-32768")  # KiB
        if self._says() == (0, 0) and not self._one("SELECT count(*) FROM sqlite_master")[0]:
            with self.changing():
                if self._says() == (0, 0):  # and nobody else was quicker
                    self._define()
        if self._says() != (APPLICATION, SCHEMA):
            raise sqlite3.DatabaseError("an index of another release")

    def _says(self) -> tuple[int, int]:
        return self._one("PRAGMA application_id")[0], self._one("PRAGMA user_version")[0]

    def _define(self) -> None:
        for statement in DEFINITION.split(";"):
            self._run(statement)
        self._run(f"PRAGMA application_id={APPLICATION}")
        self._run(f"PRAGMA user_version={SCHEMA}")

    def _one(self, statement: str, *values: Any) -> Any:
        return self._run(statement, values).fetchone()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock on all rows, against other processes too; changes are there at the end.

        Raises:
            sqlite3.OperationalError: somebody else holds it for long.
        """
        with holding_off(), self._transaction():
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._run("BEGIN IMMEDIATE")
        self._names.clear()
        self._touched.clear()
        try:
            yield
            for shard in self._touched:
                self._run("DELETE FROM sums WHERE shard = ?", (shard,))
            self._run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._run("ROLLBACK")
            raise

    # Records

    def put_record(self, key: str, row: RecordRow) -> None:
        """Have a row for a record, in the place of what is said of it so far."""
        raw = bytes.fromhex(key)
        self.drop_record(key)
        digests = _split(row.digests)
        missing = sum(
            self._one("SELECT 1 FROM blobs WHERE digest = ?", digest) is None for digest in digests
        )
        self._run(
            "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(raw, row.inode, row.nbytes, row.changed_ns, self._id_of(row.name)),
                *(row.created_at, row.compute_ms, missing, row.digests),
            ),
        )
        for digest in digests:
            output = (digest, raw, row.compute_ms, int(row.expensive))
            self._run("INSERT INTO outputs VALUES (?, ?, ?, ?)", output)
        self._touched.add(raw[:1])

    def _id_of(self, name: bytes) -> int:
        found = self._names.get(name)
        if found is None:
            self._run("INSERT OR IGNORE INTO names (name) VALUES (?)", (name,))
            found = self._names[name] = self._one("SELECT id FROM names WHERE name = ?", name)[0]
        return found

    def drop_record(self, key: str) -> None:
        """Say nothing of a record any more."""
        raw = bytes.fromhex(key)
        found = self._one("SELECT digests FROM records WHERE key = ?", raw)
        if found is not None:
            self._run("DELETE FROM records WHERE key = ?", (raw,))
            for digest in _split(found[0]):
                self._run("DELETE FROM outputs WHERE digest = ? AND key = ?", (digest, raw))
            self._touched.add(raw[:1])

    def record_states(self, shard: str) -> dict[str, State]:
        """Return key -> state of the file of the records in a shard."""
        return self._states(
            "SELECT key, inode, nbytes, changed_ns FROM records WHERE key BETWEEN ? AND ?", shard
        )

    def newest(self, name: str, limit: int) -> list[str]:
        """Return the keys of the records of a class, newest first."""
        found = self._run(
            "SELECT key FROM records WHERE name = (SELECT id FROM names WHERE name = ?) "
            "ORDER BY created_at DESC, key LIMIT ?",
            (name_bytes(name), min(limit, MOST_INTEGER)),
        )
        return [key.hex() for (key,) in found]

    def newest_of_all(self, limit: int) -> list[str]:
        """Return the keys of the records that were made last."""
        found = self._run("SELECT key FROM records ORDER BY created_at DESC LIMIT ?", (limit,))
        return [key.hex() for (key,) in found]

    def worth(self) -> tuple[dict[bytes, float], set[bytes]]:
        """Return digest -> compute_ms over all records that name it, and which are expensive."""
        sums = self._run("SELECT digest, sum(compute_ms) FROM outputs GROUP BY digest")
        expensive = self._run("SELECT digest FROM outputs WHERE expensive")
        return dict(sums.fetchall()), {digest for (digest,) in expensive}

    def keys_naming(self, digest: str) -> list[str]:
        """Return the keys of the records that name a blob."""
        found = self._run("SELECT key FROM outputs WHERE digest = ?", (bytes.fromhex(digest),))
        return [key.hex() for (key,) in found]

    # Blobs

    def put_blob(self, digest: str, state: tuple[int, int]) -> None:
        """Have a row for a blob, in the place of what is said of it so far."""
        raw, (inode, nbytes) = bytes.fromhex(digest), state
        self._touched.add(raw[:1])
        if self._one("SELECT 1 FROM blobs WHERE digest = ?", raw) is not None:
            self._run(
                "UPDATE blobs SET inode = ?, nbytes = ? WHERE digest = ?", (inode, nbytes, raw)
            )
            return
        self._run("INSERT INTO blobs VALUES (?, ?, ?, NULL)", (raw, inode, nbytes))
        self._count_missing(raw, -1)

    def drop_blob(self, digest: str) -> None:
        """Say nothing of a blob any more."""
        raw = bytes.fromhex(digest)
        if self._run("DELETE FROM blobs WHERE digest = ?", (raw,)).rowcount:
            self._touched.add(raw[:1])
            self._count_missing(raw, 1)

    def _count_missing(self, digest: bytes, more: int) -> None:
        for (key,) in self._run("SELECT key FROM outputs WHERE digest = ?", (digest,)).fetchall():
            self._run("UPDATE records SET missing = missing + ? WHERE key = ?", (more, key))
            self._touched.add(key[:1])

    def blob_states(self, shard: str) -> dict[str, State]:
        """Return digest -> state of the file of the blobs in a shard."""
        return self._states(
            "SELECT digest, inode, nbytes FROM blobs WHERE digest BETWEEN ? AND ?", shard
        )

    def _states(self, statement: str, shard: str) -> dict[str, State]:
        with holding_off():
            rows = self._run(statement, _ends(bytes.fromhex(shard)))
            return {row[0].hex(): row[1:] for row in rows}

    def verified(self) -> dict[str, str]:
        """Return digest -> state of the file whose hash was right."""
        found = self._run("SELECT digest, verified FROM blobs WHERE verified IS NOT NULL")
        return {digest.hex(): state for digest, state in found}

    def note_verified(self, states: Iterable[tuple[str, str | None]]) -> None:
        """Keep of each (digest, state) that the hash of the file was right; None: it was not."""
        self._connection.executemany(
            "UPDATE blobs SET verified = ? WHERE digest = ?",
            [(state, bytes.fromhex(digest)) for digest, state in states],
        )

    # What was read so far

    def shards(self) -> dict[str, tuple[int, int]]:
        """Return folder -> its time of change when it was seen last, and when it was listed."""
        with holding_off():
            found = self._run("SELECT name, seen_ns, listed_ns FROM shards")
            return {name: (seen, listed) for name, seen, listed in found}

    def put_shards(self, rows: Iterable[tuple[str, int, int]]) -> None:
        """Keep the times of change of folders: (folder, when seen, when listed)."""
        self._connection.executemany("INSERT OR REPLACE INTO shards VALUES (?, ?, ?)", rows)

    def log_ends(self) -> dict[int, tuple[bytes, int]]:
        """Return inode -> first line of a log, and how far it was read."""
        with holding_off():
            return {inode: (head, end) for inode, head, end in self._run("SELECT * FROM logs")}

    def put_log_ends(self, rows: Iterable[tuple[int, bytes, int]]) -> None:
        """Keep how far each log was read, and nothing of others."""
        self._run("DELETE FROM logs")
        self._connection.executemany("INSERT OR REPLACE INTO logs VALUES (?, ?, ?)", rows)

    def sums(self) -> Sums:
        """Count and sum up all rows."""
        with self.changing():
            known = {shard for (shard,) in self._run("SELECT shard FROM sums")}
            for number in range(SHARDS):
                shard = bytes([number])
                if shard not in known:
                    ends = _ends(shard)
                    row = (*self._one(SUM_RECORDS, *ends), *self._one(SUM_BLOBS, *ends))
                    self._run("INSERT INTO sums VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (shard, *row))
            return Sums(*self._one(SUM_ALL))


def _ends(shard: bytes) -> tuple[bytes, bytes]:
    """Return the first and the last name of a shard."""
    return shard, shard + b"\xff" * (DIGEST_BYTES - 1)


def _split(digests: bytes) -> list[bytes]:
    return [digests[start : start + DIGEST_BYTES] for start in range(0, len(digests), DIGEST_BYTES)]
