"""How a type is given a codec, what refuses to be one, and who writes what."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import threading
import uuid
from textwrap import dedent

import numpy as np
import pytest

from soma import codecs
from soma.codecs import codec, codecs_registered
from soma.errors import CodecError, FrameError, MissingCodec, UnknownKind
from soma.frame import content_hash, decode, encode
from soma.values import Opaque
from support.distributions import TIMEOUT_S, run_python, run_soma, write_plugin
from support.values import identical


class Reading:
    def __init__(self, hz, samples=()):
        self.hz = hz
        self.samples = list(samples)

    def __eq__(self, other):
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self):
        return hash(self.hz)


class Precise(Reading):
    pass


class MorePrecise(Precise):
    pass


class Block:
    """Something large, written by its buffers."""

    def __init__(self, array, label=""):
        self.array = array
        self.label = label


def dump(one):
    return json.dumps([one.hz, one.samples]).encode()


def load(raw):
    return Reading(*json.loads(raw))


@pytest.fixture(autouse=True)
def only_our_codecs():
    tables = (codecs._by_kind, codecs._by_type)
    before = [dict(table) for table in tables]
    resolved = dict(codecs._resolved)
    for table in tables:
        table.clear()
    codecs._resolved.clear()
    yield
    for table, rows in zip(tables, before, strict=True):
        table.clear()
        table.update(rows)
    codecs._resolved.clear()
    codecs._resolved.update(resolved)


def register(kind="my.Reading", cls=Reading, **options):
    codec(kind, cls, **(options or {"dump": dump, "load": load}))


def round_trip(value):
    return decode(encode(value).to_bytes())


def refused(match, kind="my.Reading", cls=Reading, **options):
    with pytest.raises(CodecError, match=match):
        register(kind, cls, **options)
    assert codecs_registered() == []


class TestRegistering:
    def test_gives_a_type_its_bytes(self):
        register()
        value = Reading(50.0, [1, 2])
        assert round_trip(value) == value
        assert round_trip({"deep": [(value,)]}) == {"deep": [(value,)]}
        assert content_hash(value) == content_hash(Reading(50.0, [1, 2]))
        assert content_hash(value) != content_hash(Reading(50.0, [1, 3]))

    def test_lists_kinds_in_order(self):
        assert codecs_registered() == []
        register("z.last", Reading)
        register("a.first", Precise)
        register("m.middle", Block)
        assert codecs_registered() == ["z.last", "a.first", "m.middle"]
        register("z.last", Reading)
        assert codecs_registered() == ["z.last", "a.first", "m.middle"]

    def test_remembers_who_did_it(self):
        register()
        (row,) = codecs.registered()
        assert (row.kind, row.type, row.registered_by) == ("my.Reading", Reading, __name__)
        assert row.type_name == f"{__name__}.Reading"

    def test_takes_effect_at_once_after_a_refusal(self):
        with pytest.raises(MissingCodec):
            encode(Reading(1.0))
        register()
        assert round_trip(Reading(1.0)) == Reading(1.0)

    def test_from_many_threads_loses_nothing(self):
        classes = [type(f"Made{number}", (), {}) for number in range(64)]
        threads = [
            threading.Thread(target=register, args=(f"made.{number}", cls))
            for number, cls in enumerate(classes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(codecs_registered()) == sorted(f"made.{number}" for number in range(64))


class TestRefusing:
    @pytest.mark.parametrize(
        "kind", ["", " ", " a", "a ", "a\nb", "a\0", None, 1, b"my.kind", Reading]
    )
    def test_a_kind_that_is_no_name(self, kind):
        refused("A kind is a text without surrounding blanks", kind)

    def test_the_kind_of_arrow_frames(self):
        refused(
            r"'arrow\.RecordBatch' is reserved.*Name yours after your type", "arrow.RecordBatch"
        )

    @pytest.mark.parametrize("cls", [None, "Reading", Reading(1), len, list[int], 5])
    def test_a_type_that_is_no_class(self, cls):
        refused(r"codec\('my\.Reading', \.\.\.\): the type must be a class, not ", cls=cls)

    @pytest.mark.parametrize(
        "cls",
        [
            *(type(None), bool, int, float, complex, str, bytes, bytearray, type(...), object),
            *(list, tuple, set, frozenset, dict, range, slice, np.ndarray, np.float64, np.str_),
            *(dt.date, dt.time, dt.datetime, dt.timedelta, dt.timezone),
            *(decimal.Decimal, uuid.UUID, pathlib.PurePosixPath, type(pathlib.Path())),
        ],
    )
    def test_a_type_that_is_written_natively(self, cls):
        refused(f"{cls.__name__} is written natively and never asks for a codec", cls=cls)

    @pytest.mark.parametrize("name", ["dump", "load", "dump_buffers", "load_buffers"])
    @pytest.mark.parametrize("value", ["dump", 1, b""])
    def test_what_cannot_be_called(self, name, value):
        options = {"dump": dump, "load": load, "dump_buffers": dump, "load_buffers": load}
        refused(f"{name} must be a function, not {value!r}", **{**options, name: value})

    def test_a_writer_without_a_reader(self):
        refused("dump_buffers and load_buffers come together", dump_buffers=dump)
        refused("dump_buffers and load_buffers come together", load_buffers=load)
        refused(r"give dump=\(obj -> bytes\) and load=\(bytes -> obj\)", dump=dump)
        refused(r"give dump=\(obj -> bytes\) and load=\(bytes -> obj\)", load=load)
        refused(r"give dump=\(obj -> bytes\)", pickle=False)
        refused("give dump=", dump=dump, dump_buffers=dump, load_buffers=load)

    def test_functions_beside_pickle(self):
        for name in ("dump", "load"):
            refused("with pickle=True there is nothing to give it", pickle=True, **{name: dump})
        refused("with pickle=True", pickle=True, dump_buffers=dump, load_buffers=load)

    def test_a_second_type_under_one_kind(self):
        register()
        with pytest.raises(CodecError) as caught:
            register("my.Reading", Block)
        assert str(caught.value) == (
            f"The kind 'my.Reading' belongs to {__name__}.Reading (registered by {__name__}), so "
            f"{__name__}.Block needs a kind of its own"
        )
        assert round_trip(Reading(1.0)) == Reading(1.0)
        with pytest.raises(MissingCodec):
            encode(Block(1))

    def test_a_second_kind_for_one_type(self):
        register()
        with pytest.raises(CodecError, match=r"written under the kind 'my\.Reading' already"):
            register("readings-final")
        assert codecs_registered() == ["my.Reading"]

    def test_an_error_is_a_value_error_too(self):
        with pytest.raises(ValueError, match="reserved"):
            register("arrow.RecordBatch")


class TestAClassDefinedTwice:
    def test_is_written_and_read_as_the_later_one(self):
        def cell(factor):
            class Scale:
                def __init__(self, by):
                    self.by = by

            codec(
                "cell.Scale",
                Scale,
                dump=lambda one: bytes([one.by * factor]),
                load=lambda raw: Scale(raw[0]),
            )
            return Scale

        first = cell(1)
        assert round_trip(first(3)).by == 3
        second = cell(2)
        read = round_trip(second(3))
        assert type(read) is second
        assert read.by == 6
        assert codecs_registered() == ["cell.Scale"]
        with pytest.raises(MissingCodec, match="Scale"):
            encode(first(3))

    def test_or_registered_twice_takes_the_later_functions(self):
        register()
        register(dump=lambda one: b"[7, []]", load=load)
        assert round_trip(Reading(1.0)) == Reading(7)


class TestWhoWrites:
    def test_the_most_derived_class_that_has_a_codec(self):
        register("my.Reading", Reading, dump=lambda one: b"base", load=bytes)
        assert round_trip(MorePrecise(1.0)) == b"base"
        register("my.Precise", Precise, dump=lambda one: b"precise", load=bytes)
        assert round_trip(MorePrecise(1.0)) == b"precise"
        assert round_trip(Precise(1.0)) == b"precise"
        assert round_trip(Reading(1.0)) == b"base"
        register("my.MorePrecise", MorePrecise, dump=lambda one: b"more", load=bytes)
        assert round_trip(MorePrecise(1.0)) == b"more"

    def test_an_object_of_a_subclass_has_another_hash_and_its_author_is_told_once(self, capfd):
        class Kept(Reading):
            pass

        register("my.Reading", Reading, dump=dump, load=load)
        assert content_hash(Kept(1.0)) == content_hash(Kept(1.0)) != content_hash(Reading(1.0))
        assert type(round_trip(Kept(1.0))) is Reading
        told = [line for line in capfd.readouterr().err.splitlines() if "Kept" in line]
        assert len(told) == 1
        assert "is written by the codec of" in told[0]
        assert told[0].endswith("if it holds more")

    def test_follows_the_order_of_bases(self):
        class Both(Block, Precise):
            pass

        register("my.Reading", Reading, dump=lambda one: b"reading", load=bytes)
        register("my.Block", Block, dump=lambda one: b"block", load=bytes)
        assert round_trip(Both.__new__(Both)) == b"block"

    def test_nobody_writes_a_subclass_of_a_native_type_unless_asked(self):
        class Count(int):
            pass

        with pytest.raises(MissingCodec, match="Count"):
            encode([Count(1)])
        register("my.Count", Count, dump=lambda one: b"%d" % one, load=lambda raw: Count(int(raw)))
        assert type(round_trip([Count(5)])[0]) is Count
        assert content_hash(Count(5)) != content_hash(5)

    def test_a_codec_for_an_enum_replaces_what_a_frame_would_write(self):
        import enum

        class Local(enum.Enum):
            A = 1

        register(
            "my.Local",
            Local,
            dump=lambda one: one.name.encode(),
            load=lambda raw: Local[raw.decode()],
        )
        assert round_trip([Local.A]) == [Local.A]

    def test_objects_as_keys_and_members(self):
        register()
        value = {Reading(1.0): {Reading(2.0), Reading(3.0)}}
        assert round_trip(value) == value
        assert content_hash({Reading(2.0), Reading(3.0)}) == content_hash(
            {Reading(3.0), Reading(2.0)}
        )


class TestDump:
    @pytest.mark.parametrize(
        ("returned", "name"),
        [
            ("text", "str"),
            (None, "NoneType"),
            (bytearray(b""), "bytearray"),
            (memoryview(b""), "memoryview"),
        ],
    )
    def test_that_returns_something_else_names_both_types(self, returned, name):
        register(dump=lambda one: returned, load=load)
        with pytest.raises(CodecError) as caught:
            encode([Reading(1.0)])
        assert str(caught.value) == (
            f"The codec for '{__name__}.Reading' (kind 'my.Reading') has to return bytes, and it "
            f"returned a '{name}'"
        )

    def test_that_raises_names_type_and_place_and_keeps_the_cause(self):
        def broken(one):
            raise ZeroDivisionError("no hertz")

        register(dump=broken, load=load)
        with pytest.raises(CodecError) as caught:
            encode({"a": [1, Reading(1.0)]})
        assert "failed to write value['a'][1]: ZeroDivisionError: no hertz" in str(caught.value)
        assert "my.Reading" in str(caught.value)
        assert type(caught.value.__cause__) is ZeroDivisionError

    def test_that_is_interrupted_is_interrupted(self):
        def interrupted(one):
            raise KeyboardInterrupt

        register(dump=interrupted, load=load)
        with pytest.raises(KeyboardInterrupt):
            encode(Reading(1.0))

    @pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, 100_000])
    def test_of_any_size_comes_back(self, size):
        register(dump=lambda one: b"x" * one.hz, load=lambda raw: Reading(len(raw)))
        assert round_trip([Reading(size), Reading(size)]) == [Reading(size)] * 2


class TestLoad:
    def test_that_raises_names_the_kind_and_keeps_the_cause(self):
        def broken(raw):
            raise LookupError("lost it")

        register(dump=dump, load=broken)
        raw = encode(Reading(1.0)).to_bytes()
        with pytest.raises(CodecError) as caught:
            decode(raw)
        assert str(caught.value) == (
            "The codec of kind 'my.Reading' could not read its bytes: LookupError: lost it"
        )
        assert type(caught.value.__cause__) is LookupError

    def test_is_given_bytes(self):
        seen = []
        register(dump=lambda one: b"x" * one.hz, load=lambda raw: seen.append(type(raw)))
        round_trip([Reading(5), Reading(5000)])
        assert seen == [bytes, bytes]

    def test_of_a_kind_that_nobody_reads_says_what_to_import(self):
        register()
        raw = encode(Reading(1.0)).to_bytes()
        codecs._by_kind.clear()
        register("my.Readings", Block)
        with pytest.raises(UnknownKind) as caught:
            decode(raw)
        assert str(caught.value) == (
            "These bytes are of kind 'my.Reading', and nothing here says how to read them. Did you "
            "mean 'my.Readings'? Import the module that calls codec('my.Reading', ...), in every "
            "process that reads such values"
        )


class TestBuffers:
    def register(self, **options):
        def dump_buffers(one):
            meta = {"label": one.label, "shape": one.array.shape}
            return meta, [memoryview(one.array)]

        def load_buffers(meta, buffers):
            flat = np.frombuffer(buffers[0], "<f8")
            return Block(flat.reshape(meta["shape"]), meta["label"])

        register("my.Block", Block, dump_buffers=dump_buffers, load_buffers=load_buffers, **options)

    def test_are_not_copied_on_the_way_in_or_out(self):
        self.register()
        array = np.arange(6000.0).reshape(60, 100)
        encoded = encode([Block(array, "a")])
        assert np.shares_memory(np.frombuffer(encoded.buffers[0], "u1"), array)
        raw = bytearray(encoded.to_bytes())
        (read,) = decode(raw)
        assert np.shares_memory(read.array, np.frombuffer(raw, "u1"))
        assert (read.label, read.array.flags.writeable) == ("a", True)
        assert identical(read.array, array)

    def test_are_used_before_dump_where_both_are_given(self):
        self.register(dump=lambda one: b"never", load=lambda raw: None)
        assert identical(round_trip(Block(np.ones(3))).array, np.ones(3))

    def test_come_back_in_order_beside_those_of_arrays(self):
        self.register()
        value = [np.zeros(100), Block(np.ones(2)), "x" * 2000, Block(np.full(3, 7.0)), np.zeros(5)]
        read = round_trip(value)
        assert [one.array.tolist() for one in (read[1], read[3])] == [[1.0] * 2, [7.0] * 3]
        assert read[2] == "x" * 2000
        assert identical([read[0], read[4]], [value[0], value[4]])

    @pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
    def test_may_be_empty(self, shape):
        self.register()
        read = round_trip(Block(np.zeros(shape)))
        assert read.array.shape == shape

    def test_may_be_none_and_meta_any_value(self):
        register(
            dump_buffers=lambda one: ({"r": Precise(1.0), 2: [...]}, ()),
            load_buffers=lambda meta, buffers: (meta, buffers),
        )
        register("my.Precise", Precise, dump=dump, load=lambda raw: Precise(*json.loads(raw)))
        assert round_trip(Reading(1.0)) == ({"r": Precise(1.0), 2: [...]}, [])

    @pytest.mark.parametrize("returned", [b"raw", None, (1,), [1, []], (1, [], 2)])
    def test_that_are_no_pair_are_refused(self, returned):
        register(dump_buffers=lambda one: returned, load_buffers=load)
        with pytest.raises(CodecError, match=r"has to return \(meta, buffers\) from dump_buffers"):
            encode(Reading(1.0))

    @pytest.mark.parametrize("buffers", [5, None, ["text"], [np.ones((4, 4))[:, ::2]], [None]])
    def test_that_are_no_buffers_are_refused(self, buffers):
        register(dump_buffers=lambda one: (1, buffers), load_buffers=load)
        with pytest.raises(CodecError, match="contiguous buffers"):
            encode(Reading(1.0))

    def test_with_itself_in_its_meta_are_refused(self):
        register(dump_buffers=lambda one: ([one], ()), load_buffers=load)
        with pytest.raises(CodecError, match="contains itself"):
            encode([Reading(1.0)])

    def test_with_meta_that_no_codec_covers_name_it(self):
        register(dump_buffers=lambda one: ([threading.Lock()], ()), load_buffers=load)
        with pytest.raises(MissingCodec, match=r"_thread\.lock"):
            encode([Reading(1.0)])

    def test_whose_reader_raises_name_the_kind(self):
        register(dump_buffers=lambda one: (1, ()), load_buffers=lambda meta, buffers: 1 / 0)
        with pytest.raises(CodecError, match=r"'my\.Reading' could not read its bytes: ZeroDiv"):
            round_trip(Reading(1.0))


class TestPickle:
    def test_is_marked_and_read_only_where_allowed(self):
        register(pickle=True)
        plain = encode(["plain"])
        encoded = encode(["beside", Reading(1.0, [math.pi])])
        assert (encoded.pickled, plain.pickled) == (True, False)
        raw = encoded.to_bytes()
        with pytest.raises(FrameError, match=r"codec\(\.\.\., pickle=True\)"):
            decode(raw)
        assert decode(raw, allow_pickle=True) == ["beside", Reading(1.0, [math.pi])]
        assert decode(plain.to_bytes(), allow_pickle=True) == ["plain"]

    def test_copies_no_large_array(self):
        register("my.Block", Block, pickle=True)
        array = np.arange(10_000.0)
        encoded = encode(Block(array))
        assert any(np.shares_memory(np.frombuffer(one, "u1"), array) for one in encoded.buffers)
        read = decode(encoded.to_bytes(), allow_pickle=True)
        assert identical(read.array, array)

    def test_of_what_cannot_be_pickled_names_place_and_type(self):
        register(pickle=True)
        with pytest.raises(CodecError, match=r"my\.Reading.*failed to write value\[0\]: TypeError"):
            encode([Reading(threading.Lock())])

    def test_goes_on_from_an_encoding_with_rearranged_arrays(self):
        register(pickle=True)
        encoded = encode([Reading(1.0), np.arange(8)[::2]])
        assert identical(encoded.value[1], np.arange(0, 8, 2))
        assert encoded.value[0] == Reading(1.0)


class TestOpaque:
    def test_without_a_codec_is_refused(self):
        for inner in (Reading(1.0), {"a": 1}, 5, None):
            with pytest.raises(MissingCodec) as caught:
                encode({"x": [Opaque(inner)]})
            name = f"{type(inner).__module__}.{type(inner).__qualname__}"
            how = " is an Opaque around" if type(inner) in codecs.NATIVE else ".value is"
            assert str(caught.value).startswith(f"value['x'][0]{how} a {name}, ")

    def test_around_a_plain_value_is_refused_as_well(self):
        with pytest.raises(MissingCodec, match=r"value\['x'\] is an Opaque around a builtins.list"):
            encode({"x": Opaque([5])})

    def test_with_a_codec_is_written_by_it_and_read_as_the_value_itself(self):
        register()
        assert round_trip([Opaque(Reading(1.0))]) == [Reading(1.0)]
        assert round_trip(Opaque(Precise(2.0))) == Reading(2.0)

    def test_is_no_type_for_a_codec(self):
        refused("Opaque", cls=Opaque)

    def test_holds_the_value_and_shows_its_type_alone(self):
        value = Reading(1.0)
        assert Opaque(value).value is value
        assert repr(Opaque(value)) == "Opaque(Reading)"


PLUGIN = """
import soma

