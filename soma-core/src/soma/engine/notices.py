"""What users should hear of although the run goes on: in the report, as an event, and on stderr."""

from __future__ import annotations

from typing import Any

from soma._notices import tell_once
from soma.engine.announcer import Announcer
from soma.engine.program import Program
from soma.engine.report import Notice, RunReport
from soma.errors import describe_error

__all__ = ["Notices"]

_ONCE = ("NodeNotKept", "LoopNotStopped")
"""Kinds of which a run says the same but once."""


class Notices:
    """The notices of one run."""

    def __init__(self, program: Program, report: RunReport, announcer: Announcer) -> None:
        self._program = program
        self._report = report
        self._announcer = announcer
        self._told: set[Notice] = set()

    def tell(self, kind: str, node: str, message: str, *, once: Any = None) -> None:
        """Enter a notice into the report; with ``once``, say it on stderr as well."""
        notice = Notice(kind, node, message)
        if kind in _ONCE:  # in every pass of a loop it would be the same
            if notice in self._told:
                return
            self._told.add(notice)
        self._report.notices.append(notice)
        self._announcer.notice(kind, node, message)
        if once is not None:
            tell_once((kind, once), message)

    def start_over(self) -> None:
        """Take back how loops ended: they may end otherwise."""
        notices = self._report.notices
        notices[:] = [one for one in notices if one.kind != "LoopNotStopped"]
        self._told = {one for one in self._told if one.kind != "LoopNotStopped"}

    def not_kept(self, place: int, why: str | BaseException) -> None:
        """Say that what a node made cannot be kept."""
        id_, label = self._program.ids[place], self._program.traits[place].label
        text = describe_error(why) if isinstance(why, BaseException) else why
        self.tell(
            "NodeNotKept",
            id_,
            f"what {id_!r} ({label}) made could not be kept and is computed every time: {text}",
            once=text,
        )
