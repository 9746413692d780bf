"""What goes into a frame comes out of it, bit for bit, and has one name wherever it is written."""

from __future__ import annotations

import copy
import ctypes
import datetime as dt
import decimal
import json
import math
import mmap
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import uuid
import zoneinfo
from itertools import combinations

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import HealthCheck, given, settings

from soma.errors import CodecError, FrameError, MissingCodec
from soma.frame import content_hash, decode, decode_parts, encode
from soma.frame.layout import ALIGNMENT, parse
from support.distributions import TIMEOUT_S, run_python
from support.values import (
    SIMPLE,
    STRUCTURED,
    Access,
    Colour,
    Shelf,
    Weekday,
    arrays_apart,
    identical,
    plain,
    values,
)

CHECKED = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

NAN = math.nan
MINUS_NAN = -math.nan
OTHER_NAN = struct.unpack("<d", b"\x01\0\0\0\0\0\xf8\x7f")[0]

IN_ANOTHER_PROCESS = """
import json, pathlib, sys
import support.values
from soma.frame import content_hash, decode
frames = sorted(pathlib.Path(sys.argv[1]).iterdir())
again = [content_hash(decode(frame.read_bytes())) for frame in frames]
print(json.dumps(again))
"""


def round_trip(value):
    return decode(encode(value).to_bytes())


def an_object_array(*items):
    array = np.empty(len(items), dtype=object)
    for place, item in enumerate(items):
        array[place] = item
    return array


class TestAnyValue:
    @CHECKED
    @given(values())
    def test_comes_back_bit_for_bit(self, value):
        assert identical(round_trip(value), value)

    @CHECKED
    @given(values())
    def test_has_equal_bytes_whenever_it_is_written_and_when_what_was_read_is(self, value):
        first = encode(value).to_bytes()
        assert encode(value).to_bytes() == first
        assert encode(decode(first)).to_bytes() == first

    @CHECKED
    @given(values())
    def test_is_named_by_the_blake3_of_its_parts_in_a_row(self, value):
        encoded = encode(value)
        whole = encoded.to_bytes()
        assert b"".join(bytes(part) for part in encoded.parts()) == whole
        assert encoded.nbytes == len(whole)
        assert encoded.digest == blake3(whole).hexdigest() == content_hash(value)

    @CHECKED
    @given(values())
    def test_is_the_same_from_pieces_as_from_one_piece_and_from_its_encoding(self, value):
        encoded = encode(value)
        assert identical(decode_parts(encoded.header, encoded.buffers), value)
        assert identical(encoded.value, value)

    @CHECKED
    @given(values())
    def test_keeps_its_buffers_at_aligned_places(self, value):
        whole = encode(value).to_bytes()
        base = np.frombuffer(whole, "u1").ctypes.data
        for one in parse(whole).buffers:
            if len(one):
                assert (np.frombuffer(one, "u1").ctypes.data - base) % ALIGNMENT == 0

    @CHECKED
    @given(plain())
    def test_keeps_its_name_through_copy_and_pickle(self, value):
        name = content_hash(value)
        assert content_hash(copy.deepcopy(value)) == name
        assert content_hash(pickle.loads(pickle.dumps(value))) == name  # noqa: S301  # our own

    @CHECKED
    @given(arrays_apart())
    def test_becomes_contiguous_once_and_stays_so(self, array):
        encoded = encode(array)
        read = decode(encoded.to_bytes())
        assert identical(encoded.value, read)
        assert identical(encode(read).value, read)
        assert encode(read).digest == encoded.digest
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            assert identical(read, np.array(array, order="C"))


@pytest.fixture(scope="module")
def drawn():
    found = []

    @settings(CHECKED, max_examples=500, database=None)
    @given(values())
    def collect(value):
        found.append(value)

    collect()
    return found


