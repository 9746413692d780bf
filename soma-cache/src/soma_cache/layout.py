"""Where things lie in the folder of a cache, and whether a folder is one that we understand.

    format.json                  which layout this is
    actions/<aa>/<key>.json      what was computed: the record of one action
    cas/b3/<aa>/<digest>.bin     the bytes of one value: a frame, named by its BLAKE3
    pins/<name>                  keys that gc spares
    tmp/                         where every write starts
    locks                        who computes what; empty

A remote tier has the same names, ``actions/...`` and ``cas/...``, so a shared folder is a cache
like any other. A folder of another version is left as it is, whatever is in it.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from urllib.parse import quote, unquote

__all__ = [
    "FORMAT",
    "INLINE_BYTES",
    "UnknownFormat",
    "blob_name",
    "check_format",
    "is_hash",
    "is_shard",
    "name_of_pin",
    "parse_name",
    "pin_file",
    "record_name",
]

FORMAT = b'{"version": 2, "hash": "b3", "features": ["inline"]}\n'
"""What format.json says."""
INLINE_BYTES = 2048
"""Frames up to this size lie in the record."""
_VERSION = 2
_FEATURES = frozenset({"inline"})
_MOST_FORMAT_BYTES = 1 << 16

_HASH = re.compile(r"[0-9a-f]{64}")
_SHARD = re.compile(r"[0-9a-f]{2}")
_NAME = re.compile(
    r"actions/(?P<a>[0-9a-f]{2})/(?P<key>(?P=a)[0-9a-f]{62})\.json"
    r"|cas/b3/(?P<b>[0-9a-f]{2})/(?P<digest>(?P=b)[0-9a-f]{62})\.bin"
)


class UnknownFormat(OSError):
    """The folder holds something that this release cannot read, and does not touch."""


def is_hash(text: str) -> bool:
    """Say whether a text can be a key or a digest: 64 hexadecimal digits, in lower case."""
    return _HASH.fullmatch(text) is not None


def is_shard(name: str) -> bool:
    """Say whether a folder of that name has records or blobs in it."""
    return _SHARD.fullmatch(name) is not None


def record_name(key: str) -> str:
    """Return the name of a record, with slashes."""
    return f"actions/{key[:2]}/{key}.json"


def blob_name(digest: str) -> str:
    """Return the name of a blob, with slashes."""
    return f"cas/b3/{digest[:2]}/{digest}.bin"


def parse_name(name: str) -> tuple[str, str] | None:
    """Return ``("record", key)`` or ``("blob", digest)``; None for any other name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    return ("record", found["key"]) if found["key"] else ("blob", found["digest"])


def pin_file(name: str) -> str:
    """Return the file name of a pin: any text, in what every file system takes."""
    return quote(name, safe="", errors="surrogatepass").replace(".", "%2E")


def name_of_pin(file: str) -> str:
    """Return the pin that a file name stands for."""
    return unquote(file, errors="surrogatepass")


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for whoever writes to it, where it is a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def check_format(root: str) -> bool:
    """Say whether a folder is a cache already; False where nothing says so.

    Raises:
        UnknownFormat: it is one of another version, or format.json cannot be understood.
        OSError: format.json is there and cannot be read.
    """
    path = Path(root, "format.json")
    try:
        with open(path, "rb", opener=_open_at_once) as file:  # has no opener
            raw = file.read(_MOST_FORMAT_BYTES)
    except FileNotFoundError:
        return False
    try:
        found = json.loads(raw)
        version, algorithm = found["version"], found.get("hash", "b3")
        features = set(found.get("features", ()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UnknownFormat(
            f"{path} does not say what lies in its folder. If that is a cache of Soma, remove this "
            "one file; nothing else there was touched"
        ) from None
    if type(version) is not int or version != _VERSION:
        raise UnknownFormat(
            f"the cache in {root} has format version {version!r}, and this release of soma-cache "
            f"reads version {_VERSION}: install the release that wrote it, or give Soma another "
            "folder (SOMA_CACHE_DIR). Nothing there was touched"
        )
    if algorithm != "b3" or not features <= _FEATURES:
        unknown = ", ".join(sorted(map(str, features - _FEATURES))) or f"hash {algorithm}"
        raise UnknownFormat(
            f"the cache in {root} uses what this release of soma-cache does not know ({unknown}): "
            "upgrade soma-cache. Nothing there was touched"
        )
    return True
