from __future__ import annotations

import errno
import os
import stat

import pytest

from soma_cache import open_store
from soma_cache.opening import default_folder
from support.cache_folders import assert_sound, blobs_of, everything
from support.cache_work import (
    ALL_CALLS,
    LARGE,
    MIDDLE,
    SMALL,
    studies,
    study,
    study_on_full_disk,
    study_read_only,
    study_twice,
    study_without_folder,
)

SIZES = (SMALL, MIDDLE, LARGE)


@pytest.fixture
def warm(forker, folder):
    """A folder with three studies in it."""
    assert forker.run(studies, SIZES).calls == ALL_CALLS * 3
    return folder


def close_to_writing(folder):
    """Take the right to write away; return what gives it back."""
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in [folder, *folder.rglob("*")]}
    for path, mode in modes.items():
        path.chmod(mode & 0o555)
    return lambda: [path.chmod(mode) for path, mode in modes.items()]


def the_line(done):
    """Return the one line that a child has said."""
    assert done.status == 0, done.stderr
    (said,) = done.stderr.splitlines()
    assert said.startswith("soma: ")
    return said


# ---------------------------------------------------------------- folders that cannot be used


def test_in_a_folder_that_cannot_be_written_hits_are_found(forker, warm):
    give_back = close_to_writing(warm)
    try:
        before = everything(warm)
        done = forker.start(studies, SIZES, plain=True).wait()
        assert done.value == (True, [])
        line = the_line(done)
        assert "cannot be written" in line
        assert str(warm) in line
        done = forker.start(study_twice, SMALL + 1, LARGE + 1, plain=True).wait()
        first, second = done.value
        assert first == [(True, ALL_CALLS)] * 2
        assert second == [(True, [])] * 2  # from the memory of the process
        the_line(done)
        assert everything(warm) == before
    finally:
        give_back()


def test_what_is_damaged_in_a_folder_that_cannot_be_written_is_left_there(forker, warm):
    for path in blobs_of(warm):
        path.chmod(0o644)
        path.write_bytes(b"damaged" * 10)
    give_back = close_to_writing(warm)
    try:
        before = everything(warm)
        done = forker.start(studies, SIZES, plain=True).wait()
        assert done.value.right
        assert len(done.stderr.splitlines()) == 2  # that it is read, and that something is damaged
        assert everything(warm) == before
    finally:
        give_back()


def test_a_cache_opened_to_be_read_is_not_changed(forker, warm):
    before = everything(warm)
    done = forker.start(study_read_only, str(warm), SIZES).wait()
    found, other, again, refused = done.value
    assert (found, other, again) == ((True, []), (True, ALL_CALLS), (True, []))
    assert refused == [errno.EROFS] * 2
    assert done.stderr == ""
    assert everything(warm) == before


def under_a_file(tmp_path):
    (tmp_path / "file").write_bytes(b"mine")
    return tmp_path / "file" / "cache"


def a_file(tmp_path):
    (tmp_path / "file").write_bytes(b"mine")
    return tmp_path / "file"


