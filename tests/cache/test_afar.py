"""What a remote tier has is refused, waited for, remembered and told of as it should be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace
from uuid import uuid4

import numpy as np
import pytest

from soma import Graph
from soma.contracts import ActionRecord
from soma.frame import decode, encode
from soma_cache import DiskStore, FolderTier, afar, patience
from soma_cache.folder import Folder
from soma_cache.remote import Remote
from support.broken_tiers import DictTier
from support.cache_folders import assert_sound, blobs_of, copy_of, damage, everything, records_of
from support.cache_records import Trap, lay, place_inline, rewritten
from support.cache_remotes import (
    MULTIPROCESSING,
    put_version_3,
    study_and_flush,
    study_before_one_that_hangs,
    study_before_one_that_refuses,
)
from support.cache_stores import KEY, OTHER, keep, opened, value_of
from support.cache_work import ALL_CALLS, LARGE, MIDDLE, SMALL, Add, Learn, studies, study

PATIENCE_S = 60
SIZES = (SMALL, MIDDLE, LARGE)


@pytest.fixture
def shared(tmp_path):
    return tmp_path / "shared"


@pytest.fixture
def behind(folder):
    """Open the cache with a tier behind it; each thing is told of once in a process."""

    def make(tier, path=folder, patience_s=PATIENCE_S, **choice):
        there = Folder(str(path), **choice)
        if not there.read_only:
            there.prepare()
        name = f"lab-{uuid4().hex}"
        return DiskStore(there, remote=Remote(tier, name, patience_s=patience_s))

    return make


class Noting(DictTier):
    """Notes what it is asked for."""

    def __init__(self, held=None):
        super().__init__(held)
        self.asked = []

    def get(self, name):
        self.asked.append(name)
        return super().get(name)

    def exists(self, name):
        self.asked.append(name)
        return super().exists(name)


# ---------------------------------------------------------------- what may not come in


def of_a_trap(path):
    """A pickle, whose record says that there is none."""
    raw = Trap(path).frame()
    assert len(raw) <= 2048
    return raw, None


def of_a_trap_beside_something(path):
    raw = Trap(path).frame("beside", [1, 2])
    return raw, None


def with_another_hash(path):
    return encode("something else").to_bytes(), "ab" * 32


def of_no_frame(path):
    return b"these bytes are no frame", None


@pytest.mark.parametrize(
    "made", [of_a_trap, of_a_trap_beside_something, with_another_hash, of_no_frame]
)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_record_whose_output_may_not_come_in_is_a_miss(behind, folder, tmp_path, made, read_only):
    shared = tmp_path / "shared"
    raw, digest = made(tmp_path / "sprung")
    assert study(SMALL, cache=opened(shared)).calls == ALL_CALLS
    for path in records_of(shared):
        forged = rewritten(path.read_bytes(), lambda fields: place_inline(fields, raw, digest))
        assert b'"pickled": false' in forged
        path.unlink()
        path.write_bytes(forged)
    tier = FolderTier(f"file://{shared}", read_only=True)
    store = behind(tier, read_only=read_only)
    assert study(SMALL, cache=store) == (True, ALL_CALLS)
    assert not (tmp_path / "sprung").exists()
    if read_only:
        assert not folder.exists()
        return
    assert len(assert_sound(folder)) == 3
    assert all(raw not in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_the_trap_springs_where_it_is_read(tmp_path):
    """Or the other tests show nothing."""
    for number, raw in enumerate((Trap(tmp_path / "0").frame(), Trap(tmp_path / "1").frame("x"))):
        decode(raw, allow_pickle=True)
        assert (tmp_path / str(number)).is_dir()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_blob_with_a_pickle_in_it_is_refused(behind, folder, shared, tmp_path, read_only):
    raw = Trap(tmp_path / "sprung").frame(bytes(MIDDLE))
    assert study(MIDDLE, cache=opened(shared)).calls == ALL_CALLS
    digest = lay(shared, raw)
    for path in records_of(shared):

        def change(fields):
            for output in fields["outputs"].values():
                output.update(digest=digest, bytes=len(raw))

        forged = rewritten(path.read_bytes(), change)
        path.unlink()
        path.write_bytes(forged)
    store = behind(FolderTier(f"file://{shared}", read_only=True), read_only=read_only)
    assert store.read(digest) is None
    assert study(MIDDLE, cache=store).right
    assert store.share(digest) is None
    assert not (tmp_path / "sprung").exists()
    assert not any(path.stem == digest for path in blobs_of(folder))


def test_a_record_that_says_that_it_is_pickled_neither_goes_out_nor_comes_in(behind, tmp_path):
    tier = DictTier()
    here = behind(tier, tmp_path / "here")
    keep(here, bytes(MIDDLE), pickled=True)
    assert here.flush(PATIENCE_S)
    assert tier.held == {}
    (path,) = records_of(tmp_path / "here")
    tier.held[f"actions/{KEY[:2]}/{KEY}.json"] = path.read_bytes()
    assert behind(tier, tmp_path / "there").lookup(KEY) is None
    assert records_of(tmp_path / "there") == []


# ---------------------------------------------------------------- how long it is waited for


class Late(DictTier):
    """Answers a while after the patience for an answer without bytes is over."""

    def get(self, name):
        time.sleep(0.2)
        return super().get(name)


@pytest.mark.parametrize("tier", [Late, DictTier])
def test_a_blob_that_only_the_tier_has_gets_time_for_the_size_that_the_record_says(
    behind, folder, monkeypatch, tier
):
    """A tier need not be able to say how large something is."""
    monkeypatch.setattr(patience, "BYTES_PER_S", 10)  # hours
    (digest,) = keep(opened(folder), bytes(MIDDLE))
    (path,) = blobs_of(folder)
    store = behind(tier({f"cas/b3/{digest[:2]}/{digest}.bin": path.read_bytes()}), patience_s=0.02)
    path.unlink()
    limits = []
    ask = store._afar.remote._patience.ask
    monkeypatch.setattr(
        store._afar.remote._patience,
        "ask",
        lambda work, limit_s, **more: limits.append(limit_s) or ask(work, limit_s, **more),
    )
    assert store.lookup(KEY).outputs == {"out 0": digest}
    assert value_of(store, digest) == bytes(MIDDLE)
    assert limits == [0.02 + encode(bytes(MIDDLE)).nbytes / 10]
    assert path.exists()  # it is kept here from now on


def test_what_a_tier_did_not_have_is_not_asked_for_again_for_a_while(behind, monkeypatch):
    now_s = 1000.0
    monkeypatch.setattr(afar, "time", SimpleNamespace(monotonic=lambda: now_s))
    tier = Noting()
    store = behind(tier)
    digest = "cd" * 32
    for add_s, asked in ((0.0, 1), (0.0, 1), (9.9, 1), (0.2, 2), (0.0, 2), (9.0, 2), (1.1, 3)):
        now_s += add_s
        assert store.lookup(KEY) is None
        assert store.read(digest) is None
        assert not store.has(digest)
        counts = Counter(tier.asked)
        assert counts[f"actions/{KEY[:2]}/{KEY}.json"] == asked
        # What was missed by its bytes is not looked for by its name either.
        assert counts[f"cas/b3/{digest[:2]}/{digest}.bin"] >= asked
    before = len(tier.asked)
    assert not store.has(digest)
    assert len(tier.asked) == before


def test_a_key_that_appears_is_found_when_the_while_is_over(behind, monkeypatch, tmp_path):
    now_s = 1000.0
    monkeypatch.setattr(afar, "time", SimpleNamespace(monotonic=lambda: now_s))
    tier = Noting()
    reader, writer = behind(tier, tmp_path / "reader"), behind(tier, tmp_path / "writer")
    assert reader.lookup(KEY) is None
    (digest,) = keep(writer, bytes(MIDDLE))
    assert writer.flush(PATIENCE_S)
    assert reader.lookup(KEY) is None
    now_s += 10.1
    assert reader.lookup(KEY).outputs == {"out 0": digest}
    assert value_of(reader, digest) == bytes(MIDDLE)
    assert opened(tmp_path / "reader").lookup(KEY).outputs == {"out 0": digest}


def test_a_run_asks_a_tier_once_for_each_key(behind):
    """It looks before it waits for its turn, and again when that has come."""
    tier = Noting()
    store = behind(tier)
    x = np.arange(float(SMALL))
    g = Graph.somatize(Add(1.0) >> Learn(), cache=store)
    g.fit(x)
    asked = [one for one in tier.asked if one.startswith("actions/")]
    assert sorted(Counter(asked).values()) == [1, 1]
    g.forward(x)
    asked = [one for one in tier.asked if one.startswith("actions/")]
    assert sorted(Counter(asked).values()) == [1, 1, 1]


# ---------------------------------------------------------------- damage


@pytest.fixture(scope="module")
def results(forker, tmp_path_factory):
    """A tier with the results of one study."""
    path = tmp_path_factory.mktemp("results")
    choice = {"SOMA_CACHE_KEEP": "all", "SOMA_CACHE_DIR": f"{path}/local"}
    (path / "shared").mkdir()
    forker.run(study_and_flush, MIDDLE, SOMA_CACHE_REMOTE=f"file://{path}/shared", **choice)
    assert len(assert_sound(path / "shared")) == 3
    return path / "shared"


@pytest.fixture
def full(results, shared):
    """A copy of it; return its url."""
    return f"file://{copy_of(results, shared)}"


KINDS = pytest.mark.parametrize("kind", ["middle bit", "halved", "emptied", "another's"])


@KINDS
def test_what_is_damaged_in_a_tier_is_computed_told_of_and_sent_again(
    forker, full, shared, folder, kind
):
    (digest,) = [
        one["outputs"]["output"]["digest"]
        for one in assert_sound(shared)
        if one["origin"]["node"] == "learn" and "output" in one["outputs"]
    ]
    damage([shared / "cas/b3" / digest[:2] / f"{digest}.bin"], kind)
    done = forker.start(study, MIDDLE, SOMA_CACHE_REMOTE=full).wait()
    assert done.value == (True, ["learn"])
    (said,) = done.stderr.splitlines()
    assert "something that is damaged" in said
    assert full in said
    assert len(assert_sound(folder)) == 3
    assert len(assert_sound(shared)) == 3


@KINDS
def test_a_tier_in_which_all_is_damaged_costs_a_line(forker, full, shared, folder, kind):
    damage(blobs_of(shared), kind)
    done = forker.start(study, MIDDLE, SOMA_CACHE_REMOTE=full).wait()
    assert done.value.right
    assert len(done.stderr.splitlines()) == 1
    assert len(assert_sound(folder)) == 3


# ---------------------------------------------------------------- the folder of a tier


def test_a_tier_that_is_not_there_is_made_and_told_of_once(forker, shared):
    url = f"file://{shared}"
    done = forker.start(studies, SIZES, SOMA_CACHE_REMOTE=url).wait()
    assert done.value == (True, ALL_CALLS * 3)
    (said,) = done.stderr.splitlines()
    assert str(shared) in said
    assert "is made" in said
    assert len(assert_sound(shared)) == 9
    done = forker.start(studies, (SMALL + 1,), SOMA_CACHE_REMOTE=url).wait()
    assert (done.value, done.stderr) == ((True, ALL_CALLS), "")
    assert len(assert_sound(shared)) == 12


def test_a_tier_to_be_read_that_is_not_there_is_told_of_once_and_not_made(forker, shared):
    url = f"file://{shared}?read_only=true"
    done = forker.start(studies, SIZES, SOMA_CACHE_REMOTE=url).wait()
    assert done.value == (True, ALL_CALLS * 3)
    (said,) = done.stderr.splitlines()
    assert str(shared) in said
    assert "is not there" in said
    assert not shared.exists()


def test_an_empty_folder_becomes_a_tier_without_a_word(forker, shared, tmp_path):
    shared.mkdir()
    url = f"file://{shared}"
    done = forker.start(studies, SIZES, SOMA_CACHE_REMOTE=url).wait()
    assert (done.value, done.stderr) == ((True, ALL_CALLS * 3), "")
    assert len(assert_sound(shared)) == 9
    assert (shared / "format.json").read_bytes() == (
        b'{"version": 2, "hash": "b3", "features": ["inline"]}\n'
    )
    assert list((shared / "tmp").iterdir()) == []
    elsewhere = str(tmp_path / "elsewhere")
    done = forker.start(studies, SIZES, SOMA_CACHE_REMOTE=url, SOMA_CACHE_DIR=elsewhere).wait()
    assert (done.value, done.stderr) == ((True, []), "")


def test_a_tier_that_was_replaced_by_one_of_another_version_is_left_alone(shared):
    tier = FolderTier(f"file://{shared}")
    name = f"actions/{KEY[:2]}/{KEY}.json"
    tier.put(name, (b"a record", []))
    assert tier.exists(name)
    shared.rename(shared.parent / "old")
    put_version_3(shared, with_parts=True)
    (shared / name).write_bytes(b"of another release")
    before = everything(shared)
    for change in (lambda: tier.put(name, (b"x", [])), lambda: tier.delete(name)):
        with pytest.raises(OSError, match="version 3"):
            change()
    assert everything(shared) == before


def test_why_what_a_tier_has_cannot_be_kept_here_is_said_whole(behind, folder, capfd):
    tier = DictTier()
    other = behind(tier, folder.parent / f"other-{uuid4().hex}")
    (digest,) = keep(other, bytes(MIDDLE))
    assert other.flush(PATIENCE_S)
    store = behind(tier)
    folder.rename(folder.parent / f"old-{uuid4().hex}")
    put_version_3(folder, with_parts=True)
    before = everything(folder)
    assert store.lookup(KEY).outputs == {"out 0": digest}
    assert value_of(store, digest) == bytes(MIDDLE)
    (said,) = capfd.readouterr().err.splitlines()
    assert "cannot be kept" in said
    assert "has format version 3" in said
    assert "Nothing there was touched" in said
    assert everything(folder) == before


# ---------------------------------------------------------------- sending, to the end


def test_children_of_multiprocessing_send_before_they_end(shared, folder, tmp_path):
    shared.mkdir()
    script = tmp_path / "children.py"
    script.write_text(MULTIPROCESSING)
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "SOMA_CACHE_REMOTE": f"file://{shared}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["fork 0", "forkserver 0", "spawn 0"]
    assert len(assert_sound(folder)) == 4
    there = {path.stem for path in records_of(shared)}
    amounts = []
    for record in assert_sound(shared):
        (output,) = record["outputs"].values()
        raw = (shared / "cas/b3" / output["digest"][:2] / f"{output['digest']}.bin").read_bytes()
        amounts.append(float(decode(raw)[1]))
    assert len(there) == len(amounts)
    assert {2.0, 3.0, 4.0} <= set(amounts) <= {1.0, 2.0, 3.0, 4.0}


def test_the_error_with_which_a_tier_refuses_is_said_at_the_end(forker):
    done = forker.start(study_before_one_that_refuses, MIDDLE).wait()
    assert done.value == (True, ALL_CALLS)
    (said,) = done.stderr.splitlines()
    assert "lab" in said
    assert "Input/output error" in said


def test_a_tier_that_we_may_not_write_to_is_told_of_with_the_reason(forker, shared):
    opened(shared)
    shared.chmod(0o555)
    (shared / "tmp").chmod(0o555)
    try:
        url = f"file://{shared}"
        done = forker.start(studies, SIZES, plain=True, SOMA_CACHE_REMOTE=url).wait()
    finally:
        shared.chmod(0o755)
        (shared / "tmp").chmod(0o755)
    assert done.value == (True, ALL_CALLS * 3)
    (said,) = done.stderr.splitlines()
    assert "PermissionError" in said
    assert url in said
    assert records_of(shared) == []


def test_ctrl_c_at_the_end_gives_up_without_a_traceback(forker):
    child = forker.start(study_before_one_that_hangs, MIDDLE)
    deadline = time.monotonic() + PATIENCE_S
    while not (child.place / "ends").exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGINT)
    done = child.wait(30)
    assert done.status == 0, done.stderr
    assert done.value == (True, ALL_CALLS)
    (said,) = done.stderr.splitlines()
    assert said.startswith("soma: the remote cache lab did not take 3 results")


def test_a_record_taken_over_from_a_tier_says_what_its_author_said(behind, tmp_path):
    tier = DictTier()
    there = behind(tier, tmp_path / "there")
    frame = encode("tiny")
    digest = there.write((frame.header, frame.buffers))
    record = ActionRecord(
        key=OTHER,
        outputs={"output": digest},
        bytes={"output": frame.nbytes},
        compute_ms=3.0,
        origin={"node": "n", "host": "elsewhere"},
    )
    there.commit(record)
    assert there.flush(PATIENCE_S)
    here = behind(tier, tmp_path / "here")
    found = here.lookup(OTHER)
    assert (found.tier, found.origin["host"], found.compute_ms) == ("Remote", "elsewhere", 3.0)
    assert here.lookup(OTHER).tier == "Memory"
    paths = [records_of(tmp_path / one)[0] for one in ("here", "there")]
    assert paths[0].read_bytes() == paths[1].read_bytes()
