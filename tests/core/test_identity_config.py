"""When two configs are the same: the table of docs/identity.md, and what cannot be hashed."""

from __future__ import annotations

import copy
import datetime as dt
import decimal
import enum
import functools
import pathlib
import pickle
import re
import threading
import types
import uuid
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import InitVar, dataclass, field
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soma import CacheConfigError, Filter, codec
from soma.identity import NodeIdentity, identify
from support.distributions import run_python


class Node(Filter):
    def __init__(self, value):
        self.value = value

    def forward(self, x, state):
        return x


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Options:
    rate: float = 0.1
    names: list = field(default_factory=list)


@dataclass
class Settings:
    rate: float = 0.1
    names: list = field(default_factory=list)


class MoreOptions(Options):
    """Adds an attribute that is no field."""

    def __init__(self, rate, names, more):
        super().__init__(rate, names)
        self.more = more


@dataclass
class Derived:
    """Computes an attribute that is no field."""

    a: int
    b: InitVar[int]

    def __post_init__(self, b):
        self.both = self.a + b


Point = namedtuple("Point", "x y")  # noqa: PYI024  # the untyped kind is in use as well


def config_of(value):
    return identify(Node(value)).config


def shuffled(**items):
    return dict(reversed(items.items()))


def nan(bits):
    return float(np.array([bits], dtype="<u8").view("<f8")[0])


DISTINCT = {
    "None": None,
    "True": True,
    "False": False,
    "1": 1,
    "0": 0,
    "-1": -1,
    "1.0": 1.0,
    "0.0": 0.0,
    "-0.0": -0.0,
    "NaN": nan(0x7FF8000000000000),
    "negative NaN": nan(0xFFF8000000000000),
    "NaN with a payload": nan(0x7FF8000000000001),
    "infinity": float("inf"),
    "1 + 0j": 1 + 0j,
    "1 - 0j": complex(1, -0.0),
    "text 1": "1",
    "bytes 1": b"1",
    "bytearray 1": bytearray(b"1"),
    "no text": "",
    "a lone surrogate": "\ud800",
    "2 ** 70": 2**70,
    "-(2 ** 70)": -(2**70),
    "255": 255,
    "[]": [],
    "()": (),
    "set()": set(),
    "frozenset()": frozenset(),
    "{}": {},
    "[1, 2]": [1, 2],
    "[2, 1]": [2, 1],
    "(1, 2)": (1, 2),
    "[[1], 2]": [[1], 2],
    "[[1, 2]]": [[1, 2]],
    "[1, [2]]": [1, [2]],
    "{1, 2}": {1, 2},
    "frozenset of 1, 2": frozenset({1, 2}),
    "{1: 2}": {1: 2},
    "{'1': 2}": {"1": 2},
    "{2: 1}": {2: 1},
    "{'a': {'b': 1}}": {"a": {"b": 1}},
    "{'a': 'b'}": {"a": "b"},
    "OrderedDict ab": OrderedDict(a=1, b=2),
    "OrderedDict ba": OrderedDict(b=2, a=1),
    "dict ab": {"a": 1, "b": 2},
    "defaultdict of int": defaultdict(int, a=1),
    "defaultdict of list": defaultdict(list, a=1),
    "range 3": range(3),
    "range 0, 4, 2": range(0, 4, 2),
    "slice": slice(1, 2, 3),
    "Ellipsis": ...,
    "a member": Colour.RED,
    "another member": Colour.BLUE,
    "an Enum class": Colour,
    "options": Options(),
    "other options": Options(rate=0.2),
    "settings of the same fields": Settings(),
    "a named tuple": Point(1, 2),
    "another named tuple": Point(2, 1),
    "a date": dt.date(2020, 1, 1),
    "a datetime": dt.datetime(2020, 1, 1),  # noqa: DTZ001  # a naive one is a value too
    "a datetime in UTC": dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    "a timedelta": dt.timedelta(1),
    "decimal 1": decimal.Decimal(1),
    "decimal 1.0": decimal.Decimal("1.0"),
    "a path": pathlib.Path("/a"),
    "a pure path": pathlib.PurePosixPath("/a"),
    "a uuid": uuid.UUID(int=1),
    "float64 scalar": np.float64(1),
    "float32 scalar": np.float32(1),
    "int64 scalar": np.int64(1),
    "float64 array": np.ones(2),
    "float32 array": np.ones(2, dtype=np.float32),
    "0-d array": np.array(1.0),
    "1-d array": np.array([1.0]),
    "2-d array": np.ones((1, 2)),
    "transposed array": np.arange(4.0).reshape(2, 2).T,
    "C-ordered array of the same items": np.ascontiguousarray(np.arange(4.0).reshape(2, 2).T),
    "object array": np.array([1, "a"], dtype=object),
    "object array of others": np.array([1, "b"], dtype=object),
    "a mapping proxy": types.MappingProxyType({"a": 1, "b": 2}),
    "a counter": Counter("aab"),
    "a deque": deque([1, 2]),
    "a bounded deque": deque([1, 2], maxlen=2),
    "a fraction": Fraction(1, 3),
    "a pattern": re.compile("a"),
    "a pattern with a flag": re.compile("a", re.IGNORECASE),
    "a namespace": types.SimpleNamespace(a=1),
    "a dtype": np.dtype("<f4"),
    "another dtype": np.dtype("<f8"),
    "a union": int | None,
    "more options": MoreOptions(0.1, [], 2),
    "more options of others": MoreOptions(0.1, [], 3),
    "a derived value": Derived(1, 2),
    "40 floats": [0.5] * 40,
    "40 floats in a tuple": (0.5,) * 40,
    "40 ints": [1] * 40,
    "40 bools": [True] * 40,
    "40 large ints": [2**70] * 40,
    "a function": len,
    "another function": max,
    "a partial": functools.partial(int, base=2),
    "another partial": functools.partial(int, base=3),
    "a class": int,
    "another class": float,
    "a filter": Node(1),
    "another filter": Node(2),
}