def a_loop(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    return tmp_path / "loop"


def a_link_to_nothing(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nothing" / "here")
    return tmp_path / "link"


def below_what_is_closed(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    return tmp_path / "closed" / "cache"


def a_long_name(tmp_path):
    return tmp_path / ("x" * 300)


@pytest.mark.parametrize(
    "place",
    [under_a_file, a_file, a_loop, a_link_to_nothing, below_what_is_closed, a_long_name],
)
def test_a_folder_that_cannot_be_made_costs_a_line(forker, tmp_path, place):
    path = place(tmp_path)
    before = everything(tmp_path)
    done = forker.start(study_twice, *SIZES, plain=True, SOMA_CACHE_DIR=str(path)).wait()
    first, second = done.value
    assert first == [(True, ALL_CALLS)] * 3
    assert second == [(True, [])] * 3  # held in memory
    assert "memory" in the_line(done)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("inside", ["tmp", "actions", "cas", "cas/b3", "actions/*", "cas/b3/*"])
@pytest.mark.parametrize("what", ["file", "link", "closed"])
def test_what_stands_in_the_way_of_results_costs_a_line(forker, folder, inside, what):
    open_store(folder)
    for name in [inside] if "*" not in inside else [inside[:-1] + f"{at:02x}" for at in range(256)]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.rmdir()
        if what == "file":
            path.write_bytes(b"mine")
        elif what == "link":
            path.symlink_to("nothing")
        else:
            path.mkdir(mode=0o000)
    before = everything(folder)
    done = forker.start(studies, SIZES, plain=True).wait(20)
    assert done.value.right
    said = done.stderr.splitlines()
    read = what == "closed" and inside.startswith("actions")  # reading records fails as well
    assert len(said) == (2 if read else 1), said
    now = everything(folder)
    assert {name: now[name][2] for name in before} == {name: before[name][2] for name in before}
    assert [name for name in now if name.startswith("tmp/")] == []


@pytest.mark.parametrize("what", ["folder", "fifo", "closed file", "link"])
def test_without_locks_each_process_computes_for_itself(forker, folder, what):
    open_store(folder)
    path = folder / "locks"
    path.unlink(missing_ok=True)
    if what == "folder":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "link":
        path.symlink_to("nothing/here")
    else:
        path.touch(mode=0o000)
    done = forker.start(studies, SIZES, plain=True).wait(20)
    assert done.value == (True, ALL_CALLS * 3)
    assert len(done.stderr.splitlines()) <= 1
    done = forker.start(studies, SIZES, plain=True).wait(20)
    assert (done.value, done.stderr) == ((True, []), "")
    assert len(assert_sound(folder)) == 9


def test_a_file_that_may_not_be_longer_is_not_kept_and_smaller_ones_are(forker, folder):
    done = forker.start(study_twice, LARGE, SMALL, MIDDLE, most_bytes=200_000).wait()
    first, second = done.value
    assert [one.right for one in first + second] == [True] * 6
    assert [one.calls for one in first[1:]] == [ALL_CALLS] * 2
    assert [one.calls for one in second[1:]] == [[], []]
    assert os.strerror(errno.EFBIG) in the_line(done)
    assert list((folder / "tmp").iterdir()) == []
    assert len(assert_sound(folder)) == 6  # of the two that are small enough
    done = forker.start(studies, (SMALL, MIDDLE)).wait()
    assert (done.value, done.stderr) == ((True, []), "")
    done = forker.start(study, LARGE).wait()
    assert (done.value.right, done.stderr) == (True, "")
    assert len(assert_sound(folder)) == 9


def test_on_a_full_disk_runs_go_on_and_what_fits_is_kept(forker, folder):
    done = forker.start(study_on_full_disk, LARGE, SMALL).wait()
    if done.value is None:
        pytest.skip("no file system can be mounted here")
    found, left, records = done.value
    assert [one.right for one in found] == [True] * 3
    assert found[2].calls == []
    assert left == []
    assert records >= 3
    assert os.strerror(errno.ENOSPC) in the_line(done)


def test_a_folder_that_is_removed_while_its_user_lives_is_made_again(forker, folder):
    done = forker.start(study_without_folder, MIDDLE).wait()
    assert [one.right for one in done.value] == [True] * 3
    assert done.value[2].calls == ALL_CALLS
    assert done.stderr == ""
    assert len(assert_sound(folder)) >= 3
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    done = forker.start(study, MIDDLE + 1).wait()
    assert (done.value, done.stderr) == ((True, []), "")


# ---------------------------------------------------------------- where it lies


def test_the_folder_may_be_renamed_linked_and_copied(forker, warm, tmp_path):
    moved = tmp_path / "moved"
    warm.rename(moved)
    link, copy = tmp_path / "link", tmp_path / "copy"
    link.symlink_to(moved)
    copy.mkdir()
    for path in sorted(moved.rglob("*")):  # as somebody who knows nothing of it would
        target = copy / path.relative_to(moved)
        target.mkdir() if path.is_dir() else target.write_bytes(path.read_bytes())
    for place in (moved, link, copy):
        done = forker.start(studies, SIZES, SOMA_CACHE_DIR=str(place)).wait()
        assert (done.value, done.stderr) == ((True, []), "")
    assert not warm.exists()


@pytest.mark.parametrize(
    "name", ["cache", "a b/c d", "Zwischenspeicher für 節點", "%2e%2e", "~ x", "a\nb"]
)
def test_the_folder_may_have_any_name(forker, tmp_path, name):
    for calls in (ALL_CALLS * 3, []):
        done = forker.start(studies, SIZES, cwd=tmp_path, SOMA_CACHE_DIR=name).wait()
        assert (done.value, done.stderr) == ((True, calls), "")
    assert len(assert_sound(tmp_path / name)) == 9


def test_without_a_name_it_lies_in_the_home_of_the_user(forker, monkeypatch, tmp_path):
    monkeypatch.delenv("SOMA_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == f"{tmp_path}/.soma/cache"
    monkeypatch.setenv("SOMA_CACHE_DIR", "")
    assert default_folder() == f"{tmp_path}/.soma/cache"
    monkeypatch.setenv("SOMA_CACHE_DIR", "~/other")
    assert default_folder() == f"{tmp_path}/other"
    monkeypatch.delenv("SOMA_CACHE_DIR")
    done = forker.start(study, SMALL, HOME=str(tmp_path)).wait()
    assert (done.value, done.stderr) == ((True, ALL_CALLS), "")
    assert len(assert_sound(tmp_path / ".soma" / "cache")) == 3
    assert stat.S_IMODE((tmp_path / ".soma" / "cache").stat().st_mode) == 0o700
