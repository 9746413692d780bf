"""verify: what is damaged, and only that, whoever writes meanwhile."""

from __future__ import annotations

import os
import shutil
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace

import pytest

from soma import InvalidInput
from soma_cache import verifying
from soma_cache.folder import Folder
from soma_cache.verifying import verify
from support.cache_folders import (
    DAMAGES,
    apart_from_the_index,
    blobs_of,
    damage,
    everything,
    records_of,
)
from support.cache_records import checked, place_inline, rewritten
from support.cache_stores import KEY, LARGE, MIDDLE, OTHER, keep, opened
from support.cache_walk import surveyed, walked

BYTES_DAMAGES = DAMAGES[: DAMAGES.index("removed")]


def looked(folder, **choice):
    return verify(Folder(str(folder)), **choice)


@pytest.fixture
def there(folder):
    store = opened(folder)
    keep(store, bytes(MIDDLE), b"1" * 5_000, "small", key=KEY)
    keep(store, bytes(LARGE), key=OTHER)
    return folder


def test_what_is_right_is_read_once_and_then_skipped(there):
    nbytes = sum(path.stat().st_size for path in blobs_of(there))
    first, second, third = looked(there), looked(there), looked(there, everything=True)
    assert (first.checked, first.checked_bytes, first.skipped) == (3, nbytes, 0)
    assert (second.checked, second.checked_bytes, second.skipped) == (0, 0, 3)
    assert (third.checked, third.checked_bytes, third.skipped) == (3, nbytes, 0)
    for one in (first, second, third):
        assert (one.blobs, one.records, one.unreadable) == ((), (), ())
    assert looked(there).skipped == 3  # what was read last is known as well


@pytest.mark.parametrize("kind", BYTES_DAMAGES)
def test_every_damage_is_named_and_nothing_is_taken_away(there, kind):
    looked(there)
    blob, record = blobs_of(there)[1], records_of(there)[0]
    damage([blob, record], kind)
    before = apart_from_the_index(there)
    found = looked(there)
    assert (found.blobs, found.records, found.unreadable) == ((blob.stem,), (record.stem,), ())
    assert (found.checked, found.skipped) == (1, 2)
    assert apart_from_the_index(there) == before
    assert looked(there).blobs == (blob.stem,)
    assert surveyed(there) == walked(there)


@pytest.mark.parametrize("kind", DAMAGES[DAMAGES.index("removed") :])
def test_what_is_no_file_is_no_damage(there, kind):
    damage([blobs_of(there)[0], records_of(there)[0]], kind)
    found = looked(there)
    assert (found.blobs, found.records, found.unreadable) == ((), (), ())
    assert found.checked == 2


def test_a_disk_that_goes_bad_is_noticed_when_everything_is_read(there):
    looked(there)
    path = blobs_of(there)[0]
    before = path.stat()
    damage([path], "middle bit")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert looked(there).blobs == ()
    assert looked(there, everything=True).blobs == (path.stem,)
    assert looked(there).blobs == (path.stem,)


def test_what_is_put_right_is_right_again(there):
    path = blobs_of(there)[0]
    raw = path.read_bytes()
    damage([path], "halved")
    assert looked(there).blobs == (path.stem,)
    path.unlink()
    path.write_bytes(raw)
    assert looked(there).blobs == ()


def test_a_record_of_another_key_or_with_another_value_is_damaged(there):
    first, second = records_of(there)
    raw = first.read_bytes()
    first.unlink()
    shutil.copy(second, first)
    assert looked(there).records == (first.stem,)
    first.unlink()
    first.write_bytes(rewritten(raw, lambda fields: place_inline(fields, b"x" * 20, "0" * 64)))
    assert looked(there).records == (first.stem,)
    first.write_bytes(checked({"key": first.stem}))
    assert looked(there).records == (first.stem,)


def test_what_cannot_be_read_is_told_and_stops_nothing(there, monkeypatch):
    blob, record = blobs_of(there)[0], records_of(there)[0]
    opening = os.open

    def refusing(path, *args, **choice):
        if path in (str(blob), str(record)):
            raise OSError(5, "Input/output error", path)
        return opening(path, *args, **choice)

    monkeypatch.setattr(os, "open", refusing)
    found = looked(there)
    assert (found.checked, found.blobs, found.records) == (2, (), ())
    names = [str(path.relative_to(there)) for path in (blob, record)]
    assert [name for name, _ in found.unreadable] == names
    assert all("Input/output error" in why for _, why in found.unreadable)
    with pytest.raises(OSError, match=r"2 files cannot be read.*Input/output"):
        opened(there).verify()


