from __future__ import annotations

import random
import time

import numpy as np
import pytest

from soma_cache import open_store
from support.cache_folders import assert_sound, blobs_of, records_of
from support.cache_processes import (
    Held,
    Slow,
    claims_and_forks,
    forks_beside_writers,
    forks_once,
    forward_at,
    look_at_what_was_written,
    seeds,
    study_at_a_worker,
    study_in_a_session,
    write_until_killed,
)
from support.cache_work import ALL_CALLS, LARGE, MIDDLE, SMALL, studies, study

SIZES = (SMALL, MIDDLE, LARGE)
TURNS = 200
TWICE = 2 * np.arange(6.0)


@pytest.fixture
def notes(monkeypatch, tmp_path):
    """The file to which every call of user code is a line."""
    path = tmp_path / "notes"
    path.touch()
    monkeypatch.setenv("SOMA_TEST_NOTES", str(path))
    return path


def wait_until(what, seconds=60):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.001)


# ---------------------------------------------------------------- killed


def test_a_writer_may_be_killed_at_any_moment(forker, folder):
    """What it has recorded is there, whole and right; nothing but a file in tmp is left behind."""
    moments = random.Random(7)  # noqa: S311  # not for secrets
    for turn in range(0, TURNS, 4):
        sync = {"SOMA_CACHE_FSYNC": "always"} if turn % 8 else {}
        children = [forker.start(write_until_killed, turn + one, **sync) for one in range(4)]
        wait_until(lambda children=children: all((one.place / "here").exists() for one in children))
        for child in children:
            time.sleep(moments.uniform(0.0, 0.03))
            child.kill()
        assert [child.wait().status for child in children] == [-9] * 4
    records = assert_sound(folder)
    assert len(records) == len(records_of(folder))
    known = {path for pattern in ("actions/*/*", "cas/b3/*/*") for path in folder.glob(pattern)}
    assert known == {*records_of(folder), *blobs_of(folder)}
    assert {path.name for path in folder.iterdir()} <= {
        *("actions", "cas", "format.json", "index", "locks", "tmp"),
    }
    assert open_store(folder).verify() == []
    done = forker.start(look_at_what_was_written, TURNS).wait()
    assert (done.value, done.stderr) == ((len(records), TURNS, 0), "")
    assert len(assert_sound(folder)) == len(records) + TURNS


def test_a_writer_may_be_killed_while_it_makes_the_folder(forker, tmp_path):
    moments = random.Random(11)  # noqa: S311  # not for secrets
    for turn in range(30):
        folder = tmp_path / f"cache {turn}"
        child = forker.start(write_until_killed, turn, SOMA_CACHE_DIR=str(folder))
        wait_until((child.place / "here").exists)
        time.sleep(moments.uniform(0.0, 0.004))
        child.kill()
        assert child.wait().status == -9
        done = forker.start(study, SMALL, SOMA_CACHE_DIR=str(folder)).wait()
        assert (done.value, done.stderr) == ((True, ALL_CALLS), "")
        assert len(assert_sound(folder)) >= 3


def test_after_a_crash_the_seeds_that_were_done_are_found(forker, folder):
    done = forker.start(seeds, 3).wait()
    assert done.status == -9
    found, calls = forker.run(seeds, 99)
    assert calls == 2  # of five, three were done
    again, calls = forker.run(seeds, 99)
    assert calls == 0
    elsewhere, calls = forker.run(seeds, 99, SOMA_CACHE_DIR=str(folder / ".." / "elsewhere"))
    assert calls == 5
    assert [one.tobytes() for one in found] == [one.tobytes() for one in elsewhere]
    assert [one.tobytes() for one in again] == [one.tobytes() for one in elsewhere]
    assert len({one.tobytes() for one in found}) == 5


# ---------------------------------------------------------------- at once


