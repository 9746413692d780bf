"""Where plugins let events go: sinks, opened by name or, where a plugin says so, for every graph.

A sink that the user asked for raises when it cannot be had. One that came unasked never breaks a
run: what is wrong with it is one line on stderr, and the others go on. For a run that is tracked
the default sinks are opened anew, with its folder, and the ones of the graph are silent meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from threading import Lock

from soma._notices import tell_once
from soma.contracts import EventSink
from soma.errors import PluginError, describe_error, shown
from soma.events.bus import Bus, Subscription
from soma.registry import Registry, default
from soma.specs import EventSinkSpec

__all__ = ["DefaultSinks", "open_default_sinks", "open_sink"]


def open_sink(name: str, run_dir: Path | None = None) -> EventSink:
    """Return a new sink of that name.

    Args:
        name: what its spec calls it.
        run_dir: the folder of the run that is tracked; None for one that is not.

    Raises:
        SomaError: as ``Registry.get``: nobody provides it, two plugins do, or it does not import.
        PluginError: what was opened cannot be called.
        Exception: whatever the plugin raises, with a note that names the sink.
    """
    registry = default()
    offer = registry.find(name, EventSinkSpec)
    target = registry.get(name, EventSinkSpec)
    who = f"{offer.describe()} of {offer.dist} {offer.version}"
    try:
        sink: EventSink = target(run_dir)
    except BaseException as error:
        error.add_note(f"Raised while soma opened the {who}")
        raise
    if not callable(sink):
        raise PluginError(
            f"The {who} gave {shown(sink)}, and a sink is called with each event. "
            f"Report it, or: pip uninstall {offer.dist}"
        )
    return sink


def open_default_sinks(run_dir: Path | None = None) -> list[tuple[str, EventSink]]:
    """Return the name and a new sink of every spec with ``default=True``, by name.

    One that cannot be opened is left out, with one line on stderr per process.

    Raises:
        PluginError: as ``Registry.offers``, such as for ``SOMA_STRICT_PLUGINS``.
    """
    opened = []
    for name in _default_names(default()):
        try:
            opened.append((name, open_sink(name, run_dir)))
        except (Exception, SystemExit) as error:  # noqa: BLE001  # somebody else's code
            tell_once(
                ("event sink", name),
                " ".join(
                    f"events do not go to the event sink {name!r}, and the run goes on: "
                    f"{describe_error(error)}".split()
                ),
            )
    return opened


class DefaultSinks:
    """The default sinks of one graph; where there are none they cost next to nothing.

    Raises:
        PluginError: as ``open_default_sinks``.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._own = open_default_sinks()
        self._lock = Lock()
        self._tracked = 0
        self._listening = self._subscribed(self._own)

    def open_for(self, run_dir: Path) -> Callable[[], None]:
        """Let sinks that know the folder of a run hear it; call what is returned at its end.

        A sink that has a ``close`` is closed then.
        """
        opened = open_default_sinks(run_dir)
        left: list[Callable[[], object]] = [one.cancel for one in self._subscribed(opened)]
        left.append(lambda: self._count(-1))
        left += [partial(_close, name, sink) for name, sink in opened]
        self._count(1)

        def end() -> None:
            while left:  # each once, also where it is called again
                left.pop(0)()

        return end

    def _count(self, change: int) -> None:
        """Be silent while any run is tracked."""
        with self._lock:
            self._tracked += change
            for one in self._listening:
                one.cancel()
            self._listening = [] if self._tracked else self._subscribed(self._own)

    def _subscribed(self, sinks: list[tuple[str, EventSink]]) -> list[Subscription]:
        return [
            self._bus.subscribe(sink, plain=False, name=f"the event sink {name!r}")
            for name, sink in sinks
        ]


def _close(name: str, sink: EventSink) -> None:
    try:
        close = getattr(sink, "close", None)
        if callable(close):
            close()
    except (Exception, SystemExit) as error:  # noqa: BLE001  # somebody else's code
        tell_once(
            ("event sink", name, "close"),
            " ".join(f"the event sink {name!r} did not close: {describe_error(error)}".split()),
        )


@cache  # what is installed is looked up once per process, and graphs are many
def _default_names(registry: Registry) -> tuple[str, ...]:
    offers = registry.offers(EventSinkSpec)
    return tuple(
        dict.fromkeys(
            offer.spec.name
            for offer in offers
            if isinstance(offer.spec, EventSinkSpec) and offer.spec.default
        )
    )
