"""Keys that are spared by gc, under names: one small file for each, which says the key.

The name is in the file name, percent-encoded, so any text can be one. What else lies in the folder
is passed over: what is named as no pin would be, and what says something else than a key.

The surprise: a pin whose file says half a key, or is empty, is still one. What it kept cannot be
told, so whoever would remove something stops, until it is pinned anew or taken away.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from string import hexdigits
from typing import Any, NamedTuple

from soma.errors import InvalidInput, describe_error, did_you_mean, shown
from soma_cache import files
from soma_cache.folder import Folder
from soma_cache.layout import is_hash, name_of_pin, pin_file

__all__ = ["Pins", "look_at_pins", "pin", "pins", "sure_pins", "unpin"]

_MOST_NAME_BYTES = 255
_KEY_DIGITS = 64


class Pins(NamedTuple):
    """The pins of a folder."""

    keys: dict[str, str]
    """Name -> key."""
    unclear: dict[str, str]
    """Name -> why nobody knows its key."""
    closed: str = ""
    """Why their folder cannot be listed; empty where it can."""

    def unreadable(self) -> list[tuple[str, str]]:
        """Return (name of a file in the cache, why it does not say which key)."""
        found = [(f"pins/{pin_file(name)}", why) for name, why in sorted(self.unclear.items())]
        return [("pins", self.closed), *found] if self.closed else found


def pin(folder: Folder, name: Any, key: str) -> None:
    """Note a key under a name.

    Raises:
        InvalidInput: it is no name, or too long for a file.
        OSError: it cannot be written.
    """
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"the name of a pin is a text, not {shown(name)}")
    file = pin_file(name)
    if len(file) > _MOST_NAME_BYTES:
        raise InvalidInput(f"the name of a pin is too long: {shown(name)}")
    folder.prepare_to_change()
    files.put_file(folder.root, f"pins/{file}", [f"{key}\n".encode("ascii")], durable=True)
    folder.sync_name(f"pins/{file}")


def unpin(folder: Folder, name: str) -> None:
    """Take a pin away, also one that says no key.

    Raises:
        KeyError: there is no pin of that name.
        OSError: it cannot be taken away.
    """
    found = _found(folder)
    if name not in found.keys and name not in found.unclear:
        known = [*found.keys, *found.unclear]
        raise KeyError(f"There is no pin {name!r}.{did_you_mean(str(name), known)}")
    folder.prepare_to_change()
    with suppress(FileNotFoundError):  # somebody else has taken it away just now
        os.unlink(f"{folder.root}/pins/{pin_file(name)}")


def pins(folder: Folder) -> dict[str, str]:
    """Return name -> key of every pin that says one.

    Raises:
        OSError: their folder cannot be listed.
    """
    return _found(folder).keys


def sure_pins(folder: Folder) -> dict[str, str]:
    """Return name -> key of every pin, for who would remove what no pin keeps.

    Raises:
        OSError: of one nobody knows the key, or their folder cannot be listed.
    """
    found = _found(folder)
    for name, why in sorted(found.unclear.items()):
        raise OSError(
            f"{folder.root}/pins/{pin_file(name)} does not say what the pin {shown(name)} keeps "
            f"({why}). Nothing was removed: pin it anew (soma cache pin NAME KEY), or take it away "
            "(soma cache unpin NAME)"
        )
    return found.keys


def look_at_pins(folder: Folder) -> Pins:
    """Return the pins, with what cannot be read of them."""
    try:
        return _found(folder)
    except OSError as error:
        return Pins({}, {}, describe_error(error))


def _found(folder: Folder) -> Pins:
    found = Pins({}, {})
    with suppress(FileNotFoundError, NotADirectoryError):
        for file in os.listdir(f"{folder.root}/pins"):
            try:
                name = name_of_pin(file)
            except UnicodeError:  # somebody else's
                continue
            if pin_file(name) == file:
                _enter(found, name, f"{folder.root}/pins/{file}")
    return found


def _enter(found: Pins, name: str, path: str) -> None:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return
        raw = files.read_file(path)
    except FileNotFoundError:
        return
    except OSError as error:
        found.unclear[name] = error.strerror or describe_error(error)
        return
    if raw is None:  # it is gone
        return
    key = raw.decode("ascii", "replace").strip()  # an editor may have ended the line in its own way
    if is_hash(key):
        found.keys[name] = key
    elif _was_one(raw, key):
        found.unclear[name] = f"it says {shown(key)}, which is no key" if key else "it is empty"


def _was_one(raw: bytes, text: str) -> bool:
    """Say whether a file may have said a key before it was cut or changed: other files are foreign.

    It is as long as one, or what there is of it could be the beginning: nothing at all as well.
    """
    return abs(len(raw) - _KEY_DIGITS) <= len(b"\r\n") or all(one in hexdigits for one in text)
