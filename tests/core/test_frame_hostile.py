"""Bytes that are no frame, frames that lie, and values that no frame can hold.

SOMA_FUZZ_FRAMES sets how many mutated frames are read; a few thousand where it is not set.
"""

from __future__ import annotations

import enum
import json
import os
import pathlib
import pickle
import random
import subprocess
import sys
import threading
import tracemalloc

import cbor2
import numpy as np
import pytest

from soma import codecs
from soma.codecs import codec
from soma.errors import CodecError, FrameError, MissingCodec, MissingPackage, UnknownKind
from soma.frame import decode, encode
from soma.frame.layout import FLAG_PICKLE, MAX_NESTING, build_header, pad
from soma.frame.show import describe_frame
from soma.frame.tokens import Code
from support.distributions import TIMEOUT_S

MUTATED = int(os.environ.get("SOMA_FUZZ_FRAMES", "6000"))
LIMIT = 2 << 30
HUGE = 1 << 62
BEYOND_PRINTING = 1 << 20_000
"""An int with more digits than Python agrees to print."""

FUZZ = """
import pathlib, random, resource, sys, warnings
import soma.frame.arrays, soma.frame.decode_standard, soma.frame.show
from soma.errors import CodecError, FrameError
from soma.frame import decode

warnings.simplefilter("ignore")  # numpy's opinion of made-up dtypes
resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))
frames = [path.read_bytes() for path in sorted(pathlib.Path(sys.argv[1]).glob("*.soma"))]
chance = random.Random(7)
reader = {{"decode": decode, "show": soma.frame.show.describe_frame}}[sys.argv[2]]
refused = read = 0

def attempt(raw):
    global refused, read
    try:
        reader(raw)
        read += 1
    except (FrameError, CodecError) as error:
        assert not isinstance(error.__cause__, MemoryError), raw
        refused += 1
    except BaseException as error:
        print(reader.__name__, repr(raw[:2000]), type(error), error)
        raise

for size in (0, 1, 5, 15, 16, 17, 64, 1000):
    attempt(chance.randbytes(size))
    attempt(frames[0][:16] + chance.randbytes(size))
for frame in frames:
    if len(frame) < 3000:
        for end in range(len(frame)):
            attempt(frame[:end])
for turn in range({count}):
    raw = bytearray(chance.choice(frames))
    header = 16 + int.from_bytes(raw[8:16], "little")
    for _ in range(1 if turn % 2 else chance.randrange(1, 9)):
        reach = header if chance.random() < 0.9 else len(raw)
        place = chance.randrange(min(reach, len(raw)))
        match chance.randrange(5):
            case 0:
                raw[place] ^= 1 << chance.randrange(8)
            case 1:
                raw[place] = chance.choice([0, 1, 0x17, 0x18, 0x1B, 0x5B, 0x7F, 0x9B, 0xC2, 0xFF])
            case 2:
                del raw[place : place + chance.randrange(1, 9)]
            case 3:
                raw[place:place] = chance.randbytes(chance.randrange(1, 9))
            case _:
                raw[place] = chance.randrange(256)
        if not raw:
            break
    if chance.random() < 0.7 and len(raw) >= 16:  # an honest length, so that the header is read
        raw[8:16] = (max(0, header - 16 + chance.choice([0, 0, 0, -1, 1]))).to_bytes(8, "little")
    attempt(bytes(raw))
print(refused, read)
"""


class Tone(enum.Enum):
    LOW = 1
    HIGH = 2


class Mark(enum.Flag):
    A = 1
    B = 2


class Numbers(dict):
    pass


class Count(int):
    pass


class Reading:
    pass


@pytest.fixture(autouse=True)
def only_our_codecs():
    tables = (codecs._by_kind, codecs._by_type)
    before = [dict(table) for table in tables]
    yield
    for table, rows in zip(tables, before, strict=True):
        table.clear()
        table.update(rows)
    codecs._resolved.clear()


def frame(tokens, buffers=(), *, flags=0, lengths=None):
    """Return a frame of these tokens and buffers, honest or not."""
    sizes = [len(one) for one in buffers]
    raw = bytearray(build_header(tokens, sizes if lengths is None else lengths, flags))
    for place, one in enumerate(buffers):
        raw += one
        if place < len(buffers) - 1:
            raw += pad(len(one))
    return bytes(raw)


def frame_around(body):
    """Return a frame with this header, whatever it is."""
    return b"SOMA1\x01\0\0" + len(body).to_bytes(8, "little") + body


def structure(names, formats, offsets, itemsize):
    fields = {"names": names, "formats": formats, "offsets": offsets, "itemsize": itemsize}
    return json.dumps({**fields, "titles": [[] for _ in names], "aligned": False})


