"""What the system refuses, sets back or replaces: the index stays right, or says so."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import sys
import time
from contextlib import contextmanager

import pytest

from soma_cache import changes, clock, files, index, merging, shards, touching
from soma_cache.clock import now_s
from soma_cache.folder import Folder
from soma_cache.index import consult
from soma_cache.layout import blob_name, record_name
from soma_cache.touching import touch
from support.cache_folders import blobs_of, records_of
from support.cache_forks import forked_beside, forked_inside
from support.cache_stores import MIDDLE, keep, opened
from support.cache_walk import surveyed, walked

KEYS = [f"{number:02x}{number:062x}" for number in range(4)]


@pytest.fixture
def there(folder):
    store = opened(folder)
    for number, key in enumerate(KEYS):
        keep(store, bytes([number]) * 5_000, key=key, compute_ms=2.0**number)
    assert surveyed(folder) == walked(folder)
    return folder


def refusal(path):
    return f"OSError: [Errno {errno.EIO}] {os.strerror(errno.EIO)}: {str(path)!r}"


def asked(folder, *, everything=False):
    """Return how many records there are, and what could not be read."""
    return consult(
        Folder(str(folder)),
        lambda tables: (tables.sums().records, dict(tables.unreadable)),
        everything=everything,
    )


# ---------------------------------------------------------------- what cannot be read


@contextmanager
def refusing(module, name, part, number=errno.EIO):
    """Have a function of the system fail for paths that end so."""
    ours = getattr(module, name)

    def refuse(path, *args, **choice):
        if str(path).endswith(part):
            raise OSError(number, os.strerror(number), path)
        return ours(path, *args, **choice)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, refuse)
        yield


RECORD, SHARD = record_name(KEYS[1]), f"actions/{KEYS[1][:2]}"
REFUSALS = {
    "a record is not read": (files, "read_file", RECORD, RECORD),
    "a record is not asked about": (os, "lstat", RECORD, RECORD),
    "a folder is not listed": (os, "scandir", SHARD, SHARD),
    "a folder is not asked about": (os, "lstat", SHARD, SHARD),
    "no folder is listed": (os, "listdir", "/actions", "actions"),
}


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE, errno.EMFILE])
@pytest.mark.parametrize("kind", REFUSALS)
def test_what_cannot_be_read_is_not_gone_and_is_told(there, kind, number):
    module, name, part, told = REFUSALS[kind]
    os.chmod(there / RECORD, 0o400)  # noqa: PTH101  # so that it is looked at again
    changes.note(str(there), keys=[KEYS[1]])
    with refusing(module, name, part, number):
        for everything in (True, False, True):
            records, unreadable = asked(there, everything=everything)
            assert records == len(KEYS)
            assert told in unreadable
            assert os.strerror(number) in unreadable[told]
    (there / RECORD).unlink()
    assert asked(there) == (len(KEYS) - 1, {})
    assert surveyed(there) == walked(there)


def test_what_could_not_be_read_is_looked_at_when_it_can_be(there):
    key = "ff" * 32
    keep(opened(there), bytes(MIDDLE), key=key)
    with refusing(files, "read_file", record_name(key)):
        for _ in range(2):  # the second time, the log that names it was read
            records, unreadable = asked(there)
            assert records == len(KEYS)
            assert list(unreadable) == [record_name(key)]
    assert asked(there) == (len(KEYS) + 1, {})
    assert surveyed(there) == walked(there)


def test_a_blob_that_cannot_be_asked_about_is_not_gone(there):
    (path, *_) = blobs_of(there)
    name = blob_name(path.stem)
    changes.note(str(there), digests=[path.stem])
    with refusing(os, "lstat", path.name):
        assert surveyed(there) == {**walked(there), "unreadable": ((name, refusal(path)),)}
    assert surveyed(there) == walked(there)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOTDIR])
def test_what_the_system_says_is_not_there_is_gone(there, number):
    changes.note(str(there), keys=[KEYS[1]])
    with refusing(os, "lstat", RECORD, number):
        assert asked(there) == (len(KEYS) - 1, {})


def test_a_folder_tells_unreadable_from_absent(there):
    folder = Folder(str(there))
    assert folder.read_record(KEYS[0]) == folder.record(KEYS[0], tier="")
    assert folder.read_record("ff" * 32) is None
    with refusing(files, "read_file", RECORD), pytest.raises(OSError, match="Input/output"):
        folder.read_record(KEYS[1])


def test_who_asks_of_folders_alone_is_told_as_well(there):
    with refusing(os, "listdir", "/actions"), pytest.raises(OSError, match="Input/output"):
        shards.states(str(there))


# ---------------------------------------------------------------- times and numbers of files


def test_a_tool_that_sets_times_back_is_noticed(there, monkeypatch):
    monkeypatch.setattr(merging, "_SETTLED_NS", -(10**18))
    folders = [*there.glob("actions/*"), *there.glob("cas/b3/*")]
    for path in folders:
        os.utime(path, (1e9, 1e9))
    assert surveyed(there) == walked(there)
    for path in [*records_of(there)[:2], *blobs_of(there)[:2]]:
        path.unlink()
    for path in folders:
        os.utime(path, (1e9, 1e9))
    assert surveyed(there) == walked(there)


def test_a_record_in_the_place_of_another_is_noticed_by_more_than_its_inode(there, tmp_path):
    other = tmp_path / "other"
    keep(opened(other), b"x" * 5_000, key=KEYS[1], compute_ms=3.0, created_at=1e9)
    keep(opened(there), b"y" * 5_000, key=KEYS[1], compute_ms=7.0, created_at=1e9)
    assert surveyed(there) == walked(there)
    path, before = there / RECORD, (there / RECORD).stat()
    path.chmod(0o600)
    path.write_bytes((other / RECORD).read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    shutil.copytree(other / "cas", there / "cas", dirs_exist_ok=True)
    asked(there, everything=True)
    assert surveyed(there) == walked(there)


def test_inodes_may_be_of_any_size(there, monkeypatch):
    def large(ask):
        def asked_of(*args, **choice):
            fields, more = ask(*args, **choice).__reduce__()[1]
            return os.stat_result((fields[0], fields[1] + (1 << 63), *fields[2:]), more)

        return asked_of

    monkeypatch.setattr(os, "fstat", large(os.fstat))
    monkeypatch.setattr(os, "lstat", large(os.lstat))
    keep(opened(there), bytes(MIDDLE), key="ff" * 32)
    changes.note(str(there), keys=["0" * 64] * 1000)
    for _ in range(3):
        assert surveyed(there) == walked(there)
    assert (there / "index" / "base.sqlite").exists()
    assert not list((there / "index").glob("*.old"))


# ---------------------------------------------------------------- which clock


@pytest.fixture
def wrong_clock(monkeypatch):
    """This machine is 10 years behind."""
    then_s = time.time() - 3e8
    for module in (clock, touching):
        monkeypatch.setattr(
            module,
            "time",
            type(
                "",
                (),
                {
                    "time": staticmethod(lambda: then_s),
                    "time_ns": staticmethod(lambda: int(then_s * 1e9)),
                },
            ),
        )
    return then_s


def made_s(folder):
    (folder / "made").touch()
    return (folder / "made").stat().st_mtime


def test_the_time_is_that_of_the_file_system(there, wrong_clock):
    folder, before = Folder(str(there)), made_s(there)
    assert before <= now_s(folder) <= made_s(there)
    assert not list((there / "tmp").iterdir())
    with refusing(files, "_create", str(there), errno.ENOSPC):
        assert before <= now_s(folder) <= made_s(there)


def test_nothing_is_removed_by_another_clock(there, wrong_clock):
    folder = Folder(str(there))
    (there / "tmp").rmdir()
    with pytest.raises(FileNotFoundError):
        now_s(folder)
    assert now_s(folder, deleting=False) > wrong_clock + 1e8
    shutil.rmtree(there / "index")
    assert now_s(folder, deleting=False) == wrong_clock
    assert now_s(Folder(str(there), read_only=True)) == wrong_clock


def test_a_blob_is_used_by_the_clock_of_the_file_system_and_not_changed(there, wrong_clock):
    (path, *_) = blobs_of(there)
    os.utime(path, ns=(10**18, 10**18 + 123_456_789))
    before = made_s(there)
    assert opened(there).read(path.stem) is not None
    about = path.stat()
    assert before <= about.st_atime <= made_s(there)
    assert about.st_mtime_ns == 10**18 + 123_456_789
    touch(str(path.with_suffix(".nothing")), 0)


def test_where_the_system_cannot_be_told_it_is_the_time_of_this_machine(
    there, wrong_clock, monkeypatch
):
    monkeypatch.setattr(touching, "_utimensat", lambda: None)
    (path, *_) = blobs_of(there)
    touch(str(path), 10**18)
    assert path.stat().st_atime == pytest.approx(wrong_clock)
    assert path.stat().st_mtime_ns == 10**18
    touch(str(path.with_suffix(".nothing")), 0)


# ---------------------------------------------------------------- rights, room, links


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize("taken", [0o002, 0o022, 0o077])
def test_the_umask_alone_says_who_may_write(folder, umask, taken):
    umask(taken)
    keep(opened(folder), bytes(MIDDLE))
    surveyed(folder)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder / "index").iterdir()}
    assert modes == {"base.sqlite": 0o666 & ~taken, f"{files.host()}.log": 0o666 & ~taken}
    assert (folder / "index").stat().st_mode & 0o777 == 0o777 & ~taken


def failing(monkeypatch, code):
    """Have whatever is written to the index on disk fail."""
    on_disk = index._on_disk

    @contextmanager
    def broken(root):
        with on_disk(root):
            error = sqlite3.OperationalError("as the system says")
            error.sqlite_errorcode = code
            raise error
            yield

    monkeypatch.setattr(index, "_on_disk", broken)


CODES = {"perm": 3, "nomem": 7, "readonly": 8, "ioerr": 10, "ioerr write": 778, "full": 13}
CODES |= {"cantopen": 14, "protocol": 15, "moved": 1032, "readonly directory": 1544}


@pytest.mark.parametrize("kind", CODES)
def test_an_index_that_cannot_be_written_is_kept_and_made_up_for_in_memory(
    there, monkeypatch, kind
):
    base = there / "index" / "base.sqlite"
    before = (base.read_bytes(), base.stat().st_ino)
    failing(monkeypatch, CODES[kind])
    keep(opened(there), bytes(MIDDLE))
    assert surveyed(there) == walked(there)
    assert (base.read_bytes(), base.stat().st_ino) == before


@pytest.mark.parametrize("code", [11, 26, 1, 267])
def test_one_that_is_damaged_is_thrown_away(there, monkeypatch, code):
    failing(monkeypatch, code)
    assert surveyed(there) == walked(there)
    assert not (there / "index" / "base.sqlite").exists()


def links(there, other):
    log, base = there / "index" / f"{files.host()}.log", there / "index" / "base.sqlite"
    yield "log", log
    yield "base", base
    yield "journal", base.with_name("base.sqlite-journal")
    yield "index", there / "index"


@pytest.mark.parametrize("kind", ["log", "base", "journal", "index"])
def test_a_link_is_not_followed_to_what_somebody_else_has(there, tmp_path, kind):
    path, other = dict(links(there, tmp_path))[kind], tmp_path / "thesis"
    if kind == "index":
        shutil.rmtree(path)
        other.mkdir()
        (other / f"{files.host()}.log").write_bytes(b"mine\n")
    else:
        path.unlink(missing_ok=True)
        other.write_bytes(b"")
    path.symlink_to(other)
    keep(opened(there), bytes(MIDDLE))
    assert surveyed(there) == walked(there)
    keep(opened(there), bytes(MIDDLE - 1), key="ee" * 32)
    assert surveyed(there) == walked(there)
    if kind == "index":
        assert [one.read_bytes() for one in other.iterdir()] == [b"mine\n"]
    else:
        assert other.read_bytes() == b""
    assert sorted(one.name for one in tmp_path.iterdir() if one != there) == ["thesis"]


# ---------------------------------------------------------------- forks, and what is not there


@pytest.mark.parametrize("stays", [False, True], ids=["leaves", "stays"])
def test_a_child_is_not_stopped_by_a_thread_that_it_does_not_have(there, forker, stays):
    """Where the fork had to be made all the same, it leaves the index on disk alone."""
    assert forker.run(forked_beside, str(there), stays) == [len(KEYS), not stays]


def test_a_fork_in_the_midst_of_a_question_is_not_waited_for(there, forker):
    assert forker.run(forked_inside, str(there)) == [len(KEYS), False]
    assert surveyed(there) == walked(there)


def test_only_a_python_without_sqlite_is_called_so(there, monkeypatch):
    monkeypatch.setitem(sys.modules, "soma_cache.merging", None)
    with pytest.raises(ImportError, match="merging"):
        surveyed(there)
