"""``soma cache gc`` and ``verify``: what goes, what is spared, what is damaged, what is said."""

from __future__ import annotations

import json
import os

import pytest

from soma_cache.cli.options import parse_age
from soma_cache.collecting import Cleaning
from soma_cache.layout import blob_name
from soma_cache.verifying import Verified
from support.cache_cli import keep, new_store, soma_cache
from support.cache_folders import damage
from support.terminals import on_terminal

DEAD = 1 << 22
"""No process has such a number."""


@pytest.fixture
def store(folder):
    return new_store(folder)


def only_kept(folder):
    """Return what lies there but the index; no file is read, which would be a use of it."""
    found = {}
    for below in ("actions", "cas", "pins"):
        for path in (folder / below).rglob("*"):
            about = path.lstat()
            found[str(path)] = (about.st_mode, about.st_size, about.st_mtime_ns, about.st_ino)
    return found


class TestAges:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("0", 0.0),
            ("90", 90.0),
            ("1.5s", 1.5),
            ("30m", 1800.0),
            ("30 min", 1800.0),
            ("1h", 3600.0),
            ("0.5H", 1800.0),
            (" 2d ", 172_800.0),
        ],
    )
    def test_what_is_an_age(self, text, seconds):
        assert parse_age("--min-age", text) == seconds

    @pytest.mark.parametrize(
        "text", ["", "h", "-1", "1w", "inf", "nan", "1e3", "9" * 400, "1h30m", "²"]
    )
    def test_what_is_none(self, text, store):
        done = soma_cache("gc", "--max-size", "0", "--min-age", text)
        assert (done.status, done.out) == (2, "")
        assert "--min-age is an age, as seconds or as 30m, 1h or 2d, not " in done.err
        assert max(map(len, done.err.splitlines())) < 200


class TestSizes:
    @pytest.mark.parametrize("text", ["", "-1", "much", "9" * 400, "nan", "1e9", "20X", "True"])
    def test_what_is_no_size(self, text, store):
        kept = keep(store, "a")
        done = soma_cache("gc", "--max-size", text)
        assert (done.status, done.out) == (2, "")
        assert "--max-size is a size" in done.err
        assert kept.path.exists()

    def test_none_at_all(self, store, monkeypatch):
        done = soma_cache("gc")
        assert (done.status, done.out) == (2, "")
        assert "Give --max-size, such as 20G, or set SOMA_CACHE_MAX_SIZE" in done.err
        monkeypatch.setenv("SOMA_CACHE_MAX_SIZE", "nonsense")
        done = soma_cache("gc")
        assert (done.status, done.out) == (2, "")
        assert "SOMA_CACHE_MAX_SIZE is a size" in done.err

    def test_that_of_the_environment(self, store, monkeypatch):
        kept = keep(store, "a")
        monkeypatch.setenv("SOMA_CACHE_MAX_SIZE", "1G")
        assert soma_cache("gc").status == 0
        assert kept.path.exists()
        monkeypatch.setenv("SOMA_CACHE_MAX_SIZE", "0")  # which limits no run either
        assert soma_cache("gc").status == 2
        assert kept.path.exists()
        monkeypatch.setenv("SOMA_CACHE_MAX_SIZE", "1")
        assert soma_cache("gc").status == 0
        assert not kept.path.exists()

    def test_one_that_nothing_can_fill(self, store, folder):
        keep(store, "a")
        before = only_kept(folder)
        assert soma_cache("gc", "--max-size", "7E").status == 0
        assert only_kept(folder) == before