EQUAL = {
    "dicts in another order": ({"a": 1, "b": 2}, shuffled(a=1, b=2)),
    "nested dicts in another order": ([{"a": 1, "b": 2}], [shuffled(a=1, b=2)]),
    "dicts with keys of several types": ({1: 1, "1": 2, None: 3}, {None: 3, "1": 2, 1: 1}),
    "sets in another order": ({1, "a", None}, {None, "a", 1}),
    "a list and its copy": ([1, [2]], copy.deepcopy([1, [2]])),
    "one object twice and two equal objects": ([(x := [1]), x], [[1], [1]]),
    "a value and itself after a pickle": (
        {"a": (1, 2.5, "x" * 100)},
        pickle.loads(pickle.dumps({"a": (1, 2.5, "x" * 100)})),  # noqa: S301  # our own bytes
    ),
    "equal options": (Options(), Options()),
    "equal arrays": (np.arange(3), np.arange(3)),
    "an array and a strided view with the same items": (np.arange(3), np.arange(6)[::2] // 2),
    "a read-only array": (np.arange(3), np.frombuffer(np.arange(3).tobytes(), dtype=np.int64)),
}


def test_every_row_of_the_table_differs_from_every_other():
    seen = {}
    for name, value in DISTINCT.items():
        assert config_of(value) == config_of(value), name
        other = seen.setdefault(config_of(value), name)
        assert other == name, f"{other} and {name} share a config"


@pytest.mark.parametrize("case", EQUAL)
def test_what_does_not_matter(case):
    one, other = EQUAL[case]
    assert config_of(one) == config_of(other)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def exact(value):
    """Write a value so that only the same type and bits give the same text; dicts by key."""
    if isinstance(value, float):
        return f"float {np.float64(value).tobytes().hex()}"
    if isinstance(value, dict):
        return f"dict {sorted((key, exact(item)) for key, item in value.items())}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} {[exact(item) for item in value]}"
    return f"{type(value).__name__} {value!r}"


@settings(max_examples=300, deadline=None)
@given(one=PLAIN, other=PLAIN)
def test_configs_are_equal_exactly_when_the_values_are(one, other):
    assert (config_of(one) == config_of(other)) == (exact(one) == exact(other))
    assert config_of(one) == config_of(copy.deepcopy(one))


def test_the_same_values_in_another_process_have_the_same_hash(tmp_path):
    values = {
        name: value
        for name, value in DISTINCT.items()
        if not type(value).__module__.startswith(("test", "tests"))
        and value is not Colour
        and not isinstance(value, types.MappingProxyType)  # which cannot be pickled
    }
    (tmp_path / "values.pickle").write_bytes(pickle.dumps(values))
    done = run_python(
        """
        import pickle, sys
        from soma import Filter
        from soma.identity.canonical import Canon
        for name, value in pickle.load(open("values.pickle", "rb")).items():
            print(name, "=", Canon().write(value).digest().hex())
        """,
        cwd=tmp_path,
        PYTHONHASHSEED="77",
    )
    from soma.identity.canonical import Canon

    there = dict(line.split(" = ") for line in done.stdout.splitlines())
    assert there == {name: Canon().write(value).digest().hex() for name, value in values.items()}


class TestWhatCounts:
    def test_private_attributes_and_node_names_do_not(self):
        node = Node(1)
        before = identify(node, "a")
        node._private = object()
        assert identify(node, "b") == before

    def test_slots_do(self):
        class Slotted:
            __slots__ = ("_b", "a", "unset")

            def forward(self, x, state):
                return x

        node = Slotted()
        node.a, node._b = 1, 1
        before = identify(node)
        node._b = 2
        assert identify(node) == before
        node.a = 2
        assert identify(node).config != before.config

    def test_own_words_stand_for_everything(self):
        class Own(Node):
            def __soma_config__(self):
                return {"value": self.value["kept"]}

        one = identify(Own({"kept": 1, "lock": threading.Lock()}))
        assert one == identify(Own({"kept": 1, "lock": None}))
        assert one != identify(Own({"kept": 2, "lock": None}))

    def test_a_value_with_a_codec_counts_by_its_bytes(self, monkeypatch):
        from soma import codecs

        for table in ("_by_kind", "_by_type"):
            monkeypatch.setattr(codecs, table, dict(getattr(codecs, table)))
        monkeypatch.setattr(codecs, "_resolved", type(codecs._resolved)())

        class Reading:
            def __init__(self, hz):
                self.hz = hz

        with pytest.raises(CacheConfigError, match="Reading, which has no hash"):
            config_of(Reading(1))
        kind = "tests.Reading"
        codec(kind, Reading, dump=lambda one: bytes([one.hz]), load=lambda raw: Reading(*raw))
        assert config_of(Reading(1)) == config_of(Reading(1)) != config_of(Reading(2))

    def test_a_codec_goes_before_fields(self, monkeypatch):
        from soma import codecs

        for table in ("_by_kind", "_by_type"):
            monkeypatch.setattr(codecs, table, dict(getattr(codecs, table)))
        monkeypatch.setattr(codecs, "_resolved", type(codecs._resolved)())

        @dataclass
        class Locked:
            k: int
            lock: object

        codec(
            "tests.Locked", Locked, dump=lambda one: bytes([one.k]), load=lambda raw: Locked(*raw)
        )
        assert config_of(Locked(1, threading.Lock())) == config_of(Locked(1, None))
        assert config_of(Locked(1, None)) != config_of(Locked(2, None))

    def test_a_callback_of_its_own_and_a_parent_link_are_fine(self):
        one, other = Node(1), Node(2)
        for node in (one, other):
            node.callback = node.forward
            node.part = Node([node])
        assert identify(one).config == identify(one).config != identify(other).config

    def test_other_attributes_of_a_dataclass_count(self):
        assert config_of(MoreOptions(0.1, [], 1)) == config_of(MoreOptions(0.1, [], 1))

    def test_a_list_that_changes_in_place_counts_at_once(self):
        node = Node([1])
        reader = NodeIdentity("node", node)
        before = reader.read()
        node.value.append(2)
        assert reader.read().config != before.config

    def test_an_array_that_changes_in_place_counts_at_once(self):
        node = Node(np.zeros(3))
        reader = NodeIdentity("node", node)
        before = reader.read()
        node.value[0] = 1
        assert reader.read().config != before.config


class Raises:
    """Reading what it is made of fails."""

    def __soma_config__(self):
        raise OSError("not now")


def looped():
    value = [1]
    value.append({"again": value})
    return value


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (object, "the attribute 'value' cannot be hashed: it is a builtins.object, which has no"),
        (threading.Lock, "it is a _thread.lock, which has no hash"),
        (lambda: (number for number in range(3)), "it is a builtins.generator, which has no hash"),
        (lambda: [1, {"a": (2, object())}], "at [1]['a'][1] it is a builtins.object"),
        (lambda: {object(): 1}, "it is a builtins.object, which has no hash"),
        (lambda: Options(names=[object()]), "at .names[0] it is a builtins.object"),
        (lambda: Node(object()), "it is a builtins.object"),
        (type("D", (dict,), {}), "D, which has no hash"),
        (lambda: np.array([1, object()]), "at .flat[1] it is a builtins.object, which has no hash"),
        (Raises, "reading it raised OSError: not now"),
        (looped, "at [1]['again'] it contains itself"),
        (lambda: nested(2000), "it nests deeper than 1000 values"),
    ],
)
def test_what_cannot_be_hashed_names_node_and_attribute(make, sentence):
    with pytest.raises(CacheConfigError) as caught:
        identify(Node(make()), "scaler")
    message = str(caught.value)
    assert message.startswith("Node 'scaler': the attribute 'value' cannot be hashed: ")
    assert sentence in message
    assert message.endswith(
        "Prefix its name with '_' if results do not depend on it, define __soma_config__(), or "
        "register a codec for its type"
    )
    assert len(message) < 600
    assert isinstance(caught.value, TypeError)


