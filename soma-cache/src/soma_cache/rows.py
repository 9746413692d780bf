"""What the index keeps: the shape of its tables, and what a row says of a record."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from soma.contracts import ActionRecord
from soma_cache.records import Read

__all__ = [
    "APPLICATION",
    "DAMAGED",
    "DEFINITION",
    "DIGEST_BYTES",
    "MOST_INTEGER",
    "SCHEMA",
    "SHARDS",
    "SUM_ALL",
    "SUM_BLOBS",
    "SUM_RECORDS",
    "RecordRow",
    "Sums",
    "is_expensive",
    "name_bytes",
]

APPLICATION = 0x536F6D61
"""By which a database is known to be ours."""
SCHEMA = 2
"""A database that says another number is thrown away."""
DAMAGED = (sqlite3.Error, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What is raised by a database that says something else than was written there."""
DIGEST_BYTES = 32
MOST_INTEGER = (1 << 63) - 1
"""The largest that SQLite holds."""
DEFINITION = """
CREATE TABLE names (id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE);
CREATE TABLE records (
    key BLOB PRIMARY KEY, inode INTEGER NOT NULL, nbytes INTEGER NOT NULL,
    changed_ns INTEGER NOT NULL, name INTEGER NOT NULL, created_at REAL NOT NULL,
    compute_ms REAL NOT NULL, missing INTEGER NOT NULL, digests BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX records_by_name ON records (name, created_at);
CREATE TABLE outputs (
    digest BLOB NOT NULL, key BLOB NOT NULL, compute_ms REAL NOT NULL, expensive INTEGER NOT NULL,
    PRIMARY KEY (digest, key)
) WITHOUT ROWID;
CREATE TABLE blobs (
    digest BLOB PRIMARY KEY, inode INTEGER NOT NULL, nbytes INTEGER NOT NULL, verified TEXT
) WITHOUT ROWID;
CREATE TABLE shards (name TEXT PRIMARY KEY, seen_ns INTEGER NOT NULL, listed_ns INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE sums (
    shard BLOB PRIMARY KEY, records INTEGER NOT NULL, record_bytes INTEGER NOT NULL,
    recorded_ms REAL NOT NULL, banked INTEGER NOT NULL, banked_ms REAL NOT NULL,
    blobs INTEGER NOT NULL, blob_bytes INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE logs (inode INTEGER PRIMARY KEY, head BLOB NOT NULL, end INTEGER NOT NULL);
"""


class RecordRow(NamedTuple):
    """What the index keeps of one record."""

    inode: int
    nbytes: int
    changed_ns: int
    """When the file was last changed in any way, which no tool sets back."""
    name: bytes
    created_at: float
    compute_ms: float
    expensive: bool
    digests: bytes
    """Of its outputs that have a file: 32 bytes each, in a row."""

    @classmethod
    def of(cls, found: Read, state: tuple[int, int, int]) -> RecordRow:
        """Return the row of a record that was read, from a file in that state."""
        record = found.record
        digests = sorted({*record.outputs.values()} - found.inline.keys())
        inode, nbytes, changed_ns = state
        return cls(
            inode=inode,
            nbytes=nbytes,
            changed_ns=changed_ns,
            name=name_bytes(record.name),
            created_at=float(record.created_at),
            compute_ms=float(record.compute_ms),
            expensive=is_expensive(record),
            digests=b"".join(map(bytes.fromhex, digests)),
        )


class Sums(NamedTuple):
    """Counts and sums over all rows."""

    records: int
    record_bytes: int
    recorded_ms: float
    banked: int
    banked_ms: float
    blobs: int
    blob_bytes: int


def is_expensive(record: ActionRecord) -> bool:
    """Say whether what a record names cannot be had again by computing it."""
    return record.expensive or record.effect == "impure"


def name_bytes(name: str) -> bytes:
    """Return a class's name as it stands in the index: any text, lone surrogates as well."""
    return name.encode("utf-8", "surrogatepass")


SHARDS = 256
"""As many sums there are: one for each first byte of a name."""
SUM_RECORDS = """
SELECT count(*), coalesce(sum(nbytes), 0), coalesce(sum(compute_ms), 0.0),
    count(CASE missing WHEN 0 THEN 1 END),
    coalesce(sum(CASE missing WHEN 0 THEN compute_ms END), 0.0)
FROM records WHERE key BETWEEN ? AND ?
"""
SUM_BLOBS = "SELECT count(*), coalesce(sum(nbytes), 0) FROM blobs WHERE digest BETWEEN ? AND ?"
SUM_ALL = """
SELECT sum(records), sum(record_bytes), sum(recorded_ms), sum(banked), sum(banked_ms), sum(blobs),
    sum(blob_bytes)
FROM sums
"""
