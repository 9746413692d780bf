from __future__ import annotations

import errno
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from blake3 import blake3

from soma import InvalidInput
from soma.testing import CacheTierSuite
from soma_cache import folder_tier
from soma_cache.folder_tier import FolderTier, folder_of_url

PATIENCE_S = 120
MIB = 1 << 20
NOISE = random.Random(1).randbytes(3 * MIB + 7)  # noqa: S311  # data, not secrets


def blob(raw):
    digest = blake3(raw).hexdigest()
    return f"cas/b3/{digest[:2]}/{digest}.bin"


def record(key):
    return f"actions/{key[:2]}/{key}.json"


def frame(*pieces):
    return pieces[0], [memoryview(one) for one in pieces[1:]]


def joined(found):
    return b"".join((found[0], *found[1]))


def files(folder):
    """Return path -> content of everything in a folder; None for folders."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in Path(folder).rglob("*")
    }


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "shared"


@pytest.fixture
def tier(folder):
    return FolderTier(f"file://{folder}")


def run(script, *args):
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


class TestSuite(CacheTierSuite):
    @pytest.fixture
    def tier(self, folder):
        return FolderTier(f"file://{folder}")

    @pytest.fixture
    def another(self, folder):
        return FolderTier(f"file://localhost{folder}")


class TestUrls:
    @pytest.mark.parametrize(
        ("url", "path"),
        [
            ("file:///shared/cache", "/shared/cache"),
            ("file:///shared/cache/", "/shared/cache"),
            ("file:/shared/cache", "/shared/cache"),
            ("FILE://localhost/shared/cache", "/shared/cache"),
            ("file:///my lab/the cache", "/my lab/the cache"),
            ("file:///my%20lab/100%25/%3F%23", "/my lab/100%/?#"),
            ("file:///größe/日本", "/größe/日本"),
            ("file:///gr%C3%B6%C3%9Fe", "/größe"),
            ("file:///not-utf8-%FF", "/not-utf8-\udcff"),
            ("file:///a+b/~/$HOME;x", "/a+b/~/$HOME;x"),
        ],
    )
    def test_a_url_names_a_folder(self, url, path):
        assert folder_of_url(url) == (path, False)
        assert folder_of_url(f"{url}?read_only=true") == (path, True)
        assert folder_of_url(f"{url}?read_only=false") == (path, False)
        assert FolderTier(url).folder == path

    @pytest.mark.parametrize(
        ("url", "says"),
        [
            ("s3://bucket/cache", "'s3'"),
            ("https://me:secret@host/cache", "'https'"),
            ("/shared/cache", "scheme file"),
            ("", "scheme file"),
            ("file:cache", "whole path"),
            ("file:", "whole path"),
            ("file:///", "whole path"),
            ("file://server/cache", "'server'"),
            ("file://me:secret@server/cache", "'server'"),
            ("file://[half/cache", "no url"),
            ("file:///a%00b", "whole path"),
            ("file:///a\nb", "control"),
            (" file:///a", "blanks"),
            ("file:///a ", "blanks"),
            ("file:///a#b", "%23"),
            ("file:///a#", "%23"),
            ("file:///a?readonly=true", "'readonly'"),
            ("file:///a?token=secret", "'token'"),
            ("file:///a?read_only=1", "'1'"),
            ("file:///a?read_only", "''"),
            ("file:///a?read_only=true&read_only=false", "more than once"),
            ("file:///\ud800", "no url"),
            (Path("/shared/cache"), "by its url"),
            (None, "by its url"),
        ],
    )
    def test_what_names_none_is_refused_and_says_why(self, url, says):
        with pytest.raises(InvalidInput) as caught:
            FolderTier(url)
        assert says in str(caught.value)
        assert "secret" not in str(caught.value)

    def test_a_folder_of_any_name_is_used(self, tmp_path):
        for name in ("two words", "größe", "100%", "a?b#c", os.fsdecode(b"\xff")):
            FolderTier("file://" + quote(os.fsencode(tmp_path / name))).put(blob(b"x"), frame(b"x"))
            assert (tmp_path / name / blob(b"x")).read_bytes() == b"x"


class TestWhatIsPut:
    @pytest.mark.parametrize(
        "pieces",
        [
            (b"",),
            (b"", b""),
            (b"header",),
            (b"header", b"one", b"", b"two"),
            (b"", NOISE),
            tuple(bytes([number % 251]) * number for number in range(1500)),
        ],
        ids=["nothing", "empty", "header", "several", "large", "many"],
    )
    def test_comes_back_and_lies_there_as_it_is(self, tier, folder, pieces):
        raw = b"".join(pieces)
        name = blob(raw)
        assert tier.get(name) is None
        assert tier.size(name) is None
        assert not tier.exists(name)
        tier.put(name, frame(*pieces))
        assert joined(tier.get(name)) == raw
        assert tier.size(name) == len(raw)
        assert tier.exists(name)
        assert (folder / name).read_bytes() == raw
        tier.delete(name)
        tier.delete(name)
        assert tier.get(name) is None
        assert not (folder / name).exists()

    def test_is_all_that_there_is(self, tier, folder):
        tier.put(blob(b"x"), frame(b"x"))
        tier.put(blob(b"x"), frame(b"x"))
        shard = blob(b"x")[7:9]
        assert files(folder) == {
            "format.json": b'{"version": 2, "hash": "b3", "features": ["inline"]}\n',
            "tmp": None,
            "cas": None,
            "cas/b3": None,
            f"cas/b3/{shard}": None,
            blob(b"x"): b"x",
        }

    def test_makes_the_folder_and_looking_does_not(self, tier, folder):
        tier.get(blob(b"x"))
        tier.exists(blob(b"x"))
        tier.size(blob(b"x"))
        tier.delete(blob(b"x"))
        assert list(tier.list("")) == []
        assert not folder.exists()
        tier.put(blob(b"x"), frame(b"x"))
        assert folder.is_dir()

    def test_replaces_what_was_there(self, tier):
        name = record("ab" * 32)
        tier.put(name, frame(b"old"))
        tier.put(name, frame(b"newer"))
        assert joined(tier.get(name)) == b"newer"

    def test_belongs_to_the_taker(self, tier):
        raw = b"x" * (2 * MIB)
        tier.put(blob(raw), frame(raw))
        taken = tier.get(blob(raw))[1][0]
        taken[:5] = b"spoil"
        assert joined(tier.get(blob(raw))) == raw

    def test_stays_with_the_taker_when_the_file_is_cut(self, tier, folder):
        raw = NOISE
        tier.put(blob(raw), frame(raw))
        taken = tier.get(blob(raw))
        os.truncate(folder / blob(raw), 0)
        assert joined(taken) == raw

    def test_finds_the_folder_again_after_somebody_has_removed_it(self, tier, folder):
        tier.put(blob(b"x"), frame(b"x"))
        assert tier.exists(blob(b"x"))
        folder.rename(folder.with_name("away"))
        assert tier.get(blob(b"x")) is None
        tier.put(blob(b"y"), frame(b"y"))
        assert joined(tier.get(blob(b"y"))) == b"y"
        assert (folder / "format.json").exists()

    @pytest.mark.parametrize("mask", [0o002, 0o022, 0o077])
    def test_has_the_modes_of_the_umask(self, tier, folder, mask):
        before = os.umask(mask)
        try:
            tier.put(blob(b"x"), frame(b"x"))
        finally:
            os.umask(before)
        made = [folder, *folder.rglob("*")]
        assert len(made) == 7
        for path in made:
            allowed = 0o777 if path.is_dir() else 0o444
            assert stat.S_IMODE(path.stat().st_mode) == allowed & ~mask, path


BAD_NAMES = [
    "",
    "format.json",
    "locks",
    "pins/best",
    "tmp/x",
    "/etc/passwd",
    "../" + record("ab" * 32),
    "actions/../../" + "ab" * 32 + ".json",
    "actions/cd/" + "ab" * 32 + ".json",
    "actions/ab/" + "ab" * 31 + ".json",
    "actions/AB/" + "AB" * 32 + ".json",
    record("ab" * 32) + "\n",
    record("ab" * 32) + "/",
    "cas/b3/ab/" + "ab" * 32 + ".json",
    "cas/ab/" + "ab" * 32 + ".bin",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_of_another_form_is_refused(tier, folder, name):
    tier.put(blob(b"x"), frame(b"x"))
    before = files(folder.parent)
    for call in (
        tier.get,
        tier.size,
        tier.exists,
        tier.delete,
        lambda one: tier.put(one, (b"", [])),
    ):
        with pytest.raises(InvalidInput, match="not a name in a cache"):
            call(name)
    assert files(folder.parent) == before


class TestList:
    @pytest.fixture
    def names(self, tier):
        keys = ["ab" * 32, "abcd" * 16, "12" * 32]
        made = [record(key) for key in keys]
        made += [f"cas/b3/{key[:2]}/{key}.bin" for key in [*keys, "ff" * 32]]
        for name in made:
            tier.put(name, frame(b"x"))
        return made

    @pytest.mark.parametrize(
        "prefix",
        [
            "",
            "a",
            "actions",
            "actions/",
            "actions/a",
            "actions/ab",
            "actions/ab/",
            "actions/ab/abcd",
            record("ab" * 32),
            record("ab" * 32) + "x",
            "cas/",
            "cas/b",
            "cas/b3/f",
            "cas/b4",
            "format",
            "tmp/",
            "x",
            "/",
        ],
    )
    def test_gives_the_names_that_start_so(self, tier, names, prefix):
        found = list(tier.list(prefix))
        assert len(found) == len(set(found))
        assert set(found) == {name for name in names if name.startswith(prefix)}

    def test_looks_only_where_something_can_start_so(self, tier, names, folder, monkeypatch):
        looked = []
        real = os.scandir
        monkeypatch.setattr(
            folder_tier.os, "scandir", lambda path: looked.append(path) or real(path)
        )
        assert list(tier.list("actions/ab/ab")) == sorted([record("ab" * 32), record("abcd" * 16)])
        assert looked == [f"{folder}/actions/", f"{folder}/actions/ab/"]

    def test_leaves_foreign_files_out(self, tier, names, folder):
        for path in ("README", "actions/notes.txt", "cas/b3/ab/.nfs0001", "actions/zz/x.json"):
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text("not ours")
        (folder / "actions/ab" / f"{'cd' * 32}.json").write_text("in the wrong folder")
        (folder / "cas/b3/ff" / os.fsdecode(b"\xff.bin")).write_text("no utf-8")
        (folder / record("ef" * 32)).mkdir(parents=True)
        (folder / "cas/b3/99").write_text("a file where a folder belongs")
        (folder / "cas/b3/ab" / f"{'ab' + '00' * 31}.bin").symlink_to("nowhere")
        assert sorted(tier.list("")) == sorted(names)


class TestReadOnly:
    @pytest.mark.parametrize("how", ["argument", "url"])
    def test_it_reads_and_refuses_to_write(self, tier, folder, how):
        tier.put(blob(b"x"), frame(b"x"))
        before = files(folder)
        if how == "url":
            other = FolderTier(f"file://{folder}?read_only=true")
        else:
            other = FolderTier(f"file://{folder}", read_only=True)
        assert other.read_only
        assert joined(other.get(blob(b"x"))) == b"x"
        assert other.exists(blob(b"x"))
        assert list(other.list("")) == [blob(b"x")]
        for call in (lambda: other.put(blob(b"y"), frame(b"y")), lambda: other.delete(blob(b"x"))):
            with pytest.raises(OSError, match="read only") as caught:
                call()
            assert caught.value.errno == errno.EROFS
        assert files(folder) == before

    def test_it_makes_no_folder(self, folder):
        with pytest.raises(OSError, match="read only"):
            FolderTier(f"file://{folder}", read_only=True).put(blob(b"y"), frame(b"y"))
        assert not folder.exists()


class TestFaults:
    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ('{"version": 3, "hash": "b3"}', "version 3"),
            ('{"version": "2"}', "version '2'"),
            ('{"version": 2, "hash": "sha256"}', "sha256"),
            ('{"version": 2, "features": ["sealed"]}', "sealed"),
            ("", "format.json"),
            ("[" * 100_000, "format.json"),
        ],
    )
    def test_a_folder_of_an_unknown_format_is_left_as_it_is(self, tier, folder, text, says):
        tier.put(blob(b"x"), frame(b"x"))
        (folder / "format.json").unlink()
        (folder / "format.json").write_text(text)
        before = files(folder)
        other = FolderTier(f"file://{folder}")
        for call in (
            lambda: other.get(blob(b"x")),
            lambda: other.size(blob(b"x")),
            lambda: other.exists(blob(b"x")),
            lambda: other.delete(blob(b"x")),
            lambda: other.put(blob(b"y"), frame(b"y")),
            lambda: list(other.list("")),
        ):
            with pytest.raises(OSError, match=says):
                call()
        assert files(folder) == before

    def test_a_path_under_a_file_is_an_error_of_the_system(self, tmp_path):
        (tmp_path / "file").write_text("here")
        tier = FolderTier(f"file://{tmp_path}/file/cache")
        with pytest.raises(OSError, match="file"):
            tier.put(blob(b"x"), frame(b"x"))
        with pytest.raises(OSError, match="file"):
            tier.get(blob(b"x"))
        assert files(tmp_path) == {"file": b"here"}

    def test_a_file_where_a_folder_belongs_is_an_error_and_a_miss(self, tier, folder):
        tier.put(blob(b"x"), frame(b"x"))
        (folder / "actions").write_text("here")
        with pytest.raises(OSError, match="actions"):
            tier.put(record("ab" * 32), frame(b"r"))
        assert tier.get(record("ab" * 32)) is None
        assert not tier.exists(record("ab" * 32))
        tier.delete(record("ab" * 32))
        assert list((folder / "tmp").iterdir()) == []

    def test_a_folder_where_a_file_belongs_is_a_miss_and_is_replaced(self, tier, folder):
        tier.put(blob(b"x"), frame(b"x"))
        (folder / blob(b"x")).unlink()
        (folder / blob(b"x") / "inside").mkdir(parents=True)
        assert tier.get(blob(b"x")) is None
        assert not tier.exists(blob(b"x"))
        tier.put(blob(b"x"), frame(b"x"))
        assert joined(tier.get(blob(b"x"))) == b"x"

    def test_a_pipe_is_a_miss_and_waits_for_nobody(self, tier, folder):
        tier.put(blob(b"x"), frame(b"x"))
        (folder / blob(b"x")).unlink()
        os.mkfifo(folder / blob(b"x"))
        assert tier.get(blob(b"x")) is None
        assert tier.size(blob(b"x")) is None

    def test_a_disk_that_is_full_leaves_nothing_half(self, folder):
        folder.mkdir()
        script = """
