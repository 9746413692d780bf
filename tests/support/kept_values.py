"""A value of each kind that a frame writes by itself, made anew at each call."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import pathlib
import struct
import uuid
import zoneinfo

import numpy as np

from soma import Filter, Graph, codec
from support.notes import CALLS, note
from support.values import Access, Colour, Mode, Shelf, Weekday, Word, identical

__all__ = ["NAMES", "Reading", "compute_all", "pickled_reading", "value"]


def _nan(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def _objects():
    made = np.empty((2, 2), dtype=object, order="F")
    made[0, 0], made[0, 1], made[1, 0], made[1, 1] = 10**30, "\ud800", None, [1, (2.0,)]
    return made


def _structured():
    kind = np.dtype([("a", "i1"), ("b", ">f8"), ("c", "<U3", (2,))], align=True)
    made = np.zeros(3, kind)
    made["a"], made["b"], made["c"][1] = 7, math.pi, ["é", "xyz"]
    return made


_TWO_ZONES = dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
_ARRAY = np.arange(24.0)

_VALUES = {
    "none": lambda: None,
    "bools": lambda: [True, False, 1, 0, 1.0],
    "ints": lambda: [0, -1, 2**63 - 1, 2**63, -(2**63) - 1, 10**400, -(10**400)],
    "floats": lambda: [0.0, -0.0, 5e-324, math.inf, -math.inf, 1e308],
    "nans": lambda: [_nan(0x7FF8000000000000), _nan(0xFFF8000000000123), _nan(0x7FF0000000000001)],
    "many floats": lambda: [*(_nan(0x7FF0000000000001 + n) for n in range(40)), -0.0],
    "complex": lambda: complex(-0.0, _nan(0x7FF8000000000007)),
    "texts": lambda: ["", "a\0b", "ключ 節点 \U0001f600", "\ud800", "\udcff\ud83d", "x" * 5000],
    "bytes": lambda: [b"", b"\0\xff", bytes(5000), bytearray(b"mutable")],
    "nested": lambda: [(1, [2, (3, {4: [5]})]), {"b": 1, "a": (2,)}, {"a": 2, "b": 1}],
    "keys": lambda: {
        1: "int",
        1.5: "float",
        (1, "a"): "tuple",
        None: "none",
        frozenset({1}): "set",
    },
    "sets": lambda: [set(), {1, 2, "three"}, frozenset({(1, 2), None})],
    "deep": lambda: _deep(300),
    "ellipsis": lambda: [..., range(1, 10**30, 7), range(0)],
    "slices": lambda: [slice(None), slice(1, None, -1), slice("a", (2,), 10**30)],
    "dates": lambda: [dt.date(1, 1, 1), dt.time(23, 59, fold=1), dt.timedelta(-1, 2, 3)],
    "datetimes": lambda: [dt.datetime.max, dt.datetime.min, _TWO_ZONES],  # noqa: DTZ901  # of no zone
    "zones": lambda: [
        dt.UTC,
        dt.timezone(dt.timedelta(hours=-3, seconds=7), "odd"),
        _TWO_ZONES.tzinfo,
    ],
    "decimals": lambda: [decimal.Decimal(x) for x in ("-0.00", "1E+3", "sNaN12", "-Infinity")],
    "uuid": lambda: uuid.UUID(int=2**127 + 1),
    "paths": lambda: [
        pathlib.PurePosixPath("/a/../b"),
        pathlib.PureWindowsPath("c:/x"),
        pathlib.Path(),
    ],
    "enums": lambda: [*Colour, *Weekday, *Word, *Shelf.Row, Access(5), Mode.FAST | Mode.SAFE],
    "numpy scalars": lambda: [
        *(np.float32(1.1), np.float64(-0.0), np.int8(-7), np.uint64(2**64 - 1), np.bool_(True)),
        *(np.complex64(1j), np.str_("a\0"), np.bytes_(b"b\0"), np.float16("nan")),
        *(np.datetime64("NaT"), np.datetime64("2024-02-29T01", "h"), np.timedelta64(5, "us")),
    ],
    "structured scalar": lambda: _structured()[0],
    "structured": _structured,
    "0-d": lambda: [np.array(1.5), np.array("x"), np.array(None, dtype=object)],
    "empty": lambda: [np.zeros((0, 3)), np.zeros((3, 0), order="F"), np.array([], "M8[ns]")],
    "orders": lambda: [_ARRAY.reshape(4, 6), _ARRAY.reshape((4, 6), order="F"), _ARRAY],
    "byte orders": lambda: [_ARRAY.astype(">f4"), _ARRAY.astype("<i2"), _ARRAY.astype(">c16")],
    "times": lambda: [np.array(["2024-01-01", "NaT"], "M8[D]"), np.array([1, 2], ">m8[25s]")],
    "array of nans": lambda: np.array([0x7FF0000000000001, 0xFFF8000000000002], "u8").view("f8"),
    "objects": _objects,
    "large": lambda: {"one": np.arange(300_000.0), "other": bytes(2_000_000)},
    "large F": lambda: np.arange(300_000.0).reshape((500, 600), order="F"),
}
NAMES = tuple(_VALUES)


def _deep(levels):
    made = []
    for _ in range(levels):
        made = [made]
    return made


def value(name):
    return _VALUES[name]()


class Gives(Filter):
    def __init__(self, name):
        self.name = name

    def forward(self, x, state):
        note(self.name)
        return value(self.name)


class Learns(Filter):
    """Has a value as its state."""

    def __init__(self, name):
        self.name = name

    def fit(self, x, y=None):
        note(self.name)
        return {"it": value(self.name)}

    def forward(self, x, state):
        return state["it"]


def compute_all():
    """Return the names of what was computed, and of what came out as something else."""
    wrong = []
    for name in NAMES:
        g = Graph.somatize(Gives(name))
        if not identical(g.forward(0), value(name)):
            wrong.append(name)
        g = Graph.somatize(Learns(name))
        g.fit(0)
        if not identical(g.state()["learns"]["it"], value(name)):
            wrong.append(f"state {name}")
    return list(CALLS), wrong


class Reading:
    def __init__(self, value, unit):
        self.value = value
        self.unit = unit


class Reads(Filter):
    def forward(self, x, state):
        note("reads")
        return Reading(x * 2, "ms")


def pickled_reading():
    """Return what a type gives that is written with pickle, and the calls that has taken."""
    codec("test.Reading", Reading, pickle=True)
    found = Graph.somatize(Reads()).forward(np.arange(3.0))
    return type(found).__name__, found.value.tolist(), found.unit, list(CALLS)
