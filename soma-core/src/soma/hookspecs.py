"""The ten hooks: all the doors through which a plugin comes in.

A plugin is a module of plain functions marked ``@soma.hookimpl`` and named in the entry-point
group ``soma``:

    [project.entry-points.soma]
    my-plugin = "my_plugin.plugin"

**A hook takes nothing and returns descriptions.** Nothing behind a description is imported until
somebody uses its name, so that having a plugin installed costs next to nothing. Each hook below
says, in this order: what it is for, what ``name`` means, what ``target`` must be and which suite
tests it, what Soma does when the target raises, and an example.

Whatever a hook itself raises leaves its plugin out, whole, with one line on stderr and a row in
``soma plugins list``; everything else goes on.
"""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from soma.specs import (
    ActionStoreSpec,
    CacheTierSpec,
    CodecSpec,
    CommandSpec,
    DataStoreSpec,
    EventSinkSpec,
    ExecutorSpec,
    RunnerSpec,
    StrategySpec,
    TransportSpec,
)

__all__ = ["hookimpl", "hookspec"]

hookspec = pluggy.HookspecMarker("soma")
hookimpl = pluggy.HookimplMarker("soma")
"""Marks a function of a plugin module as the implementation of the hook it is named after."""


@hookspec
def soma_codecs() -> Iterable[CodecSpec]:  # type: ignore[empty-body]  # a hookspec has no body
    """Say how types of yours are written down.

    Name: the kind that stands beside the bytes for ever; called after the type, never after a run.

    Target: an object that fulfils ``soma.contracts.Codec``. ``soma.testing.CodecSuite`` tests what
    it does; ``soma plugins check`` and ``soma.testing.plugin_checks`` test that it is one.

    If it raises: a value that cannot be written down goes on uncached, with one line on stderr;
    bytes that cannot be read are a miss in a cache and an error anywhere else.

    Example:
        @soma.hookimpl
        def soma_codecs():
            yield soma.CodecSpec(
                name="my.Reading", target="my.codec:reading", types=("my.data.Reading",)
            )
    """


@hookspec
def soma_transports() -> Iterable[TransportSpec]:  # type: ignore[empty-body]  # see above
    """Say how bytes travel between a client and a worker.

    Name: what ``soma plugins list`` and messages call the transport.

    Target: called ``(url, *, token, timeout_s)``, returns a ``soma.contracts.Transport``.
    ``soma plugins check`` and ``soma.testing.plugin_checks`` test that it can be called.

    If it raises: the call that needed the transport fails with that error; nothing was sent.

    Example:
        @soma.hookimpl
        def soma_transports():
            yield soma.TransportSpec(name="pigeon", target="my.pigeon:Pigeon", schemes=("pigeon",))
    """


@hookspec
def soma_data_stores() -> Iterable[DataStoreSpec]:  # type: ignore[empty-body]  # see above
    """Say where values may live between runs and machines.

    Name: what users write in ``g.set_data_store(name, **options)``.

    Target: called ``(**options)``, returns a ``soma.contracts.DataStore``.
    ``soma plugins check`` and ``soma.testing.plugin_checks`` test that it can be called.

    If it raises: ``set_data_store`` fails with that error and the graph keeps its old store.

    Example:
        @soma.hookimpl
        def soma_data_stores():
            yield soma.DataStoreSpec(name="attic", target="my.attic:Attic", options=("path",))
    """


@hookspec
def soma_executors() -> Iterable[ExecutorSpec]:  # type: ignore[empty-body]  # see above
    """Say how entries of a plan, or many sessions, are run.

    Name: what plans and messages call the executor.

    Target: a class that fulfils ``soma.contracts.PlanExecutor`` or ``DriverExecutor``, by
    ``kind``. ``soma plugins check`` and ``soma.testing.plugin_checks`` test that it can be called.

    If it raises: the run fails with that error, which gains a note naming the node.

    Example:
        @soma.hookimpl
        def soma_executors():
            yield soma.ExecutorSpec(
                name="lazy", target="my.lazy:Lazy", kind="plan", plan_nodes=("Lazy",)
            )
    """


