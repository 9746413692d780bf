"""Every value that a frame writes by itself: a strategy that draws them, and an exact comparison.

The comparison is written from the rules and not from the code under test: ``==`` would call 1 and
True the same, 0.0 and -0.0 the same, and a NaN different from itself.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import math
import pathlib
import struct
import uuid
import zoneinfo

import numpy as np
from hypothesis import strategies as st

LARGE = 1024
"""Text and bytes of this many bytes are written beside the header."""
MANY = 32
"""So many numbers of one type are packed."""


class Colour(enum.Enum):
    RED = 1
    GREEN = "green"
    BLUE = (1, 2.5, None)
    CRIMSON = RED


class Weekday(enum.IntEnum):
    MONDAY = 1
    SUNDAY = 7


class Word(enum.StrEnum):
    YES = "yes"
    NO = "no"


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


class Mode(enum.IntFlag):
    FAST = 1
    SAFE = 2


class Shelf:
    class Row(enum.Enum):
        TOP = 0.5
        LOW = -0.0


MEMBERS = (
    *Colour,
    *Weekday,
    *Word,
    *Shelf.Row,
    *(Access(number) for number in range(8)),
    *(Mode(number) for number in range(4)),
)

# ---------------------------------------------------------------- the strategy


def _double(bits: int) -> float:
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def _nan(payload: int, *, negative: bool) -> float:
    return _double((0x7FF << 52) | (payload % (1 << 52) or 1) | (int(negative) << 63))


def nans():
    return st.builds(
        lambda payload, negative: _nan(payload, negative=negative),
        st.one_of(st.just(1 << 51), st.integers(1, (1 << 52) - 1)),
        st.booleans(),
    )


def floats():
    return st.one_of(
        st.floats(allow_nan=False),
        nans(),
        st.sampled_from([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, 5e-324]),
    )


def integers():
    edges = [1 << 63, (1 << 63) - 1, -(1 << 63), -(1 << 63) - 1, 1 << 64, 10**400, -(10**400)]
    return st.one_of(st.integers(-300, 300), st.integers(), st.sampled_from(edges))


def texts():
    short = st.text(st.characters(), max_size=12)
    any_character = st.characters(categories=None, exclude_categories=())
    surrogates = st.text(any_character | st.sampled_from("\ud800\udfff\udce9"), max_size=6)
    long = st.builds(
        lambda part, times: part * times,
        st.text(any_character, min_size=1, max_size=3),
        st.sampled_from([255, 256, 341, 342, 1023, 1024, 1025]),
    )
    return st.one_of(short, surrogates, long)


def raws():
    long = st.builds(
        lambda part, times: part * times,
        st.binary(min_size=1, max_size=2),
        st.sampled_from([LARGE // 2, LARGE - 1, LARGE, LARGE + 1]),
    )
    return st.one_of(st.binary(max_size=12), long)


def zones():
    offsets = st.timedeltas(dt.timedelta(hours=-23, minutes=-59), dt.timedelta(hours=23))
    return st.one_of(
        st.none(),
        st.just(dt.UTC),
        st.builds(dt.timezone, offsets),
        st.builds(dt.timezone, offsets, st.text(max_size=4)),
        st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns"]).map(zoneinfo.ZoneInfo),
    )


def moments():
    def folded(moment, fold, zone):
        return moment.replace(fold=fold, tzinfo=zone)

    fold = st.integers(0, 1)
    return st.one_of(
        st.dates(),
        st.builds(folded, st.times(), fold, zones()),
        st.builds(folded, st.datetimes(), fold, zones()),
        st.timedeltas(),
        zones(),
    )


def decimals():
    special = st.builds(
        "{}{}{}".format,
        st.sampled_from(["", "-"]),
        st.sampled_from(["NaN", "sNaN"]),
        st.sampled_from(["", "1", "90210"]),
    )
    edges = st.sampled_from(
        ["0", "-0", "0E+5", "0E-7", "1E+10", "1.0", "1.00", "Infinity", "-Infinity", "1E-999999"]
    )
    return st.one_of(
        st.decimals(allow_nan=False, allow_infinity=False),
        st.builds(decimal.Decimal, st.one_of(special, edges)),
    )


def paths():
    part = st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=4)
    text = st.one_of(
        st.sampled_from(
            [
                "",
                ".",
                "..",
                "/",
                "//host/share/x",
                "///a",
                "a/../b",
                "C:\\x",
                "C:x",
                "c:/A",
                "\udce9",
            ]
        ),
        st.lists(part, max_size=3).map("/".join),
    )
    kinds = (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.Path)
    return st.builds(lambda kind, one: kind(one), st.sampled_from(kinds), text)


def uuids():
    return st.builds(
        lambda number, safe: uuid.UUID(int=number, is_safe=safe),
        st.integers(0, (1 << 128) - 1),
        st.sampled_from(uuid.SafeUUID),
    )


def leaves(*, hashable: bool = False):
    """Plain values with nothing inside; sNaN has no hash, so keys go without."""
    found = [
        st.none(),
        st.booleans(),
        integers(),
        floats(),
        st.builds(complex, floats(), floats()),
        texts(),
        raws(),
        st.just(...),
        st.builds(range, st.integers(-9, 9), integers(), st.sampled_from([1, -1, 3, 1 << 70])),
        moments(),
        uuids(),
        paths(),
        st.sampled_from(MEMBERS),
    ]
    if hashable:
        return st.one_of(*found, decimals().filter(lambda one: not one.is_snan()))
    return st.one_of(*found, decimals(), raws().map(bytearray))


def hashables(*more):
    return st.recursive(
        st.one_of(leaves(hashable=True), *more),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(tuple),
            st.frozensets(inner, max_size=3),
        ),
        max_leaves=4,
    )


def _has_hash(value: object) -> bool:
    try:
        hash(value)
    except (TypeError, ValueError):  # a time without a unit has none either
        return False
    return True


def packed():
    """Lists and tuples that are long enough to be packed, and such that may not be."""

    def stretch(items, times, kind):
        return kind(items * times)

    few = st.one_of(
        st.lists(floats(), min_size=1, max_size=4),
        st.lists(st.booleans(), min_size=1, max_size=4),
        st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=4),
        st.lists(integers(), min_size=1, max_size=4),
        st.lists(st.one_of(floats(), st.booleans(), integers()), min_size=1, max_size=4),
    )
    times = st.sampled_from([MANY - 1, MANY, MANY // 2, MANY // 4 - 1])
    return st.builds(stretch, few, times, st.sampled_from([list, tuple]))


def _containers(inner, keys):
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(keys, max_size=4),
        st.frozensets(keys, max_size=4),
        st.dictionaries(keys, inner, max_size=4),
        st.builds(slice, inner, inner, inner),
    )


def plain():
    """Values without numpy in them: what copy and pickle give back exactly."""
    keys = hashables()
    return st.recursive(
        st.one_of(leaves(), packed()), lambda inner: _containers(inner, keys), max_leaves=8
    )


def values():
    """Every value that a frame writes without a codec."""
    keys = hashables(scalars().filter(_has_hash))
    return st.recursive(
        st.one_of(leaves(), packed(), arrays(), scalars()),
        lambda inner: st.one_of(
            _containers(inner, keys), object_arrays(inner), object_records(inner)
        ),
        max_leaves=8,
    )


# ---------------------------------------------------------------- arrays

SIMPLE = (
    *("?", "i1", "u1", "<i2", ">i2", "<u2", ">u4", "<i4", "<i8", ">i8", "<u8"),
    *("<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "<c8", ">c16", "<c16", "g", "G"),
    *("S0", "S1", "S5", "<U1", ">U3", "<U3", "V1", "V7"),
    *("<M8", "<M8[D]", ">M8[ns]", "<M8[25s]", "<m8", "<m8[h]", ">m8[ns]", "<m8[100us]"),
)

STRUCTURED = (
    np.dtype([("a", "i1"), ("b", "<f8")]),
    np.dtype([("a", "i1"), ("b", "<f8")], align=True),
    np.dtype([("a", ">i4", (2, 3)), ("é", "<U2")]),
    np.dtype([(("a title", "a"), "<i2"), (("", "b"), ">f4")]),
    np.dtype({"names": ["x", "y"], "formats": ["<i4", "<i2"], "offsets": [0, 2]}),
    np.dtype({"names": ["y", "x"], "formats": ["<i2", "u1"], "offsets": [9, 3], "itemsize": 17}),
    np.dtype([("in", [("a", "u1"), ("g", "g")], (2,)), ("t", "<M8[us]")], align=True),
    np.dtype([("none", "V0"), ("nothing", "S0")]),
    np.dtype([]),
)

RECORDS = (
    np.dtype([("o", "O")]),
    np.dtype([("a", "i1"), ("o", "O")], align=True),
    np.dtype([("a", "<f4", (2,)), ("o", "O", (2,)), (("deep", "in"), [("b", "u1"), ("p", "O")])]),
)


def _shapes():
    return st.lists(st.integers(0, 3), max_size=3).map(tuple)


def _layout(array, layout):
    """Return the array as it is, in Fortran's order, or in neither order."""
    if layout == "F":
        return np.array(array, order="F", copy=True)
    if layout == "T":
        return array.T
    if layout == "apart" and array.ndim:
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    return array


