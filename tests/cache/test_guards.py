"""What a folder is guarded against: other versions, other writers, wrong bytes, wrong numbers."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time

import pytest
from blake3 import blake3

from soma import Graph, InvalidInput
from soma.contracts import ActionRecord
from soma.frame import encode
from soma_cache import DiskStore, files, locks, open_store
from soma_cache import folder as folder_module
from soma_cache import front as front_module
from soma_cache import store as store_module
from soma_cache.folder import Folder
from soma_cache.front import Front
from support.cache_folders import assert_sound, blobs_of, damage, everything, records_of
from support.cache_processes import Slow
from support.cache_records import checked, place_inline, rewritten
from support.cache_remotes import (
    X,
    put_version_3,
    study_where_another_version_was_put,
    write_what_is_too_long,
)
from support.cache_stores import KEY, LARGE, MIDDLE, OTHER, keep, opened, value_of
from support.cache_work import SMALL, studies
from support.notes import CALLS, noted
from support.threads import run_in_threads

WEEK_S = 7 * 86_400
VERSION_3 = (
    "has format version 3, and this release of soma-cache reads version 2: install the release "
    "that wrote it, or give Soma another folder (SOMA_CACHE_DIR). Nothing there was touched"
)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def store(folder):
    return opened(folder)


def frame_of(value):
    made = encode(value)
    return made.header, made.buffers


def path_of(folder, digest):
    return folder / "cas" / "b3" / digest[:2] / f"{digest}.bin"


def key_of(number):
    return f"{number:064x}"


# ---------------------------------------------------------------- another folder in its place


def changes(store, digest):
    """Everything by which a store changes its folder."""
    return {
        "small": lambda: keep(store, "another", key=OTHER),
        "large": lambda: keep(store, b"2" * MIDDLE, key=OTHER),
        "with a hash": lambda: store.write(frame_of(bytes(MIDDLE)), digest),
        "without": lambda: store.write(frame_of(bytes(MIDDLE))),
        "pin": lambda: store.pin("other", KEY),
        "unpin": lambda: store.unpin("best"),
        "gc": lambda: store.gc(max_bytes=0),
    }


@pytest.mark.parametrize("with_parts", [False, True])
def test_a_folder_of_another_version_put_in_the_place_is_not_changed(
    store, folder, monkeypatch, with_parts
):
    monkeypatch.setattr(locks, "_LOOK_EVERY_S", 0.0)
    (digest,) = keep(store, bytes(MIDDLE))
    store.pin("best", KEY)
    shutil.rmtree(folder)
    put_version_3(folder, with_parts=with_parts)
    if with_parts:
        (folder / "pins" / "best").write_text(f"{KEY}\n")
        path_of(folder, digest).write_bytes(b"packed, as that version may do")
        os.utime(path_of(folder, digest), (1000.0, 1000.0))
    before = everything(folder)
    for name, change in changes(store, digest).items():
        if name != "unpin" or with_parts:
            with pytest.raises(OSError, match="format version 3") as found:
                change()
            assert VERSION_3 in str(found.value)
            assert everything(folder) == before, name
    assert value_of(store, digest) is None
    with store.claim(KEY):
        pass
    assert store.lookup(OTHER) is None
    assert everything(folder) == before


@pytest.mark.parametrize("with_parts", [False, True])
def test_runs_go_on_where_another_version_was_put_and_say_so_whole(forker, folder, with_parts):
    done = forker.start(
        study_where_another_version_was_put, with_parts, SOMA_CACHE_DIR=str(folder)
    ).wait()
    found, before, after = done.value
    assert [one.right for one in found] == [True] * 4
    assert all("fit" in one.calls for one in found)
    assert after == before
    (said,) = done.stderr.splitlines()
    assert VERSION_3 in said


@pytest.fixture
def made(monkeypatch, folder):
    """Note the name of each file that appears in the folder, in order."""
    found = []
    rename, open_ = os.rename, os.open

    def note(path):
        path = os.fspath(path)
        if path.startswith(f"{folder}/"):
            found.append(path.removeprefix(f"{folder}/"))

    def renaming(source, target, **more):
        rename(source, target, **more)
        note(target)

    def opening(path, flags, *more, **choice):
        if flags & os.O_CREAT and not os.path.exists(path):  # noqa: PTH110  # any path
            note(path)
        return open_(path, flags, *more, **choice)

    monkeypatch.setattr(os, "rename", renaming)
    monkeypatch.setattr(os, "open", opening)
    return found


@pytest.mark.parametrize("what", ["large", "commit", "raw", "pin", "claim"])
def test_in_an_emptied_folder_the_format_is_written_first(store, folder, monkeypatch, made, what):
    monkeypatch.setattr(locks, "_LOOK_EVERY_S", 0.0)
    keep(store, "tiny")
    (record,) = records_of(folder)
    raw = record.read_bytes()
    with store.claim(KEY):
        pass
    shutil.rmtree(folder)
    folder.mkdir()
    del made[:]
    if what == "claim":
        with store.claim(OTHER):
            pass
    else:
        work = {
            "large": lambda: store.write(frame_of(bytes(MIDDLE))),
            "commit": lambda: keep(store, "tiny", key=OTHER),
            "raw": lambda: Folder(str(folder)).put_raw_record(KEY, raw),
            "pin": lambda: store.pin("best", KEY),
        }
        work[what]()
    kept = [name for name in made if not name.startswith(("tmp/", "index/"))]
    assert len(kept) == 2
    assert kept[0] == "format.json"
    assert folder.joinpath("format.json").read_text().startswith('{"version": 2,')


# ---------------------------------------------------------------- what is there already


@pytest.fixture
def hashed(monkeypatch):
    """Note how many bytes the folder takes the hash of, when it reads."""
    found = []
    hash_parts = folder_module.hash_parts

    def counting(header, buffers):
        found.append(len(header) + sum(len(one) for one in buffers))
        return hash_parts(header, buffers)

    monkeypatch.setattr(folder_module, "hash_parts", counting)
    return found


@pytest.mark.parametrize("nbytes", [MIDDLE, LARGE])
@pytest.mark.parametrize("said", [False, True])
def test_what_is_there_is_not_written_again(store, folder, hashed, nbytes, said):
    (digest,) = keep(store, bytes(nbytes))
    path = path_of(folder, digest)
    before = path.stat()
    other = opened(folder)
    assert value_of(store, digest) == bytes(nbytes)
    for one in (store, other, opened(folder)):
        assert one.write(frame_of(bytes(nbytes)), digest if said else None) == digest
        assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert list((folder / "tmp").iterdir()) == []
    del hashed[:]
    for one in (store, other):
        for _ in range(2):
            assert value_of(one, digest) == bytes(nbytes)
    assert hashed == []


def test_what_is_there_and_damaged_is_written_again(store, folder):
    (digest,) = keep(store, bytes(MIDDLE))
    for said in (None, digest):
        for kind in ("middle bit", "halved", "folder", "symlink to other bytes"):
            damage(blobs_of(folder), kind)
            assert opened(folder).write(frame_of(bytes(MIDDLE)), said) == digest
            assert value_of(opened(folder), digest) == bytes(MIDDLE)
            assert len(assert_sound(folder)) == 1


def test_the_first_reading_notes_that_a_blob_was_used_and_never_when_it_was_made(
    store, folder, monkeypatch
):
    (digest,) = keep(store, bytes(MIDDLE))
    path = path_of(folder, digest)
    then_ns = time.time_ns() - WEEK_S * 1_000_000_000
    os.utime(path, ns=(then_ns, then_ns))
    found, touch = [], folder_module.touch
    monkeypatch.setattr(folder_module, "touch", lambda *one: found.append(one) or touch(*one))
    reader = opened(folder)
    before_ns = time.time_ns()
    for _ in range(3):
        assert value_of(reader, digest) == bytes(MIDDLE)
    assert found == [(str(path), then_ns)]
    assert path.stat().st_atime_ns >= before_ns - 1_000_000_000  # of a coarser clock
    assert path.stat().st_mtime_ns == then_ns
    reader.write(frame_of(bytes(MIDDLE)))
    reader.write(frame_of(bytes(MIDDLE)), digest)
    assert len(found) == 3
    assert path.stat().st_mtime_ns == then_ns
    assert reader.gc(max_bytes=0, min_age_s=86_400) == 0  # it was just used
    del found[:]
    opened(folder, read_only=True).read(digest)
    assert found == []


@pytest.mark.parametrize("when", ["before it is taken away", "after", "before it is looked at"])
def test_a_blob_that_was_put_right_meanwhile_is_not_taken_away(store, folder, monkeypatch, when):
    (digest,) = keep(store, bytes(MIDDLE))
    path = path_of(folder, digest)
    right = path.read_bytes()
    damage([path], "middle bit")
    rename, lstat = os.rename, os.lstat

    def heal():
        healed = path.with_name("healed")
        healed.write_bytes(right)
        rename(healed, path)

    def renaming(source, target):
        if source == str(path) and when.startswith("before it is taken"):
            heal()
        rename(source, target)
        if source == str(path) and when == "after":
            heal()

    def looking(one, **more):
        if "/tmp/" in os.fspath(one) and when == "before it is looked at":  # noqa: S108  # ours
            heal()
        return lstat(one, **more)

    reader = opened(folder)
    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", renaming)
        patched.setattr(os, "lstat", looking)
        assert reader.read(digest) is None
    assert path.read_bytes() == right
    assert reader.has(digest)
    assert value_of(reader, digest) == bytes(MIDDLE)
    assert list((folder / "tmp").iterdir()) == []


@pytest.mark.parametrize("nbytes", [10, MIDDLE, LARGE, 5 << 20])
def test_a_hash_that_was_only_said_is_not_believed(store, folder, nbytes):
    wrong = blake3(b"something else").hexdigest()
    frame = encode(bytes(nbytes))
    record = ActionRecord(
        key=KEY, outputs={"output": wrong}, bytes={"output": frame.nbytes}, compute_ms=1.0
    )
    for one in (store, opened(folder), opened(folder, read_only=True), store):
        store.write((frame.header, frame.buffers), wrong)
        store.commit(record)
        assert one.lookup(KEY).outputs == {"output": wrong}
        assert one.read(wrong) is None
        assert one.share(wrong) is None
        assert not one.has(wrong)
    assert blobs_of(folder) == []


def test_a_write_that_fails_leaves_no_thread_behind(forker, folder):
    done = forker.start(write_what_is_too_long, most_bytes=1 << 20, SOMA_CACHE_DIR=str(folder))
    assert done.value() == (errno.EFBIG, [], [])


# ---------------------------------------------------------------- what errors say


@pytest.mark.parametrize("part", ["actions", "cas", "tmp"])
def test_errors_name_the_part_of_the_folder_and_no_file_of_it(store, folder, part):
    name = folder / part
    if name.exists():
        name.rmdir()
    name.write_bytes(b"mine")
    said = set()
    for number in range(5):
        with pytest.raises(OSError, match=f"{folder}/{part}'") as found:
            keep(store, b"%d" % number * MIDDLE, key=key_of(number))
        said.add(str(found.value))
        assert found.value.errno in (errno.ENOTDIR, errno.EEXIST)
    assert len(said) == 1


@pytest.mark.parametrize("part", ["actions", "cas"])
def test_what_cannot_be_kept_is_told_of_once_for_all_nodes(forker, folder, part):
    opened(folder)
    (folder / part).write_bytes(b"mine")
    sizes = (SMALL, MIDDLE, MIDDLE + 1, 200_000)
    done = forker.start(studies, sizes, SOMA_CACHE_DIR=str(folder)).wait()
    assert done.value.right
    (said,) = done.stderr.splitlines()
    assert f"'{folder}/{part}'" in said


# ---------------------------------------------------------------- records that are whole and wrong

NUMBERS = (None, "1", "", [], {}, -1, -0.5, float("nan"), float("inf"), 10**400, -(10**400))
WRONG = {
    "key": (None, 1, "", OTHER, KEY.upper(), [KEY]),
    "name": (None, 1, ["a"], {}, True),
    "outputs": (None, 1, "x", [], {}, {"x": None}, {"x": []}, {"x": KEY}, {"x": {}}),
    "compute_ms": NUMBERS,
    "created_at": NUMBERS,
    "effect": (None, 1, "", "PURE", ["pure"], {}),
    "expensive": (None, 0, 1, "true", []),
    "pickled": (None, 0, 1, "false", []),
    "origin": (None, 1, "x", [], [["node", "n"]], {"node": 1}, {"node": None}, {"run": ["x"]}),
    "parts": (None, 1, "x", [], {"a": None}, {"a": 1}, {"a": "0"}, {"a": "zz"}, {"a": []}),
    "digest": (None, 1, "", KEY.upper(), KEY[:-1], f"{KEY}\n", [KEY], "../" * 20),
    "bytes": (None, "1", 1.0, True, -1, [], 10**400),
    "inline": (1, True, [], {}, "", "A", "A" * 100_000, "é"),
}


@pytest.mark.parametrize("field", WRONG)
def test_a_record_with_a_wrong_field_is_a_miss_and_the_rest_goes_on(store, folder, field):
    keep(store, bytes(MIDDLE), key=OTHER, compute_ms=7.0)
    keep(store, "tiny", compute_ms=5.0)
    path = folder / "actions" / KEY[:2] / f"{KEY}.json"
    raw = path.read_bytes()

    def put(change):
        path.unlink()
        path.write_bytes(rewritten(raw, change))

    def assert_missed(shown):
        fresh = opened(folder)
        assert fresh.lookup(KEY) is None, shown
        assert [one.key for one in fresh.records()] == [OTHER], shown
        stats = fresh.stats()
        assert (stats["records"], stats["compute_ms"]) == (1, 7.0), shown
        assert fresh.gc(max_bytes=0, dry_run=True) > 0, shown

    def place(fields):
        if field in ("digest", "bytes", "inline"):
            (output,) = fields["outputs"].values()
            return output
        return fields

    put(lambda fields: None)
    assert opened(folder).lookup(KEY).compute_ms == 5.0  # with nothing changed it is found
    for wrong in WRONG[field]:

        def change(fields, wrong=wrong):
            place(fields)[field] = wrong

        put(change)
        assert_missed(f"{field} = {wrong!r:.60}")
    if field != "inline":
        put(lambda fields: place(fields).pop(field))
        assert_missed(f"without {field}")


@pytest.mark.parametrize("fields", [{}, {"key": KEY}, {"key": KEY, "outputs": {}}])
def test_a_record_without_most_of_it_is_a_miss(store, folder, fields):
    keep(store, "tiny")
    (path,) = records_of(folder)
    path.unlink()
    path.write_bytes(checked({"check": "", **fields}) if fields else checked({"a": 1}))
    assert opened(folder).lookup(KEY) is None
    assert opened(folder).stats()["records"] == 0


def test_an_output_in_a_record_that_has_another_hash_is_not_served(store, folder):
    (digest,) = keep(store, "tiny")
    (path,) = records_of(folder)
    raw = path.read_bytes()
    path.unlink()
    other = encode("long").to_bytes()
    path.write_bytes(rewritten(raw, lambda fields: place_inline(fields, other, digest)))
    fresh = opened(folder)
    assert fresh.lookup(KEY).outputs == {"out 0": digest}
    assert fresh.read(digest) is None
    assert not fresh.has(digest)


# ---------------------------------------------------------------- what a process has in memory


def of_ms(compute_ms):
    return ActionRecord(
        key=KEY, outputs={"output": OTHER}, bytes={"output": 1}, compute_ms=compute_ms
    )


def test_a_record_committed_while_the_older_is_asked_for_stays(monkeypatch):
    front = Front(1000)
    front.add(of_ms(1.0), {})
    replace = front_module.replace

    def replacing(found, **more):
        front.add(of_ms(2.0), {})
        return replace(found, **more)

    with monkeypatch.context() as patched:
        patched.setattr(front_module, "replace", replacing)
        front.record(KEY)
    assert front.record(KEY).compute_ms == 2.0


def test_a_record_committed_while_the_older_is_read_stays(store, folder, monkeypatch):
    keep(store, "older", compute_ms=1.0)
    fresh = opened(folder)
    read = fresh._folder.record

    def reading(key, **more):
        found = read(key, **more)
        keep(fresh, "newer", compute_ms=2.0)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(fresh._folder, "record", reading)
        fresh.lookup(KEY)
    assert fresh.lookup(KEY).compute_ms == 2.0
    assert value_of(fresh, fresh.lookup(KEY).outputs["out 0"]) == "newer"
    assert opened(folder).lookup(KEY).compute_ms == 2.0


def test_what_is_held_of_records_is_bounded(store, folder, monkeypatch):
    monkeypatch.setattr(front_module, "_MAX_RECORDS", 10)
    monkeypatch.setattr(front_module, "_MAX_LIES_IN", 15)
    monkeypatch.setattr(store_module, "_MOST_WRITTEN", 5)
    monkeypatch.setattr(folder_module, "_MOST_NOTED", 7)
    for number in range(40):
        keep(store, f"one of {number}", f"other of {number}", key=key_of(number))
        keep(store, b"%d" % number * MIDDLE, key=key_of(1000 + number))
        store.write(frame_of(f"of no record {number}"))
    fresh = opened(folder)
    for one in (store, fresh):
        for number in range(40):
            outputs = one.lookup(key_of(number)).outputs
            assert value_of(one, outputs["out 0"]) == f"one of {number}"
            assert value_of(one, outputs["out 1"]) == f"other of {number}"
            (digest,) = one.lookup(key_of(1000 + number)).outputs.values()
            assert value_of(one, digest) == b"%d" % number * MIDDLE
        assert len(one._front._records) <= 10
        assert len(one._front._lies_in) <= 15
        assert len(one._folder._whole) <= 7
        assert len(one._written) <= 5


def test_the_bytes_that_are_held_are_bounded(folder):
    store = open_store(folder, max_bytes=5000)
    for number in range(40):
        keep(store, f"{number:04}" * 300, key=key_of(number))
    for one in (store, open_store(folder, max_bytes=5001)):
        for number in range(40):
            (digest,) = one.lookup(key_of(number)).outputs.values()
            assert value_of(one, digest) == f"{number:04}" * 300
            held = one._front._blobs.values()
            assert sum(map(len, held)) == one._front._bytes
            assert one._front._bytes <= 5001


def test_a_small_output_is_in_its_record_whatever_was_read_meanwhile(folder):
    writer = opened(folder)
    for number in range(40):
        keep(writer, f"{number:04}" * 300, key=key_of(number))
    store = open_store(folder, max_bytes=1)
    frame = encode("tiny")
    digest = store.write((frame.header, frame.buffers))
    for number in range(40):
        (one,) = store.lookup(key_of(number)).outputs.values()
        assert value_of(store, one) == f"{number:04}" * 300
    assert value_of(store, digest) == "tiny"
    store.commit(
        ActionRecord(
            key=KEY, outputs={"output": digest}, bytes={"output": frame.nbytes}, compute_ms=1.0
        )
    )
    assert store._written == {}
    fresh = opened(folder)
    assert fresh.lookup(KEY).outputs == {"output": digest}
    assert value_of(fresh, digest) == "tiny"
    assert len(assert_sound(folder)) == 41


# ---------------------------------------------------------------- keeping house


def test_foreign_files_among_the_pins_are_nobodys(store, folder):
    keep(store, bytes(MIDDLE))
    store.pin("best", KEY)
    for name in ("%FF", "%ff", "%C3", "%ED%B0", "%", "%2", "b%65st", "be.st", "%e2%82", "\udcff"):
        (folder / "pins" / name).write_text(f"{KEY}\n")
    (folder / "pins" / "pipe").mkdir()
    os.mkfifo(folder / "pins" / "fifo")
    before = sorted(path.name for path in (folder / "pins").iterdir())
    fresh = opened(folder)
    assert fresh.stats()["pins"] == 1
    assert fresh.gc(max_bytes=0) == 0
    with pytest.raises(KeyError):
        fresh.unpin("\udcff")
    fresh.unpin("best")
    assert fresh.gc(max_bytes=0) > 0
    assert sorted(path.name for path in (folder / "pins").iterdir()) == [
        name for name in before if name != "best"
    ]


@pytest.mark.parametrize("max_bytes", ["1G", None, -1, 1.5, True, False, [], float("nan")])
def test_gc_takes_nothing_where_the_limit_is_none(store, folder, max_bytes):
    keep(store, bytes(MIDDLE))
    before = everything(folder)
    for dry_run in (False, True):
        with pytest.raises(InvalidInput, match="max_bytes is a whole number"):
            store.gc(max_bytes=max_bytes, dry_run=dry_run)
    assert everything(folder) == before


@pytest.mark.parametrize("min_age_s", ["1d", None, -1, float("nan"), []])
def test_gc_takes_nothing_where_the_age_is_none(store, folder, min_age_s):
    keep(store, bytes(MIDDLE))
    before = everything(folder)
    with pytest.raises(InvalidInput, match="min_age_s is a number of seconds"):
        store.gc(max_bytes=0, min_age_s=min_age_s)
    assert everything(folder) == before


@pytest.mark.parametrize("key", [None, 5, b"ab" * 32, "", "best", KEY.upper(), [KEY], {KEY: 1}])
def test_what_is_no_key_cannot_be_pinned(store, folder, key):
    keep(store, bytes(MIDDLE))
    before = everything(folder)
    with pytest.raises(InvalidInput, match="64 hexadecimal digits"):
        store.pin("best", key)
    assert everything(folder) == before


# ---------------------------------------------------------------- claims


def test_stores_of_one_folder_with_other_options_compute_the_same_once(folder):
    stores = [
        open_store(folder),
        open_store(folder, max_bytes=10_000),
        DiskStore(Folder(str(folder), always_sync=True)),
        open_store(f"{folder}/"),
    ]
    assert len({id(one) for one in stores}) == 3
    del CALLS[:]
    begin = threading.Barrier(8)
    found = []

    def work(number):
        g = Graph.somatize(Slow(), cache=stores[number % 4])
        begin.wait(60)
        found.append(g.forward(X).tolist())

    run_in_threads(work, 8)
    assert found == [(X * 2).tolist()] * 8
    assert noted("slow") == 1
    assert len(assert_sound(folder)) == 1


def test_a_tmp_that_leads_nowhere_is_an_error_and_no_endless_loop(folder):
    folder.mkdir()
    (folder / "tmp").symlink_to("nothing")
    with pytest.raises(OSError, match="tmp"):
        files.make_tmp(str(folder))
    with pytest.raises(OSError, match="tmp"):
        Folder(str(folder)).prepare()
