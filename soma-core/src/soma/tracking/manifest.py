"""What was started: everything that is known of a run before it does anything."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from soma._version import __version__
from soma.masking.argv import masked_argv
from soma.tracking.git import git_head
from soma.tracking.names import now_text

__all__ = ["SCHEMA_VERSION", "make_manifest"]

SCHEMA_VERSION = 1


def make_manifest(
    run_id: str,
    *,
    kind: str,
    name: str,
    created_at: datetime,
    tags: Sequence[str],
    params: Mapping[str, Any],
    seed: int | None,
    node_ids: Sequence[str],
) -> dict[str, Any]:
    """Return the manifest of a run that begins now, in this process."""
    folder = _cwd()
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        "kind": kind,
        "name": name,
        "tags": list(tags),
        "params": dict(params),
        "notes": None,
        "parent_run_id": None,
        "created_at": now_text(created_at),
        "soma_version": __version__,
        "python_version": platform.python_version(),
        "platform": f"{os.uname().sysname} {os.uname().release} {os.uname().machine}",
        "versions": _versions(),
        "hostname": os.uname().nodename,
        "cwd": str(folder) if folder is not None else None,
        "entrypoint": _entrypoint(),
        "argv": masked_argv(map(str, getattr(sys, "argv", ()))),  # embedded, there may be none
        "git": git_head(folder) if folder is not None else None,
        "seeds": {"graph": seed},
        "graph": {
            "n_nodes": len(node_ids),
            "node_ids": list(node_ids),
            "graph_path": "graph.json",
        },
    }


def _cwd() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was removed
        return None


def _entrypoint() -> str | None:
    """Return the file that was started; None at a prompt, in a notebook, or for ``-c``."""
    main = sys.modules.get("__main__")
    found = getattr(main, "__file__", None)
    return str(found) if found else None


def _versions() -> dict[str, str]:
    """Return package -> version of what is imported.

    As the packages say it themselves: reading the metadata of each would take milliseconds.
    """
    found = {}
    for name, module in sorted(sys.modules.items()):
        if "." in name or name.startswith("_") or not isinstance(module, ModuleType):
            continue
        # Not by vars(): a module that is loaded when it is first used would be loaded now.
        version = object.__getattribute__(module, "__dict__").get("__version__")
        if isinstance(version, str) and name not in sys.stdlib_module_names:
            found[name] = version
    return found
