from __future__ import annotations

import base64
import json
import os
import platform
import stat
import time

import pytest
from blake3 import blake3

import soma
from soma import InvalidInput
from soma.contracts import ActionRecord
from soma.engine import MemoryStore
from soma.frame import decode_parts, encode
from soma.testing import ActionStoreSuite
from soma_cache import DiskStore, open_store
from support.cache_folders import assert_sound, blobs_of, everything, records_of
from support.cache_stores import KEY, LARGE, MIDDLE, OTHER, keep, opened, value_of


class TestDiskStore(ActionStoreSuite):
    @pytest.fixture
    def store(self, tmp_path):
        return opened(tmp_path / "cache")

    @pytest.fixture
    def another(self, store):
        return opened(store.path)


class TestDiskStoreThatSyncs(ActionStoreSuite):
    @pytest.fixture
    def store(self, tmp_path):
        return opened(tmp_path / "cache", always_sync=True)

    @pytest.fixture
    def another(self, store):
        return opened(store.path, always_sync=True)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def store(folder):
    return opened(folder)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


# ---------------------------------------------------------------- what lies where


def of_frame_bytes(nbytes):
    """Return a value whose frame has so many bytes."""
    value = ["x" * 1000, ""]
    while encode(value).nbytes < nbytes:
        value[1] += "y"
    assert encode(value).nbytes == nbytes
    return value


@pytest.mark.parametrize("nbytes", [2047, 2048, 2049])
def test_up_to_2048_bytes_lie_in_the_record(store, folder, nbytes):
    value = of_frame_bytes(nbytes)
    (digest,) = keep(store, value)
    raw = encode(value).to_bytes()
    assert digest == blake3(raw).hexdigest()
    (record,) = assert_sound(folder)
    output = record["outputs"]["out 0"]
    assert output["bytes"] == nbytes
    if nbytes <= 2048:
        assert base64.b64decode(output["inline"]) == raw
        assert blobs_of(folder) == []
    else:
        assert "inline" not in output
        assert [path.read_bytes() for path in blobs_of(folder)] == [raw]
    for one in (store, opened(folder)):
        assert one.lookup(KEY).bytes == {"out 0": nbytes}
        assert one.has(digest)
        assert value_of(one, digest) == value


def test_a_record_says_all_that_it_was_given(store, folder):
    before = time.time()
    digests = keep(
        store,
        "tiny",
        bytes(MIDDLE),
        name="a.b:C",
        compute_ms=12.5,
        effect="impure",
        expensive=True,
        pickled=True,
        parts={"attribute x": b"\x01\x02\x03\x04"},
        origin={"node": "scale", "run": "run-1"},
    )
    (record,) = assert_sound(folder)
    assert record["origin"] == {
        "host": platform.node(),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "soma": soma.__version__,
        "node": "scale",
        "run": "run-1",
    }
    assert before <= record["created_at"] <= time.time()
    assert {
        name: record[name] for name in record if name not in ("check", "outputs", "origin")
    } == {
        "key": KEY,
        "name": "a.b:C",
        "compute_ms": 12.5,
        "effect": "impure",
        "expensive": True,
        "pickled": True,
        "created_at": record["created_at"],
        "parts": {"attribute x": "01020304"},
    }
    mine, theirs = store.lookup(KEY), opened(folder).lookup(KEY)
    assert mine == theirs
    assert (mine.tier, theirs.tier) == ("Memory", "Local")
    assert theirs.origin == record["origin"]
    assert theirs.created_at == record["created_at"]
    assert list(theirs.outputs.values()) == digests
    assert (theirs.effect, theirs.expensive, theirs.pickled) == ("impure", True, True)
    assert theirs.parts == {"attribute x": b"\x01\x02\x03\x04"}


def test_who_made_it_is_kept_as_it_was_said(store, folder):
    """As of a record that comes from somewhere else."""
    origin = {"host": "elsewhere", "python": "3.9", "soma": "0.0", "node": "n", "more": "ключ"}
    keep(store, 1, origin=origin, created_at=12.0)
    (record,) = assert_sound(folder)
    assert (record["origin"], record["created_at"]) == (origin, 12.0)


def test_the_same_value_lies_there_once(store, folder):
    for number in range(5):
        keep(store, bytes(MIDDLE), key=f"{number:064x}")
    assert len(blobs_of(folder)) == 1
    assert len(records_of(folder)) == 5
    assert store.stats()["bytes"] == encode(bytes(MIDDLE)).nbytes
    assert store.stats()["compute_ms"] == 5.0


def test_nothing_can_be_written_by_others_and_files_not_at_all(store, folder):
    keep(store, "tiny", bytes(MIDDLE))
    store.pin("best", KEY)
    umask = os.umask(0)
    os.umask(umask)
    assert mode_of(folder) == 0o700
    files = [*records_of(folder), *blobs_of(folder), folder / "format.json", *folder.glob("pins/*")]
    assert {mode_of(path) for path in files} == {0o444 & ~umask}
    assert list((folder / "tmp").iterdir()) == []


def test_a_folder_that_is_there_keeps_its_mode(folder):
    folder.mkdir()
    folder.chmod(0o755)
    keep(opened(folder), bytes(MIDDLE))
    assert mode_of(folder) == 0o755


