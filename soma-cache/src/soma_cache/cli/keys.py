"""KEY on the command line: 64 hexadecimal digits, or a beginning that only one key has.

All keys of one beginning lie in one folder, so that one list of names is all that it takes.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from soma.errors import shown
from soma.events.human import printable
from soma_cache.cli.options import WrongUse
from soma_cache.cli.saying import named, short
from soma_cache.folder import Folder
from soma_cache.layout import blob_name, is_hash, parse_name, record_name

__all__ = ["find_key"]

_BEGINNING = re.compile(r"[0-9a-f]{4,64}")
_NAMED = 5


def find_key(folder: Folder, text: str) -> str:
    """Return the key that a text means. Its record is there, and may be damaged.

    Raises:
        WrongUse: it is no key, none has that beginning, or several have.
        OSError: the folder cannot be read.
    """
    wanted = text.strip().lower()
    if _BEGINNING.fullmatch(wanted) is None:
        raise WrongUse(
            f"{shown(text)} is no key: that is 64 hexadecimal digits, or their beginning, 4 at "
            "least. Those of a run: soma runs show RUN --all"
        )
    found = _beginning(folder, os.path.dirname(record_name(wanted)), wanted)
    if not found:
        raise WrongUse(_unknown(folder, wanted))
    if len(found) > 1:
        raise WrongUse(_ambiguous(folder, wanted, found))
    return found[0]


def _beginning(folder: Folder, shard: str, wanted: str) -> list[str]:
    """Return the keys, or digests, in one folder that begin like that."""
    names: list[str] = []
    with (
        suppress(FileNotFoundError, NotADirectoryError),
        os.scandir(f"{folder.root}/{shard}") as found,
    ):
        names = [one.name for one in found if not one.is_dir()]  # which is passed over everywhere
    parsed = (parse_name(f"{shard}/{name}") for name in names)
    return sorted(one[1] for one in parsed if one is not None and one[1].startswith(wanted))


def _unknown(folder: Folder, wanted: str) -> str:
    where = printable(folder.root)
    if _beginning(folder, os.path.dirname(blob_name(wanted)), wanted):
        return (
            f"{wanted} is the hash of a result in {where}, not a key: keys are the names below "
            "actions. Those of a run: soma runs show RUN --all"
        )
    which = f"the key {wanted}" if is_hash(wanted) else f"a key that begins with {wanted}"
    return f"There is no record of {which} in {where}."


def _ambiguous(folder: Folder, wanted: str, found: list[str]) -> str:
    listed = []
    for key in found[:_NAMED]:
        read = folder.record(key)
        about = "damaged" if read is None else named(read.record)
        listed.append(f"{key[: _telling(found)]} {about}")
    more = f", and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"{wanted} may be any of: {', '.join(listed)}{more}. Give more of its digits."


def _telling(found: list[str]) -> int:
    """Return how many digits tell them apart, and are easy to read."""
    most = max(map(len, found))
    apart = next(n for n in range(1, most + 1) if len({key[:n] for key in found}) == len(found))
    return max(apart, len(short(found[0])))
