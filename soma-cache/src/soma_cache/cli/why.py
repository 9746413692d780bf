"""``soma cache why RUN NODE``: which part of a key was another, so that the node was computed.

The run says what was looked up and not found, the cache what there was: ``g.explain_miss`` of a run
that is over, in any process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from soma.contracts import ActionRecord
from soma.engine.misses import (
    GONE,
    REFRESHED,
    Miss,
    MissReport,
    explain_record,
    look_up,
    of_class,
)
from soma.errors import UnknownName, did_you_mean
from soma.events.human import one_line
from soma.tracking.find import find_run
from soma.tracking.view import RunView
from soma_cache.cli.computed import Computed, NodeHistory, read_history
from soma_cache.cli.feeding import sources_of
from soma_cache.cli.options import WrongUse, as_json_option, dir_option, runs_option
from soma_cache.cli.places import folder_to_read
from soma_cache.cli.saying import print_json
from soma_cache.layout import is_hash
from soma_cache.store import DiskStore

__all__ = ["why"]

_NOT_LOOKED_UP = (
    "it was not looked up: what goes into it has no hash, or it is never kept (_cacheable = False; "
    "or _deterministic = False, without a seed)"
)
_UNRECORDED = (
    "it was looked up and not found, and there is no record of it in this cache: it could not be "
    "kept, was removed since, or the run had another cache (--dir)"
)
_ELSEWHERE = (
    "this cache had it before that: the run used another cache (--dir), or this one was given it "
    "since, by a copy or a tier"
)
_SINCE = (
    "it is new, or what was there before has been recorded anew since. Compared with a record made "
    "since: {}"
)


@click.command()
@click.argument("run")
@click.argument("node")
@runs_option
@dir_option
@as_json_option
def why(*, run: str, node: str, runs: Path, root: str | None, as_json: bool) -> None:
    """Say why a node was computed in a run.

    Which attribute, method, input, state, seed or option was another than in the nearest record of
    the same class. RUN is as of soma runs: an id, a name, or last. Exits with 2 if there is no such
    run or node.
    """
    try:
        view = find_run(runs, run)
    except UnknownName as error:
        raise WrongUse(one_line(str(error), 10_000)) from error
    history = read_history(view.events(), node)
    sources = sources_of(view, node)
    if not history.computed and not history.hits:
        _check_node(view, node, history)
    asks = any(one.key for one in history.computed)
    store = DiskStore(folder_to_read(root)) if asks else None
    explained = _Explained(store, history, sources)
    misses = tuple(explained.miss(node, one) for one in history.computed)
    report = MissReport(node=node, misses=misses, hits=history.hits)
    if as_json:
        print_json(
            {
                "run": view.id,
                "node": node,
                "hits": report.hits,
                "misses": [_as_data(one) for one in report.misses],
            }
        )
    else:
        click.echo(report.to_text())


def _nodes(view: RunView) -> dict[str, str]:
    """Return id -> kind of the nodes that stand in the graph of the run, also in bodies."""
    nodes = view.graph().get("nodes")
    found = {}
    for one in nodes if isinstance(nodes, list) else []:
        if isinstance(one, dict) and isinstance(one.get("id"), str):
            kind = one.get("kind")
            found[one["id"]] = str(kind.get("type")) if isinstance(kind, dict) else ""
    return found


def _check_node(view: RunView, node: str, history: NodeHistory) -> None:
    """Raise where the run has no such node, or one that computes nothing."""
    nodes = _nodes(view)
    if history.decides or nodes.get(node) in ("branch", "loop"):
        raise WrongUse(
            f"{one_line(repr(node))} is a branch or a loop, which computes nothing itself: ask the "
            "nodes in it"
        )
    known = {*nodes, *history.others}
    if node not in known:
        raise WrongUse(
            f"There is no node {one_line(repr(node))} in the run {view.id}."
            f"{did_you_mean(node, known)}"
        )


class _Explained:
    """Explains the rows of one node; the records of its class are read once."""

    def __init__(
        self, store: DiskStore | None, history: NodeHistory, sources: Sequence[str] | None
    ) -> None:
        self._store = store
        self._history = history
        self._sources = sources
        self._others: dict[str, list[ActionRecord]] = {}

    def miss(self, node: str, row: Computed) -> Miss:
        if row.call in self._history.refreshed:
            return _miss(node, row, REFRESHED)
        store = self._store
        record = look_up(store, row.key) if store is not None and is_hash(row.key) else None
        if store is None or record is None or row.outcome == "recomputed":
            return _miss(node, row, self._plain_reason(row))
        if self._was_there(record, row):
            return _miss(node, row, _ELSEWHERE)
        found = self._compared(store, record, None if row.passes else self._sources)
        return _miss(node, row, found.reason, found)

    def _was_there(self, record: ActionRecord, row: Computed) -> bool:
        """Say whether this cache has had the very result since before it was looked up."""
        began = self._history.began.get(row.call)
        is_ours = record.origin.get("run") in self._history.calls
        return began is not None and not is_ours and record.created_at < began

    def _compared(
        self, store: DiskStore, record: ActionRecord, sources: Sequence[str] | None
    ) -> Miss:
        """Compare a record with what was there before the run; else with what the run has made.

        Where nothing older is left, with what is there now. It may be what was there, made anew
        since: by a refresh, or after it was removed.
        """
        others = self._of_class(store, record.name)
        before = [one for one in others if one.origin.get("run") not in self._history.calls]
        found = explain_record(record, before, sources)
        if found.nearest is None:
            found = explain_record(record, others, sources)
        if found.nearest is not None:
            return found
        counted = [replace(one, created_at=record.created_at) for one in before]
        since = explain_record(record, counted, sources)
        if since.nearest is None:
            return found  # it is the only one
        key = since.nearest.key
        nearest = next(one for one in before if one.key == key)
        return replace(since, reason=_SINCE.format(since.reason), nearest=nearest)

    def _of_class(self, store: DiskStore, name: str) -> list[ActionRecord]:
        if name not in self._others:
            self._others[name] = list(of_class(store, name))
        return self._others[name]

    def _plain_reason(self, row: Computed) -> str:
        if row.outcome == "recomputed":
            return GONE
        if row.outcome == "failed":
            return f"it was not known, and then it raised {one_line(row.error)}"
        if row.outcome == "unfinished":
            return "it was not known, and nothing says that it was made: the run goes on, or ended"
        told = [message for call, message in self._history.notices if call == row.call]
        if told:
            return one_line(told[0], 1000)
        return _UNRECORDED if row.key else _NOT_LOOKED_UP


def _miss(node: str, row: Computed, reason: str, found: Miss | None = None) -> Miss:
    return Miss(
        node=node,
        what=row.what,
        passes=row.passes,
        key=row.key,
        reason=reason,
        differs=() if found is None else found.differs,
        nearest=None if found is None else found.nearest,
    )


def _as_data(miss: Miss) -> dict[str, Any]:
    nearest = miss.nearest
    return {
        "what": miss.what,
        "passes": list(miss.passes),
        "key": miss.key,
        "reason": miss.reason,
        "differs": [{"part": one.part, "how": one.how} for one in miss.differs],
        "nearest": None
        if nearest is None
        else {
            "key": nearest.key,
            "node": nearest.origin.get("node", ""),
            "run": nearest.origin.get("run", ""),
            "created_at": nearest.created_at,
        },
    }