class TestGc:
    def test_the_least_value_goes_first(self, store):
        worst = keep(store, "quick", compute_ms=1.0)
        best = keep(store, "slow", compute_ms=90_000.0)
        done = soma_cache("gc", "--max-size", best.nbytes)
        assert (done.status, done.err) == (0, "")
        assert done.out == (
            "removed  1 blob, 9.8 KiB (1: least value)\nleft     9.8 KiB of 9.8 KiB\n"
        )
        assert (worst.path.exists(), best.path.exists()) == (False, True)
        assert soma_cache("show", worst.key).status == 0

    def test_nothing_to_do(self, store):
        keep(store, "a")
        done = soma_cache("gc", "--max-size", "1M")
        assert done == (0, "removed  nothing\nleft     9.8 KiB of 1.0 MiB\n", "")

    def test_a_dry_run_lists_what_would_go(self, store, folder):
        store.write((b"x" * 5_000, []))  # which no record names
        (orphan,) = (folder / "cas" / "b3").rglob("*.bin")
        os.utime(orphan, (1, 1))
        quick = keep(store, "quick", compute_ms=1.0)
        dear = keep(store, "dear", compute_ms=0.5, expensive=True, hours=72)
        before = only_kept(folder)
        done = soma_cache("gc", "--max-size", "0", "--dry-run")
        assert (done.status, done.err) == (0, "")
        lines = done.out.splitlines()
        assert lines[0].split("  ")[0] == "BLOB"
        assert [line.split("  ")[0] for line in lines[1:4]] == [
            orphan.stem[:12],
            quick.digest[:12],
            dear.digest[:12],
        ]
        assert lines[1].endswith("no record names it")
        assert lines[2].endswith("  1.0 ms  least value")
        assert "3 days" in lines[3]
        assert lines[3].endswith("  500 µs  least value, expensive")
        assert lines[4].startswith("would go    3 blobs, ")
        assert "(1: no record names it; 2: least value)" in lines[4]
        assert lines[5] == "would stay  0 B of 0 B"
        assert only_kept(folder) == before

    def test_as_json(self, store, folder):
        kept = keep(store, "a", compute_ms=3.0)
        found = json.loads(soma_cache("gc", "--max-size", "0", "--json").out)
        (victim,) = found.pop("removed")
        assert victim.pop("age_s") > 7000
        assert victim == {
            "digest": kept.digest,
            "nbytes": kept.nbytes,
            "compute_ms": 3.0,
            "expensive": False,
            "reason": "value",
        }
        assert found == {
            "path": str(folder),
            "max_bytes": 0,
            "before_bytes": kept.nbytes,
            "freed_bytes": kept.nbytes,
            "after_bytes": 0,
            "temporary": 0,
            "temporary_bytes": 0,
            "pinned_bytes": 0,
            "young_bytes": 0,
            "over_bytes": 0,
            "failed": [],
            "dry_run": False,
            "unreadable": [],
            "unsure_bytes": 0,
        }

    def test_what_is_spared_is_said_and_too_much(self, store):
        young, pinned = keep(store, "young", hours=0), keep(store, "pinned")
        store.pin("best", pinned.key)
        done = soma_cache("gc", "--max-size", "0")
        assert (done.status, done.err) == (1, "")
        assert done.out.splitlines()[-1] == (
            "too much  19.7 KiB above that: 9.8 KiB pinned (soma cache pins), 9.8 KiB used in the "
            "last 1 h 00 min (--min-age)"
        )
        assert young.path.exists()
        done = soma_cache("gc", "--max-size", "0", "--min-age", "0")
        assert done.status == 1
        assert (young.path.exists(), pinned.path.exists()) == (False, True)
        assert soma_cache("gc", "--max-size", "20K", "--min-age", "0").status == 0

    def test_files_of_dead_writers_go(self, store, folder):
        left = folder / "tmp" / f"elsewhere-{DEAD}-1"
        left.write_bytes(b"x" * 2048)
        os.utime(left, (1, 1))
        dry = soma_cache("gc", "--max-size", "1G", "--dry-run")
        assert "would go too  1 file (2.0 KiB) of writers that are no more" in dry.out
        assert left.exists()
        assert "swept    1 file (2.0 KiB)" in soma_cache("gc", "--max-size", "1G").out
        assert not left.exists()

    def test_what_cannot_be_removed_is_said(self, store):
        kept = [keep(store, word) for word in ("a", "b")]
        stubborn = kept[0].path
        stubborn.unlink()
        stubborn.mkdir()
        (stubborn / "file").write_text("x" * 5000)
        done = soma_cache("gc", "--max-size", "0")
        assert not kept[1].path.exists()
        assert done.status in (0, 1)  # a folder is no blob: it may be passed over, or be told of
        assert "Traceback" not in done.err

    def test_failures_are_told_and_not_all_of_them(self, store, monkeypatch):
        failed = tuple((f"{number:064x}", "PermissionError:\n\x1b no") for number in range(13))
        done = Cleaning(
            max_bytes=5,
            before_bytes=2048,
            freed_bytes=0,
            after_bytes=2048,
            removed=(),
            temporary=0,
            temporary_bytes=0,
            pinned_bytes=0,
            young_bytes=0,
            over_bytes=2043,
            failed=failed,
            dry_run=False,
        )
        monkeypatch.setattr("soma_cache.cli.collect.collect", lambda folder, **options: done)
        said = soma_cache("gc", "--max-size", "5")
        assert said.status == 1
        assert said.out.endswith("too much  2.0 KiB above that: not all of it can be removed\n")
        lines = said.err.splitlines()
        assert len(lines) == 11
        assert lines[9] == (f"Error: {9:064x} could not be removed: PermissionError: \\x1b no")
        assert lines[10] == "... and 3 more (--json)"
        assert len(json.loads(soma_cache("gc", "--max-size", "5", "--json").out)["failed"]) == 13

    def test_after_it_everything_gives_the_same(self, store, folder):
        from support.cache_work import MIDDLE, study

        first = study(MIDDLE)
        assert first.right
        assert soma_cache("gc", "--max-size", "0", "--min-age", "0").status == 0
        assert list((folder / "cas").rglob("*.bin")) == []
        assert study(MIDDLE).right