class TestManyValues:
    def test_share_a_name_only_where_they_are_identical(self, drawn):
        by_name = {}
        for value in drawn:
            first = by_name.setdefault(content_hash(value), value)
            assert identical(first, value)
        assert len(by_name) > 300

    def test_have_two_names_only_where_they_are_not_identical(self, drawn):
        of_one_type = {}
        for value in drawn:
            of_one_type.setdefault(type(value), []).append((content_hash(value), value))
        for found in of_one_type.values():
            for (name, value), (other_name, other) in combinations(found[:60], 2):
                assert (name == other_name) == identical(value, other)

    @pytest.mark.parametrize("seed", ["0", "4321"])
    def test_are_read_and_written_alike_in_another_process(self, drawn, tmp_path, seed):
        names = []
        for place, value in enumerate(drawn):
            encoded = encode(value)
            names.append(encoded.digest)
            (tmp_path / f"{place:05}.soma").write_bytes(encoded.to_bytes())
        done = subprocess.run(
            [sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": str(pathlib.Path(__file__).parents[1]),
            },
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == names

    def test_the_order_of_a_set_is_no_part_of_its_name(self):
        members = {("a", number, str(number) * 700) for number in range(40)} | {frozenset({1, "1"})}
        forwards, backwards = set(), set()
        for one, other in zip(members, reversed(list(members)), strict=True):
            forwards.add(one)
            backwards.add(other)
        assert content_hash(forwards) == content_hash(backwards) == content_hash(members)
        assert round_trip(forwards) == members


class TestNothingIsCopied:
    @pytest.mark.parametrize("dtype", ["<f8", ">i4", "<M8[ns]", "V16", "<c16", "?"])
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_when_an_array_is_encoded(self, dtype, order):
        array = np.zeros((300, 500), dtype, order=order)
        (buffer,) = encode(array).buffers
        assert np.shares_memory(np.frombuffer(buffer, "u1"), array)
        assert len(buffer) == array.nbytes

    def test_when_bytes_are_encoded(self):
        for raw in (b"x" * 5000, bytearray(b"x" * 5000)):
            (buffer,) = encode(raw).buffers
            assert np.shares_memory(np.frombuffer(buffer, "u1"), np.frombuffer(raw, "u1"))

    def test_when_arrays_deep_in_a_value_are_encoded(self):
        first, second = np.arange(5000.0), np.ones((70, 80), "<i2", order="F")
        encoded = encode({"a": [first, {"b": (second,)}]})
        assert np.shares_memory(np.frombuffer(encoded.buffers[0], "u1"), first)
        assert np.shares_memory(np.frombuffer(encoded.buffers[2], "u1"), second)

    def test_when_a_map_is_decoded_and_the_map_says_who_may_write(self, tmp_path):
        path = tmp_path / "value.soma"
        array = np.asfortranarray(np.arange(60_000.0).reshape(200, 300))
        path.write_bytes(encode([array, "beside"]).to_bytes())
        with path.open("rb") as file:
            private = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            shared = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        read, beside = decode(private)
        assert beside == "beside"
        assert identical(read, array)
        assert np.shares_memory(read, np.frombuffer(private, "u1"))
        assert read.ctypes.data % ALIGNMENT == 0
        assert read.flags.writeable
        read[0, 0] = -1.0
        unwritable = decode(shared)[0]
        assert np.shares_memory(unwritable, np.frombuffer(shared, "u1"))
        assert not unwritable.flags.writeable
        assert unwritable[0, 0] == 0.0

    def test_when_a_bytearray_is_decoded(self):
        raw = bytearray(encode(np.zeros(1000)).to_bytes())
        read = decode(raw)
        assert read.flags.writeable
        assert np.shares_memory(read, np.frombuffer(raw, "u1"))
        assert not decode(bytes(raw)).flags.writeable


class TestAnArrayThatIsInNoOrder:
    def test_goes_on_as_the_contiguous_one(self):
        wide = np.arange(24.0).reshape(4, 6)
        apart = wide[:, ::2]
        encoded = encode({"x": apart, "y": wide})
        assert encoded.value["x"].flags.c_contiguous
        assert identical(encoded.value, {"x": np.ascontiguousarray(apart), "y": wide})
        assert identical(encoded.value, decode(encoded.to_bytes()))
        assert encoded.digest == content_hash({"x": np.ascontiguousarray(apart), "y": wide})

    def test_goes_on_contiguous_with_objects_in_it_too(self):
        objects = an_object_array([1], "skipped", None, "skipped")[::2]
        mixed = np.zeros(4, [("a", "i1"), ("o", "O")], order="C")[::2]
        mixed["o"] = objects
        for apart in (objects, mixed, an_object_array(objects, 1)):
            encoded = encode(apart)
            assert identical(encoded.value, decode(encoded.to_bytes()))
            assert encoded.value.flags.c_contiguous
            assert encoded.digest == content_hash(encoded.value)

    def test_with_strides_that_do_not_matter_is_left_as_it_is(self):
        for array in (np.arange(9.0)[::5][:1], np.ones((3, 1), order="F")[::2][:1]):
            assert encode(array).value is array
            assert identical(round_trip(array), array)


DIFFERENT = {
    "one": [1, 1.0, True, "1", b"1", bytearray(b"1"), 1 + 0j, [1], (1,), {1}, frozenset({1})],
    "one with a type": [np.int8(1), np.int64(1), np.uint64(1), np.float32(1), np.float64(1), 1],
    "one in an enum": [Weekday.MONDAY, Access.READ, Colour.RED, 1],
    "nothing": [None, False, 0, 0.0, "", b"", bytearray(), [], (), set(), frozenset(), {}, 0j],
    "containers": [[1, 2], (1, 2), {1, 2}, frozenset({1, 2}), {1: 2}, [[1, 2]], [1, [2]]],
    "nesting": [[[], []], [[[]]], [[], [], []], [[[], []]]],
    "large ints": [2**70, -(2**70), 2**70 + 1, float(2**70), 2**63, 2**63 - 1, -(2**63)],
    "NaNs": [NAN, MINUS_NAN, OTHER_NAN, np.float64(NAN), np.float32(NAN), decimal.Decimal("NaN")],
    "zeros": [0.0, -0.0, 0j, -0j, complex(-0.0, 0.0), decimal.Decimal(0), decimal.Decimal("-0")],
    "packed": [
        [0.0] * 40,
        (0.0,) * 40,
        [-0.0] * 40,
        [0] * 40,
        [False] * 40,
        [0.0] * 41,
        [*[0.0] * 39, 0],
        [NAN] * 40,
        [MINUS_NAN] * 40,
        np.zeros(40),
    ],
    "widths": [np.ones(3, kind) for kind in ("<f2", "<f4", "<f8", "<c8", "<i8", ">f4", ">f8", "?")],
    "shapes": [
        np.float64(1),
        np.ones(()),
        np.ones(1),
        np.ones((1, 1)),
        np.ones((1, 2)),
        np.ones((2, 1)),
        1.0,
    ],
    "no items": [np.ones(shape) for shape in ((0,), (0, 1), (1, 0), (0, 0))],
    "layouts": [
        np.arange(6.0).reshape(2, 3),
        np.arange(6.0).reshape(2, 3).T,
        np.arange(6.0).reshape(2, 3).T.copy(),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(6.0).reshape(3, 2),
    ],
    "object arrays": [
        an_object_array(1, 2),
        an_object_array(1, 2.0),
        an_object_array([1], 2),
        an_object_array((1,), 2),
        an_object_array(None, 2),
        an_object_array(np.array(1), 2),
        an_object_array(an_object_array(1), 2),
        np.array([1, 2]),
        [1, 2],
    ],
    "orders of dicts": [{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2, "b": 1}],
    "keys": [{1: 0}, {1.0: 0}, {True: 0}, {"1": 0}, {None: 0}, {(1,): 0}, {frozenset({1}): 0}],
    "text": ["é", "e\u0301", "\udce9", "\ud83d\ude00", "😀", "x" * 1024, b"x" * 1024, np.str_("é")],
    "times": [
        dt.date(2024, 1, 1),
        dt.datetime(2024, 1, 1),  # noqa: DTZ001  # without a zone on purpose
        dt.datetime(2024, 1, 1, fold=1),  # noqa: DTZ001  # naive ones count
        dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(0), "UTC")),
        dt.datetime(2024, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")),
        dt.time(),
        dt.time(fold=1),
        dt.timedelta(),
        np.datetime64("2024-01-01"),
        np.datetime64("2024-01-01", "ns"),
        np.timedelta64(0, "s"),
    ],
    "decimals": [
        *map(decimal.Decimal, ["1", "1.0", "1.00", "1E+1", "10", "NaN", "-NaN", "sNaN", "NaN1"])
    ],
    "paths": [
        *("a/b", pathlib.PurePosixPath("a/b"), pathlib.PureWindowsPath("a/b"), pathlib.Path("a/b")),
        *(
            pathlib.PureWindowsPath("A/b"),
            pathlib.PurePosixPath("//a"),
            pathlib.PurePosixPath("/a"),
        ),
        *(pathlib.PureWindowsPath("c:foo"), pathlib.PureWindowsPath("./c:foo")),
    ],
    "members": [*Colour, *Shelf.Row, Access(0), Access.READ | Access.RUN, Access.READ, "RED"],
    "ids": [uuid.UUID(int=1, is_safe=safe) for safe in uuid.SafeUUID] + [1, uuid.UUID(int=2)],
    "ranges": [range(3), range(0, 3, 2), range(4), slice(3), slice(0, 3), [0, 1, 2], ...],
    "structures": [
        *(np.zeros(1, kind) for kind in STRUCTURED),
        np.zeros(1, [("b", "i1"), ("a", "<f8")]),
        np.zeros(1, [("a", "i1"), ("b", "<f8")])[0],
    ],
}