import errno, os, resource, sys
from soma_cache.folder_tier import FolderTier
tier = FolderTier("file://" + sys.argv[1])
tier.put("actions/ab/" + "ab" * 32 + ".json", (b"small", []))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    tier.put("cas/b3/ab/" + "ab" * 32 + ".bin", (b"head", [memoryview(bytes(1 << 20))]))
except OSError as error:
    print(errno.errorcode[error.errno])
tier.put("actions/cd/" + "cd" * 32 + ".json", (b"small", []))
"""
        done = run(script, folder)
        assert (done.stdout, done.stderr) == ("EFBIG\n", "")
        assert {name for name, raw in files(folder).items() if raw is not None} == {
            "format.json",
            record("ab" * 32),
            record("cd" * 32),
        }

    def test_no_descriptor_left_is_an_error_and_the_next_call_works(self, tier):
        tier.put(blob(b"x"), frame(b"x"))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
            with pytest.raises(OSError, match="Too many open files"):
                tier.get(blob(b"x"))
            with pytest.raises(OSError, match="Too many open files"):
                tier.put(blob(b"y"), frame(b"y"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert joined(tier.get(blob(b"x"))) == b"x"


class TestProcesses:
    PUT = """
import sys
from soma_cache.folder_tier import FolderTier
tier = FolderTier("file://" + sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
raw = bytes(range(256)) * 8192
for _ in range(50):
    tier.put(sys.argv[2], (raw[:10], [memoryview(raw[10:])]))
"""

    def test_several_put_the_same_at_once(self, tier, folder):
        folder.mkdir()
        raw = bytes(range(256)) * 8192
        children = [
            subprocess.Popen(
                [sys.executable, "-c", self.PUT, folder, blob(raw)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for _ in range(3)
        ]
        try:
            for child in children:
                assert child.stdout.readline() == b"ready\n"
            for child in children:
                child.stdin.write(b"go\n")
                child.stdin.flush()
            while any(child.poll() is None for child in children):
                found = tier.get(blob(raw))
                assert found is None or joined(found) == raw
            assert [child.communicate(timeout=PATIENCE_S)[1] for child in children] == [b""] * 3
        finally:
            for child in children:
                child.kill()
                child.wait(PATIENCE_S)
                child.stdin.close()
                child.stdout.close()
                child.stderr.close()
        assert joined(tier.get(blob(raw))) == raw
        assert list((folder / "tmp").iterdir()) == []

    ENDLESS = """
import itertools, sys
from blake3 import blake3
from soma_cache.folder_tier import FolderTier
tier = FolderTier("file://" + sys.argv[1])
for number in itertools.count(int(sys.argv[2])):
    raw = str(number).encode() * 100_000
    digest = blake3(raw).hexdigest()
    tier.put(f"cas/b3/{digest[:2]}/{digest}.bin", (raw[:7], [memoryview(raw)[7:]]))
    print(number, flush=True)
"""

    def test_one_that_is_killed_leaves_nothing_half_under_a_name(self, tier, folder):
        moments = random.Random(3)  # noqa: S311  # as above
        put = set()
        for turn in range(15):
            child = subprocess.Popen(
                [sys.executable, "-c", self.ENDLESS, folder, str(turn * 1_000_000)],
                stdout=subprocess.PIPE,
            )
            try:
                put.add(int(child.stdout.readline()))
                time.sleep(moments.uniform(0, 0.03))
            finally:
                child.send_signal(signal.SIGKILL)
                rest = child.communicate(timeout=PATIENCE_S)[0]
            put.update(int(line) for line in rest.splitlines(keepends=True) if line[-1:] == b"\n")
        for number in put:
            raw = str(number).encode() * 100_000
            assert joined(tier.get(blob(raw))) == raw
        for name in tier.list("cas/"):
            assert blake3((folder / name).read_bytes()).hexdigest() in name

    def test_a_child_by_fork_writes_beside_its_parent(self, folder):
        folder.mkdir()
        script = """
import os, sys
from soma_cache.folder_tier import FolderTier
tier = FolderTier("file://" + sys.argv[1])
names = ["actions/" + 2 * one + "/" + 64 * one + ".json" for one in "0123456789abcdef"]
tier.put(names[0], (b"first", []))
children = []
for child in range(4):
    pid = os.fork()
    if pid == 0:
        for name in names[1:]:
            tier.put(name, (name.encode() * 1000, []))
        os._exit(0)
    children.append(pid)
for name in names[1:]:
    tier.put(name, (name.encode() * 1000, []))
print([os.waitpid(pid, 0)[1] for pid in children])
"""
        done = run(script, folder)
        assert (done.stdout, done.stderr) == ("[0, 0, 0, 0]\n", "")
        tier = FolderTier(f"file://{folder}")
        names = list(tier.list("actions/"))
        assert len(names) == 16
        for name in names[1:]:
            assert joined(tier.get(name)) == name.encode() * 1000
        assert list((folder / "tmp").iterdir()) == []
