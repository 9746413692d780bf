"""``soma cache`` in this process, and a cache whose results are made by hand."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from soma.cli.root import run
from soma.contracts import ActionRecord
from soma.frame import encode
from soma_cache import DiskStore
from soma_cache.folder import Folder

__all__ = ["Done", "Kept", "keep", "new_store", "soma_cache"]

_HOUR_S = 3600


class Done(NamedTuple):
    status: int
    out: str
    err: str


def soma_cache(*words, stdin="", encoding="utf-8"):
    """Run the command as ``soma cache ...`` does; what it asks is answered from ``stdin``."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding, newline="\n") for _ in range(2))
    before, sys.stdin = sys.stdin, io.StringIO(stdin)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run(["cache", *map(str, words)])
    finally:
        sys.stdin = before
    return Done(status, *map(_written, (out, err)))


def _written(stream):
    stream.flush()
    # click takes a stream in ASCII for one that is not set up, and writes UTF-8 to it.
    return stream.buffer.getvalue().decode("utf-8", "replace")


class Kept(NamedTuple):
    """A result as it lies there."""

    key: str
    digest: str
    path: Path
    """Of its blob; where there is none, nothing is there."""
    nbytes: int


def new_store(folder):
    one = Folder(str(folder))
    one.prepare()
    return DiskStore(one)


def keep(store, word, *, nbytes=10_000, compute_ms=1.0, hours=2, key=None, **more):
    """Keep the bytes of a word, repeated, as the only output of an action.

    Args:
        store: where.
        word: what makes the key and the value its own.
        nbytes: of the value, without the frame around it.
        compute_ms: what it is said to have taken.
        hours: since its last use.
        key: where it has to be a certain one.
        more: fields of the record.
    """
    written = encode((word.encode() * nbytes)[:nbytes])
    digest = store.write((written.header, written.buffers))
    key = key or blake3(f"key of {word}".encode()).hexdigest()
    fields = {"name": "work.Step", "origin": {"node": word, "run": "c1"}, **more}
    outputs, sizes = {"output": digest}, {"output": written.nbytes}
    store.commit(
        ActionRecord(key=key, outputs=outputs, bytes=sizes, compute_ms=compute_ms, **fields)
    )
    path = Path(store.path, "cas", "b3", digest[:2], f"{digest}.bin")
    if path.exists():
        then = path.stat().st_mtime - hours * _HOUR_S
        os.utime(path, (then, then))
    return Kept(key, digest, path, written.nbytes)
