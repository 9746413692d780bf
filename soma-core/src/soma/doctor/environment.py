"""What a process of this user is started with: variables that core reads, limits, a folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from packaging.utils import canonicalize_name

from soma.contracts import Finding
from soma.doctor.guarded import guarded
from soma.errors import describe_error, did_you_mean, shown
from soma.plugins import reports
from soma.plugins.candidates import let_in_by_environment

__all__ = ["look_at_environment"]

_LEAST_DESCRIPTORS, _ENOUGH_DESCRIPTORS = 1024, 4096
_NAMES = frozenset({"SOMA_LOAD_PLUGINS", "SOMA_STRICT_PLUGINS"})


def look_at_environment() -> Iterator[Finding]:
    """Look at the environment of this process."""
    yield from guarded("variables", _variables)
    yield from guarded("open files", _descriptors)
    yield from guarded("working folder", _working)
    yield from guarded("temporary files", _temporary)


def _variables() -> Iterator[Finding]:
    faults = [*_switches(), *_misspelt(), *_keep()]
    yield from faults
    there = sorted(name for name in os.environ if name.startswith("SOMA_"))
    if not faults:
        # Names only: there may be a password in an address.
        text = f"{', '.join(there)}" if there else "none of Soma's is set"
        yield Finding(about="variables", state="fine", text=text)


def _switches() -> Iterator[Finding]:
    installed = {report.dist for report in reports()}
    for name in sorted((let_in_by_environment() or frozenset()) - installed):
        yield Finding(
            about="variables",
            state="note",
            text=f"SOMA_LOAD_PLUGINS names {name}, and no plugin of that name is installed."
            f"{did_you_mean(canonicalize_name(name), installed)}",
            advice="see: soma plugins list",
        )


def _misspelt() -> Iterator[Finding]:
    """Look for what is nearly a name of ours; others may be some plugin's own."""
    for name in sorted(os.environ.keys() - _NAMES):
        if name.startswith("SOMA_") and get_close_matches(name, _NAMES, n=1, cutoff=0.9):
            yield Finding(
                about="variables",
                state="note",
                text=f"{name} is set, and nothing reads it.{did_you_mean(name, _NAMES)}",
                advice=f"unset {name}",
            )


def _keep() -> Iterator[Finding]:
    said = os.environ.get("SOMA_CACHE_KEEP")
    if said not in (None, "", "all"):
        yield Finding(
            about="variables",
            state="note",
            text=f"SOMA_CACHE_KEEP is 'all' or not set; {shown(said)} means nothing",
            advice="export SOMA_CACHE_KEEP=all, or: unset SOMA_CACHE_KEEP",
        )


def _descriptors() -> Iterator[Finding]:
    import resource  # which is not everywhere

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _LEAST_DESCRIPTORS:
        limit = "any number" if soft == resource.RLIM_INFINITY else f"{soft:,}"
        yield Finding(about="open files", state="fine", text=f"{limit} at a time")
        return
    may = _ENOUGH_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_DESCRIPTORS)
    yield Finding(
        about="open files",
        state="note",
        text=f"{soft:,} at a time: half of them may hold large results in memory, and what is "
        "beyond that is copied instead",
        advice=f"ulimit -n {may}" if may > soft else "ask who runs this machine for more (nofile)",
    )


def _working() -> Iterator[Finding]:
    try:
        Path.cwd()
    except OSError as error:
        yield Finding(
            about="working folder",
            state="wrong",
            text=f"the one that this process stands in is gone or closed: {describe_error(error)}",
            advice="cd ~",
        )


def _temporary() -> Iterator[Finding]:
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError as error:
        yield Finding(
            about="temporary files",
            state="wrong",
            text=f"there is no folder for them: {error.strerror or error}",
            advice="name one that can be written: export TMPDIR=/path/of/folder",
        )
    else:
        yield Finding(about="temporary files", state="fine", text=f"in {folder}")
