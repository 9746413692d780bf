"""Random programs of branches and loops, against a direct evaluation that knows no engine."""

from __future__ import annotations

import copy
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from soma import Filter, Graph
from soma.engine import MemoryStore
from soma.errors import NotFittedError
from soma.plan import Plan
from support.forcing import (
    drop_blobs,
    drop_records,
    in_threads,
    kept_only_at_leaves_and_mapped,
    patched,
    picked,
)


def checked(examples):
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


# What the filters share. Every number is a whole one, so that no sum depends on its order.


def parts_of(value):
    """Return the numbers, arrays, dicts and tuples in a dict or tuple; or the value alone."""
    if isinstance(value, dict):
        return [one for one in value.values() if not isinstance(one, str | bool)]
    return list(value) if isinstance(value, tuple) else [value]


def total(value):
    """Return the sum of everything in a value; of one number or array, that object itself."""
    if not isinstance(value, dict | tuple):
        return value
    first, *others = map(total, parts_of(value))
    for one in others:
        first = first + one
    return first


def fold(value):
    """Return the value in a range in which nothing overflows or is rounded."""
    return value % 2003 - 1001


def number(value):
    """Return the sum over all items as a plain int."""
    return int(np.sum(total(value)))


def write_into(value, amount):
    """Add to every array in a value, in place."""
    for one in parts_of(value):
        if isinstance(one, np.ndarray):
            np.add(one, amount, out=one)
        elif isinstance(one, dict | tuple):
            write_into(one, amount)


class Log:
    """What was called, by whom. A copy of a filter writes into the same."""

    def __init__(self):
        self.calls = []

    def __deepcopy__(self, memo):
        return self


class Noted:
    """Notes every call of its methods, under a name that counts in no key."""

    _log = None
    _name = ""

    def note(self, *what):
        if self._log is not None:
            self._log.calls.append((self._name, *what))


class Add(Noted, Filter):
    def __init__(self, amount):
        self.amount = amount

    def forward(self, x, state):
        self.note("output")
        return fold(total(x) + self.amount)


class Times(Noted, Filter):
    def __init__(self, factor):
        self.factor = factor

    def forward(self, x, state):
        self.note("output")
        return fold(total(x) * self.factor)


class Weigh(Noted, Filter):
    """The sum of what it is given, by the names and the order of those who give it."""

    def forward(self, x, state):
        self.note("output")
        if not isinstance(x, dict):
            return fold(total(x))
        weights = [(place + 1) * (1 + sum(map(ord, name)) % 7) for place, name in enumerate(x)]
        given = dict(zip(x, weights, strict=True))
        numbers = {name: one for name, one in x.items() if not isinstance(one, str | bool)}
        return fold(total(tuple(given[name] * total(one) for name, one in numbers.items())))


class Same(Noted, Filter):
    def forward(self, x, state):
        self.note("output")
        return x


class Turned(Noted, Filter):
    """A view."""

    def forward(self, x, state):
        self.note("output")
        x = total(x)
        return x if isinstance(x, int) else x[::-1]


class Both(Noted, Filter):
    def forward(self, x, state):
        self.note("output")
        x = total(x)
        return (x, fold(x * 2))


class Mean(Noted, Filter):
    def fit(self, x, y=None):
        self.note("state")
        return float(np.floor(np.mean(total(x))))

    def forward(self, x, state):
        self.note("output")
        return fold(total(x) - int(state) + 1)


class Offset(Noted, Filter):
    """Learns how far y lies from x."""

    def fit(self, x, y):
        self.note("state")
        return {"offset": np.array([number(y) - number(x)])}

    def forward(self, x, state):
        self.note("output")
        return fold(total(x) + int(state["offset"][0]))


class Gather(Noted, Filter):
    """Goes on from what it has learned."""

    def fit(self, x, y=None, state=None):
        self.note("state")
        before = 0 if state is None else state["sum"]
        return {"sum": fold(before + number(x)), "fits": 1 if state is None else state["fits"] + 1}

    def forward(self, x, state):
        self.note("output")
        return fold(total(x) + state["sum"] * state["fits"])


class GatherInPlace(Noted, Filter):
    """Goes on from what it has learned by writing into it, and into all else that it sees."""

    def fit(self, x, y, *, state=None):
        self.note("state")
        write_into((x, y), 3)
        found = {"seen": np.zeros(2, dtype=np.int64)} if state is None else state
        found["seen"] += np.array([number(x) % 101, number(y) % 103])
        return found

    def forward(self, x, state):
        self.note("output")
        write_into(x, 5)
        state["seen"] += 11
        return fold(total(x) + number(state["seen"]))


class Write(Noted, Filter):
    def __init__(self, amount):
        self.amount = amount

    def forward(self, x, state):
        self.note("output")
        write_into(x, self.amount)
        return x


class WriteAndAdd(Noted, Filter):
    def forward(self, x, state):
        self.note("output")
        before = fold(total(x))
        write_into(x, 7)
        return fold(before + total(x))