@pytest.mark.parametrize("count", [2, 8])
def test_processes_that_want_the_same_compute_it_once(forker, notes, tmp_path, count):
    gate = tmp_path / "gate"
    children = [forker.start(forward_at, gate, Slow()) for _ in range(count)]
    wait_until(lambda: all((child.place / "here").exists() for child in children))
    gate.touch()
    found = [child.wait() for child in children]
    assert [done.status for done in found] == [0] * count
    assert notes.read_text().splitlines() == ["slow"]
    for done in found:
        result, _ = done.value
        assert result.tobytes() == TWICE.tobytes()
        assert len(done.stderr.splitlines()) <= 1  # whom it has waited for, where that took long
    assert sorted(len(done.value[1]) for done in found) == [0] * (count - 1) + [1]


def test_where_a_holder_is_killed_another_computes(forker, notes, tmp_path):
    open_gate, gate = tmp_path / "open", tmp_path / "gate"
    open_gate.touch()
    first = forker.start(forward_at, open_gate, Held(gate))
    wait_until(lambda: notes.read_text() == "held\n")
    others = [forker.start(forward_at, open_gate, Held(gate)) for _ in range(3)]
    wait_until(lambda: all((child.place / "here").exists() for child in others))
    time.sleep(0.2)
    assert notes.read_text() == "held\n"  # the others wait
    first.kill()
    assert first.wait().status == -9
    wait_until(lambda: notes.read_text() == "held\nheld\n")
    gate.touch()
    for child in others:
        result, _ = child.value()
        assert result.tobytes() == TWICE.tobytes()
    assert notes.read_text() == "held\nheld\n"


def test_a_waiter_says_once_whom_it_waits_for(forker, notes, tmp_path):
    open_gate, gate = tmp_path / "open", tmp_path / "gate"
    open_gate.touch()
    first = forker.start(forward_at, open_gate, Held(gate))
    wait_until(lambda: notes.read_text() == "held\n")
    second = forker.start(forward_at, open_gate, Held(gate))
    stderr = second.place / "stderr"
    wait_until(lambda: stderr.exists() and stderr.read_text() != "")
    assert stderr.read_text() == (
        f"soma: waiting for process {first.pid}, which computes the same\n"
    )
    gate.touch()
    assert second.value()[0].tobytes() == TWICE.tobytes()
    assert len(stderr.read_text().splitlines()) == 1
    first.value()


# ---------------------------------------------------------------- forks


def test_a_fork_after_use_in_threads_finds_and_keeps(forker, folder):
    status, *found = forker.run(forks_once)
    assert status == 0
    assert found == [(True, []), (True, []), (True, ALL_CALLS)]  # what the child made is found
    assert len(assert_sound(folder)) == 9


def test_a_fork_while_other_threads_write_finds_and_keeps(forker, folder):
    statuses, wrong = forker.run(forks_beside_writers, 30)
    assert statuses == [0] * 30
    assert wrong == []
    assert_sound(folder)
    assert list((folder / "tmp").iterdir()) == []
    assert open_store(folder).verify() == []


def test_a_fork_of_who_holds_a_claim_claims_for_itself(forker):
    assert forker.run(claims_and_forks) == (0, (True, []))


# ---------------------------------------------------------------- sessions


@pytest.mark.parametrize("elsewhere", [study_at_a_worker, study_in_a_session])
def test_sessions_share_the_folder(forker, notes, folder, elsewhere):
    done = forker.start(elsewhere, MIDDLE).wait()
    assert (done.status, done.value, done.stderr) == (0, True, "")
    assert notes.read_text().splitlines() == ALL_CALLS
    records = records_of(folder)
    assert len(assert_sound(folder)) == 3
    assert forker.run(study, MIDDLE) == (True, [])
    assert forker.run(studies, SIZES) == (True, ALL_CALLS * 2)
    before = notes.read_text()
    for items in SIZES:
        done = forker.start(elsewhere, items).wait()
        assert (done.status, done.value, done.stderr) == (0, True, "")
    assert notes.read_text() == before
    assert set(records) < set(records_of(folder))
    assert len(records_of(folder)) == 9
