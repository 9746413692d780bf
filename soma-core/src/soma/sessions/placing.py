"""Which worker a node runs at: by its target, together with what it follows, or whoever is free.

    target "local"      this process
    target a name/tag   one of the workers of that name or tag
    no target           any worker; without workers, this process

Nodes that simply follow each other are one *part* and stay at one worker, and so do nodes that
train as a block. A part goes to the first worker that is free when its first node has to run, so
that independent branches are at work at the same time; what is known already asks for nobody.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from types import TracebackType
from typing import Any, Self

from soma.contracts import WorkerInfo
from soma.engine import Action, Done, Program
from soma.errors import GraphError, InvalidInput, MissingCapability, SessionError, shown
from soma.registry import default
from soma.sessions.calls import Child
from soma.sessions.changed import ChangedCode
from soma.sessions.local import Member, Turn
from soma.sessions.parts import Part, parts_of
from soma.specs import RunnerSpec

__all__ = ["Workers"]


class Workers:
    """The workers of one graph."""

    def __init__(self) -> None:
        self.owner = os.urandom(8).hex()
        """What processes call the graph."""
        self._runners: list[tuple[Any, bool]] = []
        self.members: tuple[Member, ...] = ()
        self._last: dict[tuple[str, ...], Member] = {}
        self._parts: tuple[Program, tuple[Part | None, ...]] | None = None

    def open(self, url: Any, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Add the members of a runner, which is opened where it is given by its address.

        Args:
            url: the address, or the runner.
            options: what it is opened with; those that are None are left out.

        Raises:
            UnknownName: nobody serves such addresses.
            MissingPackage: the package that does is not installed.
            InvalidInput: the address or an option makes no sense.
        """
        given = {name: one for name, one in options.items() if one is not None}
        if not isinstance(url, str):
            if not callable(getattr(url, "open", None)):
                raise InvalidInput(
                    f"add_worker takes an address such as 'local://', or a runner, not {shown(url)}"
                )
            if given:
                raise InvalidInput(
                    f"{', '.join(given)}: a runner that is open already has its settings; give "
                    "them when it is made"
                )
            return self.add(url, own=False)
        scheme, separator, _ = url.partition("://")
        if not separator:
            raise InvalidInput(
                f"A worker has an address with a scheme, such as 'local://', not {shown(url)}"
            )
        factory = default().get(scheme, RunnerSpec, by_alias=True)
        if scheme == "local":
            given["first"] = self._first_free(url)
        _check_takes(scheme, factory, given)
        runner = factory(url, **given)
        try:
            return self.add(runner, own=True)
        except BaseException:
            runner.shutdown()
            raise

    def _first_free(self, url: str) -> int:
        """Return the number from which members of a name go on."""
        base = url.removeprefix("local://").rstrip("/") or "local"
        numbers = [
            int(number)
            for name, _, number in (one.name.rpartition("-") for one in self.members)
            if name == base and number.isdecimal()
        ]
        return max(numbers, default=0) + 1

    def add(self, runner: Any, *, own: bool) -> tuple[str, ...]:
        """Add the members of a runner and return their names.

        Args:
            runner: the runner.
            own: whether it ends with the graph.

        Raises:
            MissingCapability: it opens whole programs only.
            InvalidInput: one of its names is taken.
        """
        members = getattr(runner, "members", None)
        if members is None:
            raise MissingCapability(
                f"{type(runner).__name__} opens whole programs and runs no single nodes (it has no "
                "members), so a graph cannot place nodes there. Open the program: "
                "runner.open(g.program())"
            )
        taken = {one.name for one in self.members}
        for one in members:
            if one.name in taken:
                raise InvalidInput(f"This graph has a worker {one.name!r} already")
        self.members = (*self.members, *members)
        self._runners.append((runner, own))
        if own:
            let_go = getattr(runner, "let_go", runner.shutdown)  # which must not wait here
            weakref.finalize(self, let_go).atexit = False  # children are ended there anyway
        else:
            for one in members:
                weakref.finalize(self, one.forget, self.owner)
        return tuple(one.name for one in members)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names and tags that a node may have as its target, names first."""
        names = [one.name for one in self.members]
        return tuple(dict.fromkeys([*names, *(tag for one in self.members for tag in one.tags)]))

    def at(self, target: str | None) -> tuple[Member, ...]:
        """Return the members that a target means; all where there is none."""
        return tuple(one for one in self.members if self.means(one, target))

    @staticmethod
    def means(member: Member, target: str | None) -> bool:
        """Say whether a target means a member."""
        return target is None or target == member.name or target in member.tags

    def infos(self) -> list[WorkerInfo]:
        """Say what each of them is and has."""
        return [one.info() for one in self.members]

    def shutdown(self, name: str | None = None) -> None:
        """End workers and forget them: all, or the one of that name. A shared runner goes on.

        Raises:
            InvalidInput: there is none of that name.
        """
        going = self.at(name)
        if name is not None and not going:
            known = ", ".join(map(repr, self.targets)) or "none"
            raise InvalidInput(f"This graph has no worker {shown(name)}. There are: {known}")
        owned = [one for runner, own in self._runners if own for one in runner.members]
        for member in going:
            if member in owned:
                member.shutdown()
        self.members = tuple(one for one in self.members if one not in going)
        self._last.clear()

    def placement(self, program: Program) -> Placing | None:
        """Return where the nodes of a program run in one call; None where there are no workers."""
        return Placing(self, program) if self.members else None

    def parts(self, program: Program) -> tuple[Part | None, ...]:
        """Return the parts of a program; of the latest they are known.

        Raises:
            GraphError: nodes that train as one block have different targets.
        """
        known = self._parts
        if known is None or known[0] is not program:
            known = self._parts = (program, parts_of(program))
        return known[1]

    def prefer(self, part: Part, members: Sequence[Member]) -> list[Member]:
        """Return members in the order in which a part would have them: where it was last, first."""
        last = self._last.get(part.ids)
        return sorted(members, key=lambda one: one is not last)

    def remember(self, part: Part, member: Member) -> None:
        """Note where a part runs, as its nodes are known there now."""
        self._last[part.ids] = member


def _check_takes(scheme: str, factory: Any, given: Mapping[str, Any]) -> None:
    takes = signature(factory).parameters
    if any(one.kind is one.VAR_KEYWORD for one in takes.values()):
        return
    for name in given:
        if name not in takes:
            raise InvalidInput(f"Workers at {scheme}:// take no {name}=: leave it out")


class Placing:
    """Where the nodes of one call run: a ``soma.engine.Placement``."""

    def __init__(self, workers: Workers, program: Program) -> None:
        self._workers = workers
        self.targets = workers.targets
        self.seats = len(workers.members)
        self._members = workers.members
        """Those there were when the call began; some may have been shut down since."""
        self._parts = workers.parts(program)
        words = {part: self._in_words(part) for part in dict.fromkeys(self._parts)}
        self._where = tuple(words[part] for part in self._parts)
        self._chosen: dict[Part, Member] = {}
        self._lock = threading.Lock()
        self._active: set[Child] = set()
        self._cancelled = False

    def _in_words(self, part: Part | None) -> str:
        if part is None:
            return ""
        members = self._at(part)
        if len(members) == 1:
            return repr(members[0].name)
        return f"a worker ({', '.join(repr(one.name) for one in members)})" if members else ""

    def where(self, place: int) -> str:
        """Return in words where a node runs; empty where it runs here."""
        return self._where[place]

    def turn(self, place: int, stopped: Callable[[], bool]) -> _Seated:
        """Wait for a process that may run a node, and hold it."""
        part = self._parts[place]
        if part is None:
            raise GraphError("A node that runs here was asked to run elsewhere")
        chosen = self._chosen.get(part)
        members = self._workers.prefer(part, self._at(part))
        if not members:
            raise SessionError(f"No worker is left for node {part.ids[0]!r}: add one")
        turn = Turn(members if chosen is None else [chosen], lambda: self._cancelled or stopped())
        return _Seated(self, part, turn)

    def _at(self, part: Part) -> list[Member]:
        means = self._workers.means
        return [one for one in self._members if means(one, part.target)]

    def enter(self, part: Part, member: Member, child: Child) -> None:
        """Note where a part has come to run, so that what follows runs there as well."""
        with self._lock:
            self._active.add(child)
            self._chosen.setdefault(part, member)
            self._workers.remember(part, member)

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits any more."""
        return self._cancelled

    def leave(self, child: Child) -> None:
        """A process is no longer held by this call."""
        with self._lock:
            self._active.discard(child)

    @property
    def owner(self) -> str:
        """What processes call the graph."""
        return self._workers.owner

    def cancel(self) -> None:
        """Stop what is under way; nobody waits for it."""
        self._cancelled = True
        with self._lock:  # so that nobody lets go of one meanwhile, and another's call is hit
            for child in self._active:
                child.cancel()


class _Seated:
    """Holds a process for one node; what it gives is a ``soma.engine.Seat``."""

    __slots__ = ("_child", "_part", "_placing", "_turn", "name", "pid")

    def __init__(self, placing: Placing, part: Part, turn: Turn) -> None:
        self._placing = placing
        self._part = part
        self._turn = turn

    def __enter__(self) -> Self:
        self._child = self._turn.__enter__()
        try:
            self.name, self.pid = self._child.name, self._child.pid
            self._placing.enter(self._part, self._turn.member, self._child)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._placing.leave(self._child)
        finally:
            self._turn.__exit__(kind, error, trace)

    def run(self, action: Action) -> Done:
        """Run one node; in a process that has older modules than ours, after a new start."""
        member, owner = self._turn.member, self._placing.owner

        def stopped() -> bool:
            return self._placing.cancelled

        try:
            return member.run(self._child, owner, action, stopped)
        except ChangedCode:
            if self._child.calls <= 1:
                raise  # it has imported what lies on disk just now
        self._placing.leave(self._child)
        self._child = self._turn.start_again()
        self._placing.enter(self._part, member, self._child)
        self.name, self.pid = self._child.name, self._child.pid
        return member.run(self._child, owner, action, stopped)