def nested(depth, kind):
    value = kind()
    for _ in range(depth):
        value = {0: value} if kind is dict else kind((value,))
    return value


SEEDS = {
    "plain": [None, True, -1, 10**30, 1.5, "text", "\udce9", b"raw", bytearray(b"raw"), 2j, ...],
    "containers": {"a": [1, (2, {3, "4"}, frozenset({5}))], (1, 2): slice(1, None), 3: range(4)},
    "packed": [[1.0] * 40, (True,) * 33, list(range(50))],
    "arrays": [np.arange(6.0).reshape(2, 3), np.zeros((2, 2), ">i4", order="F"), np.array("ab")],
    "structured": np.zeros(2, np.dtype([("a", "i1"), ("b", "<f8", (2,))], align=True)),
    "scalars": [np.float32(1), np.str_("a"), np.bytes_(b"a"), np.datetime64("2024-01-01", "ns")],
    "records": np.array([(1, [2]), (3, None)], dtype=[("a", "i1"), ("o", "O")]),
    "long": ["x" * 1500, b"y" * 1500],
}


def an_object_array():
    array = np.empty((2, 2), dtype=object)
    array[0, 0] = [np.arange(2), None]
    return array


class TestMadeUpBytes:
    @pytest.mark.parametrize("reader", ["decode", "show"])
    def test_are_refused_or_read_within_bounds(self, tmp_path, reader):
        import datetime as dt
        import decimal
        import uuid

        times = [dt.datetime.now(dt.UTC), dt.time(1, fold=1), dt.timedelta(1), dt.date(2024, 1, 1)]
        others = [decimal.Decimal("-1.50"), uuid.UUID(int=5), pathlib.PurePosixPath("/a")]
        seeds = [*SEEDS.values(), an_object_array(), [*times, *others]]
        for place, value in enumerate(seeds):
            (tmp_path / f"{place:02}.soma").write_bytes(encode(value).to_bytes())
        made_up = [
            frame([[50, "my.kind", b"x"]]),
            frame([[51, "my.kind", 1], None], [b"x"]),
            frame([[52, "my.kind", 1]], [pickle.dumps(1)], flags=FLAG_PICKLE),
            frame([[29, "enum", "Enum", "A"], 1]),
        ]
        for place, raw in enumerate(made_up, len(seeds)):
            (tmp_path / f"{place:02}.soma").write_bytes(raw)
        done = subprocess.run(
            [sys.executable, "-c", FUZZ.format(limit=LIMIT, count=MUTATED), str(tmp_path), reader],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S + MUTATED / 500,
            check=False,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        refused, read = map(int, done.stdout.split())
        assert refused > MUTATED / 2
        assert read > MUTATED / 100

    @pytest.mark.parametrize(
        ("raw", "sentence"),
        [
            (b"", "There is nothing here"),
            (b"S", "The frame was cut: 1 bytes are here, 16 are needed"),
            (b"SOMA1", "The frame was cut: 5 bytes are here"),
            (b"SOMA2" + bytes(20), "These bytes are no SOMA1 frame"),
            (b"\0" * 100, "These bytes are no SOMA1 frame"),
            ("text", "with a contiguous buffer, not a str"),
            (None, "with a contiguous buffer, not a NoneType"),
        ],
    )
    def test_are_no_frame(self, raw, sentence):
        with pytest.raises(FrameError, match=sentence):
            decode(raw)

    def test_that_a_decoder_would_accept_and_no_encoder_writes_are_refused(self):
        for body in (
            bytes.fromhex("8281f93c0080"),  # 1.0 as half a float
            bytes.fromhex("8281180080"),  # 0 in two bytes
            bytes.fromhex("d9d9f782810080"),  # a tag in front
            bytes.fromhex("8281008000"),  # a byte behind
        ):
            raw = b"SOMA1\1\0\0" + len(body).to_bytes(8, "little") + body
            with pytest.raises(FrameError):
                decode(raw)

    def test_with_thousands_of_dimensions_are_refused_at_once(self):
        for token in ([42, [2**62] * 60_000, "C"], [40, "<f8", [2**62] * 60_000, "C"]):
            with pytest.raises(FrameError, match="a shape that is no shape"):
                decode(build_header([token], [], 0))

    def test_with_fields_of_no_size_are_refused(self):
        names = {"names": ["a", "b"], "formats": ["|O", ["|O", [0]]], "offsets": [0, 8]}
        dtype = json.dumps(
            names | {"titles": [[], []], "itemsize": 64, "aligned": False}, sort_keys=True
        )
        with pytest.raises(FrameError, match="mostly gaps"):
            decode(build_header([[43, dtype, [2**24], "C"]], [], 0))

    def test_with_text_beyond_unicode_are_refused(self):
        raw = encode(np.array(["a"])).to_bytes()
        with pytest.raises(FrameError, match="a character that is none"):
            decode(raw[:-4] + b"\xff\xff\xff\x7f")

    @pytest.mark.parametrize("depth", [1_001, 20_000])
    def test_that_nest_too_deep_are_not_shown_either(self, depth):
        raw = build_header([[1, 1]] * depth + [None], [], 0)
        with pytest.raises(FrameError, match="nests deeper than 1000"):
            describe_frame(raw)

    @pytest.mark.parametrize("tokens", [[None, None], [[1, 5], 1], [[1, 0], None], []])
    def test_are_not_shown_where_they_are_not_read(self, tokens):
        raw = build_header(tokens, [], 0)
        for read in (decode, describe_frame):
            with pytest.raises(FrameError):
                read(raw)

    def test_are_shown_without_moving_the_cursor(self):
        raw = build_header([[50, "\x1b[31mred\u202e", b""]], [], 0)
        info = describe_frame(raw)
        assert all(line.what.isprintable() for line in info.lines)
        assert all(kind.isprintable() for kind in info.kinds)

    @pytest.mark.parametrize("name", SEEDS)
    def test_cut_anywhere_are_refused(self, name):
        whole = encode(SEEDS[name]).to_bytes()
        for end in range(len(whole)):
            with pytest.raises(FrameError):
                decode(whole[:end])

    @pytest.mark.parametrize("name", SEEDS)
    def test_after_a_frame_are_refused(self, name):
        whole = encode(SEEDS[name]).to_bytes()
        for more in (b"\0", b"x", b"\0" * 64, whole):
            with pytest.raises(FrameError):
                decode(whole + more)


class TestTheFirstBytes:
    def test_name_a_version_that_this_release_reads(self):
        raw = bytearray(encode(1).to_bytes())
        raw[5] = 2
        with pytest.raises(FrameError, match=r"version 2 .* reads version 1: upgrade soma-core"):
            decode(raw)

    @pytest.mark.parametrize("flags", [2, 3, 0x8000])
    def test_have_no_flag_that_nobody_knows(self, flags):
        with pytest.raises(FrameError, match=f"flags .* does not know: {flags}"):
            decode(frame([1], flags=flags))

    @pytest.mark.parametrize("length", [0, 1, 3, 5, 100, HUGE, 2**64 - 1])
    def test_name_the_length_of_the_header(self, length):
        raw = bytearray(encode(1).to_bytes())
        raw[8:16] = length.to_bytes(8, "little")
        with pytest.raises(FrameError):
            decode(raw)


class TestTheHeader:
    @pytest.mark.parametrize(
        "body",
        [
            b"\x9f\x81\x01\x80\xff",  # a list without a length
            b"\x82\x9f\x01\xff\x80",
            b"\x82\x81\x7f\x61a\xff\x80",  # a text without a length
            b"\x82\x81\x5f\x41a\xff\x80",
            b"\x82" + b"\x81" * 100_000 + b"\x80" * 2,  # nested 100,000 deep
            b"\xc1" * 100_000 + b"\x80",
            b"\x82\x9b\xff\xff\xff\xff\xff\xff\xff\xff",  # a list of 2**64 - 1 items
            b"\x82\x9a\x7f\xff\xff\xff",
            b"\x82\x81\x5b\x7f\xff\xff\xff\xff\xff\xff\xff",  # bytes of that length
            b"\x82\x81\x7b\x00\x00\x00\x7f\xff\xff\xff\xff",
            b"\x82\x81\x62\xff\xff\x80",  # text that is no utf-8
            b"\x82\x81\x01\x80\x00",  # something behind it
            b"\x1c",
        ],
        ids=range(13),
    )
    def test_is_definite_flat_cbor(self, body):
        with pytest.raises(FrameError, match="header"):
            decode(frame_around(body))

    @pytest.mark.parametrize(
        "header",
        [None, 1, [], [[1]], [[1], [], []], [1, 2], [[1], {}], {"tokens": [], "lengths": []}, "ab"],
    )
    def test_is_tokens_and_lengths(self, header):
        with pytest.raises(FrameError, match=r"not \[tokens, lengths\]"):
            decode(frame_around(cbor2.dumps(header)))

    @pytest.mark.parametrize("length", [-1, True, None, 1.0, "1", [1]])
    def test_has_lengths_that_are_lengths(self, length):
        with pytest.raises(FrameError, match="a length that is no length"):
            decode(frame_around(cbor2.dumps([[[9, None]], [length]])))

    @pytest.mark.parametrize("length", [0, 1, 99, 101, HUGE, 2**64, BEYOND_PRINTING], ids=range(7))
    def test_tells_the_truth_about_lengths(self, length):
        with pytest.raises(FrameError):
            decode(frame([[40, "|u1", [100], "C"]], [bytes(100)], lengths=[length]))

    @pytest.mark.parametrize(
        "tag",
        [
            cbor2.CBORTag(0, "2024-01-01T00:00:00Z"),
            cbor2.CBORTag(1, 1e300),
            cbor2.CBORTag(4, [HUGE, 1]),
            cbor2.CBORTag(5, [1 << 40, 1]),
            cbor2.CBORTag(30, [1, 0]),
            cbor2.CBORTag(35, "(a*)*b"),
            cbor2.CBORTag(37, b"short"),
            cbor2.CBORTag(258, [1, 2]),
            cbor2.CBORTag(29, 0),
            cbor2.CBORTag(25, 0),
            cbor2.CBORTag(99_999, 1),
            {"a": 1},
            cbor2.undefined,
            cbor2.CBORSimpleValue(99),
        ],
        ids=str,
    )
    def test_has_no_tags_but_those_of_ints(self, tag):
        for tokens in ([tag], [[1, tag], 1], [[29, "enum", "Enum", tag], 1], [[40, "|u1", tag]]):
            with pytest.raises(FrameError):
                decode(frame(tokens))

    def test_that_holds_itself_is_refused(self):
        cyclic = b"\x82\xd8\x1c\x81\xd8\x1d\x00\x80"  # tag 28: shareable; tag 29: that one
        with pytest.raises(FrameError):
            decode(frame_around(cyclic))

    def test_is_followed_by_zeros(self):
        raw = bytearray(frame([[40, "|u1", [5], "C"], 1][:1], [b"12345"]))
        place = 16 + int.from_bytes(raw[8:16], "little")
        assert raw[place] == 0
        raw[place] = 1
        with pytest.raises(FrameError, match=r"padding .* is not zero"):
            decode(raw)

    def test_has_zeros_between_its_buffers(self):
        raw = bytearray(frame([[1, 2], *[[40, "|u1", [5], "C"]] * 2], [b"12345", b"12345"]))
        raw[-10] = 1
        with pytest.raises(FrameError, match=r"padding .* is not zero"):
            decode(raw)


ARRAY = [40, "|u1", [5], "C"]

LIES = {
    "no value": ([], []),
    "two values": ([1, 2], []),
    "one more than announced": ([[1, 1], 1, 2], []),
    "one fewer than announced": ([[1, 2], 1], []),
    "a list of very many": ([[1, HUGE], 1], []),
    "a list of fewer than none": ([[1, -1]], []),
    "a list of True": ([[1, True], 1], []),
    "a list of 1.0": ([[1, 1.0], 1], []),
    "a list without a count": ([[1]], []),
    "a list with two counts": ([[1, 1, 1], 1], []),
    "a dict without a value": ([[5, 1], "key"], []),
    "a dict of very many": ([[5, HUGE], 1, 2], []),
    "a key twice": ([[5, 2], "a", 1, "a", 2], []),
    "a key twice in two types": ([[5, 2], 1, 1, 1.0, 2], []),
    "a member twice": ([[3, 2], 1, 1], []),
    "a member twice in a frozenset": ([[4, 2], 1, True], []),
    "a key without a hash": ([[5, 1], [1, 0], 1], []),
    "a member without a hash": ([[3, 1], [5, 0]], []),
    "an unknown code": ([[99]], []),
    "an unknown code and a long number": ([[99, BEYOND_PRINTING]], []),
    "a long number as code": ([[BEYOND_PRINTING]], []),
    "a long number as count": ([[1, BEYOND_PRINTING]], []),
    "a long number as length of time": ([[23, BEYOND_PRINTING, 0, 0]], []),
    "code zero": ([[0]], []),
    "a negative code": ([[-1]], []),
    "a code that is a text": ([["1", 0]], []),
    "a code that is True": ([[True, 0]], []),
    "a code that is a list": ([[[1], 0]], []),
    "an empty token": ([[]], []),
    "a buffer too few": ([ARRAY], []),
    "a buffer too many": ([1], [b"12345"]),
    "a buffer too many behind an array": ([ARRAY], [b"12345", b""]),
    "text without a buffer": ([[8, None]], []),
    "text that is no text": ([[8, b"\xff"]], []),
    "text in a number": ([[8, 5]], []),
    "bytes in a text": ([[9, "text"]], []),
    "a NaN that is a number": ([[7, bytes(8)]], []),
    "a NaN that is short": ([[7, bytes(7)]], []),
    "a complex that is long": ([[11, bytes(17)]], []),
    "a range without steps": ([[13, 0, 1, 0]], []),
    "a range of text": ([[13, "0", 1, 1]], []),
    "a slice without its parts": ([[14], 1], []),
    "packed into a dict": ([[6, 5, "d"]], [bytes(8)]),
    "packed text": ([[6, 1, "u"]], [bytes(8)]),
    "packed and uneven": ([[6, 1, "d"]], [bytes(9)]),
    "packed bools of two": ([[6, 1, "?"]], [b"\2"]),
    "an array that is too short": ([[40, "|u1", [6], "C"]], [b"12345"]),
    "an array that is too long": ([[40, "|u1", [4], "C"]], [b"12345"]),
    "an array that is huge": ([[40, "<f8", [HUGE], "C"]], [b"12345678"]),
    "an array that wraps around": ([[40, "<f8", [1 << 32, 1 << 32], "C"]], [b""]),
    "a negative shape": ([[40, "|u1", [-5, -1], "C"]], [b"12345"]),
    "a shape of True": ([[40, "|u1", [5, True], "C"]], [b"12345"]),
    "a shape that is a number": ([[40, "|u1", 5, "C"]], [b"12345"]),
    "a shape of 65 dimensions": ([[40, "|u1", [1] * 65, "C"]], [b"1"]),
    "an order of no kind": ([[40, "|u1", [5], "K"]], [b"12345"]),
    "no order": ([[40, "|u1", [5], ""]], [b"12345"]),
    "two orders": ([[40, "|u1", [5], "CF"]], [b"12345"]),
    "an array of a scalar's order": ([[40, "|u1", [5], "S"]], [b"12345"]),
    "addresses": ([[40, "|O", [1], "C"]], [bytes(8)]),
    "addresses in a structure": ([[40, structure(["a"], ["|O"], [0], 8), [1], "C"]], [bytes(8)]),
    "addresses in a scalar": ([[41, "|O", bytes(8)]], []),
    "a dtype that is a number": ([[40, 5, [5], "C"]], [b"12345"]),
    "a dtype that is a list": ([[40, ["<f8"], [5], "C"]], [b"12345"]),
    "a dtype of several": ([[40, "u1,u1", [2], "C"]], [b"1234"]),
    "a dtype with a shape": ([[40, "(2,)u1", [2], "C"]], [b"1234"]),
    "a dtype by another name": ([[40, "float64", [1], "C"]], [bytes(8)]),
    "a dtype in broken JSON": ([[40, "{", [1], "C"]], [bytes(8)]),
    "a dtype in deep JSON": ([[40, '{"names":' + "[" * 100_000, [1], "C"]], [bytes(8)]),
    "a dtype without fields": ([[40, "{}", [1], "C"]], [bytes(8)]),
    "a field beyond its item": ([[40, structure(["a"], ["<f8"], [4], 8), [1], "C"]], [bytes(8)]),
    "a field before its item": ([[40, structure(["a"], ["<f8"], [-4], 8), [1], "C"]], [bytes(8)]),
    "a scalar that is short": ([[41, "<f8", bytes(7)]], []),
    "a scalar in a text": ([[41, "<f8", "12345678"]], []),
    "objects of very many": ([[42, [HUGE], "C"], 1], []),
    "objects in no shape": ([[42, [0, HUGE, HUGE], "C"]], []),
    "objects in negative shape": ([[42, [-1, -1], "C"], 1], []),
    "records of no structure": ([[43, "<f8", [1], "C"], ARRAY], [b"12345"]),
    "records with a field of another shape": (
        [[43, structure(["a"], ["|u1"], [0], 1), [4], "C"], ARRAY],
        [b"12345"],
    ),
    "records with a field that is no array": (
        [[43, structure(["a"], ["|O"], [0], 8), [1], "C"], [1, 1], 5],
        [],
    ),
    "records without a field": ([[43, structure(["a"], ["|O"], [0], 8), [1], "C"]], []),
    "a month too many": ([[20, 2024, 13, 1]], []),
    "a time without its zone": ([[21, 0, 0, 0, 0, 0]], []),
    "a zone that is a number": ([[21, 0, 0, 0, 0, 0], 5], []),
    "a fold of two": ([[21, 0, 0, 0, 0, 2], None], []),
    "a zone of two days": ([[24, 2, 0, 0, None]], []),
    "a zone that nobody knows": ([[25, "Nowhere/At_All"]], []),
    "a zone that is a file": ([[25, "/etc/passwd"]], []),
    "a zone above": ([[25, "../../etc/passwd"]], []),
    "a decimal in words": ([[26, "one"]], []),
    "a decimal that is a number": ([[26, 1]], []),
    "an id that is short": ([[27, bytes(15), None]], []),
    "an id of another safety": ([[27, bytes(16), 7]], []),
    "a path of no kind": ([[28, "Path", b"a"]], []),
    "a path in a text": ([[28, "PurePosixPath", "a"]], []),
    "an enum of no module": ([[29, "no.such.module", "Tone", "LOW"], 1], []),
    "an enum that is a class": ([[29, "os", "DirEntry", "LOW"], 1], []),
    "an enum that is a function": ([[29, "os", "getcwd", "LOW"], 1], []),
    "an enum of a number": ([[29, 1, "Tone", "LOW"], 1], []),
    "an enum whose member is a list": ([[29, "enum", "EnumCheck", []], 1], []),
    "a kind that is a number": ([[50, 5, b""]], []),
    "a codec of bytes in a number": ([[50, "my.kind", 5]], []),
    "pickle without its mark": ([[52, "my.kind", 1]], [pickle.dumps(1)]),
}


class TestAFrameThatLies:
    @pytest.mark.parametrize("name", LIES)
    def test_is_refused(self, name):
        tokens, buffers = LIES[name]
        raw = frame(tokens, buffers)
        with pytest.raises(FrameError):
            decode(raw)
        with pytest.raises(FrameError):
            decode(raw, allow_pickle=True)

    @pytest.mark.parametrize("name", LIES)
    def test_is_shown_or_refused(self, name):
        try:
            shown = describe_frame(frame(*LIES[name]))
        except FrameError:
            return
        assert len(shown.lines) == len(LIES[name][0])

    @pytest.mark.parametrize("code", [1, 2, 3, 4, 5])
    def test_about_its_depth_is_refused(self, code):
        inner = [[code, 1]] * 100_000
        with pytest.raises(FrameError, match=f"deeper than {MAX_NESTING} containers"):
            decode(frame([*inner, 1]))

    @pytest.mark.parametrize("opening", [[14], [42, [1], "C"], [51, "deep", 0], [21, *[0] * 5]])
    def test_about_its_depth_in_other_containers_is_refused(self, opening):
        codec("deep", Reading, dump_buffers=lambda one: (1, ()), load_buffers=lambda *_: 1)
        with pytest.raises(FrameError, match=f"deeper than {MAX_NESTING} containers"):
            decode(frame([*[opening] * 100_000, 1]))

    @pytest.mark.parametrize(
        ("tokens", "buffers"),
        [
            ([[43, structure([], [], [], 8), [1 << 25], "C"]], []),
            ([[43, structure(["a"], ["|O"], [0], 1 << 28), [], "C"], [42, [], "C"], 1], []),
            (
                [
                    [43, structure(["a"], ["V0"], [0], 1 << 8), [1 << 20], "C"],
                    [40, "|V0", [1 << 20], "C"],
                ],
                [b""],
            ),
            (
                [
                    [43, structure(["a"], [["|O", [1 << 25]]], [0], 1 << 28), [], "C"],
                    *([42, [1], "C"], 1),
                ],
                [],
            ),
            ([[42, [0, 1 << 40], "C"]], []),
            ([[1, 5], *[[1, 4]] * 3], []),
            ([[51, "many", 1 << 40]], []),
        ],
        ids=[
            "no fields",
            "wide item",
            "fields of nothing",
            "wide field",
            "zero",
            "lists",
            "buffers",
        ],
    )
    def test_makes_nothing_large(self, tokens, buffers):
        codec("many", Reading, dump_buffers=lambda one: (1, ()), load_buffers=lambda *_: 1)
        raw = frame(tokens, buffers)
        decode(encode(np.zeros(1, [("o", "O")])).to_bytes())  # what is imported once is not counted
        tracemalloc.start()
        try:
            decode(raw)
        except FrameError:
            pass
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < 4 << 20

    def test_says_how_many_values_are_missing(self):
        with pytest.raises(FrameError, match="5 values announced, 1 left"):
            decode(frame([[1, 5], 1]))

    def test_is_refused_when_its_pieces_are_those_of_another(self):
        from soma.frame import decode_parts

        first, second = encode(np.zeros(3)), encode(np.zeros(4))
        with pytest.raises(FrameError, match="pieces"):
            decode_parts(first.header, second.buffers)
        with pytest.raises(FrameError, match="pieces"):
            decode_parts(first.header, ())


class TestPickle:
    def test_is_refused_unless_asked_for(self):
        raw = frame([[52, "my.kind", 1]], [pickle.dumps({"a": 1})], flags=FLAG_PICKLE)
        with pytest.raises(FrameError, match="was written with pickle"):
            decode(raw)
        assert decode(raw, allow_pickle=True) == {"a": 1}

    def test_without_a_stream_is_refused(self):
        with pytest.raises(FrameError):
            decode(frame([[52, "my.kind", 0]], flags=FLAG_PICKLE), allow_pickle=True)

    def test_that_is_broken_names_its_kind(self):
        raw = frame([[52, "my.kind", 1]], [b"\x80\x05garbage"], flags=FLAG_PICKLE)
        with pytest.raises(CodecError, match=r"my\.kind"):
            decode(raw, allow_pickle=True)


class TestNesting:
    @pytest.mark.parametrize("kind", [list, tuple, dict, frozenset])
    def test_at_the_limit_is_written_and_read(self, kind):
        value = nested(MAX_NESTING, kind) if kind is not frozenset else nested(200, kind)
        whole = encode(value).to_bytes()
        assert encode(decode(whole)).to_bytes() == whole

    @pytest.mark.parametrize("kind", [list, tuple, dict])
    @pytest.mark.parametrize("depth", [MAX_NESTING + 1, 100_000])
    def test_beyond_the_limit_is_refused(self, kind, depth):
        with pytest.raises(CodecError, match=f"deeper than {MAX_NESTING} containers") as caught:
            encode(nested(depth, kind))
        assert str(caught.value).startswith("value[0][0][0]")

    @pytest.mark.parametrize("depth", [MAX_NESTING + 1, 3000])
    def test_beyond_the_limit_in_a_key_is_refused(self, depth):
        key = nested(depth, tuple)
        for value in ({key: 1}, {"a": {key}}, [frozenset({key})]):
            with pytest.raises(CodecError, match=f"deeper than {MAX_NESTING} containers"):
                encode(value)

    def test_in_a_key_does_not_hide_what_has_no_codec(self):
        with pytest.raises(MissingCodec, match=r"_thread\.lock"):
            encode({nested(900, tuple): threading.Lock()})

    def test_of_object_arrays_beyond_the_limit_is_refused(self):
        value = None
        for _ in range(MAX_NESTING + 1):  # numpy itself gives up a few thousand deeper
            outer = np.empty(1, dtype=object)
            outer[0] = value
            value = outer
        with pytest.raises(CodecError, match=f"deeper than {MAX_NESTING} containers"):
            encode(value)


class TestCycles:
    def test_name_where_they_close(self):
        value = {"a": [1, 2]}
        value["a"].append(value)
        with pytest.raises(CodecError, match=r"^value\['a'\]\[2\] contains itself"):
            encode(value)

    def test_in_a_list_in_itself(self):
        value = []
        value.append(value)
        with pytest.raises(CodecError, match=r"^value\[0\] contains itself"):
            encode(value)

    def test_through_tuples_and_arrays(self):
        array = np.empty(3, dtype=object)
        array[2] = ("x", array)
        with pytest.raises(CodecError, match=r"^value\[0\]\.flat\[2\]\[1\] contains itself"):
            encode([array])

    def test_through_a_field(self):
        records = np.empty(2, dtype=[("a", "i1"), ("o", "O")])
        records["o"][1] = [records]
        with pytest.raises(CodecError, match=r"^value\[0\]\S+ contains itself"):
            encode([records])

    def test_through_a_slice(self):
        inner = []
        inner.append(slice(inner))
        with pytest.raises(CodecError, match=r"^value\S+ contains itself"):
            encode([inner])

    def test_through_an_array_in_no_order(self):
        apart = np.empty(6, dtype=object)[::2]
        apart[1] = apart
        with pytest.raises(CodecError, match=r"^value\[0\]\S+ contains itself"):
            encode([apart])


def no_codec():
    def generator():
        yield 1

    return {
        "_thread.lock": threading.Lock(),
        "builtins.generator": generator(),
        "builtins.object": object(),
        f"{__name__}.Numbers": Numbers(a=1),
        f"{__name__}.Count": Count(1),
        f"{__name__}.Reading": Reading(),
        "builtins.function": no_codec,
        "builtins.type": Reading,
        "builtins.module": os,
        "builtins.memoryview": memoryview(b""),
    }


class TestWhatNoCodecCovers:
    @pytest.mark.parametrize("name", no_codec())
    def test_is_named_with_place_and_type(self, name):
        wanted = no_codec()[name]
        for value, place in (
            (wanted, "value"),
            ([1, wanted], "value[1]"),
            ({"a": ({"b": wanted},)}, "value['a'][0]['b']"),
            ({2**70: [wanted]}, f"value[{2**70}][0]"),
        ):
            with pytest.raises(MissingCodec) as caught:
                encode(value)
            assert str(caught.value).startswith(f"{place} is a {name}, and nothing says how")

    def test_is_found_in_keys_sets_and_arrays(self):
        array = np.empty((2, 2), dtype=object)
        array[1, 0] = threading.Lock()
        for value, place in (
            ({"a": {Count(1): 2}}, "a key of value['a']"),
            ([{Count(1)}], "a member of value[0]"),
            ([array], "value[0].flat[2]"),
        ):
            with pytest.raises(MissingCodec) as caught:
                encode(value)
            assert str(caught.value).startswith(f"{place} is a ")

    def test_is_found_in_slices_and_fields(self):
        records = np.empty(2, dtype=[("a", "i1"), ("o", "O")])
        records["o"][1] = threading.Lock()
        for value in ([slice(1, threading.Lock())], [records], [records[1]]):
            with pytest.raises(MissingCodec, match=r"^value\[0\]\S* is a _thread\.lock"):
                encode(value)

    def test_is_named_whatever_the_keys_beside_it_are(self):
        class Shy:
            def __repr__(self):
                raise RuntimeError("no repr")

        codec("shy", Shy, dump=lambda one: b"", load=lambda raw: Shy())
        for key in (BEYOND_PRINTING, Shy()):
            with pytest.raises(MissingCodec, match=r"_thread\.lock"):
                encode({key: threading.Lock()})

    def test_says_what_to_register(self):
        with pytest.raises(MissingCodec, match=r"soma\.codec\('\S+Reading', Reading, dump=\.\.\."):
            encode(Reading())


class TestEnums:
    def test_of_a_module_that_is_not_imported_are_refused_and_it_stays_so(self):
        raw = frame([[29, "colorsys", "Tone", "LOW"], 1])
        sys.modules.pop("colorsys", None)
        with pytest.raises(FrameError, match="colorsys is not imported here: import colorsys"):
            decode(raw)
        assert "colorsys" not in sys.modules

    def test_of_the_library_are_read_when_imported(self):
        import http

        assert decode(encode(http.HTTPStatus.OK).to_bytes()) is http.HTTPStatus.OK

    @pytest.mark.parametrize(
        ("name", "member", "value"),
        [
            ("Tone", "LOW", 2),
            ("Tone", "LOW", 1.0),
            ("Tone", "LOW", True),
            ("Tone", "GONE", 1),
            ("Tone", None, 1),
            ("Mark", "A", 2),
            ("Mark", "A|B", 1 << 9),
            ("Mark", None, "text"),
        ],
    )
    def test_whose_members_changed_are_refused(self, monkeypatch, name, member, value):
        monkeypatch.setitem(sys.modules, "enums_of_a_user", sys.modules[__name__])
        raw = frame([[29, "enums_of_a_user", name, member], value])
        with pytest.raises(FrameError):
            decode(raw)

    def test_are_read_where_nothing_changed(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "enums_of_a_user", sys.modules[__name__])
        assert decode(frame([[29, "enums_of_a_user", "Tone", "LOW"], 1])) is Tone.LOW
        assert decode(frame([[29, "enums_of_a_user", "Mark", "A|B"], 3])) is Mark.A | Mark.B
        assert decode(frame([[29, "enums_of_a_user", "Mark", None], 0])) is Mark(0)


class TestKinds:
    def test_that_nobody_reads_are_named(self):
        with pytest.raises(UnknownKind, match=r"'my\.kind', and nothing here says how to read"):
            decode(frame([[50, "my.kind", b"x"]]))

    def test_of_a_package_that_is_not_installed_end_with_its_install_line(self):
        with pytest.raises((UnknownKind, MissingPackage), match="pip install"):
            decode(frame([[50, "torch.Tensor", b"x"]]))

    @pytest.mark.parametrize("kind", ["", "x" * 100_000, "\0", "a\nb"])
    def test_of_odd_names_are_refused(self, kind):
        with pytest.raises(CodecError):
            decode(frame([[50, kind, b"x"]]))

    def test_written_by_buffers_need_a_reader_of_buffers(self):
        codec("my.reading", Reading, dump=lambda one: b"", load=lambda raw: Reading())
        with pytest.raises(CodecError, match="has no load_buffers"):
            decode(frame([[51, "my.reading", 0], None]))

    def test_written_in_one_piece_need_a_reader_of_one_piece(self):
        codec("my.reading", Reading, dump_buffers=lambda one: (1, ()), load_buffers=lambda *_: 1)
        with pytest.raises(CodecError, match=r"my\.reading"):
            decode(frame([[50, "my.reading", b""]]))


def test_every_code_is_lied_about():
    first = [tokens[0] for tokens, _ in LIES.values() if tokens and type(tokens[0]) is list]
    told = {token[0] for token in first if token and type(token[0]) is int}
    written = {int(code) for code in Code}
    elsewhere = {Code.TUPLE, Code.BYTEARRAY, Code.ELLIPSIS, Code.DATETIME, Code.CODEC_BUFFERS}
    assert written - told == elsewhere


def test_single_bytes_of_a_frame_may_change_and_nothing_else_is_raised():
    chance = random.Random(3)  # noqa: S311  # the same frames every time
    for value in SEEDS.values():
        whole = encode(value).to_bytes()
        for place in range(min(len(whole), 400)):
            changed = bytearray(whole)
            changed[place] ^= 1 << chance.randrange(8)
            try:
                decode(changed)
            except (FrameError, CodecError):
                continue