def label_for(value, shift):
    return "ab"[(number(value) + shift) // 2 % 2]


class Mark(Noted, Filter):
    """Gives a value that names an arm and says whether to stop."""

    def __init__(self, shift):
        self.shift = shift

    def forward(self, x, state):
        self.note("output")
        x = fold(total(x) * 2 + self.shift)
        return {"branch": label_for(x, self.shift), "done": number(x) % 3 == 0, "x": x}


class MarkLearned(Noted, Filter):
    def fit(self, x, y=None, state=None):
        self.note("state")
        return {"shift": number(x) % 5 + (0 if state is None else 1 + state["shift"])}

    def forward(self, x, state):
        self.note("output")
        x = fold(total(x) + state["shift"])
        return {"branch": label_for(x, 1), "done": number(x) % 3 == 0, "x": x}


FORMS = {
    "text": lambda yes: "ab"[yes],
    "branch": lambda yes: {"branch": "ab"[yes]},
    "bool": bool,
    "np": np.bool_,
    "branch bool": lambda yes: {"branch": bool(yes)},
    "word": lambda yes: "stop" if yes else "continue",
    "done": lambda yes: {"done": bool(yes)},
    "done word": lambda yes: {"done": "done" if yes else "continue"},
}
"""Ways to say yes or no."""
TEXTS, BOOLS = ("text", "branch"), ("bool", "np", "branch bool")
STOPS = ("bool", "np", "word", "done", "done word")


def say(form, yes):
    return FORMS[form](yes)


class Says(Noted, Filter):
    def __init__(self, form, shift):
        self.form = form
        self.shift = shift

    def forward(self, x, state):
        self.note("output")
        write_into(x, 1)
        return say(self.form, (number(x) + self.shift) // 2 % 2)


class SaysLearned(Noted, Filter):
    def __init__(self, form, shift):
        self.form = form
        self.shift = shift

    def fit(self, x, y=None):
        self.note("state")
        return {"shift": number(x) % 4}

    def forward(self, x, state):
        self.note("output")
        return say(self.form, (number(x) + self.shift + state["shift"]) // 2 % 2)


class Asks(Noted):
    """A function of x."""

    def __init__(self, form, shift):
        self.form = form
        self.shift = shift

    def __call__(self, x):
        self.note("output")
        return say(self.form, (number(x) + self.shift) % 2)


def some(cls, *options):
    return st.tuples(st.just(cls), st.tuples(*map(st.sampled_from, options)))


NUMBERS = (-3, -1, 1, 2)
PURE = st.one_of(
    some(Add, NUMBERS),
    some(Times, (-1, 2, 3)),
    some(Weigh),
    some(Same),
    some(Turned),
    some(Both),
)
LEARNING = st.one_of(some(Mean), some(Offset), some(Gather), some(Gather))
WRITING = st.one_of(some(Write, NUMBERS), some(WriteAndAdd), some(GatherInPlace))
ANY = st.one_of(PURE, LEARNING)
MARKS = st.one_of(some(Mark, NUMBERS), some(Mark, NUMBERS), some(MarkLearned))


# Programs


@dataclass(frozen=True)
class Leaf:
    """One filter."""

    id: str
    cls: type
    arguments: tuple
    frozen: bool = False
    inline: bool = False
    """A condition or ``until`` that is handed over as an object, not by its id."""

    @property
    def trainable(self):
        return hasattr(self.cls, "fit")

    def made(self, log=None):
        node = self.cls(*self.arguments)
        node._log, node._name = log, self.id
        return node


@dataclass(frozen=True)
class Split:
    """A branch."""

    id: str
    condition: int
    """The item beside it whose output names the arm."""
    arms: tuple[tuple[Any, Body], ...]
    trainable = False
    inline = False

    @property
    def bodies(self):
        return [body for _, body in self.arms]


@dataclass(frozen=True)
class Loop:
    id: str
    body: Body
    until: Any
    """None or False: as it is declared. ``"item"``: the item of the body that it names."""
    most: int
    trainable = False
    inline = False

    @property
    def bodies(self):
        return [self.body]


@dataclass(frozen=True)
class Body:
    """The graph itself, an arm, or the body of a loop. Items are fed by earlier ones alone."""

    items: tuple[Any, ...]
    feeds: tuple[tuple[int, ...], ...]
    """What feeds each item; none: it gets the input of the body."""
    hung: frozenset[int]
    """Items without edges: conditions, fed what their branch is, and an ``until``."""
    terminal: int
    until: int | None
    written: bool
    """Whether it is written as an expression, where it is a chain of filters."""

    def leaves(self):
        """Return all filters, those inside included."""
        for item in self.items:
            if isinstance(item, Leaf):
                yield item
            else:
                for body in item.bodies:
                    yield from body.leaves()

    def declared_heads(self):
        return [
            item.id
            for place, item in enumerate(self.items)
            if not self.feeds[place] and place not in self.hung
        ]

    @property
    def is_chain(self):
        return all(
            isinstance(item, Leaf)
            and issubclass(item.cls, Filter)
            and place not in self.hung
            and self.feeds[place] == ((place - 1,) if place else ())
            for place, item in enumerate(self.items)
        )


@dataclass(frozen=True)
class Drawn:
    """What programs are drawn from."""

    filters: Any
    marks: Any = MARKS
    asks: tuple[type, ...] = (Says, Asks, SaysLearned)


class Growing:
    """A body that is being drawn."""

    def __init__(self):
        self.items = []
        self.feeds = []
        self.hung = set()
        self.used = set()
        """Items that something is fed by, or asks."""
        self.tellers = []
        """Items whose outputs name an arm, and say whether to stop."""
        self.until = None

    def add(self, item, feeding, *, tells, hung=False):
        place = len(self.items)
        self.items.append(item)
        self.feeds.append(feeding)
        self.used |= set(feeding) if not hung else set()
        self.hung |= {place} if hung else set()
        self.tellers += [place] if tells and not hung else []
        if isinstance(item, Split):
            self.used.add(item.condition)
        return place

    @property
    def free(self):
        return [place for place in range(len(self.items)) if place not in self.hung]

    def ends(self):
        return {place for place in self.free if place not in self.used | {self.until}}

    def done(self, terminal, until, *, written):
        """A condition that has no edges is fed what its branch is."""
        for place, item in reversed(list(enumerate(self.items))):
            if isinstance(item, Split):
                asked = item.condition
                if not self.feeds[asked] and not any(asked in one for one in self.feeds):
                    self.hung.add(asked)
                    self.feeds[asked] = self.feeds[place]
        return Body(
            tuple(self.items), tuple(self.feeds), frozenset(self.hung), terminal, until, written
        )


class Drawer:
    """Draws one program."""

    def __init__(self, draw, drawn):
        self.draw = draw
        self.drawn = drawn
        self.count = 0

    def pick(self, *options):
        return self.draw(st.sampled_from(options))

    def id(self):
        self.count += 1
        return f"{self.pick(*'zma')}{self.count}"

    def leaf(self, *, tells):
        cls, arguments = self.draw(self.drawn.marks if tells else self.drawn.filters)
        frozen = hasattr(cls, "fit") and self.pick(False, False, False, True)
        return Leaf(self.id(), cls, arguments, frozen=frozen)

    def asked(self, forms, *, inline):
        cls = self.pick(*self.drawn.asks)
        return Leaf(self.id(), cls, (self.pick(*forms), self.pick(0, 1, 2)), inline=inline)

    def item(self, depth, *, tells):
        """Return an item that needs nothing beside it: a leaf or a loop."""
        if depth and self.pick(False, True):
            return self.loop(depth, tells=tells)
        return self.leaf(tells=tells)

    def add_some(self, body, depth, feeding, *, tells, hung=False):
        """Add a leaf, a loop, or a branch with its condition; return its place."""
        if not depth or self.pick(True, True, False):
            item = self.item(depth, tells=tells)
        else:
            condition, labels = self.condition(body, depth, feeding, hung=hung)
            arms = ((label, self.body(depth - 1, tells=tells, most=2)) for label in labels)
            item = Split(self.id(), condition, tuple(arms))
        return body.add(item, feeding, tells=tells, hung=hung)

    def condition(self, body, depth, feeding, *, hung):
        """Return the place of what a branch asks, and the labels of its arms."""
        existing = [one for one in body.tellers if body.feeds[one] or (one in feeding)]
        how = self.pick("inline", "alone", "control", *["existing"] * 2 * bool(existing))
        forms = TEXTS
        if how == "existing":
            place = self.pick(*existing)
        elif how == "control":
            place = self.add_some(body, depth - 1, feeding, tells=True, hung=True)
        else:
            forms = self.pick(TEXTS, BOOLS)
            item = self.asked(forms, inline=how == "inline")
            place = body.add(item, feeding, tells=True, hung=True)
        return place, (
            self.pick(("a", "b"), ("a", "default"), ("else", "b"), ("default",), ("b", "else", "a"))
            if forms == TEXTS
            else self.pick((True, False), (False, "else"), ("default", True), ("default",))
        )

    def loop(self, depth, *, tells):
        how = self.pick("none", "false", "false", "itself", "inline", "alone", "beside", "after")
        body = self.body(depth - 1, tells=tells, until=how)
        until = {"none": None, "false": False}.get(how, "item")
        return Loop(self.id(), body, until, self.pick(1, 2, 3, 3))

    def body(self, depth, *, tells=False, until=None, most=3, root=False):
        body = Growing()
        size = 1 if until == "itself" else self.pick(*range(1, most + 1))
        for step in range(size):
            last = step == size - 1
            feeding = self.feeding(body)
            if last and not root:
                feeding |= body.ends()
            marks = tells or until in ("none", "itself") if last else self.pick(False, False, True)
            beside = until == "beside" and not last and bool(feeding) and body.until is None
            place = self.add_some(body, depth, tuple(sorted(feeding)), tells=marks or beside)
            if beside:
                body.until = place
        asked = self.until(body, depth, until, place)
        return body.done(place, asked, written=self.pick(False, True))

    def feeding(self, body):
        free = body.free
        if not free:
            return set()
        found = self.draw(st.sets(st.sampled_from(free), max_size=3))
        return found | {free[-1]} if self.pick(True, True, False) else found

    def until(self, body, depth, how, terminal):
        """Return the place of what says when a loop stops."""
        if how in ("none", "itself"):
            return terminal
        if how == "beside" and body.until is not None:
            return body.until
        if how == "after":  # fed by edges
            return self.add_some(body, depth, tuple({terminal} | self.feeding(body)), tells=True)
        if how == "inline" or (how in ("alone", "beside") and self.pick(True, False)):
            item = self.asked(STOPS, inline=how == "inline")
            return body.add(item, (terminal,), tells=True, hung=True)
        if how in ("alone", "beside"):
            return self.add_some(body, depth, (terminal,), tells=True, hung=True)
        return None


@st.composite
def programs(draw, filters=ANY, *, depth=2, most=3, marks=MARKS, asks=(Says, Asks, SaysLearned)):
    return Drawer(draw, Drawn(filters, marks, asks)).body(depth, most=most, root=True)


@dataclass
class Declaring:
    """Declares a program."""

    g: Graph
    log: Log

    def declare(self, body):
        g, items = self.g, body.items
        edges = [
            (items[source].id, item.id)
            for place, item in enumerate(items)
            if place not in body.hung
            for source in reversed(body.feeds[place])
        ]
        for item in items:
            if isinstance(item, Leaf):
                if not item.inline:
                    g.node(item.id, item.made(self.log), frozen=item.frozen)
            elif isinstance(item, Split):
                arms = {label: self.inside(arm) for label, arm in item.arms}
                g.branch(item.id, self.asked(items[item.condition]), arms)
            else:
                inside = self.inside(item.body, item.until)
                asked = item.until
                if asked == "item":
                    asked = self.asked(item.body.items[item.body.until])
                g.loop(item.id, inside, asked, item.most)
        for source, target in reversed(edges):
            g.edge(source, target)

    def inside(self, body, until=None):
        if not (body.written and body.is_chain and until != "item"):
            self.declare(body)
            heads = body.declared_heads()
            return heads[0] if len(heads) == 1 else heads
        found = None
        for item in body.items:
            one = item.made(self.log).named(item.id)
            one = one.frozen() if item.frozen else one
            found = one if found is None else found >> one
        return found

    def asked(self, item):
        if not item.inline:
            return item.id
        made = item.made(self.log)
        return made.named(item.id) if isinstance(made, Filter) else made


def declared(body, store, log=None):
    g = Graph(cache=store)
    Declaring(g, Log() if log is None else log).declare(body)
    return g


def names_of(g):
    """Return node id -> what the program calls it: functions cannot be named when they are used."""
    return {id_: one.filter._name for id_, one in g._declared.filters.items()}


# The same without an engine: every node gets a deep copy of its own.


def own(value):
    return copy.deepcopy(value)


class NotFitted(Exception):
    """A forward came to a node that has learned nothing."""


class Needs:
    """Which outputs of a body a fit needs.

    Those of which something that learns is made, or by which a branch or loop goes on that has
    anything to do. A branch or loop has to, if something in it learns or its own output is needed.
    """

    def __init__(self, body, wanted):
        size = len(body.items)
        self.after = [[] for _ in range(size)]
        for place, item in enumerate(body.items):
            for one in body.feeds[place]:
                self.after[one].append(place)
            if isinstance(item, Split):
                self.after[item.condition].append(place)
        self.forwards, self.active = [False] * size, [False] * size
        for place in reversed(range(size)):
            self.forwards[place] = place in wanted or any(
                self.active[one] or body.items[one].trainable or self.forwards[one]
                for one in self.after[place]
            )
            self.active[place] = not isinstance(body.items[place], Leaf) and (
                self.forwards[place] or learns(body.items[place])
            )

    def of_last_pass(self, body):
        """Return the same without what only the next pass would need.

        Branches and loops in the body, and so what feeds them, go on in the last pass as well.
        """
        size = len(body.items)
        needed, forwards = [False] * size, list(self.forwards)
        for place in reversed(range(size)):
            needed[place] = any(
                needed[one] or body.items[one].trainable or not isinstance(body.items[one], Leaf)
                for one in self.after[place]
            )
            if isinstance(body.items[place], Leaf):
                forwards[place] = forwards[place] and needed[place]
        found = copy.copy(self)
        found.forwards = forwards
        return found


@cache
def learns(item):
    if isinstance(item, Leaf):
        return item.trainable
    return any(learns(one) for body in item.bodies for one in body.items)


@dataclass
class Evaluation:
    """A program evaluated item by item."""

    body: Body
    states: dict = field(default_factory=dict)
    loaded: frozenset = frozenset()
    choose: Any = None
    """Gives what a filter returned that need not return the same always."""
    sites: Counter = field(default_factory=Counter)
    """(id, what, passes) of what the last fit or forward has to be done."""
    took: Counter = field(default_factory=Counter)
    """(branch, label, passes)"""
    made: Counter = field(default_factory=Counter)
    """(loop, iterations, stopped, passes)"""

    def fit(self, x, y, *, warm_start=False):
        self._begin(fitting=True)
        self.y, self.warm_start, self.new = y, warm_start, {}
        self.kept = set()
        self._run(self.body, x, (), Needs(self.body, set()))
        left = {
            id_: state
            for id_, state in self.states.items()
            if id_ not in self.new and (warm_start or id_ in self.loaded)
        }
        self.loaded = frozenset(self.kept) | (self.loaded & left.keys())
        self.states = {**left, **self.new}

    def forward(self, x):
        self._begin(fitting=False)
        body = self.body
        values = self._run(body, x, (), None)
        used = {one for feeds in body.feeds for one in feeds}
        used |= {item.condition for item in body.items if isinstance(item, Split)}
        leaves = {
            item.id: values[place] for place, item in enumerate(body.items) if place not in used
        }
        return next(iter(leaves.values())) if len(leaves) == 1 else leaves

    def load(self, states):
        self.states = {**self.states, **own(states)}
        self.loaded |= states.keys()

    def calls(self):
        """Return (id, what) -> how often."""
        found = Counter()
        for (id_, what, _), count in self.sites.items():
            found[id_, what] += count
        return found

    def _begin(self, *, fitting):
        self.fitting = fitting
        self.sites, self.took, self.made = Counter(), Counter(), Counter()

    def _run(self, body, given_, passes, needs):
        values = []
        for place, item in enumerate(body.items):
            feeds = body.feeds[place]
            if not feeds:
                got = given_
            elif len(feeds) == 1:
                got = values[feeds[0]]
            else:
                by_id = sorted(feeds, key=lambda one: body.items[one].id)
                got = {body.items[one].id: own(values[one]) for one in by_id}
            forwards = needs is None or needs.forwards[place]
            if isinstance(item, Leaf):
                values.append(self._leaf(item, got, passes, forwards=forwards))
            elif needs is not None and not needs.active[place]:
                values.append(None)
            elif isinstance(item, Split):
                said = values[item.condition]
                values.append(self._split(item, said, got, passes, forwards=forwards))
            else:
                values.append(self._loop(item, got, passes, forwards=forwards))
        return values

    def _leaf(self, item, got, passes, *, forwards):
        node = item.made()
        state = None
        if item.trainable:
            if self.fitting:
                self._fit(item, node, got, passes)
                state = self.new[item.id]
            elif item.id not in self.states:
                raise NotFitted(item.id)
            else:
                state = self.states[item.id]
        if not forwards:
            return None
        self.sites[item.id, "output", passes] += 1
        if "output" in getattr(node, "varies", ()):
            return own(self.choose(item, "output", own(got)))
        if isinstance(node, Asks):
            return own(node(own(got)))
        return own(node.forward(own(got), own(state)))

    def _fit(self, item, node, got, passes):
        init = None
        if item.id in self.new:
            if item.frozen:
                return
            init = self.new[item.id]
        elif item.id in self.loaded:
            init = self.states[item.id]
            if item.frozen:
                self.kept.add(item.id)
                self.new[item.id] = init
                return
        elif self.warm_start and not item.frozen:
            init = self.states.get(item.id)
        self.sites[item.id, "state", passes] += 1
        more = {}
        if isinstance(node, Gather | GatherInPlace | MarkLearned):
            more["state"] = own(init)
        if "state" in getattr(node, "varies", ()):
            self.new[item.id] = own(self.choose(item, "state", own(got)))
        else:
            self.new[item.id] = own(node.fit(own(got), own(self.y), **more))

    def _split(self, item, said, got, passes, *, forwards):
        label = said["branch"] if isinstance(said, dict) else said
        arms = {str(one).lower() if isinstance(one, bool) else one: arm for one, arm in item.arms}
        label = label if isinstance(label, str) else str(bool(label)).lower()
        if label not in arms:
            label = "default" if "default" in arms else "else"
        self.took[item.id, label, passes] += 1
        arm = arms[label]
        needs = Needs(arm, {arm.terminal} if forwards else set()) if self.fitting else None
        return self._run(arm, got, passes, needs)[arm.terminal]

    def _loop(self, item, carry, passes, *, forwards):
        body = item.body
        asked = None if item.until is False else body.until
        wanted = {body.terminal} | ({asked} - {None})
        for count in range(1, item.most + 1):
            needs = Needs(body, wanted) if self.fitting else None
            if needs is not None and asked is None and not forwards and count == item.most:
                needs = needs.of_last_pass(body)
            values = self._run(body, carry, (*passes, count), needs)
            carry = values[body.terminal]
            if asked is not None and stops(values[asked]):
                self.made[item.id, count, True, passes] += 1
                return carry
        self.made[item.id, item.most, None if asked is None else False, passes] += 1
        return carry


def stops(said):
    if isinstance(said, dict):
        said = said["done"]
    return said in ("done", "stop") if isinstance(said, str) else bool(said)


def same(found, expected):
    """Say whether two values are equal, their types, dtypes and order included."""
    if type(found) is not type(expected):
        return False
    if isinstance(found, dict):
        return list(found) == list(expected) and all(same(found[k], expected[k]) for k in found)
    if isinstance(found, tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(found, np.ndarray):
        return found.dtype == expected.dtype and np.array_equal(found, expected)
    return found == expected


def same_states(found, expected):
    return set(found) == set(expected) and all(same(found[k], expected[k]) for k in found)


# What is checked of any program


def an_array(dtype, seed):
    return np.random.default_rng(seed).integers(-40, 40, (3,)).astype(dtype)


ARRAYS = st.builds(an_array, st.sampled_from(("int64", "float64")), st.integers(0, 5))
INTEGERS = st.integers(-50, 50)
PAIRS = st.tuples(INTEGERS, INTEGERS) | st.tuples(ARRAYS, ARRAYS)
MASKS = st.just(-1) | st.integers(0, (1 << 60) - 1)
"""Which of many things: the bits of a number; -1 is all of them."""


class Checked:
    """A graph beside its evaluation: every call is made of both, and compared."""

    def __init__(self, body, store, *, listening=True):
        self.body = body
        self.log = Log()
        self.g = declared(body, store, self.log)
        self.names = names_of(self.g)
        self.evaluation = Evaluation(body)
        self.events = []
        if listening:
            self.g.on_event(self.events.append)
        self.listening = listening

    def fit(self, x, y, *, warm_start=False, refresh=()):
        before = own((x, y))
        self._begin()
        self.g.fit(x, y, warm_start=warm_start, refresh=refresh)
        self.evaluation.fit(own(x), own(y), warm_start=warm_start)
        for _ in range(2):
            assert same_states(self.g.state(), self.evaluation.states)
            for state in self.g.state().values():  # they are the caller's
                write_into(state, 1000)
        assert same((x, y), before)
        self._check_events()
        return self.g.last_run

    def load(self, mask):
        """Put some of the states in place that there are."""
        found = {id_: self.evaluation.states[id_] for id_ in picked(self.evaluation.states, mask)}
        self.g.load_state(own(found))
        self.evaluation.load(found)

    def forward(self, x, *, refresh=()):
        before = own(x)
        self._begin()
        try:
            expected = self.evaluation.forward(own(x))
        except NotFitted:
            with pytest.raises(NotFittedError, match=r"takes arm .*, which was never fitted"):
                self.g.forward(x, refresh=refresh)
            if self.listening:
                assert (self.kinds()[0], self.kinds()[-1]) == ("RunStarted", "RunFailed")
            return None
        result = self.g.forward(x, refresh=refresh)
        assert same(result, expected)
        write_into(result, 1000)
        assert same(x, before)
        self._check_events()
        return self.g.last_run

    def calls(self):
        return Counter(self.log.calls)

    def kinds(self):
        return [one["event_type"] for one in self.events]

    def _begin(self):
        self.log.calls.clear()
        self.events.clear()

    def of_kind(self, *kinds):
        return [one for one in self.events if one["event_type"] in kinds]

    def site(self, event):
        return self.names[event["node_id"]], event["what"], tuple(event["passes"])

    def sites(self, *kinds):
        return Counter(map(self.site, self.of_kind(*kinds)))

    def _check_events(self):
        """Compare the events of a run in which no value came out differently."""
        rows = self.g.last_run.actions
        counted = Counter((self.names[one.node], one.what) for one in rows)
        if not any(one.outcome == "recomputed" for one in rows):
            assert counted == self.evaluation.calls()
        if not self.listening:
            return
        kinds = self.kinds()
        assert (kinds[0], kinds[-1]) == ("RunStarted", "RunCompleted")
        assert not {"RunStarted", "RunCompleted", "RunFailed"}.intersection(kinds[1:-1])
        assert {one["run_id"] for one in self.events} == {self.g.last_run.run_id}
        open_ = set()
        for one in self.of_kind("NodeStarted", "NodeCompleted", "NodeFailed"):
            if one["event_type"] == "NodeStarted":
                assert self.site(one) not in open_
                open_.add(self.site(one))
            else:
                open_.remove(self.site(one))
        assert not open_
        started = Counter((id_, what) for id_, what, _ in self.sites("NodeStarted").elements())
        assert started == self.calls()
        done = self.sites("NodeCacheHit") + Counter(
            self.site(one)
            for one in self.of_kind("NodeCompleted")
            if one["outcome"] == "computed" or not self.was_hit(one)
        )
        assert done == self.evaluation.sites
        found = Counter(
            (one["node_id"], one["arm"], tuple(one["passes"]))
            for one in self.of_kind("BranchTaken")
        )
        assert found == self.evaluation.took
        found = Counter(
            (one["node_id"], one["iterations"], one["stopped"], tuple(one["passes"]))
            for one in self.of_kind("LoopCompleted")
        )
        assert found == self.evaluation.made
        decided = Counter(one.node for one in self.g.last_run.decisions)
        expected = Counter(
            one[0] for one in (self.evaluation.took + self.evaluation.made).elements()
        )
        assert decided == expected

    def was_hit(self, event):
        """Say whether what was made again had been announced as known."""
        return self.site(event) in self.sites("NodeCacheHit")


def check_cold(body, xs, ys, store):
    """Every call is made, and no other: nothing is kept."""
    one = Checked(body, store)
    for x, y in zip(xs, ys, strict=True):
        one.fit(x, y)
        assert one.calls() == one.evaluation.calls()
        for x_ in xs:
            if one.forward(x_) is not None:
                assert one.calls() == one.evaluation.calls()


def check_warm(body, xs, ys, store):
    """A call that was made before calls nobody."""
    one = Checked(body, store)
    for _ in range(2):
        for x, y in zip(xs, ys, strict=True):
            one.fit(x, y)
            for x_ in xs:
                one.forward(x_)
    for x, y in zip(xs, ys, strict=True):
        report = one.fit(x, y)
        assert one.calls() == Counter()
        assert report.hits == one.evaluation.sites.total() == len(report.actions)
        for x_ in xs:
            report = one.forward(x_)
            if report is not None:  # one that failed has come as far as it came
                assert one.calls() == Counter()
                assert report.hits == one.evaluation.sites.total()
        one.fit(x, y, refresh=True)
        assert one.calls() == one.evaluation.calls()
        if one.forward(x, refresh=True) is not None:
            assert one.calls() == one.evaluation.calls()


def check_lost(body, xs, ys, store, *, blobs, records, starts=()):
    one = Checked(body, store)

    def check(which, **options):
        one.fit(xs[which], ys[which], **options)
        for x in xs:
            one.forward(x)

    check(0)
    check(1)
    drop_blobs(store, blobs)
    check(0)
    check(1)
    drop_records(store, records)
    check(1)
    for which, start in enumerate(starts):
        if start == "load":
            one.load(blobs ^ records)
        check(which % 2, warm_start=start == "warm")
    drop_blobs(store, ~blobs)
    drop_records(store, ~records)
    check(0)
    drop_records(store, records)
    drop_blobs(store, -1)
    for x in xs:
        one.forward(x)
    assert store.verify() == []


STARTS = st.lists(st.sampled_from(("warm", "load", "scratch")), max_size=3)
SCHEDULES = st.sampled_from(((-1.0, 64), (3e-5, 1), (-1.0, 1)))
"""What counts as slow, and after how many quick nodes threads are given up."""
PROGRAMS = programs(ANY | WRITING)


class TestPrograms:
    @checked(80)
    @given(PROGRAMS, PAIRS)
    def test_cold_are_the_evaluation_call_by_call(self, body, xs):
        check_cold(body, xs, xs[::-1], "off")

    @checked(60)
    @given(PROGRAMS, PAIRS)
    def test_warm_call_nobody(self, body, xs):
        check_warm(body, xs, xs[::-1], MemoryStore())

    @checked(30)
    @given(PROGRAMS, PAIRS, MASKS, MASKS, STARTS)
    def test_are_the_same_whatever_the_store_lost(self, body, xs, blobs, records, starts):
        store = MemoryStore()
        check_lost(body, xs, xs[::-1], store, blobs=blobs, records=records, starts=starts)

    @checked(30)
    @given(PROGRAMS, PAIRS, MASKS, MASKS, STARTS)
    def test_are_the_same_where_only_leaves_are_kept(self, body, xs, blobs, records, starts):
        store = MemoryStore()
        with kept_only_at_leaves_and_mapped():
            check_lost(body, xs, xs[::-1], store, blobs=blobs, records=records, starts=starts)

    @checked(20)
    @given(PROGRAMS, PAIRS, st.integers(1, 3000) | st.just("off"), STARTS)
    def test_are_the_same_where_little_or_nothing_is_kept(self, body, xs, size, starts):
        one = Checked(body, size if size == "off" else MemoryStore(size))
        for which, start in enumerate(("scratch", *starts)):
            if start == "load":
                one.load(-1)
            one.fit(xs[which % 2], xs[1 - which % 2], warm_start=start == "warm")
            for x in xs:
                one.forward(x)

    @checked(25)
    @given(PROGRAMS, PAIRS, st.tuples(MASKS, MASKS), STARTS, SCHEDULES, st.booleans())
    def test_are_the_same_on_threads(self, body, xs, masks, starts, schedule, leaves):  # noqa: PLR0917  # drawn
        store, (blobs, records) = MemoryStore(), masks
        with in_threads(*schedule), kept_only_at_leaves_and_mapped() if leaves else patched():
            check_lost(body, xs, xs[::-1], store, blobs=blobs, records=records, starts=starts)

    @checked(15)
    @given(PROGRAMS, PAIRS)
    def test_are_the_same_on_threads_with_nothing_kept(self, body, xs):
        with in_threads():
            check_cold(body, xs, xs[::-1], "off")

    @checked(40)
    @given(PROGRAMS, PAIRS)
    def test_come_back_from_json_and_can_be_drawn(self, body, xs):
        g = declared(body, "memory")
        plan = g.compile()
        again = Plan.from_json(plan.to_json())
        assert again == plan
        assert again.to_json() == plan.to_json()
        leaves = list(body.leaves())
        assert len(plan.nodes) == len(leaves)
        assert sum(one.frozen for one in plan.nodes) == sum(one.frozen for one in leaves)
        text = g.to_text()
        assert all(one.node in text for one in plan.nodes)

    @checked(25)
    @given(PROGRAMS, PAIRS, st.sampled_from((copy.copy, copy.deepcopy)), st.booleans())
    def test_are_the_same_when_copied(self, body, xs, copied, kept):
        one = Checked(body, "memory" if kept else "off", listening=False)
        one.fit(*xs)
        one.g = copied(one.g)
        for x in xs:
            one.forward(x)
        one.fit(*reversed(xs))
        for x in xs:
            one.forward(x)


# What gives another value every time


class Varying(Noted):
    """Gives what no other call has given."""

    varies = ("output",)

    def varied(self, what, x, make):
        log = self._log
        if log is None:
            raise AssertionError("the evaluation is given what was returned")
        log.calls.append((self._name, what))
        made = make(fold(total(x) + 7 * len(log.calls)))
        log.made.append((type(self), what, own(x), own(made)))
        return made


class Varies(Varying, Filter):
    """Says nothing of it."""

    def forward(self, x, state):
        return self.varied("output", x, lambda made: made)


class Moody(Varying, Filter):
    _deterministic = False

    def forward(self, x, state):
        return self.varied("output", x, lambda made: made)


class VaryingMark(Varying, Filter):
    def forward(self, x, state):
        return self.varied("output", x, marked)


class MoodyMark(Varying, Filter):
    _deterministic = False

    def forward(self, x, state):
        return self.varied("output", x, marked)


class LearnsVarying(Varying, Filter):
    varies = ("state",)

    def fit(self, x, y=None):
        return self.varied("state", x, number)

    def forward(self, x, state):
        self.note("output")
        return fold(total(x) + state)


def marked(x):
    return {"branch": label_for(x, 0), "done": number(x) % 2 == 0, "x": x}


VARYING = st.one_of(PURE, LEARNING, some(Varies), some(Varies), some(Moody), some(LearnsVarying))
VARYING_MARKS = st.one_of(some(Mark, NUMBERS), some(VaryingMark), some(MoodyMark))
VARYING_PROGRAMS = programs(VARYING, depth=2, most=3, marks=VARYING_MARKS, asks=(Says,))
MOST_TRIES = 3000


class DeadEnd(Exception):
    """Nothing was ever returned for such an input."""


class Chooser:
    """Puts what filters returned where they were called, in all ways one after the other.

    A filter that says that it varies must have returned it in this very run.
    """

    def __init__(self, log, began):
        self.log = log
        self.began = began
        self.choices = []
        self.counts = []

    def __call__(self, item, what, x):
        options = self.options(item.cls, what, x)
        if not options:
            raise DeadEnd
        if len(self.counts) == len(self.choices):
            self.choices.append(0)
        self.counts.append(len(options))
        return options[-1 - self.choices[len(self.counts) - 1]]  # the newest first

    def options(self, cls, what, x):
        found = []
        for *called, given_, made in self.log.made[0 if cls._deterministic else self.began :]:
            if called == [cls, what] and same(given_, x) and not any(same(made, o) for o in found):
                found.append(made)
        return found

    def turn(self):
        """Go on to the next way; False where there is none."""
        del self.choices[len(self.counts) :]
        while self.choices and self.choices[-1] + 1 == self.counts[len(self.choices) - 1]:
            self.choices.pop()
        self.counts.clear()
        if self.choices:
            self.choices[-1] += 1
        return bool(self.choices)


def explained(log, began, evaluate):
    """Say whether some of what filters returned, put where they were called, gives the outcome."""
    chooser = Chooser(log, began)
    for _ in range(MOST_TRIES):
        with suppress(DeadEnd):
            if evaluate(chooser):
                return True
        if not chooser.turn():
            return False
    return True  # too many to be sure


class Explained:
    """A graph whose outcomes are to be explained by what its filters returned."""

    def __init__(self, body, store):
        self.body = body
        self.log = Log()
        self.log.made = []
        self.g = declared(body, store, self.log)

    def fit(self, x, y):
        began = len(self.log.made)
        self.g.fit(x, y)
        states = self.g.state()

        def evaluate(choose):
            evaluation = Evaluation(self.body, choose=choose)
            evaluation.fit(own(x), own(y))
            return same_states(states, evaluation.states)

        assert explained(self.log, began, evaluate)

    def forward(self, x):
        began, states = len(self.log.made), self.g.state()
        try:
            result = self.g.forward(x)
        except NotFittedError:
            return  # and other nodes may not have been reached

        def evaluate(choose):
            try:
                found = Evaluation(self.body, states, choose=choose).forward(own(x))
            except NotFitted:
                return False
            return same(result, found)

        assert explained(self.log, began, evaluate)


def check_explained(body, xs, store, blobs, records):
    one = Explained(body, store)
    one.fit(*xs)
    for _ in range(2):
        for x in xs:
            one.forward(x)
    if isinstance(store, MemoryStore):
        drop_blobs(store, blobs)
        for x in xs:
            one.forward(x)
        drop_records(store, records)
        drop_blobs(store, ~blobs)
        for x in xs:
            one.forward(x)
        drop_records(store, records ^ blobs)
    one.fit(*xs)
    drop = isinstance(store, MemoryStore)
    if drop:
        drop_blobs(store, -1)
        drop_records(store, ~records)
    one.fit(*reversed(xs))
    for x in xs:
        one.forward(x)


class TestWhatVaries:
    @checked(30)
    @given(VARYING_PROGRAMS, PAIRS, MASKS, MASKS)
    def test_is_never_mixed(self, body, xs, blobs, records):
        check_explained(body, xs, MemoryStore(), blobs, records)

    @checked(30)
    @given(VARYING_PROGRAMS, PAIRS, MASKS, MASKS)
    def test_is_never_mixed_where_only_leaves_are_kept(self, body, xs, blobs, records):
        with kept_only_at_leaves_and_mapped():
            check_explained(body, xs, MemoryStore(), blobs, records)

    @checked(15)
    @given(VARYING_PROGRAMS, PAIRS, MASKS, MASKS)
    def test_is_never_mixed_on_threads(self, body, xs, blobs, records):
        with in_threads(), kept_only_at_leaves_and_mapped():
            check_explained(body, xs, MemoryStore(), blobs, records)

    @checked(10)
    @given(VARYING_PROGRAMS, PAIRS)
    def test_is_never_mixed_with_nothing_kept(self, body, xs):
        check_explained(body, xs, "off", 0, 0)


class Adds(Filter):
    def __init__(self, amount):
        self.amount = amount

    def forward(self, x, state):
        return x + self.amount


class SaysDone(Filter):
    def forward(self, x, state):
        return {"done": True, "x": x}


class TestAnUntilThatIsPartOfTheBody:
    def test_in_the_middle_of_a_chain(self):
        g = Graph(cache="off")
        g.node("first", Adds(1))
        g.node("asked", SaysDone())
        g.node("last", lambda x: x["x"] * 10)
        g.edge("first", "asked")
        g.edge("asked", "last")
        g.loop("loop", "first", until="asked")
        assert g.forward(1) == 20

    def test_the_only_node_which_is_a_branch(self):
        g = Graph(cache="off")
        g.branch("asked", lambda x: x > 0, {True: Adds(1) >> SaysDone(), False: SaysDone()})
        g.loop("loop", "asked", until="asked")
        assert g.forward(1) == {"done": True, "x": 2}

    def test_beside_the_last_node_and_a_branch(self):
        g = Graph(cache="off")
        g.node("last", Adds(1))
        g.branch("asked", lambda x: x > 0, {True: SaysDone(), False: SaysDone()})
        g.edge("last", "asked")
        g.loop("loop", "last", until="asked")
        assert g.forward(1) == 2

    def test_a_branch_on_the_only_node_of_the_body(self):
        class Halve(Filter):
            def forward(self, x, state):
                half = (x if isinstance(x, int) else x["x"]) // 2
                return {"branch": half > 1, "x": half}

        g = Graph(cache="off")
        g.node("body", Halve())
        g.branch("asked", "body", {True: lambda _: False, False: lambda _: True})
        g.loop("loop", "body", until="asked")
        assert g.forward(8) == {"branch": False, "x": 1}