@soma.hookimpl
def soma_codecs():
    yield soma.CodecSpec(
        name="things.One",
        target="things.codec:CODEC",
        types=("things.types.One", "things.types.Other"),
    )
"""
TYPES = """
class One:
    def __init__(self, number):
        self.number = number

class Other(One):
    pass
"""
CODEC = """
from things.types import One

class Codec:
    kind = "things.One"
    type_name = "things.types.One"

    def dump(self, obj):
        return bytes([obj.number])

    def load(self, raw):
        return One(*raw)

CODEC = Codec()
"""


@pytest.fixture
def things(tmp_path):
    write_plugin(tmp_path, "things", plugin=PLUGIN)
    (tmp_path / "things" / "types.py").write_text(TYPES)
    (tmp_path / "things" / "codec.py").write_text(CODEC)
    return tmp_path


class TestCodecsOfPlugins:
    def test_are_found_by_type_and_by_kind(self, things):
        done = run_python(
            """
            import sys
            from soma import codecs_registered
            from soma.frame import decode, encode
            from things.types import One
            raw = encode([One(7)]).to_bytes()
            print(codecs_registered())
            sys.stdout.flush()
            sys.stdout.buffer.write(raw.hex().encode())
            """,
            things,
        )
        listed, raw = done.stdout.splitlines()
        assert listed == "['things.One']"
        done = run_python(
            f"""
            import sys
            from soma.frame import decode
            assert "things.types" not in sys.modules
            print(decode(bytes.fromhex({raw!r}))[0].number)
            """,
            things,
        )
        assert done.stdout == "7\n", done.stderr

    def test_write_every_type_that_the_spec_names(self, things):
        done = run_python(
            """
            from soma.frame import content_hash
            from things.types import One, Other
            print(content_hash(One(7)) == content_hash(Other(7)))
            print(content_hash(One(7)) == content_hash(One(7)))
            """,
            things,
        )
        assert done.stdout == "True\nTrue\n"
        assert done.stderr == ""

    def test_give_an_identity_that_does_not_depend_on_what_ran_before(self, things):
        code = """
        from things.types import One, Other
        from soma import Filter
        from soma.frame import encode
        from soma.identity import identify
        class Holder(Filter):
            def __init__(self): self.one, self.member = One(7), Other.A
            def forward(self, x, state): return x
        {before}
        print(identify(Holder()).config)
        """
        (things / "things" / "types.py").write_text(
            "import enum\nfrom dataclasses import dataclass\n"
            "@dataclass\nclass One:\n    number: int\n"
            "class Other(enum.Enum):\n    A = 7\n"
        )
        (things / "things" / "codec.py").write_text(
            CODEC.replace("obj.number", 'getattr(obj, "value", None) or obj.number')
        )
        first, second = (
            run_python(code.format(before=before), things)
            for before in ("", "encode([One(1), Other.A])")
        )
        assert first.stdout == second.stdout != "", first.stderr + second.stderr

    def test_are_found_by_many_threads_at_once(self, things):
        done = run_python(
            """
            import threading
            from soma.frame import content_hash
            from things.types import One, Other
            start, found = threading.Barrier(8), []
            def run(cls):
                start.wait(60)
                found.append(content_hash(cls(7)))
            threads = [threading.Thread(target=run, args=(cls,)) for cls in [One, Other] * 4]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            print(len(found), len(set(found)))
            """,
            things,
        )
        assert done.stdout == "8 1\n", done.stderr
        assert done.stderr == ""

    def test_are_not_replaced_by_somebody_who_takes_their_kind(self, things):
        done = run_python(
            """
            from soma import codec
            from soma.errors import CodecError
            from soma.frame import encode
            from things.types import One
            class Mine: pass
            codec("things.One", Mine, dump=lambda one: b"mine", load=lambda raw: Mine())
            try:
                encode(One(7))
            except CodecError as error:
                print(error)
            """,
            things,
        )
        assert done.stdout == (
            "The kind 'things.One' belongs to things 1.0, which writes things.types.One under it, "
            "and was registered by __main__ for __main__.Mine: that needs a kind of its own\n"
        ), done.stderr

    @pytest.mark.parametrize(
        ("codec", "sentence"),
        [
            (CODEC.replace("CODEC = Codec()", "CODEC = Codec"), "is no codec object"),
            (CODEC.replace("kind = ", "sort = "), "is no codec object with 'kind'"),
            (CODEC.replace('"things.One"', '"things.Two"'), "calls itself 'things.Two'"),
        ],
    )
    def test_that_are_none_are_refused_by_name(self, codec, sentence, things):
        (things / "things" / "codec.py").write_text(codec)
        done = run_python(
            """
            from soma.errors import CodecError
            from soma.frame import encode
            from things.types import One
            try:
                encode(One(7))
            except CodecError as error:
                print(error)
            """,
            things,
        )
        assert "The codec 'things.One' of things 1.0 " in done.stdout, done.stderr
        assert sentence in done.stdout

    def test_nobody_but_soma_arrow_may_offer_the_reserved_kind(self, things):
        plugin = PLUGIN.replace("things.One", "arrow.RecordBatch")
        (things / "things" / "plugin.py").write_text(plugin)
        done = run_soma("plugins list", things)
        assert "claims the codec 'arrow.RecordBatch', which is soma-arrow's" in done.stdout

    def test_soma_codecs_lists_them_and_what_a_module_registers(self, things):
        (things / "mine.py").write_text(
            "from soma import codec\nclass Mine: pass\n"
            "codec('my.Mine', Mine, dump=bytes, load=bytes)\n"
        )
        listed = run_soma("codecs --import mine --json", things)
        rows = {row["kind"]: row for row in json.loads(listed.stdout)}
        assert rows["things.One"]["type"] == "things.types.One, things.types.Other"
        assert rows["things.One"]["registered_by"] == "things 1.0"
        assert rows["my.Mine"] == {"kind": "my.Mine", "type": "mine.Mine", "registered_by": "mine"}
        assert "numpy.ndarray" in run_soma("codecs --all", things).stdout
        wrong = run_soma("codecs --import mine.py", things)
        assert wrong.returncode == 1
        assert "give the name of a module: --import mine" in wrong.stderr


class TestTheSuite:
    """soma.testing.CodecSuite refuses what it is there to refuse."""

    SUITE = """
    import pytest, soma.testing
    from soma import codec
    from pathlib import Path

    class Thing:
        def __init__(self, number): self.number = number
        def __eq__(self, other): return self.number == other.number

    {body}

    class TestThing(soma.testing.CodecSuite):
        @pytest.fixture
        def kind(self): return "tests.Thing"
        @pytest.fixture
        def examples(self): return [Thing(1), Thing(2)]
        @pytest.fixture
        def imports(self): return ("test_thing",)
        {more}
    """
    GOOD = "codec('tests.Thing', Thing, dump=lambda t: bytes([t.number]), load=lambda r: Thing(*r))"

    def run(self, tmp_path, body, more="", *options):
        text = dedent(self.SUITE).format(body=body, more=more)
        (tmp_path / "test_thing.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_thing.py"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return set(re.findall(r"FAILED \S+::(\w+)", done.stdout)), done.stdout

    def test_a_good_codec_passes(self, tmp_path):
        failed, output = self.run(tmp_path, self.GOOD)
        assert not failed, output
        assert " passed" in output

    @pytest.mark.parametrize(
        ("body", "check"),
        [
            (
                (
                    "codec('tests.Thing', Thing, dump=lambda t: bytes([t.number]), "
                    "load=lambda r: Thing(0))"
                ),
                "test_round_trip",
            ),
            (
                (
                    "import itertools; c = itertools.count()\n"
                    "codec('tests.Thing', Thing, dump=lambda t: bytes([t.number, next(c) % 9]), "
                    "load=lambda r: Thing(r[0]))"
                ),
                "test_equal_bytes_twice",
            ),
            (
                (
                    "import pickle\ncodec('tests.Thing', Thing, "
                    "dump=lambda t: b'P' + pickle.dumps(t), "
                    "load=lambda r: pickle.loads(r[1:]))"
                ),
                "test_nothing_is_unpickled",
            ),
            (
                (
                    "import pickle\ncodec('tests.Thing', Thing, "
                    "dump=lambda t: pickle.dumps(t.number), "
                    "load=lambda r: Thing(pickle.loads(r)))"
                ),
                "test_a_hostile_pickle_is_not_run",
            ),
            (
                (
                    "codec('tests.Thing', Thing, dump=lambda t: b'Thing(%d)' % t.number, "
                    "load=lambda r: eval(r))"
                ),
                "test_nothing_is_unpickled",
            ),
            (
                (
                    "codec('tests.Thing', Thing, dump=lambda t: str(hash('a')).encode() + "
                    "bytes([t.number]), load=lambda r: Thing(r[-1]))"
                ),
                "test_another_process_reads_it_from_its_kind_alone",
            ),
        ],
    )
    def test_a_bad_codec_fails_by_name(self, body, check, tmp_path):
        failed, output = self.run(tmp_path, body.replace("\n", "\n"))
        assert check in failed, output

    def test_a_check_that_is_dropped_fails_unless_it_says_why(self, tmp_path):
        dropped = "test_round_trip = None"
        assert "test_suite_is_intact" in self.run(tmp_path, self.GOOD, dropped)[0]
        marked = (
            "@pytest.mark.xfail(reason='it is so')\n"
            "        def test_round_trip(self, examples, same): raise AssertionError"
        )
        assert not self.run(tmp_path, self.GOOD, marked)[0]

    def test_a_codec_with_pickle_passes_where_it_says_so(self, tmp_path):
        body = "codec('tests.Thing', Thing, pickle=True)"
        more = "@pytest.fixture\n        def allow_pickle(self): return True"
        failed, output = self.run(tmp_path, body, more)
        assert not failed, output
