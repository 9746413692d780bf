"""What is in the folder of a cache, by reading every file in it: what the index has to say as well.

Written from docs/formats/store.md: JSON, BLAKE3, and names.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict

from blake3 import blake3

from soma_cache.folder import Folder
from soma_cache.survey import survey

__all__ = ["rows_of", "surveyed", "walked"]

RECORD = re.compile(r"actions/([0-9a-f]{2})/(\1[0-9a-f]{62})\.json")
BLOB = re.compile(r"cas/b3/([0-9a-f]{2})/(\1[0-9a-f]{62})\.bin")


def _files(folder, pattern):
    for path in folder.rglob("*"):
        found = pattern.fullmatch(path.relative_to(folder).as_posix())
        if found is not None and path.is_file() and not path.is_symlink():
            yield found[2], path


def rows_of(folder):
    """Return key -> what its record says, of those that are whole."""
    found = {}
    for key, path in _files(folder, RECORD):
        raw = path.read_bytes()
        if raw[:28] == b'{"check":"%b",' % blake3(raw[28:]).hexdigest()[:16].encode():
            fields = json.loads(raw)
            if fields["key"] == key:
                found[key] = fields
    return found


def walked(folder):
    """Return what ``survey`` should."""
    blobs = {digest: path.stat().st_size for digest, path in _files(folder, BLOB)}
    rows = rows_of(folder)
    there = [
        row
        for row in rows.values()
        if all("inline" in one or one["digest"] in blobs for one in row["outputs"].values())
    ]
    paths = dict(_files(folder, RECORD))
    unfinished = [path.stat().st_size for path in folder.glob("tmp/*") if path.is_file()]
    return {
        "records": len(rows),
        "record_bytes": sum(paths[key].stat().st_size for key in rows),
        "blobs": len(blobs),
        "bytes": sum(blobs.values()),
        "pins": len(list(folder.glob("pins/*"))),
        "compute_ms": sum(row["compute_ms"] for row in there),
        "banked": len(there),
        "recorded_ms": sum(row["compute_ms"] for row in rows.values()),
        "unfinished": len(unfinished),
        "unfinished_bytes": sum(unfinished),
        "unreadable": (),
    }


def surveyed(folder, **choice):
    """Return what ``survey`` says, as a dict."""
    return asdict(survey(Folder(str(folder), **choice)))