class TestVerify:
    def test_all_is_well(self, store):
        keep(store, "a")
        keep(store, "b", nbytes=5)
        done = soma_cache("verify")
        assert done == (0, "read     1 blob (9.8 KiB), and all records\ndamaged  nothing\n", "")

    def test_what_was_right_is_left_out_the_next_time(self, store):
        kept = keep(store, "a")
        soma_cache("verify")
        again = json.loads(soma_cache("verify", "--json").out)
        assert (again["checked"], again["skipped"]) == (0, 1)
        assert "left out  1 that were right before" in soma_cache("verify").out
        every = json.loads(soma_cache("verify", "--all", "--json").out)
        assert (every["checked"], every["checked_bytes"], every["skipped"]) == (1, kept.nbytes, 0)

    def test_what_is_damaged_is_named_and_left(self, store, folder):
        kept, other = keep(store, "a"), keep(store, "b")
        record = folder / "actions" / other.key[:2] / f"{other.key}.json"
        damage([kept.path], "middle bit")
        damage([record], "halved")
        before = only_kept(folder)
        done = soma_cache("verify")
        assert (done.status, done.err) == (1, "")
        lines = done.out.splitlines()
        assert lines[0].startswith("read     2 blobs (19.7 KiB)")
        assert lines[1:4] == [
            "damaged  2",
            f"  {blob_name(kept.digest)}",
            f"  actions/{other.key[:2]}/{other.key}.json",
        ]
        assert lines[4].startswith("What is damaged is never given out")
        found = json.loads(soma_cache("verify", "--json").out)
        assert (found["blobs"], found["records"]) == ([kept.digest], [other.key])
        assert only_kept(folder) == before

    def test_many_are_not_all_listed(self, store, monkeypatch):
        found = Verified(
            checked=70,
            checked_bytes=1 << 20,
            skipped=2,
            blobs=tuple(f"{number:064x}" for number in range(60)),
            records=(),
            unreadable=tuple((f"cas/b3/{number}\x1b", "no\nway") for number in range(52)),
        )
        monkeypatch.setattr("soma_cache.cli.verify.verify_folder", lambda *_, **__: found)
        done = soma_cache("verify")
        lines = done.out.splitlines()
        assert done.status == 1
        assert lines[:4] == [
            "read      70 blobs (1.0 MiB), and all records",
            "left out  2 that were right before, and unchanged since (--all)",
            "damaged   60",
            "not read  52",
        ]
        assert len(lines) == 4 + 50 + 50 + 3
        assert lines[104] == "  and 12 more (--json)"
        assert "\x1b" not in done.out
        data = json.loads(soma_cache("verify", "--json").out)
        assert (len(data["blobs"]), len(data["unreadable"])) == (60, 52)


@pytest.mark.e2e
def test_a_bar_is_drawn_where_somebody_looks(store):
    for number in range(3):
        keep(store, f"number {number}")
    code = """
        import sys
        from soma_cache.cli import bars
        bars._AFTER_S = 0.0
        from soma.cli.root import run
        sys.exit(run(["cache", "gc", "--max-size", "0", "--json"]))
    """
    read, write = os.pipe()
    with open(read) as out:  # noqa: PTH123  # a descriptor
        with on_terminal(code, stdout=write) as terminal:
            os.close(write)
            assert terminal.end() == 0
        found = json.loads(out.read())
    assert len(found["removed"]) == 3
    assert "removing" in terminal.raw
    assert "100%" in terminal.raw