@hookspec
def soma_strategies() -> Iterable[StrategySpec]:  # type: ignore[empty-body]  # see above
    """Say what a fit may mean over several sessions.

    Name: what users write in ``g.set_strategy(name, **options)``.

    Target: a class that fulfils ``soma.contracts.Strategy``. ``soma plugins check`` and
    ``soma.testing.plugin_checks`` test that it can be called.

    If it raises: the fit fails with that error; what ``check`` raises comes before anything is
    sent.

    Example:
        @soma.hookimpl
        def soma_strategies():
            yield soma.StrategySpec(name="gossip", target="my.gossip:Gossip", min_sessions=2)
    """


@hookspec
def soma_runners() -> Iterable[RunnerSpec]:  # type: ignore[empty-body]  # see above
    """Say where programs may be opened.

    Name: what ``soma plugins list`` and messages call the runner; URLs find it by its schemes.

    Target: called ``(url, **options)``, returns a ``soma.contracts.Runner``.
    ``soma plugins check`` and ``soma.testing.plugin_checks`` test that it can be called.

    If it raises: ``g.add_worker(url)`` fails with that error and the graph keeps its workers.

    Example:
        @soma.hookimpl
        def soma_runners():
            yield soma.RunnerSpec(name="batch", target="my.batch:Batch", schemes=("batch",))
    """


@hookspec
def soma_action_stores() -> Iterable[ActionStoreSpec]:  # type: ignore[empty-body]  # see above
    """Say where actions may be recorded and their outputs kept.

    Name: what users write in ``Graph(cache=name)``.

    Target: called ``(**options)``, returns a ``soma.contracts.ActionStore``.
    ``soma.testing.ActionStoreSuite`` tests what it does; ``soma plugins check`` and
    ``soma.testing.plugin_checks`` test that it can be called. A ``checkup``, where the spec names
    one, is called without arguments by ``soma doctor`` and yields ``soma.contracts.Finding``.

    If it raises: a graph that names the store cannot be built; one that has it by default says so
    on stderr once and holds results in memory. A later failure to keep or read something is one
    line on stderr and a miss, and the run goes on. What a check-up raises is a finding as well.

    Example:
        @soma.hookimpl
        def soma_action_stores():
            yield soma.ActionStoreSpec(name="attic", target="my.attic:Actions", shareable=True)
    """


@hookspec
def soma_cache_tiers() -> Iterable[CacheTierSpec]:  # type: ignore[empty-body]  # see above
    """Say which remote places a cache may share its records and blobs with.

    Name: the URL scheme of the tier, without ``://``.

    Target: called ``(url, **options)``, returns a ``soma.contracts.CacheTier``.
    ``soma.testing.CacheTierSuite`` tests what it does; ``soma plugins check`` and
    ``soma.testing.plugin_checks`` test that it can be called.

    If it raises: an error of Soma's own (a url that cannot be right) is the user's; after any
    other the run goes on without the tier, with one line on stderr.

    Example:
        @soma.hookimpl
        def soma_cache_tiers():
            yield soma.CacheTierSpec(name="attic", target="my.attic:Tier", order_ms=5.0)
    """


@hookspec
def soma_event_sinks() -> Iterable[EventSinkSpec]:  # type: ignore[empty-body]  # see above
    """Say where events may go.

    Name: what ``soma plugins list`` and messages call the sink.

    Target: called ``(run_dir)``, returns a ``soma.contracts.EventSink``. ``run_dir`` is None for a
    run that is not tracked. A sink with ``default=True`` hears every graph, once it runs.
    ``soma plugins check`` and ``soma.testing.plugin_checks`` test that it can be called.

    If it raises: it is reported once on stderr; the run and the other sinks go on.

    Example:
        @soma.hookimpl
        def soma_event_sinks():
            yield soma.EventSinkSpec(name="bell", target="my.bell:Bell")
    """


@hookspec
def soma_commands() -> Iterable[CommandSpec]:  # type: ignore[empty-body]  # see above
    """Add sub-commands to ``soma``.

    Name: what users type after ``soma``.

    Target: a ``click.Command``. ``soma plugins check`` and ``soma.testing.plugin_checks`` test
    that it is one.

    If it raises: a target that does not import ends the command with exit status 1, its cause
    and the ``soma plugins show`` line; ``soma --help`` goes on working.

    Example:
        @soma.hookimpl
        def soma_commands():
            yield soma.CommandSpec(name="hello", target="my.cli:hello", summary="Say hello.")
    """
