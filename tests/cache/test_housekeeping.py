"""Keeping house beside others who write, read and keep house: no error, and no wrong value."""

from __future__ import annotations

import pytest

from soma_cache.collecting import collect
from soma_cache.folder import Folder
from soma_cache.verifying import verify
from support.cache_folders import apart_from_the_index, blobs_of
from support.cache_keeping import (
    LARGE,
    collect_in_a_loop,
    hold_maps,
    keep_house_without_rights,
    survey_in_a_loop,
    verify_in_a_loop,
    write_values,
)
from support.cache_stores import KEY, MIDDLE, keep, opened
from support.cache_walk import surveyed, walked
from support.distributions import run_python

TURNS = 200
"""At most so many; they end when the writers do."""


def writers(forker, folder, count=3, values=6):
    return [forker.start(write_values, str(folder), 100 * one, values) for one in range(count)]


def through(child):
    """Return the file that a child leaves when it is done."""
    return str(child.place / "result")


def test_gc_beside_three_writers_and_a_reader_that_holds_maps(forker, folder):
    opened(folder)
    writing = writers(forker, folder)
    done = [through(child) for child in writing]
    reading = forker.start(hold_maps, str(folder), done, TURNS)
    first, second = (
        forker.start(collect_in_a_loop, str(folder), done, TURNS, 3 * LARGE) for _ in range(2)
    )
    for child in (*writing, reading):
        found = child.wait()
        assert (found.status, found.value, found.stderr) == (0, 0, "")
    freed = 0
    for child in (first, second):
        found = child.wait()
        assert (found.status, found.stderr) == (0, "")
        assert found.value[1] == []
        freed += found.value[0]
    assert freed > 0
    assert verify(Folder(str(folder)), everything=True).blobs == ()
    assert surveyed(folder) == walked(folder)
    assert sum(path.stat().st_size for path in blobs_of(folder)) <= 3 * LARGE


def test_verify_and_figures_beside_writers_and_a_gc(forker, folder):
    opened(folder)
    writing = writers(forker, folder, count=2, values=4)
    done = [through(child) for child in writing]
    verifying = forker.start(verify_in_a_loop, str(folder), done, TURNS)
    asking = forker.start(survey_in_a_loop, str(folder), done, TURNS)
    collecting = forker.start(collect_in_a_loop, str(folder), done, TURNS, 4 * LARGE)
    for child in writing:
        assert child.value() == 0
    found = verifying.wait()
    assert (found.status, found.value, found.stderr) == (0, [], "")
    for child in (asking, collecting):
        found = child.wait()
        assert (found.status, found.stderr) == (0, "")
    assert surveyed(folder) == walked(folder)


def test_many_who_begin_at_once_make_one_index(forker, folder):
    store = opened(folder)
    for number in range(40):
        keep(store, bytes([number]) * 3_000, number, key=f"{number % 5:02x}{number:062x}")
    children = [forker.start(survey_in_a_loop, str(folder), [], 3) for _ in range(5)]
    for child in children:
        found = child.wait()
        assert (found.status, found.value, found.stderr) == (0, (40, 40), "")
    assert surveyed(folder) == walked(folder)


@pytest.mark.parametrize("has_index", [True, False])
def test_who_may_only_read_has_figures_and_changes_nothing(forker, folder, has_index):
    keep(opened(folder), bytes(MIDDLE), b"2" * MIDDLE, key=KEY)
    if has_index:
        collect(Folder(str(folder)), max_bytes=1 << 40)
    parts = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in parts:
        path.chmod(0o555)
    for path in folder.glob("index/*"):
        path.chmod(0o444)
    before = apart_from_the_index(folder)
    try:
        found = forker.run(keep_house_without_rights, str(folder), plain=True)
        assert apart_from_the_index(folder) == before
    finally:
        for path in parts:
            path.chmod(0o755)
    blobs, checked, said, would_go = found
    assert (blobs, checked, would_go) == (2, 2, 2)
    assert "Permission denied" in said


def test_who_only_finds_and_keeps_imports_nothing_of_all_this():
    code = "import sys, soma_cache.store; print(*sorted(sys.modules))"
    found = {*run_python(code).stdout.split()}
    assert "soma_cache.folder" in found
    rooms = ("collecting", "index", "pins", "removing", "survey", "tables", "verifying")
    unneeded = {f"soma_cache.{one}" for one in rooms}
    assert not found & {*unneeded, "concurrent.futures", "ctypes", "logging", "sqlite3"}


def test_where_nothing_can_be_written_what_was_made_is_recent_first(folder):
    keep(opened(folder), 1, key="01" * 32, name="m.A", created_at=1e12)
    keep(opened(folder), 2, key="02" * 32, name="m.A", created_at=2e12)
    store = opened(folder, read_only=True)
    for number in (3, 4):
        keep(store, number, key=f"{number:02}" * 32, name="m.A", created_at=float(number))
    keep(store, 1, key="01" * 32, name="m.A", created_at=5.0)
    keep(store, 5, key="05" * 32, name="m.B")
    made = ["01" * 32, "04" * 32, "03" * 32]
    assert [one.key for one in store.recent("m.A", 10)] == [*made, "02" * 32]
    assert [one.key for one in store.recent("m.A", 4)] == [*made, "02" * 32]
    assert [one.key for one in store.recent("m.A", 2)] == made[:2]
    assert [*store.recent("m.A", -1), *store.recent("m.C", 5)] == []
