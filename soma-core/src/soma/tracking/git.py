"""Which commit the code was at, read from the files of git: starting git takes 5 to 50 ms.

Whether the tree was changed since is not looked at: that means comparing every file in it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["git_head"]

_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def git_head(folder: Path) -> dict[str, Any] | None:
    """Return ``sha`` and ``branch`` of the repository around a folder; None where there is none."""
    try:
        found = _find(folder)
        return None if found is None else _head(found)
    except (OSError, ValueError):  # unreadable, or no repository after all
        return None


def _find(folder: Path) -> Path | None:
    for one in (folder, *folder.parents):
        dot_git = one / ".git"
        if dot_git.is_dir():
            return dot_git
        if dot_git.is_file():  # a worktree or a submodule
            return one / _text(dot_git).removeprefix("gitdir:").strip()
    return None


def _head(found: Path) -> dict[str, Any] | None:
    head = _text(found / "HEAD")
    if not head.startswith("ref:"):
        sha = _sha(head)
        return None if sha is None else {"sha": sha, "branch": None, "dirty": None}
    ref = head.removeprefix("ref:").strip()
    common = found / "commondir"
    shared = found / _text(common) if common.is_file() else found
    sha = _loose(found, ref) or _loose(shared, ref) or _packed(shared, ref)
    return {"sha": sha, "branch": ref.removeprefix("refs/heads/"), "dirty": None}


def _loose(folder: Path, ref: str) -> str | None:
    path = folder / ref
    return _sha(_text(path)) if path.is_file() else None


def _packed(folder: Path, ref: str) -> str | None:
    path = folder / "packed-refs"
    if path.is_file():
        for line in _text(path).splitlines():
            sha, _, name = line.partition(" ")
            if name == ref:
                return _sha(sha)
    return None  # a branch without a commit yet


def _text(path: Path) -> str:
    if not path.is_file():  # a pipe would be waited for
        raise FileNotFoundError(path)
    return path.read_text(encoding="utf-8").strip()


def _sha(text: str) -> str | None:
    return text if _SHA.fullmatch(text) else None
