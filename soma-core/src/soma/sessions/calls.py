"""One child as its worker sees it: what it has, where it stands, and how it runs one node.

How it is asked, and what ends a call, is in ``asking``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from soma.engine import Action, Done
from soma.engine.blobs import Blob
from soma.sessions import travel
from soma.sessions.acts import act_fields, check_stays
from soma.sessions.asking import Asking, Handlers
from soma.sessions.home import take_home
from soma.sessions.paths import foreign_path
from soma.sessions.process import ChildProcess
from soma.sessions.settings import Settings
from soma.sessions.wire import get_parcel

__all__ = ["Child", "Handlers"]


class Child(Asking):
    """A process that runs, and what it is known to have.

    Args:
        process: the process, which has said that it is ready.
        settings: what holds for calls to it.
    """

    def __init__(self, process: ChildProcess, settings: Settings) -> None:
        super().__init__(process, settings.timeout_s)
        self._same_python = settings.python is None

    def forget(self, owner: str) -> None:
        """Let the process let go of the nodes of a graph that is gone."""
        keys = [key for key in self.known if type(key) is tuple and key[0] == owner]
        if keys:
            self.request("forget", {"owner": owner}, during="end of another graph")
        for key in keys:
            self.known.pop(key, None)

    def run(self, owner: str, action: Action, stopped: Callable[[], bool] | None = None) -> Done:
        """Run one node of a graph.

        Args:
            owner: which graph.
            action: what to run.
            stopped: says whether nobody waits any more; asked before and after it is sent.

        Raises:
            Exception: as ``soma.engine.Seat.run``.
        """
        blobs: list[Blob] = []
        fields = self._filter(owner, action, blobs)
        fields |= self.surroundings(blobs)
        fields |= {"owner": owner, **act_fields(action, blobs)}
        key = (owner, action.node)
        self.known.pop(key, None)  # until it is known what became of it
        during = f"{action.what} of node {action.node!r}"
        answer = self.request("act", fields, blobs, during=during, stopped=stopped)
        found = answer.fields
        check_stays(self.name, action, found)
        if found["attributes"] >= 0:
            take_home(action.filter, travel.unpack(answer.blobs[found["attributes"]]))
        take_home(action.filter, {}, found["removed"])
        if found["attributes"] < 0 and not found["removed"] and not found["stays"]:
            self.known[key] = fields["token"]  # else the one there is another than it was
        made = found["made"]
        return Done(
            parcel=None if made is None else get_parcel(made, answer.blobs),
            empty=found["empty"],
            summary=found["summary"],
            took_ms=found["took_ms"],
            why=found["why"],
            inside=found["inside"],
            stays=tuple(found["stays"]),
        )

    def _filter(self, owner: str, action: Action, blobs: list[Blob]) -> dict[str, Any]:
        """Return what the filter is called, and where it stands if the process needs it.

        The token has its code as well: what goes by path may change and be pickled as before.
        """
        packed, identity = travel.pack_node(action.node, action.filter), action.identity
        token = packed.token if identity is None else f"{packed.token} {identity.code}"
        fields: dict[str, Any] = {"token": token, "filter": -1, "identity": None}
        if self.known.get((owner, action.node)) == token:
            return fields
        blobs.append(packed.blob)
        fields["filter"] = len(blobs) - 1
        if identity is not None:
            parts = dict(identity.parts)
            fields["identity"] = {
                "name": identity.name,
                "code": identity.code,
                "config": identity.config,
                "parts": parts,
            }
        return fields

    def surroundings(self, blobs: list[Blob]) -> dict[str, Any]:
        """Return where this process stands, as far as it has changed since it was told last."""
        now: dict[str, Any] = {"cwd": _working_folder()}
        if self._same_python:
            now["path"] = list(map(str, sys.path))
        else:  # it has libraries of its own
            now["more_path"] = list(foreign_path())
        told = self.known.get("surroundings", {})
        fields = {name: value for name, value in now.items() if told.get(name) != value}
        self.known["surroundings"] = now
        fields["codecs"] = -1
        codecs = travel.pack_codecs()
        if codecs is not None and self.known.get("codecs") != codecs.token:
            blobs.append(codecs.blob)
            fields["codecs"] = len(blobs) - 1
            self.known["codecs"] = codecs.token
        return fields


def _working_folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed
        return ""
