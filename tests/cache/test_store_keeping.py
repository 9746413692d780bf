from __future__ import annotations

import os
import time

import pytest

from soma import InvalidInput, UnknownName
from soma_cache import open_store
from support.cache_folders import blobs_of, records_of
from support.cache_stores import KEY, LARGE, MIDDLE, OTHER, keep, opened, value_of


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def store(folder):
    return opened(folder)


# ---------------------------------------------------------------- keeping house


@pytest.mark.parametrize(
    "name",
    ["a", "a/b", "..", ".", "a%2Fb", "节点 ключ", "\udce9", "~", " ", "\n", "x" * 255, "." * 80],
)
def test_a_pin_may_have_any_name(store, folder, name):
    keep(store, bytes(MIDDLE))
    store.pin(name, KEY)
    assert len(list((folder / "pins").iterdir())) == 1
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == [
        *("actions", "cas", "index", "pins", "tmp"),
    ]
    assert opened(folder).gc(max_bytes=0) == 0
    assert store.stats()["pins"] == 1
    store.pin(name, KEY)
    opened(folder).unpin(name)
    with pytest.raises(KeyError):
        store.unpin(name)
    assert store.gc(max_bytes=0) > 0


@pytest.mark.parametrize("name", ["", "x" * 300, "é" * 100, None, 5, b"a", ["a"]])
def test_a_name_that_no_pin_can_have_is_refused(store, folder, name):
    keep(store, 1)
    with pytest.raises(InvalidInput, match="name of a pin"):
        store.pin(name, KEY)
    if not isinstance(name, list):
        with pytest.raises(KeyError):
            store.unpin(name)
    assert not (folder / "pins").exists()


def test_only_what_is_recorded_can_be_pinned(store):
    with pytest.raises(UnknownName, match=r"pin\('a'\): there is no record"):
        store.pin("a", KEY)


def test_a_pin_that_is_moved_lets_go_of_what_it_held(store):
    keep(store, b"1" * MIDDLE)
    keep(store, b"2" * MIDDLE, key=OTHER)
    store.pin("best", KEY)
    store.pin("best", OTHER)
    store.gc(max_bytes=0)
    assert value_of(opened(store.path), store.lookup(KEY).outputs["out 0"]) is None
    assert value_of(opened(store.path), store.lookup(OTHER).outputs["out 0"]) == b"2" * MIDDLE


def test_gc_takes_what_is_cheap_large_and_long_unused_first(store, folder):
    for number, (nbytes, compute_ms, days) in enumerate(
        [(MIDDLE, 1.0, 0), (MIDDLE, 100.0, 0), (MIDDLE, 100.0, 400), (5 * MIDDLE, 100.0, 0)]
    ):
        (digest,) = keep(
            store, bytes([number]) * nbytes, key=f"{number:064x}", compute_ms=compute_ms
        )
        then_s = time.time() - days * 86_400
        os.utime(folder / "cas/b3" / digest[:2] / f"{digest}.bin", (then_s, then_s))
    gone = []
    while len(gone) < 4:
        bytes_now = store.stats()["bytes"]
        store.gc(max_bytes=int(bytes_now) - 1)
        there = {path.stem for path in blobs_of(folder)}
        gone += [
            number
            for number in range(4)
            if number not in gone and store.lookup(f"{number:064x}").outputs["out 0"] not in there
        ]
    # Worth in ms per 100 KB and day: 1, 100, 100 / 401, 20.
    assert gone == [2, 0, 3, 1]


def test_expensive_results_go_last(store, folder):
    keep(store, b"1" * MIDDLE, compute_ms=0.0, expensive=True)
    keep(store, b"2" * MIDDLE, key=OTHER, compute_ms=1e9)
    store.gc(max_bytes=MIDDLE + 1000)
    assert [path.stem for path in blobs_of(folder)] == [store.lookup(KEY).outputs["out 0"]]


# ---------------------------------------------------------------- power cuts


@pytest.fixture
def synced(monkeypatch, folder):
    """Note (inode, whether the record can be seen) of each fsync."""
    found = []

    def fsync(fd):
        record = folder / f"actions/{KEY[:2]}/{KEY}.json"
        found.append((os.fstat(fd).st_ino, record.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    return found


@pytest.mark.parametrize(
    ("settings", "more", "is_synced"),
    [
        ({}, {"compute_ms": 49.0}, False),
        ({}, {"compute_ms": 50.0}, False),
        ({}, {"compute_ms": 51.0}, True),
        ({}, {"compute_ms": 0.0, "effect": "impure"}, True),
        ({"always_sync": True}, {"compute_ms": 0.0}, True),
    ],
)
def test_what_took_long_or_cannot_be_had_again_survives_a_power_cut(
    folder, synced, settings, more, is_synced
):
    store = opened(folder, **settings)
    del synced[:]
    (digest, _) = keep(store, bytes(MIDDLE), "tiny", **more)
    if not is_synced:
        assert synced == []
        return
    record = folder / f"actions/{KEY[:2]}/{KEY}.json"
    blob = folder / f"cas/b3/{digest[:2]}/{digest}.bin"
    seen = dict(reversed(synced))
    for path in (blob, *list(blob.parents)[:4]):  # up to the folder of the cache
        assert seen[path.stat().st_ino] is False, path  # before anybody sees the record
    assert seen[record.stat().st_ino] is False
    for path in list(record.parents)[:2]:
        assert (path.stat().st_ino, True) in synced, path


def test_every_file_of_a_store_that_always_syncs_is_synced(monkeypatch, folder, synced):
    monkeypatch.setenv("SOMA_CACHE_FSYNC", "always")
    store = open_store(folder)
    del synced[:]
    keep(store, bytes(MIDDLE), bytes(LARGE))
    inodes = {inode for inode, _ in synced}
    assert {path.stat().st_ino for path in [*blobs_of(folder), *records_of(folder)]} <= inodes
