"""Records that are whole and say something else, and pickles that do something when they are read.

Written from docs/formats/store.md.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

from blake3 import blake3

from soma import codec
from soma.frame import encode

__all__ = ["Trap", "checked", "lay", "place_inline", "rewritten"]


class Trap:
    """Makes a folder where it is read."""

    def __init__(self, path):
        self._path = str(path)

    def __reduce__(self):
        return os.mkdir, (self._path,)

    def frame(self, *more):
        """Return the bytes of a frame with this in it."""
        codec("test.Trap", Trap, pickle=True)
        written = encode([self, *more])
        assert written.pickled
        return written.to_bytes()


def checked(fields):
    """Return a record with a right check."""
    rest = json.dumps({name: one for name, one in fields.items() if name != "check"})[1:] + "\n"
    check = blake3(rest.encode("ascii")).hexdigest()[:16]
    return b'{"check":"' + check.encode("ascii") + b'",' + rest.encode("ascii")


def rewritten(raw, change):
    """Return a record after ``change(fields)``, with a right check."""
    fields = json.loads(raw)
    change(fields)
    return checked(fields)


def place_inline(fields, raw, digest=None):
    """Have each output of a record be these bytes, which lie in it."""
    for output in fields["outputs"].values():
        output["digest"] = digest or blake3(raw).hexdigest()
        output["bytes"] = len(raw)
        output["inline"] = base64.b64encode(raw).decode("ascii")


def lay(folder, raw):
    """Put bytes under their hash, and return that."""
    digest = blake3(raw).hexdigest()
    path = Path(folder, "cas", "b3", digest[:2], f"{digest}.bin")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return digest