def _filled(dtype, shape, raw, layout):
    """Return an array of these bytes, repeated; gaps in its items hold bytes too."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = bytearray((raw * (size // len(raw) + 1))[:size])
    array = np.ndarray(shape, dtype, memory)
    _mend(array)
    return _layout(array, layout)


def _mend(array):
    """Put readable items where any bytes are not: text, bools and x87 numbers."""
    if array.dtype.names is not None:
        for name in array.dtype.names:
            _mend(array[name])
    elif array.dtype.kind == "U" and array.size:
        letters = np.array([chr(97 + place % 26) for place in range(array.size)])
        array[...] = letters.reshape(array.shape)
    elif array.dtype.kind == "b":
        array.view("u1")[...] &= np.uint8(1)
    elif array.dtype.char in "gG":
        array[...] = np.arange(array.size, dtype="i8").reshape(array.shape) - 1.5


def arrays():
    return st.builds(
        _filled,
        st.sampled_from(SIMPLE + STRUCTURED),
        _shapes(),
        st.one_of(
            st.binary(min_size=1, max_size=9), st.just(struct.pack("<d", _nan(7, negative=1)))
        ),
        st.sampled_from(["C", "F", "T"]),
    )


def arrays_apart():
    """Arrays that are neither C- nor F-contiguous, most of them."""
    return st.builds(
        _filled,
        st.sampled_from(SIMPLE + STRUCTURED),
        _shapes(),
        st.binary(min_size=1, max_size=9),
        st.just("apart"),
    )


def _scalar(dtype, raw):
    return _filled(dtype, (), raw, "C")[()]


def scalars():
    return st.one_of(
        st.builds(_scalar, st.sampled_from(SIMPLE + STRUCTURED), st.binary(min_size=1, max_size=9)),
        texts().map(np.str_),
        st.builds(np.str_, st.sampled_from(["", "a\0", "\0", "\udc80"])),
        st.builds(np.bytes_, st.sampled_from([b"", b"a\0", b"\0\0"])),
        floats().map(np.float64),
        st.booleans().map(np.bool_),
    )


def _objects(items, shape, layout):
    array = np.empty(math.prod(shape), dtype=object)
    for place in range(array.size):
        array[place] = items[place % len(items)]
    return _layout(array.reshape(shape), layout if layout != "apart" else "C")


def object_arrays(inner):
    return st.builds(
        _objects,
        st.lists(inner, min_size=1, max_size=3),
        _shapes(),
        st.sampled_from(["C", "F", "T"]),
    )


def _fill_records(array, items):
    for name in array.dtype.names:
        field = array[name]
        if field.dtype.names is not None:
            _fill_records(field, items)
        elif field.dtype == object:
            for place, index in enumerate(np.ndindex(field.shape)):
                field[index] = items[place % len(items)]
        else:
            field[...] = 1


def _records(dtype, items, shape, layout, *, scalar):
    array = np.zeros(() if scalar else shape, dtype, order=layout)
    _fill_records(array, items)
    return array[()] if scalar else array


def object_records(inner):
    return st.builds(
        _records,
        st.sampled_from(RECORDS),
        st.lists(inner, min_size=1, max_size=3),
        _shapes(),
        st.sampled_from(["C", "F"]),
        scalar=st.booleans(),
    )


# ---------------------------------------------------------------- the comparison


def identical(one: object, other: object) -> bool:
    """Return whether two values are the same in type, structure and every bit that means anything.

    Sets are compared without an order, dicts with theirs.
    """
    if type(one) is not type(other):
        return False
    for kinds, same in _RULES:
        if isinstance(one, kinds):
            return same(one, other)
    return bool(one == other)


def _bits(number: complex) -> bytes:
    return struct.pack("<dd", number.real, number.imag)


def _same_numbers(one: complex, other: complex) -> bool:
    return _bits(one) == _bits(other)


def _same_items_in_order(one, other) -> bool:
    return len(one) == len(other) and all(map(identical, one, other))


def _same_dicts(one: dict, other: dict) -> bool:
    return _same_items_in_order(list(one.items()), list(other.items()))


def _same_slices(one: slice, other: slice) -> bool:
    return all(identical(getattr(one, at), getattr(other, at)) for at in _ENDS)


def _same_ranges(one: range, other: range) -> bool:
    return all(getattr(one, at) == getattr(other, at) for at in _ENDS)


_ENDS = ("start", "stop", "step")


def _same_sets(one, other) -> bool:
    return _same_members(list(one), list(other))


def _same_decimals(one: decimal.Decimal, other: decimal.Decimal) -> bool:
    return one.as_tuple() == other.as_tuple()


def _same_paths(one: pathlib.PurePath, other: pathlib.PurePath) -> bool:
    return (one.drive, one.root, one.parts) == (other.drive, other.root, other.parts)


def _same_ids(one: uuid.UUID, other: uuid.UUID) -> bool:
    return (one.int, one.is_safe) == (other.int, other.is_safe)


def _same_enums(one: enum.Enum, other: enum.Enum) -> bool:
    return one.name == other.name and identical(one.value, other.value)


def _same_members(one: list[object], other: list[object]) -> bool:
    if len(one) != len(other):
        return False
    for member in one:
        place = next((at for at, found in enumerate(other) if identical(member, found)), None)
        if place is None:
            return False
        del other[place]
    return True


def _same_clock(one, other) -> bool:
    if type(one) is zoneinfo.ZoneInfo:
        return one.key == other.key
    if type(one) is dt.timezone:
        return one.__reduce__()[1] == other.__reduce__()[1]
    bare = one.replace(tzinfo=None) == other.replace(tzinfo=None)
    return bare and one.fold == other.fold and identical(one.tzinfo, other.tzinfo)


def same_dtypes(one: np.dtype, other: np.dtype) -> bool:
    """Return whether two dtypes are the same, names of fields and gaps between them included."""
    if (one.num, one.kind, one.byteorder, one.itemsize, one.type) != (
        *(other.num, other.kind, other.byteorder, other.itemsize, other.type),
    ):
        return False
    if (one.subdtype is None) != (other.subdtype is None):
        return False
    if one.subdtype is not None:
        return one.shape == other.shape and same_dtypes(one.base, other.base)
    if one.names != other.names or one.isalignedstruct != other.isalignedstruct:
        return False
    if one.names is None:
        return np.datetime_data(one) == np.datetime_data(other) if one.kind in "mM" else True
    return all(
        one.fields[name][1:] == other.fields[name][1:]
        and same_dtypes(one.fields[name][0], other.fields[name][0])
        for name in one.names
    )


def _same_arrays(one: np.ndarray, other: np.ndarray) -> bool:
    layouts = [(a.flags.c_contiguous, a.flags.f_contiguous) for a in (one, other)]
    return (
        one.shape == other.shape
        and (layouts[0] == layouts[1] or one.nbytes == 0)
        and same_dtypes(one.dtype, other.dtype)
        and _same_items(one, other)
    )


def _same_items(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype.names is not None:
        return all(_same_items(one[name], other[name]) for name in one.dtype.names)
    if one.dtype == object:
        return all(identical(one[index], other[index]) for index in np.ndindex(one.shape))
    return _meaning(one) == _meaning(other)


def _meaning(array: np.ndarray) -> bytes:
    """Return the bytes of the items without those that an x87 number does not use."""
    raw = array.tobytes()
    x87 = np.finfo(np.longdouble).nmant == 63 and array.dtype.char in "gG"
    if not x87:
        return raw
    width = np.dtype(np.longdouble).itemsize
    return b"".join(raw[at : at + 10] for at in range(0, len(raw), width))


def _same_scalars(one: np.generic, other: np.generic) -> bool:
    if isinstance(one, np.str_):
        return one.encode("utf-8", "surrogatepass") == other.encode("utf-8", "surrogatepass")
    if isinstance(one, np.bytes_):
        return bytes(one) == bytes(other)
    if not same_dtypes(one.dtype, other.dtype):
        return False
    if one.dtype.names is not None:
        return _same_items(np.array(one), np.array(other))
    return _meaning(np.array(one)) == _meaning(np.array(other))


_RULES = (
    (enum.Enum, _same_enums),
    (np.ndarray, _same_arrays),
    (np.generic, _same_scalars),  # before float, which np.float64 derives from
    ((float, complex), _same_numbers),
    ((list, tuple), _same_items_in_order),
    (dict, _same_dicts),
    ((set, frozenset), _same_sets),
    (slice, _same_slices),
    (range, _same_ranges),
    (decimal.Decimal, _same_decimals),
    (pathlib.PurePath, _same_paths),
    (uuid.UUID, _same_ids),
    ((dt.tzinfo, dt.time, dt.datetime), _same_clock),
)