def test_a_class_has_no_identity_an_object_of_it_has():
    with pytest.raises(CacheConfigError, match="Node is a class; what has an identity"):
        identify(Node)


def test_nesting_up_to_the_limit_is_fine():
    assert config_of(nested(990)) != config_of(nested(989))


class Called:
    def __init__(self, weight):
        self._weight = weight

    def __call__(self, x):
        return x * self._weight


class Slotted:
    __slots__ = ("_weight",)

    def __init__(self, weight):
        self._weight = weight

    def __call__(self, x):
        return x * self._weight


class CalledList(list):
    def __call__(self, x):
        return self[0] * x


class Module:
    """Has a forward and is no Filter, as a torch module."""

    def __init__(self, weight):
        self._parameters = {"weight": weight}

    def forward(self, x):
        return x * self._parameters["weight"]


class HoldsOne(Filter):
    def __init__(self, held):
        self.held = held

    def forward(self, x, state):
        return self.held(x)


class TestObjectsThatAreCalled:
    @pytest.mark.parametrize("cls", [Called, Slotted, lambda weight: CalledList([weight]), Module])
    def test_count_by_what_they_hold_under_whatever_name(self, cls):
        one, same, other = (identify(HoldsOne(cls(weight))).config for weight in (2, 2, 3))
        assert one == same
        assert one != other

    def test_a_bound_method_counts_with_its_object(self):
        one, other = (identify(HoldsOne(Module(weight).forward)).config for weight in (2, 3))
        assert one != other

    def test_what_only_c_can_read_has_no_hash(self):
        np = pytest.importorskip("numpy")
        cls = type("CalledArray", (np.ndarray,), {"__call__": lambda self, x: x})
        with pytest.raises(CacheConfigError, match="holds something that only C code can read"):
            identify(HoldsOne(np.zeros(2).view(cls)))

    def test_a_filter_keeps_to_its_rule(self):
        class Inner(Filter):
            def __init__(self, weight):
                self.weight = weight
                self._cache = object()

            def forward(self, x, state):
                return x

        assert identify(HoldsOne(Inner(2))).config == identify(HoldsOne(Inner(2))).config
        assert identify(HoldsOne(Inner(2))).config != identify(HoldsOne(Inner(3))).config

    def test_methods_of_classes_in_c_count_by_name(self):
        assert identify(str.upper).config != identify(str.lower).config
        assert identify(dict.copy).config != identify(list.copy).config

    def test_an_attribute_that_goes_brings_its_argument_back(self):
        class Keeps(Filter):
            def __init__(self, k):
                self.k = k
                self._k = k

            def forward(self, x, state):
                return x * self._k

        nodes = [NodeIdentity("keeps", Keeps(k)) for k in (1, 5)]
        for node in nodes:
            node.read()
            del node._node.k
        assert nodes[0].read().config != nodes[1].read().config
