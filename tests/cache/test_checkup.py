"""What ``soma doctor`` says of the cache on disk, fine and broken."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import time

import pytest

from soma_cache import checkup as checkup_room
from soma_cache import contents, filesystem, open_store
from soma_cache.checkup import checkup
from soma_cache.remote import Remote
from support.broken_tiers import DictTier
from support.cache_doctor import checked, checked_on
from support.cache_folders import blobs_of, damage, everything, records_of
from support.cache_work import MIDDLE, SMALL, studies
from support.distributions import run_soma, write_plugin

HEALTHY = [
    "cache folder",
    "cache format",
    "cache writing",
    "cache times",
    "cache locks",
    "free disk",
    "cache size",
    "cache sample",
]


@pytest.fixture(scope="module")
def studied(forker, tmp_path_factory):
    """A cache with two studies in it, which nobody changes."""
    folder = tmp_path_factory.mktemp("studied") / "cache"
    forker.run(studies, (SMALL, MIDDLE), SOMA_CACHE_DIR=str(folder), SOMA_CACHE_KEEP="all")
    return folder


@pytest.fixture
def warm(studied, folder):
    """A copy of it, which may be changed."""
    shutil.copytree(studied, folder)
    return folder


def faults(found=None):
    """Return about -> state of all that is not fine; how full the disk is has tests of its own."""
    found = checked() if found is None else found
    for state, text, advice in found.values():
        assert text
        assert "\n" not in text + advice
        assert bool(advice) == (state != "fine")
    return {
        about: one[0] for about, one in found.items() if one[0] != "fine" and "free" not in about
    }


def told(about):
    """Return state, text and advice, in one text."""
    return " | ".join(checked()[about])


def bytes_of(folder):
    """Return path -> content of all but the index, which is derived."""
    found = {name: inside for name, (_, _, inside) in everything(folder).items()}
    return {name: inside for name, inside in found.items() if name.split("/")[0] != "index"}


class TestHealthy:
    def test_a_cache_in_use(self, warm):
        before = bytes_of(warm)
        found = list(checkup())
        assert [one.about for one in found] == HEALTHY
        assert faults() == {}
        assert bytes_of(warm) == before
        said = {one.about: one.text for one in found}
        assert said["cache folder"] == f"{warm}, mode 0700, yours"
        assert said["cache format"] == "version 2"
        nbytes, count = sum(one.stat().st_size for one in blobs_of(warm)), len(blobs_of(warm))
        assert (count, len(records_of(warm))) == (3, 6)  # the small values lie in their records
        assert said["cache size"].startswith(f"6 results; 3 blobs, {nbytes / 1024:.0f} KiB")
        assert said["cache sample"].startswith("3 blobs read, ")

    def test_what_was_read_before_is_not_read_again(self, warm):
        told("cache sample")
        assert "3 as they were" in told("cache sample")

    def test_where_none_is_yet_none_is_made(self, folder):
        assert faults() == {}
        assert told("cache folder") == f"fine | {folder} is not there; the first result makes it | "
        assert not folder.exists()

    def test_an_empty_folder_stays_empty(self, folder):
        folder.mkdir(mode=0o700)
        assert faults() == {}
        assert list(folder.iterdir()) == []

    def test_among_other_things(self, folder):
        folder.mkdir()
        (folder / "thesis.tex").write_bytes(b"mine")
        assert faults() == {"cache format": "note"}
        assert [one.name for one in folder.iterdir()] == ["thesis.tex"]

    def test_a_cache_of_the_user_without_variables(self, monkeypatch, tmp_path):
        monkeypatch.delenv("SOMA_CACHE_DIR")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert str(tmp_path / ".soma" / "cache") in told("cache folder")
        assert list(tmp_path.iterdir()) == []


class TestPlace:
    @pytest.mark.parametrize("kind", ["a file", "under a file", "loop", "link", "long"])
    def test_what_can_be_no_folder(self, tmp_path, monkeypatch, kind):
        path = tmp_path / ("x" * 300 if kind == "long" else "it")
        if "file" in kind:
            path.write_bytes(b"mine")
        elif kind == "loop":
            path.symlink_to(path)
        elif kind == "link":
            path.symlink_to(tmp_path / "nothing" / "here")
        monkeypatch.setenv("SOMA_CACHE_DIR", str(path / "cache" if "under" in kind else path))
        before = everything(tmp_path)
        found = checked()
        assert faults(found) == {"cache folder": "wrong"}
        assert list(found) == ["cache folder"]  # one cause is one finding
        assert "export SOMA_CACHE_DIR=" in found["cache folder"][2]
        assert everything(tmp_path) == before

    def test_below_what_is_closed(self, forker, tmp_path):
        (tmp_path / "closed").mkdir(mode=0o500)
        path = str(tmp_path / "closed" / "a" / "cache")
        found = forker.run(checked, plain=True, SOMA_CACHE_DIR=path)
        assert faults(found) == {"cache folder": "wrong"}
        assert f"nothing can be written to {tmp_path / 'closed'}" in found["cache folder"][1]

    @pytest.mark.parametrize("place", ["/proc/soma", "/proc/soma/a/cache"])
    def test_where_none_can_be_made_whatever_the_modes_say(self, monkeypatch, place):
        monkeypatch.setenv("SOMA_CACHE_DIR", place)
        assert faults() == {"cache folder": "wrong"}
        assert "/proc takes no folder: " in told("cache folder")
        assert "chmod" not in told("cache folder")

    def test_nothing_is_left_where_one_could_be_made(self, folder):
        before = sorted(folder.parent.iterdir())
        assert faults() == {}
        assert sorted(folder.parent.iterdir()) == before

    @pytest.mark.parametrize("below", ["", "a/cache"])
    def test_what_is_somebody_elses_is_not_ours_to_change(self, forker, warm, below):
        os.chown(warm, 54321, -1)
        path = str(warm / below)
        found = forker.run(checked, plain=True, SOMA_CACHE_DIR=path)
        assert faults(found) == {"cache folder": "wrong"}
        assert "chmod" not in found["cache folder"][2]
        assert "it belongs to user 54321: ask for access" in found["cache folder"][2]

    def test_where_the_working_folder_is_gone(self, tmp_path, monkeypatch):
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        monkeypatch.setenv("SOMA_CACHE_DIR", "there")
        assert faults() == {"cache folder": "wrong"}
        assert "'there' counts from the working folder, and that has" in told("cache folder")

    def test_it_cannot_be_read(self, forker, warm):
        warm.chmod(0o000)
        try:
            found = forker.run(checked, plain=True)
        finally:
            warm.chmod(0o700)
        assert faults(found) == {"cache folder": "wrong"}
        assert f"chmod u+rwx {warm}" in found["cache folder"][2]

    def test_it_cannot_be_written(self, forker, warm):
        before = bytes_of(warm)
        for path in [warm, *warm.rglob("*")]:
            path.chmod(path.stat().st_mode & 0o555)
        try:
            found = forker.run(checked, plain=True)
            assert bytes_of(warm) == before
        finally:
            for path in [warm, *warm.rglob("*")]:
                path.chmod(path.stat().st_mode | 0o200)
        assert faults(found) == {"cache writing": "wrong"}
        assert os.strerror(errno.EACCES) in found["cache writing"][1]
        assert found["cache sample"][0] == "fine"  # what is there is used

    def test_everybody_may_write_to_it(self, warm):
        warm.chmod(0o777)
        assert faults() == {"cache folder": "note"}
        assert f"chmod o-w {warm}" in told("cache folder")

    def test_it_is_somebody_elses(self, warm):
        if os.geteuid() != 0:
            pytest.skip("only root can give something away")
        os.chown(warm, 54321, -1)
        assert "mode 0700, of user 54321" in told("cache folder")


class TestFormat:
    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ('{"version": 99, "hash": "b3"}', "has format version 99"),
            ('{"version": 1}', "has format version 1, the first format"),
            ('{"version": 1}', "soma cache purge-v1"),
            ('{"version": 2, "features": ["magic"]}', "upgrade soma-cache"),
            ("", "does not say what lies in its folder"),
            ("\0" * 100, "does not say what lies in its folder"),
        ],
    )
    def test_one_that_is_not_known_is_left_as_it_is(self, folder, text, says):
        folder.mkdir()
        (folder / "format.json").write_text(text)
        before = everything(folder)
        assert faults() == {"cache format": "wrong"}
        assert says in told("cache format")
        assert everything(folder) == before

    def test_a_folder_in_place_of_the_format(self, folder):
        (folder / "format.json").mkdir(parents=True)
        assert faults() == {"cache format": "wrong"}
        assert f"{folder}/format.json is a folder" in told("cache format")


class TestFilesystem:
    def test_a_full_disk(self, forker):
        found = forker.run(checked_on, "size=1m,mode=700", "filled")
        if found is None:
            pytest.skip("no file system can be mounted here")
        assert faults(found) == {"cache writing": "wrong"}
        assert os.strerror(errno.ENOSPC) in found["cache writing"][1]
        assert found["free disk"][:2] == (
            "wrong",
            "0 B of 1.0 MiB: what does not fit is not kept, and computed every time",
        )

    def test_a_small_disk_and_few_files(self, forker):
        found = forker.run(checked_on, "size=120m,nr_inodes=700,mode=700")
        if found is None:
            pytest.skip("no file system can be mounted here")
        assert faults(found) == {}
        assert found["free disk"][0] == "note"
        assert found["free files"][0] == "wrong"
        assert " of 700 inodes" in found["free files"][1]

    def test_one_that_is_mounted_to_be_read(self, forker):
        found = forker.run(checked_on, "size=400m,mode=700", "read")
        if found is None:
            pytest.skip("no file system can be mounted here")
        assert faults(found) == {"cache writing": "wrong"}
        assert os.strerror(errno.EROFS) in found["cache writing"][1]
        assert found["cache size"][1].startswith("3 results; ")

    @pytest.mark.parametrize(
        ("free", "total", "state"),
        [
            (99_999_999, 200_000_000, "wrong"),
            (999_999_999, 2_000_000_000, "note"),
            (2_000_000_000, 41_000_000_000, "note"),
            (2_000_000_000, 39_000_000_000, "fine"),
            (60_000_000_000, 10_000_000_000_000, "fine"),
            (49_000_000_000, 10_000_000_000_000, "note"),
        ],
    )
    def test_how_much_room_is_enough(self, monkeypatch, free, total, state):
        monkeypatch.setattr(
            filesystem.shutil, "disk_usage", lambda path: (total, total - free, free)
        )
        assert checked()["free disk"][0] == state

    @pytest.mark.parametrize("kind", ["folder", "link"])
    def test_locks_that_do_not_work(self, warm, kind):
        path = warm / "locks"
        path.unlink(missing_ok=True)
        if kind == "folder":
            path.mkdir()
        else:
            path.symlink_to("nothing/here")
        assert faults() == {"cache locks": "note"}
        assert f"remove {path}" in told("cache locks")

    def test_what_stands_in_place_of_tmp(self, warm):
        (warm / "tmp").rmdir()
        (warm / "tmp").write_bytes(b"mine")
        found = faults()
        assert found["cache writing"] == "wrong"
        assert (warm / "tmp").read_bytes() == b"mine"

    @pytest.mark.parametrize(
        "name", ["actions", "cas", "cas/b3", "pins", "actions/00", "cas/b3/ff"]
    )
    def test_what_stands_in_place_of_a_folder(self, folder, name):
        open_store(folder)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"mine")
        found = [one for one in checkup() if one.state == "wrong"]
        assert found
        text = f"nothing can be put into {folder / name}"
        assert (found[0].about, found[0].text) == ("cache writing", text)

    def test_folders_that_are_closed(self, forker, warm):
        closed = sorted((warm / "actions").iterdir())
        for path in closed:
            path.chmod(0o500)
        try:
            found = forker.run(checked, plain=True)
        finally:
            for path in closed:
                path.chmod(0o700)
        assert faults(found) == {"cache writing": "wrong"}
        assert f", nor {len(closed) - 1} more like it" in found["cache writing"][1]

    def test_times_that_are_not_kept(self, warm, monkeypatch):
        monkeypatch.setattr(filesystem.os, "utime", lambda path, times: None)
        assert faults() == {"cache times": "note"}

    @pytest.mark.parametrize(("by_s", "says"), [(-90, "ahead of ours"), (90, "behind ours")])
    def test_a_clock_that_is_another(self, warm, monkeypatch, by_s, says):
        now = time.time
        monkeypatch.setattr(filesystem.time, "time", lambda: now() + by_s)
        found = list(filesystem.look_at_writing(str(warm), is_cache=True))
        monkeypatch.undo()
        (note,) = [one for one in found if one.state != "fine"]
        assert (note.about, note.state) == ("cache times", "note")
        assert says in note.text


class TestContents:
    @pytest.mark.parametrize("kind", ["first bit", "last bit", "halved", "emptied", "zeros"])
    def test_a_damaged_blob(self, warm, kind):
        first, *_ = blobs_of(warm)
        damage([first], kind)
        assert faults() == {"cache sample": "wrong"}
        assert f"1 blob ({first.stem[:12]}…)" in told("cache sample")
        assert "soma cache verify" in told("cache sample")
        assert first.exists()  # nothing is taken away

    def test_many_of_them(self, warm):
        damage(blobs_of(warm), "middle bit")
        assert "damaged: 3 blobs (" in told("cache sample")

    def test_damage_is_found_after_it_was_fine(self, warm):
        assert faults() == {}
        damage(blobs_of(warm)[:1], "middle bit")
        assert faults() == {"cache sample": "wrong"}

    def test_a_blob_that_was_removed_is_no_damage(self, warm):
        blobs_of(warm)[0].unlink()
        assert faults() == {}
        assert "6 results; 2 blobs" in told("cache size")

    def test_above_the_limit(self, warm, monkeypatch):
        monkeypatch.setenv("SOMA_CACHE_MAX_SIZE", "1K")
        assert faults() == {"cache size": "note"}
        assert "SOMA_CACHE_MAX_SIZE is 1.0 KiB, but " in told("cache size")
        assert "was used in the last hour, and stays" in told("cache size")
        command = "soma cache gc --max-size 1K"
        assert told("cache size").endswith(
            f"| wait an hour, or take that as well: {command} --min-age 0"
        )
        for blob in blobs_of(warm):
            os.utime(blob, (1, 1))
        assert "used in the last hour" not in told("cache size")
        assert told("cache size").endswith(f"cleans up, or now: {command}")
        store = open_store(warm)
        for record in store.records():
            store.pin(record.key, record.key)
        assert "is pinned, and stays | soma cache pins" in told("cache size")
        monkeypatch.setenv("SOMA_CACHE_MAX_SIZE", "1G")
        assert faults() == {}

    def test_what_a_killed_writer_has_left(self, warm):
        (warm / "tmp" / "folder").mkdir()
        os.utime(warm / "tmp" / "folder", (0, 0))
        left = warm / "tmp" / "host-1-2"
        left.write_bytes(bytes(5000))
        assert faults() == {}  # its writer may be at work
        os.utime(left, (0, 0))
        assert faults() == {"cache tmp": "note"}
        assert "1 file of writers that did not end well, 4.9 KiB" in told("cache tmp")

    @pytest.mark.parametrize("name", ["actions", "cas/b3", "actions/*", "cas/b3/*", "pins"])
    @pytest.mark.parametrize("uid", [0, 54321])
    def test_what_cannot_be_listed_is_no_fault_of_the_check(self, forker, warm, name, uid):
        (warm / "pins").mkdir(exist_ok=True)
        closed = sorted(warm.glob(name))[:2]
        for path in closed:
            os.chown(path, uid, -1)
            path.chmod(0o300 if uid == 0 else 0o700)
        found = forker.run(checked, plain=True)
        for path in closed:
            path.chmod(0o700)
        wrong = [one for one in found.values() if one[0] == "wrong"]
        assert wrong
        for _, text, advice in wrong:
            assert any(str(path) in text for path in closed)
            assert ("chmod -R u+rX" in advice or "chmod -R u+rwX" in advice) == (uid == 0)
            assert ("it belongs to user 54321: ask for access" in advice) == (uid != 0)

    def test_whatever_else_is_broken_is_a_finding(self, warm, monkeypatch):
        def broken(*args, **options):
            raise ZeroDivisionError

        monkeypatch.setattr(contents, "survey", broken)
        assert faults() == {"cache size": "wrong"}
        monkeypatch.setattr(contents, "verify", broken)
        assert faults() == {"cache size": "wrong", "cache sample": "wrong"}
        assert "it cannot be checked: ZeroDivisionError" in told("cache sample")


class TestVariables:
    @pytest.mark.parametrize("said", ["lots", "-1", "0", "nan", "9" * 400, "1e9", " "])
    def test_what_is_no_size(self, monkeypatch, said):
        monkeypatch.setenv("SOMA_CACHE_MAX_SIZE", said)
        assert faults() == {"cache variables": "wrong"}
        assert "export SOMA_CACHE_MAX_SIZE=20G" in told("cache variables")

    @pytest.mark.parametrize(
        ("name", "value", "says"),
        [
            ("SOMA_CACHE_FSYNC", "never", "'never' is taken for 'auto'"),
            ("SOMA_CACHE_MAXSIZE", "20G", "Did you mean 'SOMA_CACHE_MAX_SIZE'?"),
            ("SOMA_CACHE_PATH", "/x", "Did you mean 'SOMA_CACHE_"),
            ("SOMA_CACHE_DIR", "here", "counts from where a process stands"),
        ],
    )
    def test_what_means_nothing_or_little(self, monkeypatch, tmp_path, name, value, says):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv(name, value)
        assert faults() == {"cache variables": "note"}
        assert says in told("cache variables")

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("SOMA_CACHE_FSYNC", "always"),
            ("SOMA_CACHE_FSYNC", ""),
            ("SOMA_CACHE_MAX_SIZE", "20G"),
            ("SOMA_CACHE_MAX_SIZE", ""),
            ("SOMA_CACHE_DIR", "~/caches"),
            ("SOMA_CACHE_REMOTE", ""),
        ],
    )
    def test_what_means_something(self, monkeypatch, tmp_path, name, value):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv(name, value)
        assert faults() == {}


class TestRemote:
    def test_a_shared_folder(self, monkeypatch, tmp_path, warm):
        monkeypatch.setenv("SOMA_CACHE_REMOTE", warm.as_uri())
        assert told("remote cache") == f"fine | {warm.as_uri()} answers | "
        monkeypatch.setenv("SOMA_CACHE_REMOTE", f"{warm.as_uri()}?read_only=true")
        assert told("remote cache") == f"fine | {warm.as_uri()} answers, to be read | "

    def test_one_that_is_not_there(self, monkeypatch, tmp_path):
        there = tmp_path / "shared"
        monkeypatch.setenv("SOMA_CACHE_REMOTE", there.as_uri())
        assert faults() == {"remote cache": "note"}
        assert "mounted?" in told("remote cache")
        assert not there.exists()

    def test_one_that_cannot_be_written(self, forker, tmp_path):
        there = tmp_path / "shared"
        open_store(there)
        there.chmod(0o500)
        found = forker.run(checked, plain=True, SOMA_CACHE_REMOTE=there.as_uri())
        assert faults(found) == {"remote cache": "note"}
        assert "?read_only=true" in found["remote cache"][2]

    def test_one_of_another_format(self, monkeypatch, tmp_path):
        there = tmp_path / "shared"
        there.mkdir()
        (there / "format.json").write_text(json.dumps({"version": 99}))
        monkeypatch.setenv("SOMA_CACHE_REMOTE", there.as_uri())
        assert faults() == {"remote cache": "wrong"}
        assert "format version 99" in told("remote cache")

    @pytest.mark.parametrize(
        "url", ["nobody://there", "shared/cache", "file:/x#y", "file://me:secret@there/x"]
    )
    def test_an_address_that_cannot_be_right(self, monkeypatch, url):
        monkeypatch.setenv("SOMA_CACHE_REMOTE", url)
        assert faults() == {"remote cache": "wrong"}
        assert "secret" not in told("remote cache")

    def test_one_that_hangs_and_one_that_raises(self, monkeypatch):
        never = threading.Event()

        class Hangs(DictTier):
            def exists(self, name):
                never.wait(30)

        class Raises(DictTier):
            def exists(self, name):
                raise RuntimeError("the wire\nis cut")

        monkeypatch.setenv("SOMA_CACHE_REMOTE", "wire://there")
        monkeypatch.setattr(checkup_room, "_ANSWER_S", 0.1)
        try:
            for tier, says in ((Hangs(), "within 0.1 s"), (Raises(), "RuntimeError: the wire")):
                monkeypatch.setattr(
                    checkup_room, "open_remote", lambda url, tier=tier: Remote(tier, url)
                )
                found = [one for one in checkup() if one.about == "remote cache"]
                assert [one.state for one in found] == ["wrong"]
                assert says in found[0].text
        finally:
            never.set()


class TestDoctor:
    def test_of_an_installation_that_is_well(self, warm):
        done = run_soma("doctor --json", SOMA_CACHE_DIR=str(warm))
        found = {row["about"]: row for row in json.loads(done.stdout)}
        assert [row["text"] for row in found.values() if row["state"] == "wrong"] == []
        assert (done.returncode, done.stderr) == (0, "")
        assert set(HEALTHY) <= found.keys()
        assert found["cache"]["text"].startswith("Graph() keeps results by 'disk' of soma-cache ")
        assert found["session child"]["state"] == "fine"

    def test_of_one_that_is_broken_all_over(self, tmp_path, folder):
        folder.mkdir()
        (folder / "format.json").write_text('{"version": 99}')
        write_plugin(tmp_path, "broken", plugin="raise ValueError('bad day')\n")
        done = run_soma(
            "doctor",
            tmp_path,
            SOMA_CACHE_DIR=str(folder),
            SOMA_CACHE_MAX_SIZE="lots",
            SOMA_STRICT_PLUGINS="1",
        )
        assert done.returncode == 1
        assert "Traceback" not in done.stdout + done.stderr
        lines = done.stdout.splitlines()
        wrong = [line.split(":")[0] for line in lines if line.startswith("  WRONG")]
        assert wrong == [
            "  WRONG  plugin broken",
            "  WRONG  cache",
            "  WRONG  cache variables",
            "  WRONG  cache format",
        ]
        at = [place for place, line in enumerate(lines) if line.startswith("  WRONG")]
        assert all(lines[place + 1].startswith("         -> ") for place in at)
        assert lines[-1].startswith("4 things are wrong")
