"""rm: one result is forgotten, and what only it needs."""

from __future__ import annotations

import os
import time

import pytest

from soma import InvalidInput, UnknownName
from soma.contracts import ActionRecord
from soma.frame import encode
from soma_cache import files, removing, shards
from soma_cache.folder import Folder
from soma_cache.pins import pin, unpin
from soma_cache.removing import remove
from soma_cache.survey import survey
from support.cache_folders import blobs_of, damage, records_of
from support.cache_stores import KEY, MIDDLE, OTHER, keep, opened, value_of
from support.cache_walk import surveyed, walked


@pytest.fixture
def there(folder):
    return Folder(str(folder))


def grow_old(folder):
    """Have all blobs be used last two hours ago."""
    for path in blobs_of(folder):
        os.utime(path, (time.time() - 7_200,) * 2)


def test_the_record_goes_and_the_blobs_that_only_it_names(folder, there):
    store = opened(folder)
    alone, shared, _ = keep(store, b"1" * MIDDLE, b"2" * MIDDLE, "small", key=KEY)
    keep(store, b"2" * MIDDLE, key=OTHER)
    grow_old(folder)
    sizes = {path.stem: path.stat().st_size for path in [*blobs_of(folder), *records_of(folder)]}
    found = remove(there, KEY)
    assert (found.key, found.blobs) == (KEY, (alone,))
    assert found.freed_bytes == sizes[alone] + sizes[KEY]
    fresh = opened(folder)
    assert fresh.lookup(KEY) is None
    assert value_of(fresh, shared) == b"2" * MIDDLE
    grow_old(folder)
    assert surveyed(folder) == walked(folder)
    assert remove(there, OTHER).blobs == (shared,)
    assert [*blobs_of(folder), *records_of(folder)] == []
    assert surveyed(folder) == walked(folder)


def test_who_had_it_in_memory_makes_it_again(folder, there):
    store = opened(folder)
    (digest,) = keep(store, b"1" * MIDDLE)
    remove(there, KEY)
    assert value_of(store, digest) in (None, b"1" * MIDDLE)
    keep(store, b"1" * MIDDLE)
    assert value_of(opened(folder), digest) == b"1" * MIDDLE


def test_what_is_pinned_is_kept_and_the_pins_are_named(folder, there):
    keep(opened(folder), b"1" * MIDDLE)
    pin(there, "best", KEY)
    pin(there, "b\nad", KEY)
    with pytest.raises(InvalidInput, match=r"is pinned \('b\\nad', 'best'\).*soma cache unpin"):
        remove(there, KEY)
    assert len(records_of(folder)) == 1
    for name in ("best", "b\nad"):
        unpin(there, name)
    grow_old(folder)
    assert len(remove(there, KEY).blobs) == 1


def test_a_blob_that_a_pinned_record_names_stays(folder, there):
    store = opened(folder)
    (digest,) = keep(store, b"1" * MIDDLE, key=KEY)
    keep(store, b"1" * MIDDLE, key=OTHER)
    pin(there, "best", OTHER)
    assert remove(there, KEY).blobs == ()
    assert [path.stem for path in blobs_of(folder)] == [digest]


def test_a_value_whose_next_record_is_being_written_is_left_to_gc(folder, there):
    first, second = opened(folder), opened(folder)
    (digest,) = keep(first, b"1" * MIDDLE, key=KEY)
    grow_old(folder)
    frame = encode(b"1" * MIDDLE)
    assert second.write((frame.header, frame.buffers)) == digest  # it is there: that is a use
    found = remove(there, KEY)
    assert (found.blobs, found.kept) == ((), (digest,))
    nbytes, outputs = {"out": frame.nbytes}, {"out": digest}
    second.commit(ActionRecord(key=OTHER, outputs=outputs, bytes=nbytes, compute_ms=1.0))
    assert value_of(opened(folder), digest) == b"1" * MIDDLE
    grow_old(folder)
    assert remove(there, OTHER).blobs == (digest,)


def test_what_is_used_while_it_is_removed_stays(folder, there, monkeypatch):
    (digest,) = keep(opened(folder), b"1" * MIDDLE, key=KEY)
    grow_old(folder)
    ask = removing.consult

    def read_first(*args, **choice):
        found = ask(*args, **choice)
        assert value_of(opened(folder), digest) == b"1" * MIDDLE
        return found

    monkeypatch.setattr(removing, "consult", read_first)
    assert remove(there, KEY).kept == (digest,)


def test_a_record_that_the_index_has_missed_keeps_its_value(folder, there, monkeypatch):
    keep(opened(folder), b"1" * MIDDLE, key=KEY)
    keep(opened(folder), b"1" * MIDDLE, key=OTHER)
    (record,) = [path for path in records_of(folder) if path.stem == OTHER]
    raw = record.read_bytes()
    record.unlink()
    survey(there)
    state = record.parent.stat()
    record.write_bytes(raw)
    monkeypatch.setattr(shards, "states", _as_before(shards.states, record.parent, state))
    grow_old(folder)
    assert remove(there, KEY).blobs == ()
    assert len(blobs_of(folder)) == 1


def _as_before(states, path, state):
    """Have a folder look as if nothing had come or gone."""
    name = f"actions/{path.name}"
    return lambda *args: {**states(*args), name: state.st_ctime_ns}


def test_where_records_cannot_be_read_no_value_goes(folder, there, monkeypatch):
    (digest,) = keep(opened(folder), b"1" * MIDDLE, key=KEY)
    keep(opened(folder), b"1" * MIDDLE, key=OTHER)
    grow_old(folder)
    read = files.read_file

    def failing(path):
        if OTHER in path:
            raise OSError(5, "Input/output error", path)
        return read(path)

    monkeypatch.setattr(files, "read_file", failing)
    assert remove(there, KEY).kept == (digest,)


@pytest.mark.parametrize("kind", ["halved", "zeros", "emptied"])
def test_a_damaged_record_can_be_removed(folder, there, kind):
    keep(opened(folder), b"1" * MIDDLE)
    damage(records_of(folder), kind)
    found = remove(there, KEY)
    assert (found.blobs, records_of(folder)) == ((), [])
    assert surveyed(folder) == walked(folder)


def test_blobs_that_are_gone_are_no_error(folder, there):
    keep(opened(folder), b"1" * MIDDLE)
    blobs_of(folder)[0].unlink()
    assert remove(there, KEY).blobs == ()


def test_a_key_that_is_none_or_unknown_is_refused(folder, there):
    keep(opened(folder), b"1" * MIDDLE)
    for key in ("", "ab", "AB" * 32, "../" * 30, None, 5):
        with pytest.raises(InvalidInput, match="a key is 64 hexadecimal digits"):
            remove(there, key)
    with pytest.raises(UnknownName, match="there is no record of the key"):
        remove(there, OTHER)
    with pytest.raises(OSError, match="read only"):
        remove(Folder(str(folder), read_only=True), KEY)
    assert len(records_of(folder)) == 1