class TestValuesThatDiffer:
    @pytest.mark.parametrize("group", DIFFERENT)
    def test_have_different_names_and_come_back_different(self, group):
        found = DIFFERENT[group]
        for one, other in combinations(found, 2):
            assert content_hash(one) != content_hash(other), (one, other)
        for one in found:
            assert identical(round_trip(one), one)

    def test_equal_object_arrays_have_one_name(self):
        first = an_object_array([1, "two"], np.arange(3), None)
        second = an_object_array([1, "two"], np.arange(3), None)
        assert content_hash(first) == content_hash(second)

    def test_a_value_that_stands_in_a_value_twice_is_written_twice(self):
        shared = [1, "two"]
        assert content_hash([shared, shared]) == content_hash([[1, "two"], [1, "two"]])
        first, second = round_trip([shared, shared])
        assert first == second == [1, "two"]
        assert first is not second


class TestWhatMeansNothing:
    @pytest.mark.parametrize("dtype", [one for one in STRUCTURED if one.itemsize])
    @pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
    def test_in_the_gaps_of_structured_items_has_no_say(self, dtype, shape):
        size = math.prod(shape) * dtype.itemsize
        clean = np.ndarray(shape, dtype, bytearray(size))
        dirty = np.ndarray(shape, dtype, bytearray(b"\xa5" * size))
        for array in (clean, dirty):
            fill(array)
        assert content_hash(dirty) == content_hash(clean)
        assert content_hash(dirty[()]) == content_hash(clean[()])
        assert identical(round_trip(dirty), clean)

    def test_in_the_gaps_beside_objects_has_no_say(self):
        dtype = np.dtype([("a", "i1"), ("o", "O"), ("b", "i1"), ("c", "<f8")], align=True)
        clean, dirty = np.zeros(4, dtype), np.zeros(4, dtype)
        for item in range(4):
            for gap in (1, 17):  # o is at 8, b at 16, c at 24
                ctypes.memset(dirty.ctypes.data + 32 * item + gap, 0xA5, 7)
        assert content_hash(dirty) == content_hash(clean)

    @pytest.mark.parametrize("dtype", [np.longdouble, np.clongdouble])
    def test_in_the_unused_bytes_of_a_longdouble_has_no_say(self, dtype):
        clean = np.array([1.5, -2.0, np.inf], dtype)
        dirty = clean.copy()
        if np.finfo(np.longdouble).nmant == 63:
            dirty.view("u1").reshape(-1, 16)[:, 10:] = 0xA5
            assert dirty.tobytes() != clean.tobytes()
        assert content_hash(dirty) == content_hash(clean)
        assert content_hash(dirty[0]) == content_hash(clean[0])
        assert identical(round_trip(dirty), clean)

    def test_is_not_touched_in_what_the_caller_holds(self):
        dtype = np.dtype([("a", "i1"), ("b", "<f8")], align=True)
        array = np.ndarray(2, dtype, bytearray(b"\xa5" * 32))
        before = array.tobytes()
        content_hash(array)
        assert array.tobytes() == before

    def test_the_current_decimal_context_has_no_say(self):
        number = decimal.Decimal("1E+10")
        name = content_hash(number)
        with decimal.localcontext() as context:
            context.capitals = 0
            context.prec = 1
            context.Emax = 1
            assert content_hash(number) == name
            assert identical(round_trip(number), number)


