from __future__ import annotations

import os

import pytest

from support.cache_folders import DAMAGES, assert_sound, blobs_of, damage, records_of
from support.cache_work import (
    ALL_CALLS,
    LARGE,
    MIDDLE,
    SMALL,
    flip_every_byte,
    replace_by_no_frame,
    study,
    study_and_damage,
)

SIZES = pytest.mark.parametrize("items", [MIDDLE, LARGE], ids=["below 1 MiB", "above 1 MiB"])
KINDS = pytest.mark.parametrize("kind", DAMAGES)


def lines(done):
    """Return what a child has said; fail where it did not come to its end, or said too much."""
    assert done.status == 0, done.stderr
    said = done.stderr.splitlines()
    assert len(said) <= 1, done.stderr
    assert all(one.startswith("soma: ") for one in said), done.stderr
    return said


def assert_healed(forker, folder, items):
    """A later process finds everything, and the folder is sound."""
    done = forker.start(study, items).wait()
    assert (done.value.right, done.value.calls) == (True, [])
    assert lines(done) == []
    records = assert_sound(folder)
    assert {one["key"] for one in records} == {path.stem for path in records_of(folder)}
    assert len(records) == 3  # add, the state, learn


@SIZES
@KINDS
def test_what_is_damaged_is_made_again_by_a_new_process(forker, folder, kind, items):
    assert forker.run(study, items).calls == ALL_CALLS
    blobs = blobs_of(folder)
    assert len(blobs) == 3
    damage(blobs, kind)
    done = forker.start(study, items).wait()
    assert done.value.right
    assert "fit" in done.value.calls
    said = lines(done)
    if kind not in ("removed", "symlink to nothing", "loop"):
        assert "was damaged" in said[0]
    assert_healed(forker, folder, items)


@SIZES
@KINDS
def test_what_is_damaged_while_its_writer_lives(forker, folder, kind, items):
    """The writer may have it in memory still; another process makes it again then."""
    done = forker.start(study_and_damage, str(folder), kind, items).wait()
    first, second = done.value
    assert (first.right, first.calls, second.right) == (True, ALL_CALLS, True)
    lines(done)
    done = forker.start(study, items).wait()
    assert done.value.right
    lines(done)
    assert_healed(forker, folder, items)


@SIZES
@KINDS
def test_what_is_damaged_while_its_reader_lives(forker, folder, kind, items):
    forker.run(study, items)
    done = forker.start(study_and_damage, str(folder), kind, items).wait()
    first, second = done.value
    assert (first.right, first.calls, second.right) == (True, [], True)
    lines(done)
    done = forker.start(study, items).wait()
    assert done.value.right
    lines(done)
    assert_healed(forker, folder, items)


@KINDS
def test_a_damaged_record_is_a_miss(forker, folder, kind):
    assert forker.run(study, SMALL).calls == ALL_CALLS
    assert len(records_of(folder)) == 3
    assert blobs_of(folder) == []
    damage(records_of(folder), kind)
    done = forker.start(study, SMALL).wait()
    assert (done.value.right, done.value.calls) == (True, ALL_CALLS)
    lines(done)
    assert_healed(forker, folder, SMALL)


@pytest.mark.parametrize("text", [b"not JSON\n", b"{}", b"[]\n", b"null", b"[" * 100_000, b"\xff"])
def test_a_record_that_is_something_else_is_a_miss(forker, folder, text):
    forker.run(study, SMALL)
    for path in records_of(folder):
        path.unlink()
        path.write_bytes(text)
    done = forker.start(study, SMALL).wait()
    assert (done.value.right, done.value.calls) == (True, ALL_CALLS)
    assert lines(done) == []
    assert_healed(forker, folder, SMALL)


def test_a_record_of_many_gigabytes_is_not_read(forker, folder):
    forker.run(study, SMALL)
    for path in records_of(folder):
        path.chmod(0o644)
        os.truncate(path, 1 << 40)
    done = forker.start(study, SMALL).wait(20)
    assert (done.value.right, done.value.calls) == (True, ALL_CALLS)
    lines(done)
    assert_healed(forker, folder, SMALL)


def test_records_that_lie_under_each_others_names_are_misses(forker, folder):
    forker.run(study, SMALL)
    forker.run(study, MIDDLE)
    paths = records_of(folder)
    raws = [path.read_bytes() for path in paths]
    for path, raw in zip(paths, raws[1:] + raws[:1], strict=True):
        path.unlink()
        path.write_bytes(raw)
    for items in (SMALL, MIDDLE):
        done = forker.start(study, items).wait()
        assert (done.value.right, done.value.calls) == (True, ALL_CALLS)
        assert lines(done) == []
    assert len(assert_sound(folder)) == 6


@pytest.mark.parametrize("bit", [0, 5])
def test_a_record_with_any_byte_flipped_is_a_miss(forker, folder, bit):
    forker.run(study, SMALL)
    assert forker.run(flip_every_byte, str(folder), bit) == []
    assert_healed(forker, folder, SMALL)


def test_what_somebody_else_has_kept_under_a_right_hash_is_no_frame(forker, folder):
    forker.run(study, MIDDLE)
    forker.run(replace_by_no_frame, str(folder))
    done = forker.start(study, MIDDLE).wait()
    assert (done.value.right, done.value.calls) == (True, ["learn"])
    lines(done)  # that learn is not deterministic: it was said to have given something else
    done = forker.start(study, MIDDLE).wait()
    assert (done.value.right, done.value.calls, done.stderr) == (True, [], "")
