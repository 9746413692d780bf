"""One run on disk, as it is at the moment of asking: also one that is still going on.

    run = RunView(".soma/runs/run_20261130T041500Z_3fa9")
    run.state                  "running", until it is "completed"
    [one.node for one in run.reused()]

Nothing is remembered beyond the change of a file, so there is nothing to refresh and nothing to
close. A folder that a newer Soma wrote can be listed by its name, and that is all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from soma.errors import InvalidInput
from soma.events.table import NodeSummary, summarize
from soma.tracking.alive import moment, state_of
from soma.tracking.reading import Kept, Lines, object_in, read_bytes, read_json, stamp_of
from soma.tracking.records import Call, Decision, Failure, MetricPoint, Notice, Reuse, Working
from soma.tracking.story import Story, measured, tell_story

if TYPE_CHECKING:
    from soma.pictures import Overlay
    from soma.plan import Plan

__all__ = ["MANIFEST", "READS", "RunView"]

MANIFEST = "manifest.json"
READS = 1
"""The newest ``schema_version`` that is understood here."""


class RunView:
    """A tracked run, read from its folder.

    Everything is read when it is asked for. Two views are equal when they are of one folder.

    Args:
        path: the folder of the run.

    Raises:
        InvalidInput: the folder is no run. Every other method and property but ``id``, ``path``,
            ``state``, ``note`` and ``is_newer`` raises it where a file cannot be read or was
            written by a newer Soma; the message names the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        """The folder."""
        if not os.path.isfile(self.path / MANIFEST):  # noqa: PTH113  # says no to any odd name
            raise InvalidInput(f"{self.path} is no run: it has no {MANIFEST}")
        self._manifest = Kept(self.path / MANIFEST, object_in)
        self._status = Kept(self.path / "status.json", object_in)
        self._told = Kept(self.path / "events.jsonl", tell_story)
        self._measured = Kept(self.path / "metrics.jsonl", measured)

    @property
    def id(self) -> str:
        """The name of its folder."""
        return self.path.name

    @property
    def is_newer(self) -> bool:
        """Whether a newer Soma wrote it, so that it cannot be read here."""
        try:
            found = self._manifest.get().get("schema_version")
        except InvalidInput:
            return False
        return type(found) is int and found > READS

    @property
    def note(self) -> str:
        """Why there is little to be said of it; empty where all is well."""
        try:
            self._head()
            self._status.get()
        except InvalidInput as error:
            return str(error)
        return ""

    @property
    def state(self) -> str:
        """How it goes or how it ended.

        ``"running"``, ``"completed"``, ``"failed"``, ``"interrupted"``, ``"crashed"`` (its process
        is no more, and it did not say why); ``"unreadable"`` (see ``note``); ``"unknown"`` (only a
        newer Soma knows).
        """
        if self.is_newer:
            return "unknown"
        try:
            self._head()
            status = self._status.get()
        except InvalidInput:
            return "unreadable"
        stamp = stamp_of(self._status.path)
        return state_of(status, written_at=None if stamp is None else stamp.mtime_ns / 1e9)

    @property
    def name(self) -> str:
        """What ``track_run`` was told to call it."""
        return _text(self._head()[0].get("name"))

    @property
    def kind(self) -> str:
        """``"run"``."""
        return _text(self._head()[0].get("kind"))

    @property
    def tags(self) -> list[str]:
        """What ``track_run`` was given."""
        found = self._head()[0].get("tags")
        return [str(one) for one in found] if isinstance(found, list) else []

    @property
    def params(self) -> dict[str, Any]:
        """What ``track_run`` was given."""
        found = self._head()[0].get("params")
        return dict(found) if isinstance(found, dict) else {}

    @property
    def created_at(self) -> datetime:
        """When it began, in UTC."""
        return self._head()[1]

    @property
    def finished_at(self) -> datetime | None:
        """When it ended, in UTC; None where it runs, or could not say."""
        return moment(self._now().get("finished_at"))

    @property
    def duration_ms(self) -> float:
        """What it took; until now where it runs, until its last sign of life where it crashed."""
        if self.state == "running":
            ended = datetime.now(UTC)
        else:
            ended = self.finished_at or self._last_sign()
        return max((ended - self.created_at).total_seconds(), 0.0) * 1e3

    def _last_sign(self) -> datetime:
        """Return when a run that did not say how it ended was last heard of."""
        found = [moment(self._now().get("heartbeat_at")) or self.created_at]
        written = stamp_of(self._told.path)
        if written is not None:
            found.append(datetime.fromtimestamp(written.mtime_ns / 1e9, UTC))
        return max(found)

    @property
    def error(self) -> str | None:
        """Type and message of what ended it."""
        return _text(self._now().get("error")) or None

    def manifest(self) -> dict[str, Any]:
        """Return what was started: manifest.json."""
        return self._checked(read_json(self._manifest.path))

    def status(self) -> dict[str, Any]:
        """Return how it goes, as it was last written: status.json."""
        self._head()
        return read_json(self._status.path)

    def graph(self) -> dict[str, Any]:
        """Return its nodes, edges and plan: graph.json."""
        self._head()
        return self._checked(read_json(self.path / "graph.json"), "graph.json")

    def plan(self) -> Plan | None:
        """Return its plan; None where the graph did not compile, as ``graph()["error"]`` says.

        Raises:
            PlanError: it is no plan, or one of a newer Soma.
        """
        from soma.plan import Plan  # which a list of runs does without

        found = self.graph().get("plan")
        return None if found is None else Plan.from_json(json.dumps(found))

    def events(self, *types: str) -> Iterator[dict[str, Any]]:
        """Return its events in order, all or those of some types; damaged lines are left out."""
        self._head()
        return _events(read_bytes(self._told.path)[0], types)

    def metrics(self) -> dict[str, list[MetricPoint]]:
        """Return what was measured: name -> points, in order."""
        return {name: list(points) for name, points in self._numbers()[0].items()}

    def calls(self) -> list[Call]:
        """Return the fits and forwards in it, in the order in which they began."""
        return list(self._story().calls)

    def nodes(self, call: str | None = None) -> list[NodeSummary]:
        """Return what was done with each node, in all calls or in the one of that id."""
        actions = self._story().actions
        return summarize(one for one in actions if call is None or one.call == call)

    def reused(self) -> list[Reuse]:
        """Return every time that something was known and not computed, in order."""
        return list(self._story().reused)

    def failures(self) -> list[Failure]:
        """Return the nodes that raised, in order."""
        return list(self._story().failures)

    def failing(self) -> list[str]:
        """Return the ids of nodes that raised and have done nothing since."""
        return list(self._story().failing)

    def decisions(self) -> list[Decision]:
        """Return what branches and loops did, in order."""
        return list(self._story().decisions)

    def notices(self) -> list[Notice]:
        """Return what a user should hear of although the run went on, in order."""
        return list(self._story().notices)

    def working(self) -> list[Working]:
        """Return what is being computed; of a run that crashed, what was when it did."""
        return list(self._story().working)

    @property
    def lost_events(self) -> int:
        """How many of its events are not in the file, or cannot be read there."""
        told = self._now().get("lost_events")
        return max(self._story().lost, told if type(told) is int else 0)

    @property
    def damaged_lines(self) -> int:
        """How many lines of its events and metrics are not what they should be."""
        return self._story().damaged + self._numbers()[1]

    def to_text(self, *, whole: bool = False) -> str:
        """Return all that there is to say of it, as ``soma runs show`` prints it.

        Args:
            whole: with each call, each reuse with its key, and the versions of packages.
        """
        from soma.tracking.text import run_text  # which a list of runs does without

        return run_text(self, whole=whole)

    def overlay(self) -> Overlay | None:
        """Return what it did, as it is laid over its picture; None where there is no plan."""
        from soma.tracking.drawn import overlay_of_run  # as above

        return overlay_of_run(self)

    def to_svg(self, *, overlay: bool = True) -> str:
        """Return a picture of its graph: SVG that needs nothing else.

        Args:
            overlay: show what it did, all its fits and forwards together.

        Raises:
            InvalidInput: the graph did not compile, or is too large for a picture.
        """
        from soma.tracking.drawn import svg_of  # as above

        return svg_of(self, overlay=overlay)

    def to_mermaid(self, *, overlay: bool = True) -> str:
        """Return its graph as the text of a flowchart, as GitHub and others draw it (mermaid).

        Args:
            overlay: as of ``to_svg``.

        Raises:
            InvalidInput: the graph did not compile.
        """
        from soma.tracking.drawn import mermaid_of  # as above

        return mermaid_of(self, overlay=overlay)

    def graph_text(self) -> str:
        """Return its graph as a drawing in text.

        Raises:
            InvalidInput: the graph did not compile.
        """
        from soma.tracking.drawn import graph_text  # as above

        return graph_text(self)

    def to_html(self) -> str:
        """Return a page that needs nothing else: graph, timeline, reuse, metrics, failures."""
        from soma.tracking.report import run_page  # as above

        return run_page(self)

    def _head(self) -> tuple[dict[str, Any], datetime]:
        """Return the manifest, and when the run began: without either it is no run."""
        found = self._checked(self._manifest.get())
        began = moment(found.get("created_at"))
        if began is None:
            raise InvalidInput(f"{self._manifest.path} is damaged: created_at is no time")
        return found, began

    def _now(self) -> dict[str, Any]:
        self._head()
        return self._status.get()

    def _story(self) -> Story:
        self._head()
        return self._told.get()

    def _numbers(self) -> tuple[dict[str, list[MetricPoint]], int]:
        self._head()
        # The file is there from the first number on.
        return self._measured.get() if stamp_of(self._measured.path) else ({}, 0)

    def _checked(self, data: dict[str, Any], name: str = MANIFEST) -> dict[str, Any]:
        version = data.get("schema_version")
        if type(version) is not int:
            raise InvalidInput(f"{self.path / name} is damaged: it has no schema_version")
        if version > READS:
            raise InvalidInput(
                f"{self.path} was written by a newer Soma (format {version}; this one reads "
                f"{READS}): pip install -U soma-core"
            )
        return data

    def _repr_html_(self) -> str:
        from soma.tracking.text import run_html

        return run_html(self)

    def __repr__(self) -> str:
        return f"<RunView {self.id!r}: {self.state}>"

    def __eq__(self, other: object) -> bool:
        return self.path == other.path if isinstance(other, RunView) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.path)


def _events(data: bytes, types: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for event in Lines(data):
        if not types or event.get("event_type") in types:
            yield event


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