def fill(array):
    """Give every field of a structured array the same items, whatever lies between."""
    for name in array.dtype.names:
        field = array[name]
        if field.dtype.names is None:
            field[...] = np.zeros(field.shape, field.dtype)
        else:
            fill(field)


class TestArrays:
    @pytest.mark.parametrize("dtype", SIMPLE)
    @pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (2, 0), (2, 3), (2, 1, 3)])
    def test_of_every_dtype_and_shape_come_back(self, dtype, shape):
        array = np.zeros(shape, dtype)
        for one in (array, np.asfortranarray(array), array.T, array.reshape(-1)[:1]):
            assert identical(round_trip(one), one)

    @pytest.mark.parametrize("letter", np.typecodes["All"])
    def test_of_every_letter_come_back_as_what_they_were_or_are_refused(self, letter):
        array = np.zeros(2, letter)
        try:
            read = round_trip(array)
        except MissingCodec:
            return
        assert identical(read, array)

    @pytest.mark.parametrize("letter", np.typecodes["All"])
    def test_scalars_of_every_letter_come_back_as_what_they_were_or_are_refused(self, letter):
        scalar = np.zeros(1, letter)[0]
        try:
            read = round_trip(scalar)
        except MissingCodec:
            return
        assert identical(read, scalar)

    def test_of_records_come_back_as_records_or_are_refused(self):
        records = np.array([(1, 2.0)], dtype=np.dtype((np.record, [("a", "i4"), ("b", "f8")])))
        for value in (records, records[0]):
            try:
                read = round_trip(value)
            except MissingCodec:
                continue
            assert identical(read, value)

    @pytest.mark.parametrize("title", ["", "t", "é", 5, b"t", ("a", 1), None])
    def test_with_titles_of_any_type_come_back_or_are_refused(self, title):
        dtype = np.dtype({"names": ["a"], "formats": ["<i4"], "titles": [title]})
        array = np.zeros(2, dtype)
        try:
            read = round_trip(array)
        except MissingCodec:
            return
        assert identical(read, array)

    @pytest.mark.skipif(np.__version__ < "2", reason="numpy 1 has no such text")
    def test_of_text_that_numpy_keeps_elsewhere_are_refused(self):
        with pytest.raises(MissingCodec, match="StringDType"):
            encode(np.array(["a"], dtype=np.dtypes.StringDType()))

    def test_that_lie_in_a_file_are_the_arrays_that_they_are(self, tmp_path):
        np.save(tmp_path / "a.npy", np.arange(6).reshape(2, 3))
        mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
        assert type(mapped) is np.memmap
        assert content_hash(mapped) == content_hash(np.arange(6).reshape(2, 3))
        assert type(round_trip(mapped)) is np.ndarray

    def test_of_a_subclass_are_refused(self):
        masked = np.ma.masked_array([1, 2], mask=[True, False])
        for array in (masked, np.zeros(1, [("a", "i1")]).view(np.recarray)):
            with pytest.raises(MissingCodec, match=type(array).__name__):
                encode(array)

    def test_of_objects_keep_arrays_and_lists_as_single_items(self):
        array = an_object_array(np.array(5), np.arange(3), [1, [2]], None, an_object_array("x"))
        assert identical(round_trip(array), array)
        nested = np.empty((2, 1), dtype=object)
        nested[0, 0], nested[1, 0] = array, np.array(None)
        assert identical(round_trip(nested), nested)
        assert identical(round_trip(nested.T), nested.T)

    def test_of_objects_beside_numbers_come_back_with_their_scalars(self):
        dtype = np.dtype([("a", "i1"), ("o", "O"), ("in", [("p", "O"), ("b", "<f4", (2,))])])
        array = np.zeros((2, 3), dtype, order="F")
        array["o"][1, 2] = ["a list", np.arange(2)]
        array["in"]["b"] = -0.0
        for value in (array, array[1, 2], array.T, array[:, :0], np.array(array[1, 2])):
            assert identical(round_trip(value), value)