def test_a_sample_is_what_was_used_last(there, monkeypatch):
    paths = sorted(blobs_of(there), key=lambda path: path.stat().st_size)
    for days, path in enumerate(paths):
        os.utime(path, (1.7e9 - days * 86_400,) * 2)
    damage([paths[0]], "last bit")
    os.utime(paths[0], (1.7e9,) * 2)
    for count, expected in ((0, 0), (1, 1), (2, 2), (10, 3), (-3, 0)):
        found = looked(there, everything=True, sample=count)
        assert found.checked == expected
        assert found.blobs == ((paths[0].stem,) if expected else ())
    monkeypatch.setattr(verifying, "_MOST_SAMPLE_BYTES", 150_000)
    assert looked(there, everything=True, sample=10).checked == 2
    damage(records_of(there), "first bit")
    assert looked(there, sample=0).records == ()
    assert len(looked(there).records) == 2


@pytest.mark.parametrize("sample", [1.5, "3", True])
def test_a_sample_that_is_no_number_is_refused(there, sample):
    with pytest.raises(InvalidInput, match="sample is a number of files"):
        looked(there, sample=sample)


def test_it_says_how_far_it_is(there):
    told = []
    looked(there, progress=lambda done, total: told.append((done, total)))
    assert told == [(number + 1, 5) for number in range(5)]


def test_who_stops_it_waits_for_no_more_than_a_piece(there, monkeypatch):
    monkeypatch.setattr(verifying, "_PIECE_BYTES", 1_000)
    readv, pieces, stopped = os.readv, [], threading.Event()

    def reading(fd, buffers):
        stopped.wait(60)
        pieces.append(fd)
        return readv(fd, buffers)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "readv", reading)
    monkeypatch.setattr(verifying, "threading", SimpleNamespace(Event=lambda: stopped))
    monkeypatch.setattr(Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        looked(there)
    assert len(pieces) <= verifying._THREADS


def test_without_threads_it_reads_by_itself(there, monkeypatch):
    def refused(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refused)
    assert (looked(there).checked, looked(there).records) == (3, ())


@pytest.mark.parametrize("what", ["actions", "cas/b3", "a shard of each"])
def test_folders_that_cannot_be_listed_are_told_and_stop_nothing(there, monkeypatch, what):
    closed = [blobs_of(there)[0].parent, records_of(there)[0].parent]
    if what in ("actions", "cas/b3"):
        closed = [there / what]
    names = {str(path) for path in closed}
    for name in ("scandir", "listdir"):
        call = getattr(os, name)

        def failing(path, call=call):
            if str(path) in names:
                raise PermissionError(13, "Permission denied", str(path))
            return call(path)

        monkeypatch.setattr(os, name, failing)
    found = looked(there)
    assert {name for name, _ in found.unreadable} == {
        str(path.relative_to(there)) for path in closed
    }
    assert found.checked == {"actions": 3, "cas/b3": 0}.get(what, 2)


def test_what_was_read_is_kept_where_somebody_stops_it(there, monkeypatch):
    monkeypatch.setattr(verifying, "_SLICE", 1)

    def stop(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        looked(there, progress=stop)
    assert looked(there).skipped == 2


def test_reading_is_no_use(there):
    path = blobs_of(there)[0]
    os.utime(path, (1e9, 1.5e9))  # a file system would note the next reading of that
    with suppress(PermissionError):
        looked(there, everything=True)
    assert path.stat().st_atime == 1e9


def test_what_goes_or_is_replaced_meanwhile_is_no_damage(there, monkeypatch):
    first, second, third = blobs_of(there)
    raw, read = second.read_bytes(), verifying._read_blob
    damage([second], "halved")

    def read_beside(path, digest, stop):
        if digest == first.stem:
            first.unlink(missing_ok=True)
        found = read(path, digest, stop)
        if digest == second.stem and found[0].outcome == "damaged":
            made = second.with_suffix(".new")  # somebody puts it right
            made.write_bytes(raw)
            made.rename(second)
        if digest == third.stem:
            third.unlink()
        return found

    monkeypatch.setattr(verifying, "_read_blob", read_beside)
    found = looked(there)
    assert (found.blobs, found.unreadable, found.checked) == ((), (), 2)


def test_a_cache_that_is_not_there_or_only_read(folder, there):
    assert looked(folder / "nothing").checked == 0
    assert not (folder / "nothing").exists()
    before = everything(there)
    found = verify(Folder(str(there), read_only=True), everything=True)
    assert (found.checked, found.blobs) == (3, ())
    assert everything(there) == before
