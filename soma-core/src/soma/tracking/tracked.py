"""A run that leaves a record: a folder that is made whole, filled while it runs, and closed.

    with g.track_run("baseline", params={"lr": 0.1}) as run:
        g.fit(x, y)
        run.log("loss", 0.25, step=3)

Recording is never the reason why a run fails. A folder that cannot be written is one line on
stderr, and everything goes on without it.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from soma.errors import InvalidInput, describe_error, shown
from soma.events import Bus, Metric, MetricReported, check_event
from soma.events.plain import Wrong, copy_plain
from soma.tracking.names import new_name
from soma.tracking.notices import tell_gap
from soma.tracking.source import Source

if TYPE_CHECKING:
    from soma.tracking.recorder import Recorder

__all__ = ["TrackedRun", "track"]

_KIND = "run"


class TrackedRun:
    """One run that is recorded. Leave its ``with`` block, or call ``finish``, to end it."""

    def __init__(self, run_id: str, name: str, recorder: Recorder | None, bus: Bus) -> None:
        self.id = run_id
        """The name of its folder."""
        self.name = name
        self._recorder = recorder
        self._bus = bus
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._finished = False
        self._ending: tuple[str, str | None] = (
            "interrupted",
            "the interpreter ended before the run was finished",
        )
        atexit.register(self._at_exit)

    @property
    def path(self) -> Path | None:
        """Its folder; None where none could be made."""
        return self._recorder.folder if self._recorder is not None else None

    def log(self, name: str, value: float, step: int | None = None) -> None:
        """Record a number: ``run.log("loss", 0.25, step=3)``.

        Whoever listens to the graph hears of it as ``MetricReported``.

        Args:
            name: what it is called.
            value: the number; NaN and infinities are numbers.
            step: when in the run; None where there are no steps.

        Raises:
            InvalidInput: a name, value or step of another type, or a run that is finished.
        """
        if self._finished:
            raise InvalidInput(f"log({shown(name)}): the run {self.name!r} is finished")
        if not str(name).strip():
            raise InvalidInput(f"log({shown(name)}): the name of a metric says something")
        metric = Metric(name=name, value=value, step=step)
        self._bus.emit(check_event(MetricReported(run_id=self.id, metric=metric)))

    def finish(self, error: BaseException | None = None) -> None:
        """End it; does nothing the second time, or in a fork.

        Args:
            error: what ended it: the run counts as failed, or as interrupted by Ctrl-C.

        Raises:
            InvalidInput: ``error`` is no exception.
        """
        if error is not None and not isinstance(error, BaseException):
            raise InvalidInput(f"finish takes the exception that ended a run, not {shown(error)}")
        if os.getpid() != self._process:
            return
        with self._lock:
            if not self._finished:
                self._finished = True
                self._ending = _ending(error)
                self._close()

    def _close(self) -> None:
        if self._recorder is not None:
            self._recorder.end(*self._ending)
        atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        """End it where nobody did, or where Ctrl-C came between."""
        if os.getpid() == self._process:
            with self._lock:
                if not self._finished and _uncaught() is not None:
                    self._ending = _ending(_uncaught())
                self._finished = True
                self._close()

    def __enter__(self) -> Self:
        if self._finished:
            raise InvalidInput(f"The run {self.name!r} is finished. Track another one")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.finish(error)

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows: the record as far as it is; None where there is none."""
        if self.path is None:
            return None
        from soma.tracking.view import RunView  # which only those who look need

        try:
            return RunView(self.path)._repr_html_()
        except InvalidInput:  # it was removed
            return None

    def __repr__(self) -> str:
        where = "not recorded" if self.path is None else f"at {str(self.path)!r}"
        return f"<TrackedRun: {self.name!r}, {where}{', finished' if self._finished else ''}>"


def _uncaught() -> BaseException | None:
    """Return the exception that ends a script; None at a prompt, where it ends nothing."""
    return None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)


def _ending(error: BaseException | None) -> tuple[str, str | None]:
    if error is None or (isinstance(error, SystemExit) and _is_clean(error.code)):
        return "completed", None
    state = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
    return state, describe_error(error)


def _is_clean(code: object) -> bool:
    """Say whether a program ends well with it; anything but a number is a complaint."""
    return code is None or (isinstance(code, int) and code == 0)


def track(
    source: Source,
    name: Any,
    *,
    root: Any,
    tags: Any,
    params: Any,
) -> TrackedRun:
    """Begin to record a graph.

    Raises:
        InvalidInput: the name, a tag or a parameter is not what it should be.
    """
    began = datetime.now(UTC)
    said = {
        "kind": _KIND,
        "name": _checked_name(name),
        "created_at": began,
        "tags": _checked_tags(tags),
        "params": _checked_params(params),
    }
    folder = _checked_root(root)
    from soma.tracking.recorder import Recorder  # which graphs that are not tracked do without

    try:
        recorder = Recorder(source, folder.absolute(), said)
    except Exception as error:  # noqa: BLE001  # whatever it is, the run goes on
        advice = f"Choose a folder that can be written: track_run({name!r}, root=...)"
        tell_gap(
            f"the run {name!r} is not recorded", error, advice if isinstance(error, OSError) else ""
        )
        return TrackedRun(new_name(_KIND, began), name, None, source.bus)
    return TrackedRun(recorder.folder.name, name, recorder, source.bus)


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(f"track_run: a name is a text that says something, not {shown(name)}")
    return str.__str__(name)


def _checked_root(root: Any) -> Path:
    try:
        path = os.fspath(root)
        if isinstance(path, str) and path and b"\0" not in os.fsencode(path):
            return Path(path)
    except (TypeError, UnicodeEncodeError):  # no path; or a text that no name of a file can be
        pass
    raise InvalidInput(f"track_run: root is the path of a folder, not {shown(root)}")


def _checked_tags(tags: Any) -> list[str]:
    if isinstance(tags, list | tuple) and all(isinstance(one, str) and one.strip() for one in tags):
        return [str.__str__(one) for one in tags]
    raise InvalidInput(f"track_run: tags is a list of texts, not {shown(tags)}: tags=['a']")


def _checked_params(params: Any) -> dict[str, Any]:
    if params is None:
        return {}
    if not isinstance(params, Mapping):
        raise InvalidInput(f"track_run: params is a dict of name and value, not {shown(params)}")
    try:
        found: dict[str, Any] = copy_plain(params)
    except Wrong as wrong:
        raise InvalidInput(
            f"track_run: params{wrong.path} must be {wrong.expected}, not {wrong.came}"
        ) from None
    return found