def test_sets_whose_members_have_buffers_have_one_order(tmp_path):
    """The bytes of (a, b) and (b, a) in a row may be the same; their lengths tell them apart."""
    code = """
    from soma.frame import content_hash
    one, other = b"a" * 1024, b"a" * 1025
    print(content_hash({(one, other), (other, one)}))
    """
    hashes = {run_python(code, PYTHONHASHSEED=str(seed)).stdout for seed in range(6)}
    assert len(hashes) == 1
    assert hashes != {""}


@pytest.mark.parametrize(
    "value", [dt.timezone(dt.timedelta(0), "\ud800"), [dt.timezone(dt.timedelta(0), "\udfff")]]
)
def test_a_name_that_utf8_does_not_have_is_a_clear_error(value):
    with pytest.raises(CodecError, match="A name in the value cannot be written"):
        encode(value)


@pytest.mark.parametrize(
    "dtype", ["f8", ">f4", "i1", "?", "c16", "M8[ns]", "m8[D]", "S3", "U2", "g"]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3)])
@pytest.mark.parametrize("how", ["C", "F", "read-only", "strided"])
def test_the_short_way_of_an_array_is_the_long_one(monkeypatch, dtype, shape, how):
    array = np.zeros(shape, dtype, order="F" if how == "F" else "C")
    array.reshape(-1)[:1] = np.array(1).astype("m8[D]" if dtype[:1] == "m" else "i8").astype(dtype)
    if how == "read-only":
        array.flags.writeable = False
    elif how == "strided" and shape:
        array = np.concatenate([array, array], axis=-1)[..., ::2]
    for _ in range(2):  # the second finds the header that the first has left
        short = encode(array)
        with monkeypatch.context() as patched:
            patched.setattr(sys.modules["soma.frame.encode"], "_WHOLE", {})
            patched.setattr(sys.modules["soma.frame.decode"], "_ARRAYS", {})
            long = encode(array)
            expected = decode_parts(long.header, long.buffers)
        assert short.to_bytes() == long.to_bytes()
        assert [bytes(one) for one in short.buffers] == [bytes(one) for one in long.buffers]
        assert type(short.value) is type(long.value)
        assert (short.value is array) == (long.value is array)
        for again in (decode_parts(short.header, short.buffers), expected):
            assert again.dtype == array.dtype
            assert again.shape == array.shape
            assert again.tobytes() == array.tobytes()


def test_an_array_whose_buffer_is_too_short_is_refused_the_second_time_as_well():
    written = encode(np.arange(4.0))
    for _ in range(2):
        assert decode_parts(written.header, written.buffers).tolist() == [0.0, 1.0, 2.0, 3.0]
        with pytest.raises(FrameError):
            decode_parts(written.header, [memoryview(bytes(written.buffers[0])[:-1])])
        with pytest.raises(FrameError):
            decode_parts(written.header, [])
