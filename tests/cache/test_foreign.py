from __future__ import annotations

import json
import os
import time

import pytest

from soma import Graph
from soma_cache import open_store
from support.cache_folders import assert_sound, blobs_of, everything, records_of
from support.cache_work import (
    ALL_CALLS,
    LARGE,
    MIDDLE,
    SMALL,
    look_around,
    studies,
    study,
    study_at,
    study_twice,
)

SIZES = (SMALL, MIDDLE, LARGE)
YEAR_S = 365.25 * 86_400
THEN_S = {"1970": 1.0, "2100": 130 * YEAR_S}


# ---------------------------------------------------------------- formats

UNKNOWN = {
    "three": '{"version": 3, "hash": "b3", "features": ["inline"]}',
    "one": '{"version": 1}',
    "a text": '{"version": "2", "hash": "b3", "features": ["inline"]}',
    "true": '{"version": true}',
    "a float": '{"version": 2.0}',
    "null": '{"version": null}',
    "missing": '{"hash": "b3", "features": []}',
    "feature": '{"version": 2, "hash": "b3", "features": ["inline", "zstd"]}',
    "features": '{"version": 2, "hash": "b3", "features": "inline"}',
    "odd features": '{"version": 2, "hash": "b3", "features": [["inline"], {}]}',
    "no features": '{"version": 2, "hash": "b3", "features": null}',
    "hash": '{"version": 2, "hash": "sha256", "features": []}',
    "empty": "",
    "cut": '{"version": 2, "ha',
    "list": "[2]",
    "deep": "[" * 50_000,
    "number": "2",
    "binary": "\x00\x01\x02",
    "long": " " * 100_000 + '{"version": 2}',
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_a_folder_of_an_unknown_format_is_left_as_it_is(forker, folder, what):
    forker.run(studies, SIZES)
    (folder / "format.json").unlink()
    (folder / "format.json").write_text(UNKNOWN[what])
    (folder / "index.sqlite").write_bytes(b"of another release")
    before = everything(folder)
    for choice in ({}, {"SOMA_CACHE_FSYNC": "always"}):
        done = forker.start(study_twice, *SIZES, **choice).wait()
        assert done.value == ([(True, ALL_CALLS)] * 3, [(True, [])] * 3)
        (said,) = done.stderr.splitlines()
        assert str(folder) in said
        assert "memory" in said
        assert everything(folder) == before
    store = open_store(folder)
    assert Graph(cache="disk", cache_path=folder)._cache.store is store
    assert type(store).__name__ == "MemoryStore"
    assert everything(folder) == before


@pytest.mark.parametrize("what", ["folder", "fifo", "loop"])
def test_something_else_where_the_format_stands_is_left_as_it_is(forker, folder, what):
    forker.run(study, MIDDLE)
    path = folder / "format.json"
    path.unlink()
    make = {"folder": path.mkdir, "fifo": lambda: os.mkfifo(path)}
    make.get(what, lambda: path.symlink_to(path))()
    before = everything(folder)
    done = forker.start(study_twice, MIDDLE).wait(20)
    assert done.value == ([(True, ALL_CALLS)], [(True, [])])
    assert len(done.stderr.splitlines()) == 1
    assert everything(folder) == before


def test_the_format_is_said_in_words_that_others_can_read(forker, folder):
    forker.run(study, MIDDLE)
    found = json.loads((folder / "format.json").read_bytes())
    assert found == {"version": 2, "hash": "b3", "features": ["inline"]}


def test_a_folder_that_has_lost_its_format_is_a_cache_still(forker, folder):
    forker.run(study, MIDDLE)
    (folder / "format.json").unlink()
    done = forker.start(study, MIDDLE).wait()
    assert (done.value, done.stderr) == ((True, []), "")
    assert (folder / "format.json").exists()


# ---------------------------------------------------------------- what others put there


def scatter(folder):
    """Put things of others everywhere in a folder; return path -> what is there."""
    shards = [*(folder / "actions").iterdir(), *(folder / "cas" / "b3").iterdir()]
    key = "AB" * 32
    for place in (folder, folder / "actions", folder / "cas", folder / "cas" / "b3", *shards):
        for name in ("README", ".DS_Store", "notes.json", "x.bin", f"{key}.json", f"{key}.bin"):
            (place / name).write_bytes(b"of somebody else")
        for name in (f"{'ab' * 31}.json", f"{'ab' * 32}.json.bak", f"{'0' * 64}", "\udce9.json"):
            (place / name).write_bytes(b"as well")
        (place / "deep" / "er" / "actions" / "ab").mkdir(parents=True)
        (place / "deep" / "er" / "actions" / "ab" / f"{'ab' * 32}.json").write_bytes(b"{}")
        (place / "link").symlink_to(folder)
    (folder / "cas" / "b3" / "zz").mkdir()
    (folder / "cas" / "b3" / "zz" / f"{'zz' * 32}.bin").write_bytes(b"no digits")
    (folder / "cas" / "b3" / "00").mkdir(exist_ok=True)
    (folder / "cas" / "b3" / "00" / f"{'ab' * 32}.bin").write_bytes(b"in a folder of others")
    (folder / "pins" / "deep").mkdir(parents=True)
    for name in ("README", ".DS_Store", "%zz", "best"):
        (folder / "pins" / name).write_bytes(b"no key\n")
    (folder / "pins" / "odd").write_bytes(b"../../../etc/passwd\0\xff")
    (folder / "tmp" / "README").write_bytes(b"not of ours")


def test_what_others_have_put_there_is_neither_touched_nor_counted(forker, folder):
    forker.run(studies, SIZES)
    ours = {*everything(folder)}
    records, blobs = records_of(folder), blobs_of(folder)
    scatter(folder)
    theirs = {name: one for name, one in everything(folder).items() if name not in ours}
    done = forker.start(studies, SIZES).wait()
    assert (done.value, done.stderr) == ((True, []), "")
    store = open_store(folder)
    stats = store.stats()
    assert (stats["records"], stats["blobs"], stats["pins"]) == (len(records), len(blobs), 0)
    assert stats["bytes"] == sum(path.stat().st_size for path in blobs)
    assert stats["record_bytes"] == sum(path.stat().st_size for path in records)
    assert {one.key for one in store.records()} == {path.stem for path in records}
    assert store.verify() == []
    store.pin("a pin", records[0].stem)
    store.unpin("a pin")
    assert store.gc(max_bytes=0) == stats["bytes"]
    assert blobs_of(folder) == []
    done = forker.start(studies, SIZES).wait()
    assert (done.value.right, done.stderr) == (True, "")
    now = everything(folder)
    files = {name for name, one in theirs.items() if one[2] is not None}
    assert {name: now.get(name) for name in files} == {name: theirs[name] for name in files}
    assert theirs.keys() <= now.keys()


def test_what_others_have_put_there_may_be_closed_to_us(forker, folder):
    forker.run(study, MIDDLE)
    closed = [folder / "actions" / "lost+found", folder / "cas" / "b3" / "lost+found"]
    for path in closed:
        path.mkdir(mode=0o000)
    assert forker.run(look_around, str(folder), plain=True) == (3, 3, [], True)


# ---------------------------------------------------------------- clocks


@pytest.mark.parametrize("files", [*THEN_S, "as it is"])
@pytest.mark.parametrize("clock", [*THEN_S, "as it is"])
def test_clocks_that_are_wrong_change_nothing(forker, folder, files, clock):
    forker.run(studies, SIZES)
    nbytes = sum(path.stat().st_size for path in blobs_of(folder))
    if files in THEN_S:
        for path in [folder, *folder.rglob("*")]:
            os.utime(path, (THEN_S[files], THEN_S[files]))
    now_s = THEN_S.get(clock, time.time())
    done = forker.start(study_at, now_s, *SIZES).wait()
    assert (done.value, done.stderr) == (((True, []), nbytes), "")
    assert blobs_of(folder) == []
    done = forker.start(study_at, now_s, *SIZES).wait()  # what was let go of is made again
    found, freed = done.value
    assert found.right
    assert (freed, done.stderr) == (nbytes, "")
    done = forker.start(studies, SIZES).wait()
    assert (done.value.right, done.stderr) == (True, "")
    assert len(assert_sound(folder)) == 9


def test_gc_with_a_least_age_spares_what_is_new_and_takes_what_is_old(forker, folder):
    forker.run(studies, SIZES)
    old, *new = blobs_of(folder)
    a_week_ago_s = time.time() - 7 * 86_400
    os.utime(old, (a_week_ago_s, a_week_ago_s))
    nbytes = old.stat().st_size
    store = open_store(folder)
    assert store.gc(max_bytes=0, min_age_s=86_400, dry_run=True) == nbytes
    assert store.gc(max_bytes=0, min_age_s=86_400) == nbytes
    assert blobs_of(folder) == new


def test_gc_takes_what_was_emptied_as_well(forker, folder):
    forker.run(studies, SIZES)
    for path in blobs_of(folder)[:2]:
        path.chmod(0o644)
        path.write_bytes(b"")
    store = open_store(folder)
    store.gc(max_bytes=0)
    done = forker.start(studies, SIZES).wait()
    assert done.value.right
    assert len(assert_sound(folder)) == 9
