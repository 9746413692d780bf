"""The index says what a walk through the folder finds, whatever has happened to both."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soma import SomaError
from soma_cache import changes, index, merging
from soma_cache.collecting import collect
from soma_cache.folder import Folder
from soma_cache.index import consult
from soma_cache.removing import remove
from soma_cache.verifying import verify
from support.cache_folders import blobs_of, damage, records_of
from support.cache_stores import KEY, MIDDLE, OTHER, keep, opened
from support.cache_walk import rows_of, surveyed, walked

KEYS = [f"{number % 3:02x}{number:062x}" for number in range(12)]
SIZES = [10, 1500, 5_000, 5_001, 7_000]


def base_of(folder):
    return folder / "index" / "base.sqlite"


def logs_of(folder):
    return sorted(path.name for path in (folder / "index").glob("*.*") if "base" not in path.name)


def filled(folder, keys=KEYS[:6]):
    store = opened(folder)
    for number, key in enumerate(keys):
        values = [bytes([number]) * SIZES[number % 5], bytes(SIZES[-1 - number % 5])]
        keep(store, *values, key=key, compute_ms=2.0**number, name=f"study.Step{number % 2}")
    return store


@pytest.fixture
def there(folder):
    filled(folder)
    assert surveyed(folder) == walked(folder)
    return folder


# ---------------------------------------------------------------- it says what the files say


def settle(folder):
    """Look at a folder as if it had been let be since long ago."""
    ticked(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "_SETTLED_NS", -(10**18))
        surveyed(folder)


def ticked(folder):
    """Return when the clock of the file system, which moves in steps, has moved on."""
    if not folder.exists():
        return
    file = folder / "ticks"
    file.touch()
    first = file.stat().st_ctime_ns
    until = time.monotonic() + 5
    while file.stat().st_ctime_ns == first and time.monotonic() < until:
        file.touch()
    file.unlink()


class Folders:
    """A cache to which this and that happens, and another one to copy from."""

    def __init__(self, path):
        self.folder, self.other = path / "cache", path / "other"
        filled(self.other, KEYS)
        self.store = opened(self.folder)
        self.count = 0
        self.trash = path / "trash"
        self.trash.mkdir()

    def _let_go(self, path):
        """Take something away; no other file is to have its inode, which only we can notice."""
        path.rename(self.trash / str(len(list(self.trash.iterdir()))))

    def commit(self, number):
        self.count += 1
        values = [bytes([number]) * SIZES[number % 5], bytes(SIZES[number % 4])]
        keep(self.store, *values, key=KEYS[number], compute_ms=float(self.count))

    def gc(self, number):
        collect(Folder(str(self.folder)), max_bytes=number * 2_000, min_age_s=0.0)

    def remove(self, number):
        if KEYS[number] in rows_of(self.folder):
            remove(Folder(str(self.folder)), KEYS[number])

    def copy(self, number):
        for path in [*records_of(self.other), *blobs_of(self.other)][number::4]:
            target = self.folder / path.relative_to(self.other)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                self._let_go(target)
            shutil.copy2(path, target)

    def delete(self, number):
        for path in [*records_of(self.folder), *blobs_of(self.folder)][number::5]:
            self._let_go(path)

    def replace(self, number):
        for path in [*records_of(self.folder), *blobs_of(self.folder)][number::7]:
            made = path.with_suffix(".new")
            made.write_bytes(path.read_bytes()[: -1 - number])
            self._let_go(path)
            made.rename(path)

    def drop_shard(self, number):
        above = ("actions", "cas/b3")[number % 2]
        for path in sorted((self.folder / above).glob("*"))[:1]:
            self._let_go(path)

    def lose_log(self, number):
        shutil.rmtree(self.folder / "index", ignore_errors=number % 2 == 0)

    def tear_log(self, number):
        for path in (self.folder / "index").glob("*.log"):
            with path.open("r+b") as file:
                file.seek(number * 10)
                file.write(b"\n\0 what else")

    def settle(self, number):
        """Have what was seen so far count as long past; tools set back what they can."""
        for path in [*self.folder.glob("actions/*"), *self.folder.glob("cas/b3/*")]:
            then_ns = 10**18 + number
            os.utime(path, ns=(then_ns, then_ns))
        settle(self.folder)

    def verify(self, number):
        verify(Folder(str(self.folder)), everything=number % 2 == 0)

    def look(self, number):
        surveyed(self.folder)


NAMES = sorted(name for name in vars(Folders) if name[0] != "_")
STEPS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 11)), max_size=14)


@settings(max_examples=20, deadline=None)
@given(STEPS)
def test_whatever_happens_the_index_says_what_a_walk_finds(steps):
    with tempfile.TemporaryDirectory() as path:
        folders = Folders(Path(path))
        for name, number in steps:
            folders.commit(number)
            getattr(folders, name)(number)
            if number % 3:
                assert surveyed(folders.folder) == walked(folders.folder), (name, number)
        assert surveyed(folders.folder) == walked(folders.folder)


OWN = STEPS.map(
    lambda steps: [one for one in steps if one[0] in ("commit", "gc", "remove", "look")]
)


@settings(max_examples=10, deadline=None)
@given(OWN)
def test_what_we_do_ourselves_is_in_the_logs(steps):
    with tempfile.TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        folders = Folders(Path(path))
        patch.setattr(merging.shards, "states", lambda *_: {})
        for name, number in steps:
            folders.commit(number)
            getattr(folders, name)(number)
        assert surveyed(folders.folder) == walked(folders.folder)


def test_a_large_folder_is_listed_bit_by_bit(there, monkeypatch):
    """A change that a log hides, of somebody else, is found when the turn comes."""
    monkeypatch.setattr(merging, "_MOST_LISTED", 1)
    store = opened(there)
    digests = []
    for number in range(3):  # a line for each folder, which explains that it was changed
        digests += keep(store, bytes([50 + number]) * 4_000, key=f"{number:02x}{'f' * 62}")
    for key in KEYS[:3]:
        (there / "actions" / key[:2] / f"{key}.json").unlink()
    seen = [surveyed(there)["records"] for _ in range(30)]
    assert seen[0] > walked(there)["records"] == seen[-1]
    assert surveyed(there) == walked(there)


def test_folders_that_have_not_changed_are_not_listed(there, monkeypatch):
    settle(there)
    listed = []
    names = merging.shards.names
    monkeypatch.setattr(
        merging.shards,
        "names",
        lambda root, name, *more: listed.append(name) or names(root, name, *more),
    )
    assert surveyed(there) == walked(there)
    assert listed == []
    gone = there / "actions" / KEYS[1][:2] / f"{KEYS[1]}.json"
    gone.unlink()
    assert surveyed(there) == walked(there)
    assert listed == [f"actions/{KEYS[1][:2]}"]


def test_a_copy_has_its_own_figures_with_the_index_and_without(there, tmp_path):
    for number, ignore in enumerate((None, shutil.ignore_patterns("index"))):
        copy = tmp_path / str(number)
        shutil.copytree(there, copy, ignore=ignore)
        records_of(copy)[0].unlink()
        assert surveyed(copy) == walked(copy)
        keep(opened(copy), bytes(MIDDLE))
        assert surveyed(copy) == walked(copy)
    assert surveyed(there) == walked(there)


def test_numbers_and_names_may_be_of_any_size(folder):
    store = opened(folder)
    keep(store, bytes(MIDDLE), key=KEY, compute_ms=1e300, name="\udce9 \0 节点", created_at=1e300)
    keep(store, b"2" * MIDDLE, key=OTHER, compute_ms=10**299, name="")
    assert surveyed(folder) == walked(folder)
    assert [one.key for one in store.recent("\udce9 \0 节点", 5)] == [KEY]
    assert [one.key for one in store.recent("", 10**30)] == [OTHER]


# ---------------------------------------------------------------- a damaged index


def flip(path, seed):
    raw = bytearray(path.read_bytes())
    for at in random.Random(seed).sample(range(len(raw)), 200):  # noqa: S311  # not for secrets
        raw[at] ^= 0xFF
    path.write_bytes(raw)


def other_database(path):
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE records (key TEXT)")
    connection.commit()
    connection.close()


def other_version(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.commit()
    connection.close()


def missing_table(path):
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE outputs")
    connection.commit()
    connection.close()


def folder_there(path, *, full=False):
    path.unlink()
    path.mkdir()
    if full:
        (path / "file").write_bytes(b"x")


DAMAGES = {
    "garbage": lambda path: path.write_bytes(b"what somebody else has put here\n" * 300),
    "empty": lambda path: path.write_bytes(b""),
    "halved": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "a page": lambda path: path.write_bytes(path.read_bytes()[:4096]),
    "other version": other_version,
    "other database": other_database,
    "a table is missing": missing_table,
    "folder": folder_there,
    "full folder": lambda path: folder_there(path, full=True),
    "gone": lambda path: path.unlink(),
    "all gone": lambda path: shutil.rmtree(path.parent),
    "a journal of somebody else": lambda path: Path(f"{path}-journal").write_bytes(b"x" * 5000),
    "a file instead of the folder": lambda path: (
        shutil.rmtree(path.parent),
        path.parent.write_bytes(b"x"),
    ),
    "a link to nothing": lambda path: (path.unlink(), path.symlink_to("nothing/at/all")),
}


IN_MEMORY = {"a file instead of the folder"}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_index_is_made_again(there, capfd, kind):
    DAMAGES[kind](base_of(there))
    expected = walked(there)
    assert surveyed(there) == expected
    if kind not in IN_MEMORY:
        connection = sqlite3.connect(base_of(there))
        assert connection.execute("SELECT count(*) FROM records").fetchone() == (len(KEYS[:6]),)
        connection.close()
    keep(opened(there), bytes(MIDDLE))
    assert surveyed(there) == walked(there)
    assert collect(Folder(str(there)), max_bytes=0, min_age_s=0.0).after_bytes == 0
    assert surveyed(there) == walked(there)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("seed", range(8))
def test_an_index_of_which_bytes_are_wrong_harms_nothing(there, seed):
    flip(base_of(there), seed)
    surveyed(there)
    verify(Folder(str(there)), everything=True)  # which makes it again
    assert surveyed(there) == walked(there)


def test_it_may_be_removed_while_it_is_used(there):
    def ask(tables):
        shutil.rmtree(there / "index", ignore_errors=True)
        return tables.sums().records

    assert consult(Folder(str(there)), ask) == 6
    assert surveyed(there) == walked(there)


def test_it_may_be_removed_by_one_while_another_asks(there):
    done = threading.Event()

    def remove_it():
        while not done.wait(0.0005):
            base_of(there).unlink(missing_ok=True)

    thread = threading.Thread(target=remove_it)
    thread.start()
    try:
        for number in range(4):
            keep(opened(there), bytes([number]) * MIDDLE, key=f"{number:064x}")
            assert surveyed(there) == walked(there)
    finally:
        done.set()
        thread.join()


def test_where_another_holds_it_for_long_it_is_made_in_memory(there, monkeypatch):
    monkeypatch.setattr(index, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(index, "_WAIT_S", 0.01)
    keep(opened(there), bytes(MIDDLE))
    other = sqlite3.connect(base_of(there), isolation_level=None)
    for mode in ("IMMEDIATE", "EXCLUSIVE"):
        other.execute(f"BEGIN {mode}")
        assert surveyed(there) == walked(there)
        other.execute("ROLLBACK")
    other.close()


def test_a_folder_that_is_only_read_has_right_figures_and_no_index(there):
    for path in (there / "index").iterdir():
        path.unlink()
    (there / "index").rmdir()
    assert surveyed(there, read_only=True) == walked(there)
    assert not (there / "index").exists()
    surveyed(there)
    keep(opened(there), bytes(MIDDLE))
    before = base_of(there).read_bytes()
    assert surveyed(there, read_only=True) == walked(there)
    assert base_of(there).read_bytes() == before


def test_a_folder_that_is_no_cache_has_no_index(tmp_path):
    assert surveyed(tmp_path / "nothing")["records"] == 0
    (tmp_path / "other").mkdir()
    assert surveyed(tmp_path / "other")["blobs"] == 0
    assert [path.name for path in tmp_path.rglob("*")] == ["other"]


def test_without_sqlite_it_says_so(there, monkeypatch):
    monkeypatch.delitem(sys.modules, "soma_cache.merging")
    monkeypatch.delitem(sys.modules, "soma_cache.rows")
    monkeypatch.delitem(sys.modules, "soma_cache.tables")
    monkeypatch.setitem(sys.modules, "sqlite3", None)
    with pytest.raises(SomaError, match="Python was built without SQLite"):
        surveyed(there)
    assert keep(opened(there), bytes(MIDDLE))


# ---------------------------------------------------------------- logs


def test_lines_that_are_torn_cost_nothing(there):
    (name,) = logs_of(there)
    store = opened(there)
    for number, more in enumerate((b"r 12", b"\n", b"\0" * 100, b"b " + b"x" * 64 + b"\n")):
        with (there / "index" / name).open("ab") as file:
            file.write(more)
        keep(store, bytes([number]) * MIDDLE, key=f"{number:064x}")
        assert surveyed(there) == walked(there)


def test_a_log_that_has_become_long_is_begun_anew(there):
    (name,) = logs_of(there)
    log = there / "index" / name
    changes.note(str(there), keys=["0" * 64] * 1000)
    assert log.stat().st_size > 64 << 10
    surveyed(there)
    old = name.replace(".log", ".old")
    assert logs_of(there) == [old]
    with (there / "index" / old).open("ab") as file:  # who had opened it just before
        (digest,) = keep(opened(there), bytes(MIDDLE))
        file.write(b"b " + digest.encode() + b"\n")
    log.unlink()
    assert surveyed(there) == walked(there)
    assert logs_of(there) == []


def test_a_log_that_is_full_is_not_extended_and_costs_a_listing(there):
    (name,) = logs_of(there)
    log = there / "index" / name
    changes.note(str(there), keys=["0" * 64] * 64_000)
    nbytes = log.stat().st_size
    (path, *_) = records_of(there)
    made = path.with_suffix(".new")  # a record that is replaced, and no line says so
    made.write_bytes(b"")
    made.rename(path)
    keep(opened(there), bytes(MIDDLE))
    assert log.stat().st_size == nbytes >= 4 << 20
    assert surveyed(there) == walked(there)
    assert logs_of(there) == [name.replace(".log", ".old")]
    assert surveyed(there) == walked(there)
    assert logs_of(there) == []


def test_what_is_damaged_is_noted_when_it_is_taken_away(there, monkeypatch):
    monkeypatch.setattr(merging, "_MOST_LISTED", 0)
    (path, *_) = blobs_of(there)
    damage([path], "first bit")
    assert opened(there).read(path.stem) is None
    assert not path.exists()
    assert surveyed(there) == walked(there)


def test_a_hit_writes_nothing_to_the_index(there):
    log = there / "index" / logs_of(there)[0]
    before = (log.stat().st_size, log.stat().st_mtime_ns)
    fresh = opened(there)
    for record in rows_of(there).values():
        assert fresh.lookup(record["key"]) is not None
        for output in record["outputs"].values():
            assert fresh.read(output["digest"]) is not None
    assert (log.stat().st_size, log.stat().st_mtime_ns) == before


# ---------------------------------------------------------------- what a store asks it


def test_the_newest_of_a_class_come_first(folder):
    store = opened(folder)
    for number, key in enumerate(KEYS):
        keep(store, number, key=key, name=f"study.Step{number % 2}", created_at=1e9 + number % 5)
    times = {key: 1e9 + number % 5 for number, key in enumerate(KEYS)}
    expected = sorted(KEYS[::2], key=lambda key: (-times[key], key))
    assert [one.key for one in store.recent("study.Step0", 100)] == expected
    found = list(opened(folder, read_only=True).recent("study.Step0", 3))
    assert [one.key for one in found] == expected[:3]
    assert {one.name for one in found} == {"study.Step0"}
    assert list(store.recent("study.Step9", 3)) == []
    assert list(store.recent("study.Step0", 0)) == []
    for path in records_of(folder):
        if path.stem == expected[0]:
            path.unlink()
    assert [one.key for one in store.recent("study.Step0", 2)] == expected[1:3]


def test_a_peek_finds_what_a_lookup_does(there):
    store, fresh = opened(there), opened(there)
    for key in KEYS[:6]:
        assert fresh.peek(key) == store.lookup(key)
        assert fresh.peek(key).tier == "Local"
    assert fresh.peek("f" * 64) is None
