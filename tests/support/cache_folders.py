"""What lies in the folder of a cache, looked at without the code under test; and how it is damaged.

Written from docs/formats/store.md: JSON, BLAKE3, and names.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from pathlib import Path

from blake3 import blake3

__all__ = [
    "DAMAGES",
    "apart_from_the_index",
    "assert_sound",
    "blobs_of",
    "damage",
    "everything",
    "records_of",
]

RECORD = re.compile(r"actions/([0-9a-f]{2})/(\1[0-9a-f]{62})\.json")
BLOB = re.compile(r"cas/b3/([0-9a-f]{2})/(\1[0-9a-f]{62})\.bin")


def records_of(folder):
    return _named(folder, RECORD)


def blobs_of(folder):
    return _named(folder, BLOB)


def _named(folder, pattern):
    found = sorted(Path(folder).rglob("*"))
    return [one for one in found if pattern.fullmatch(one.relative_to(folder).as_posix())]


def everything(folder):
    """Return path -> (mode, mtime, content or target) of all that is in a folder, and of itself."""
    folder = Path(folder)
    found = {}
    for path in [folder, *folder.rglob("*")]:
        about = path.lstat()
        inside = None
        if path.is_symlink():
            inside = str(path.readlink())
        elif path.is_file():
            inside = path.read_bytes()
        found[path.relative_to(folder).as_posix()] = (about.st_mode, about.st_mtime_ns, inside)
    return found


def apart_from_the_index(folder):
    """Return ``everything`` but what is derived, and the times of folders in which that is made."""
    found = {name: one for name, one in everything(folder).items() if name.split("/")[0] != "index"}
    for name in (".", "tmp"):
        found[name] = found[name][0]
    return found


def assert_sound(folder):
    """Check that every record is whole and names blobs that are; return the records."""
    found = []
    for path in records_of(folder):
        raw = path.read_bytes()
        check, rest = raw[10:26].decode(), raw[28:]
        assert raw[:10] == b'{"check":"', path
        assert raw[26:28] == b'",', path
        assert blake3(rest).hexdigest()[:16] == check, path
        record = json.loads(raw)
        assert record["key"] == path.stem
        for output in record["outputs"].values():
            digest = output["digest"]
            if "inline" in output:
                inside = base64.b64decode(output["inline"], validate=True)
            else:
                inside = (folder / "cas/b3" / digest[:2] / f"{digest}.bin").read_bytes()
            assert blake3(inside).hexdigest() == digest
            assert len(inside) == output["bytes"]
            assert ("inline" in output) == (len(inside) <= 2048)
        found.append(record)
    for path in blobs_of(folder):
        assert blake3(path.read_bytes()).hexdigest() == path.stem
    return found


DAMAGES = (
    *("emptied", "one byte", "halved", "one byte less", "one byte more", "twice as long"),
    *("first bit", "middle bit", "last bit", "zeros", "another's"),
    *("removed", "folder", "full folder", "fifo", "loop"),
    *("symlink to nothing", "symlink to other bytes", "symlink to a folder"),
)


def damage(paths, kind):
    """Do something to each file that no file system does by itself, or does rarely.

    Its time of change is another then: by a disk that goes bad it would be the same, and what a
    process has looked at once it does not look at again for that.
    """
    for path in paths:
        _damage(Path(path), kind)


def _damage(path, kind):
    raw, before = path.read_bytes(), path.stat()
    if kind in _BYTES:
        path.chmod(0o644)
        with path.open("r+b") as file:  # in place: the same inode
            made = _BYTES[kind](raw)
            file.write(made)
            file.truncate(len(made))
        path.chmod(0o444)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000_000))
        return
    path.unlink()
    _STANDS_THERE.get(kind, lambda path: None)(path)


def _flipped(raw, at):
    at %= len(raw)
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


_BYTES = {
    "emptied": lambda raw: b"",
    "one byte": lambda raw: raw[:1],
    "halved": lambda raw: raw[: len(raw) // 2],
    "one byte less": lambda raw: raw[:-1],
    "one byte more": lambda raw: raw + b"\0",
    "twice as long": lambda raw: raw + raw,
    "first bit": lambda raw: _flipped(raw, 0),
    "middle bit": lambda raw: _flipped(raw, len(raw) // 2),
    "last bit": lambda raw: _flipped(raw, -1),
    "zeros": lambda raw: bytes(len(raw)),
    "another's": lambda raw: b"what somebody else has put here\n" * 3,
}


def _full_folder(path):
    (path / "deep" / "er").mkdir(parents=True)
    (path / "deep" / "file").write_bytes(b"x")


def _elsewhere(path, raw):
    other = Path(f"{path}.other")
    if raw is None:
        other.mkdir()
    else:
        other.write_bytes(raw)
    path.symlink_to(other)


_STANDS_THERE = {
    "folder": Path.mkdir,
    "full folder": _full_folder,
    "fifo": os.mkfifo,
    "loop": lambda path: path.symlink_to(path),
    "symlink to nothing": lambda path: path.symlink_to("nothing"),
    "symlink to other bytes": lambda path: _elsewhere(path, b"other bytes, which are no frame"),
    "symlink to a folder": lambda path: _elsewhere(path, None),
}


def copy_of(folder, target):
    return Path(shutil.copytree(folder, target, symlinks=True))
