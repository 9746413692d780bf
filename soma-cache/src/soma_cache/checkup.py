"""Whether the cache works here: what ``soma doctor`` says of it (``ActionStoreSpec.checkup``).

    variables   those that this package reads
    place       there, or can be made; readable; whose
    format      one that is known
    filesystem  what it lies on does what a cache needs, and has room
    contents    how much there is, and whether what was used last is still what was written
    remote      whether the tier behind it answers

No folder is made, and nothing in one is changed but the index, which can be had again. What comes
later waits until what stands above is fine: one cause is one finding.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from functools import partial

from soma._sizes import parse_bytes
from soma.contracts import Finding
from soma.doctor.guarded import guarded, patiently
from soma.errors import InvalidInput, describe_error, did_you_mean, shown
from soma_cache.contents import look_at_contents
from soma_cache.filesystem import look_at_room, look_at_writing
from soma_cache.folder import Folder
from soma_cache.folder_tier import FolderTier
from soma_cache.layout import UnknownFormat, blob_name, check_format
from soma_cache.opening import open_remote, without_secrets
from soma_cache.place import (
    ELSEWHERE,
    FIRST_FORMAT,
    allowing,
    find_root,
    look_at_place,
    nearest,
    stated_version,
)
from soma_cache.remote import Remote

__all__ = ["checkup"]

_VARIABLES = tuple(f"SOMA_CACHE_{name}" for name in ("DIR", "REMOTE", "FSYNC", "KEEP", "MAX_SIZE"))
_ANSWER_S = 2.0


def checkup() -> Iterator[Finding]:
    """Look at the cache that graphs have by default."""
    yield from guarded("cache variables", _variables)
    try:
        root = find_root()
    except FileNotFoundError as error:
        advice = f"cd to a folder that is there, or {ELSEWHERE}"
        yield Finding(about="cache folder", state="wrong", text=str(error), advice=advice)
    else:
        yield from _at(root)
    url = os.environ.get("SOMA_CACHE_REMOTE")
    if url:
        yield from guarded("remote cache", partial(_remote, url))


def _at(root: str) -> Iterator[Finding]:
    place = list(guarded("cache folder", partial(look_at_place, root)))
    yield from place
    if not _has_wrong(place):
        yield from guarded("cache folder", partial(_inside, root))


def _has_wrong(found: list[Finding]) -> bool:
    return any(one.state == "wrong" for one in found)


def _inside(root: str) -> Iterator[Finding]:
    if not os.path.isdir(root):
        yield from look_at_room(nearest(root))
        return
    try:
        is_cache = check_format(root)
    except OSError as error:
        yield _unknown(root, error)
        return
    if is_cache:
        yield Finding(about="cache format", state="fine", text="version 2")
    elif os.listdir(root):
        text = f"{root} holds other things, and the first result makes a cache among them"
        yield Finding(about="cache format", state="note", text=text, advice=ELSEWHERE)
    written = list(look_at_writing(root, is_cache=is_cache))
    yield from written
    yield from look_at_room(root)
    if is_cache:
        folder = Folder(root, read_only=_has_wrong(written))
        yield from look_at_contents(folder, _limit())


def _unknown(root: str, error: OSError) -> Finding:
    """Return what is wrong with what says of which format the cache is."""
    path = f"{root}/format.json"
    text, advice = f"{path} cannot be read: {describe_error(error)}", ELSEWHERE
    if isinstance(error, UnknownFormat):
        text = FIRST_FORMAT.format(root) if stated_version(root) == 1 else str(error)
    elif isinstance(error, IsADirectoryError):
        text = f"{path} is a folder, so that nothing says what lies in {root}"
    elif isinstance(error, PermissionError):
        advice = allowing(path, "u+r")
    return Finding(about="cache format", state="wrong", text=text, advice=advice)


def _variables() -> Iterator[Finding]:
    about = "cache variables"
    for name in sorted(os.environ):
        if name.startswith("SOMA_CACHE_") and name not in _VARIABLES:
            text = f"{name} is set, and nothing reads it.{did_you_mean(name, _VARIABLES)}"
            yield Finding(about=about, state="note", text=text, advice=f"unset {name}")
    said = os.environ.get("SOMA_CACHE_FSYNC") or "auto"
    if said not in ("auto", "always"):
        yield Finding(
            about=about,
            state="note",
            text=f"SOMA_CACHE_FSYNC is 'auto' or 'always', and {shown(said)} is taken for 'auto'",
            advice="export SOMA_CACHE_FSYNC=always, or: unset SOMA_CACHE_FSYNC",
        )
    size = os.environ.get("SOMA_CACHE_MAX_SIZE")
    if size and _limit() is None:
        yield Finding(
            about=about,
            state="wrong",
            text=f"SOMA_CACHE_MAX_SIZE is a size such as 500M or 20G, not {shown(size)}: nothing "
            "is removed by itself",
            advice="export SOMA_CACHE_MAX_SIZE=20G, or: unset SOMA_CACHE_MAX_SIZE",
        )
    path = os.environ.get("SOMA_CACHE_DIR")
    if path and not os.path.isabs(os.path.expanduser(path)) and _working_folder_is_there():
        yield Finding(
            about=about,
            state="note",
            text=f"SOMA_CACHE_DIR={shown(path)} counts from where a process stands, so that each "
            "place has a cache of its own",
            advice=f"export SOMA_CACHE_DIR={shlex.quote(find_root())}",
        )


def _working_folder_is_there() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _limit() -> int | None:
    """Return the size that the cache is held to; None where none is said, or none that is one."""
    try:
        return parse_bytes("SOMA_CACHE_MAX_SIZE", os.environ.get("SOMA_CACHE_MAX_SIZE"))
    except InvalidInput:
        return None


def _remote(url: str) -> Iterator[Finding]:
    about, name = "remote cache", without_secrets(url)
    try:
        remote = open_remote(url)
    except Exception as error:  # noqa: BLE001  # a tier is somebody else's code
        yield Finding(
            about=about,
            state="wrong",
            text=f"{name} cannot be used, and runs go on without it: {describe_error(error)}",
            advice="export SOMA_CACHE_REMOTE=file:///shared/cache, or: unset SOMA_CACHE_REMOTE",
        )
        return
    advice = f"is {name} mounted, and its server there? Runs go on without it"
    yield from patiently(about, partial(_ask, remote), _ANSWER_S, advice)


def _ask(remote: Remote) -> Iterator[Finding]:
    """Ask a tier for something that is not there; how it says so is all that counts."""
    about, name, tier = "remote cache", remote.name, remote.tier
    try:
        tier.exists(blob_name("0" * 64))
    except Exception as error:  # noqa: BLE001  # a tier is somebody else's code
        yield Finding(
            about=about,
            state="wrong",
            text=f"{name} does not answer as it should: {describe_error(error)}",
            advice="runs go on without it; look at it with other tools, or: unset "
            "SOMA_CACHE_REMOTE",
        )
        return
    if isinstance(tier, FolderTier) and not os.path.isdir(tier.folder):
        yield Finding(
            about=about,
            state="note",
            text=f"{tier.folder} is not there"
            + ("" if tier.read_only else ", and the first result makes it"),
            advice="is what it lies on mounted?",
        )
    elif isinstance(tier, FolderTier) and not (
        tier.read_only or os.access(tier.folder, os.W_OK | os.X_OK)
    ):
        yield Finding(
            about=about,
            state="note",
            text=f"nothing can be written to {tier.folder}: it is read only",
            advice=f"say so, and it is not tried: SOMA_CACHE_REMOTE={name}?read_only=true",
        )
    else:
        read = ", to be read" if remote.read_only else ""
        yield Finding(about=about, state="fine", text=f"{name} answers{read}")