@pytest.mark.parametrize("nbytes", [10, MIDDLE, LARGE])
def test_what_is_read_belongs_to_the_reader(store, folder, nbytes):
    (digest,) = keep(store, bytearray(nbytes))
    for one in (store, opened(folder)):
        assert one.lookup(KEY).outputs == {"out 0": digest}
        for _ in range(2):
            header, buffers = one.read(digest)
            assert bytes(decode_parts(header, buffers)) == bytes(nbytes)
            for buffer in buffers:
                buffer[:] = b"\1" * len(buffer)
    assert bytes(value_of(store, digest)) == bytes(nbytes)
    assert store.verify() == []


@pytest.mark.parametrize("key", ["", "AB" * 32, "ab" * 31, "../" * 20, "g" * 64, "ab" * 32 + "\n"])
def test_what_is_no_key_or_digest_is_refused(store, folder, key):
    before = everything(folder)
    record = ActionRecord(key=key, outputs={}, bytes={}, compute_ms=1.0)
    of_digest = ActionRecord(key=KEY, outputs={"x": key}, bytes={"x": 1}, compute_ms=1.0)
    frame = encode(bytes(MIDDLE))
    for work in (
        lambda: store.lookup(key),
        lambda: store.commit(record),
        lambda: store.commit(of_digest),
        lambda: store.read(key),
        lambda: store.write((frame.header, frame.buffers), key),
    ):
        with pytest.raises(InvalidInput, match="64 hexadecimal digits"):
            work()
    assert everything(folder) == before


# ---------------------------------------------------------------- to be read only


def test_a_store_that_is_read_only_finds_and_holds_and_changes_nothing(store, folder):
    (digest,) = keep(store, bytes(MIDDLE))
    before = everything(folder)
    reader = opened(folder, read_only=True)
    assert reader.read_only
    assert value_of(reader, digest) == bytes(MIDDLE)
    (tiny, large) = keep(reader, "tiny", b"1" * MIDDLE, key=OTHER)
    assert reader.lookup(OTHER).outputs == {"out 0": tiny, "out 1": large}
    assert value_of(reader, tiny) == "tiny"
    assert value_of(reader, large) == b"1" * MIDDLE
    with reader.claim(KEY):
        assert reader.holds_claim()
    for change in (lambda: reader.pin("a", KEY), lambda: reader.gc(max_bytes=0)):
        with pytest.raises(OSError, match="read only"):
            change()
    with pytest.raises(KeyError):
        reader.unpin("a")
    assert everything(folder) == before


def test_a_store_to_be_read_need_not_be_there(tmp_path):
    path = tmp_path / "nothing"
    store = open_store(path, read_only=True)
    (digest,) = keep(store, bytes(MIDDLE))
    assert value_of(store, digest) == bytes(MIDDLE)
    assert (store.stats()["records"], list(store.records()), store.verify()) == (0, [], [])
    assert not path.exists()


# ---------------------------------------------------------------- opening


def test_a_folder_is_opened_once(folder):
    first = open_store(folder)
    assert open_store(str(folder)) is first
    assert open_store(folder / "." / "..") is not first
    assert open_store(folder, read_only=True) is not first
    assert isinstance(first, DiskStore)
    assert first.open_options["path"] == str(folder)


@pytest.mark.parametrize("path", ["", 5, b"/tmp/x", "a\0b", ["x"]])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(InvalidInput, match="the path of a cache is that of a folder"):
        open_store(path)


@pytest.mark.parametrize("max_bytes", [0, -1, True, 1.5, "1"])
def test_what_is_no_number_of_bytes_is_refused(folder, max_bytes):
    with pytest.raises(InvalidInput, match="max_bytes is a whole number"):
        open_store(folder, max_bytes=max_bytes)


def test_with_no_room_in_memory_all_is_found_on_disk(folder):
    store = open_store(folder, max_bytes=1)
    values = ["tiny", b"1" * MIDDLE, "another", b"2" * MIDDLE]
    for number, value in enumerate(values):
        keep(store, value, key=f"{number:064x}")
    for number, value in enumerate(values):
        assert value_of(store, store.lookup(f"{number:064x}").outputs["out 0"]) == value
    assert len(assert_sound(folder)) == 4


def test_a_record_of_several_small_outputs_with_no_room_in_memory(folder):
    keep(open_store(folder, max_bytes=1), *(f"output {number}" for number in range(20)))
    (record,) = assert_sound(folder)
    assert len(record["outputs"]) == 20
    store = opened(folder)
    for number in range(20):
        assert value_of(store, store.lookup(KEY).outputs[f"out {number}"]) == f"output {number}"


def test_a_record_is_one_line_of_json(store, folder):
    keep(store, "tiny", name="naïve\n\u2028\ud800")
    (path,) = records_of(folder)
    raw = path.read_bytes()
    assert raw.count(b"\n") == 1
    assert raw.endswith(b"}\n")
    assert raw.isascii()
    assert json.loads(raw)["name"] == "naïve\n\u2028\ud800"
    assert opened(folder).lookup(KEY).name == "naïve\n\u2028\ud800"


def test_memory_stands_in_where_the_folder_is_a_file(folder, capfd):
    folder.write_bytes(b"mine")
    store = open_store(folder)
    assert isinstance(store, MemoryStore)
    assert open_store(folder, max_bytes=5) is not store
    assert len(capfd.readouterr().err.splitlines()) == 1
    assert folder.read_bytes() == b"mine"
