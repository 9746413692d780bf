"""The folder of a run while it is written: made whole, filled by a listener, and closed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from soma.events import Event
from soma.masking.mask import Mask
from soma.masking.texts import may_hold_secrets, secrets_of
from soma.tracking.files import replace_json, sync_folder
from soma.tracking.graph_record import describe_graph
from soma.tracking.jsonl import EVENTS, JsonlSink
from soma.tracking.manifest import make_manifest
from soma.tracking.names import new_name
from soma.tracking.notices import tell_gap
from soma.tracking.source import Source
from soma.tracking.status import STATUS, Status, first_status
from soma.tracking.words import OWN_WORDS

__all__ = ["Recorder"]

MANIFEST = "manifest.json"
GRAPH = "graph.json"
_ATTEMPTS = 100
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
_TELLING = ("RunStarted", "NodeFailed", "RunFailed")
"""Before these, what is secret is looked at again."""


class Recorder:
    """The folder of one run, and the subscription that fills it.

    Raises:
        OSError: the folder cannot be made; nothing is left of it.
    """

    def __init__(self, source: Source, root: Path, said: Mapping[str, Any]) -> None:
        self._source = source
        self._mask = Mask()
        self._mask.keep(OWN_WORDS)
        self._holders: list[Any] = []
        self._holders_of = -1
        self._read_secrets()
        self._version = source.declared.version
        self._told = False
        status = first_status()

        def files(run_id: str) -> dict[str, Any]:
            manifest = make_manifest(
                run_id, **said, seed=source.seed, node_ids=list(source.declared.nodes)
            )
            self._mask.keep((run_id, manifest["created_at"]))
            return {MANIFEST: self._mask(manifest), STATUS: status, GRAPH: self._graph()}

        self.folder = _make_folder(root, said["kind"], said["created_at"], files)
        self._status = Status(self.folder, status)
        with ExitStack() as undo:  # of what is half begun nothing may stay
            undo.callback(_remove, self.folder)
            self._sink = JsonlSink(self.folder, self._mask, self._before)
            undo.callback(self._sink.close)
            self._subscription = source.bus.subscribe(
                self._sink, plain=False, name="the record of a run"
            )
            undo.callback(self._subscription.cancel)
            self._end_sinks = source.sinks.open_for(self.folder)
            undo.callback(self._end_sinks)
            self._status.start_heart()
            _live.add(self.folder.name)
            undo.pop_all()

    def _read_secrets(self) -> None:
        """See what is secret by now; filters that had nothing secret are not asked again."""
        version = self._source.declared.version
        if version != self._holders_of:
            every = [one.filter for one in list(self._source.declared.filters.values())]
            self._holders = [one for one in every if may_hold_secrets(one)]
            self._holders_of = version
        self._mask.add(text for one in self._holders for text in secrets_of(one))

    def _graph(self) -> Any:
        source = self._source
        return self._mask(describe_graph(source.declared.freeze(), source.compiled))

    def _before(self, event: Event) -> bool:
        """See what is secret by now, and before a fit or forward whether the graph has changed.

        Returns:
            Whether the event is to be written: what another run logs on the same graph is not.
        """
        run_id = getattr(event, "run_id", "")
        if run_id in _live and run_id != self.folder.name:
            return False
        if event.event_type in _TELLING:
            self._read_secrets()
        if event.event_type == "RunStarted":
            self._write_graph()
        return True

    def _write_graph(self) -> None:
        """Write the graph where it has changed."""
        version = self._source.declared.version
        if version == self._version:
            return
        try:
            replace_json(self.folder / GRAPH, self._graph())
            self._version = version
        except Exception as error:  # noqa: BLE001  # whatever it is, the event is to be written
            if not self._told:
                self._told = True
                tell_gap(f"the graph of a run was not written to {self.folder}", error)

    def end(self, state: str, error: str | None) -> None:
        """Close the files and say how it ended; once more, where that was interrupted."""
        said = error
        try:
            for step in (self._subscription.cancel, self._end_sinks, self._sink.close):
                self._tried(step)
            if error is not None and not self._tried(self._read_secrets):
                said = error.partition(":")[0]  # nobody knows what is secret in the rest
        finally:
            self._status.finish(state, self._mask(said), self._sink.lost)
            _live.discard(self.folder.name)

    def _tried(self, step: Callable[[], object]) -> bool:
        """Take a step that may not keep others from being taken; say whether it went well."""
        try:
            step()
        except Exception as error:  # noqa: BLE001  # somebody else's code
            tell_gap(f"the record in {self.folder} did not end as it should", error)
            return False
        return True


_live: set[str] = set()
"""The runs that are recorded in this process."""


def _make_folder(
    root: Path, kind: str, began: datetime, files: Callable[[str], Mapping[str, Any]]
) -> Path:
    """Make the folder of a run under a hidden name, and rename it when all is in it.

    Raises:
        OSError: it cannot be made, and nothing is left of it.
    """
    is_new, runs = not root.exists(), root / "runs"
    runs.mkdir(parents=True, exist_ok=True)  # others may be making it, too
    if is_new:
        (root / ".gitignore").write_text("*\n")
    for _ in range(_ATTEMPTS):
        run_id = new_name(kind, began)
        hidden = runs / f".{run_id}.{os.getpid()}.tmp"
        try:
            hidden.mkdir()
        except FileExistsError:
            continue
        try:
            for name, data in files(run_id).items():
                replace_json(hidden / name, data, sync=True)
            (hidden / EVENTS).touch()
            sync_folder(hidden)
            hidden.rename(runs / run_id)
            break
        except BaseException as error:
            _remove(hidden)
            if not (isinstance(error, OSError) and error.errno in _TAKEN):
                raise
    else:
        raise FileExistsError(f"{runs} has a run of every name that was tried")
    with suppress(OSError):
        sync_folder(runs)
    return runs / run_id


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # where no file can be opened, it is still there, and empty
        folder.rmdir()
