"""Where plugins let events go: sinks, opened by name or, where a plugin says so, for every graph.

A sink that the user asked for raises when it cannot be had. One that came unasked never breaks a
run: what is wrong with it is one line on stderr, and the others go on.
"""

from __future__ import annotations

from functools import cache

from soma._notices import tell_once
from soma.contracts import EventSink
from soma.errors import PluginError, describe_error, shown
from soma.events.bus import Bus
from soma.registry import Registry, default
from soma.specs import EventSinkSpec

__all__ = ["attach_default_sinks", "open_default_sinks", "open_sink"]


def open_sink(name: str) -> EventSink:
    """Return a new sink of that name, for a run that is not tracked: its run directory is None.

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
        sink: EventSink = target(None)
    except BaseException as error:
        error.add_note(f"Raised while soma opened the {who}")
        raise
    if not callable(sink):
        raise PluginError(
            f"The {who} gave {shown(sink)}, and a sink is called with each event. "
            f"Report it, or: pip uninstall {offer.dist}"
        )
    return sink


def open_default_sinks() -> list[tuple[str, EventSink]]:
    """Return the name and a new sink of every spec with ``default=True``, by name.

    One that cannot be opened is left out, with one line on stderr per process.

    Raises:
        PluginError: as ``Registry.offers``, such as for ``SOMA_STRICT_PLUGINS``.
    """
    opened = []
    for name in _default_names(default()):
        try:
            opened.append((name, open_sink(name)))
        except (Exception, SystemExit) as error:  # noqa: BLE001  # somebody else's code
            tell_once(
                ("event sink", name),
                " ".join(
                    f"events do not go to the event sink {name!r}, and the run goes on: "
                    f"{describe_error(error)}".split()
                ),
            )
    return opened


def attach_default_sinks(bus: Bus) -> None:
    """Subscribe the default sinks, each opened anew; where there are none it costs next to nothing.

    Raises:
        PluginError: as ``open_default_sinks``.
    """
    for name, sink in open_default_sinks():
        bus.subscribe(sink, plain=False, name=f"the event sink {name!r}")


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
