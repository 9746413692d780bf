"""gc: who goes first, who stays, and what it leaves alone."""

from __future__ import annotations

import os
import shutil
import threading
import time

import numpy as np
import pytest

from soma import Filter, Graph, InvalidInput
from soma_cache import collecting, files, sweeping, unlinking
from soma_cache.collecting import collect
from soma_cache.folder import Folder
from soma_cache.pins import pin, pins, unpin
from soma_cache.removing import remove
from soma_cache.survey import survey
from soma_cache.verifying import verify
from support.cache_folders import apart_from_the_index, assert_sound, blobs_of, records_of
from support.cache_stores import KEY, MIDDLE, OTHER, keep, opened, value_of
from support.cache_walk import surveyed, walked

HOUR_S, DAY_S = 3_600.0, 86_400.0


def key_of(number):
    return f"{number:064x}"


def cleaned(folder, max_bytes, min_age_s=0.0, **choice):
    return collect(Folder(str(folder)), max_bytes=max_bytes, min_age_s=min_age_s, **choice)


def used(folder, digest, ago_s):
    """Have a blob be used last so many seconds ago."""
    then_s = time.time() - ago_s
    os.utime(folder / "cas/b3" / digest[:2] / f"{digest}.bin", (then_s, then_s))


def order_of(folder):
    """Return the digests in the order in which a gc takes them."""
    return [one.digest for one in cleaned(folder, 0, dry_run=True).removed]


# ---------------------------------------------------------------- who goes first


def test_worth_is_compute_time_per_byte_and_day(folder):
    store = opened(folder)
    cases = [  # (bytes, compute_ms, days since its last use)
        (10_000, 100.0, 0.0),
        (10_000, 100.0, 3.0),
        (40_000, 100.0, 0.0),
        (10_000, 5.0, 0.0),
        (10_000, 0.0, 0.0),
        (20_000, 900.0, 9.0),
    ]
    worth = {}
    for number, (nbytes, compute_ms, days) in enumerate(cases):
        (digest,) = keep(store, bytes([number]) * nbytes, key=key_of(number), compute_ms=compute_ms)
        used(folder, digest, days * DAY_S)
        worth[digest] = compute_ms / (nbytes * (1.0 + days))
    assert order_of(folder) == sorted(worth, key=lambda digest: worth[digest])


def test_a_blob_that_several_name_is_worth_their_sum(folder):
    store = opened(folder)
    (shared,) = keep(store, b"s" * MIDDLE, key=key_of(1), compute_ms=30.0)
    (alone,) = keep(store, b"a" * MIDDLE, key=key_of(2), compute_ms=50.0)
    assert order_of(folder) == [shared, alone]
    keep(store, b"s" * MIDDLE, key=key_of(3), compute_ms=30.0)
    found = cleaned(folder, 0, dry_run=True).removed
    assert [(one.digest, one.compute_ms) for one in found] == [(alone, 50.0), (shared, 60.0)]


def test_what_cannot_be_had_again_goes_last_by_worth(folder):
    store = opened(folder)
    (cheap,) = keep(store, b"1" * MIDDLE, key=key_of(1), compute_ms=0.0, expensive=True)
    (asked,) = keep(store, b"2" * MIDDLE, key=key_of(2), compute_ms=7.0, effect="impure")
    (long,) = keep(store, b"3" * MIDDLE, key=key_of(3), compute_ms=1e9)
    assert order_of(folder) == [long, cheap, asked]
    assert [one.expensive for one in cleaned(folder, 0, dry_run=True).removed] == [0, 1, 1]


def test_of_equal_worth_the_digest_decides(folder):
    store = opened(folder)
    digests = [keep(store, bytes([one]) * 4_000, key=key_of(one))[0] for one in range(9)]
    for digest in digests:
        used(folder, digest, -10.0)  # as if just now, whatever the clocks say
    assert order_of(folder) == sorted(digests)


def test_ages_that_lie_ahead_count_as_none(folder):
    store = opened(folder)
    (ahead,) = keep(store, b"1" * MIDDLE, key=key_of(1), compute_ms=10.0)
    (now,) = keep(store, b"2" * MIDDLE, key=key_of(2), compute_ms=20.0)
    used(folder, ahead, -1_000 * DAY_S)
    assert order_of(folder) == [ahead, now]
    assert cleaned(folder, 0, dry_run=True).removed[0].age_s == 0.0
    assert cleaned(folder, 0, min_age_s=1.0).removed == ()


def test_ages_are_those_of_the_file_system_not_of_this_machine(folder, monkeypatch):
    store = opened(folder)
    (digest,) = keep(store, bytes(MIDDLE))
    used(folder, digest, 2 * HOUR_S)
    for skew_s in (-1e8, 1e8):
        monkeypatch.setattr(time, "time", lambda skew_s=skew_s: 1.7e9 + skew_s)
        (found,) = cleaned(folder, 0, min_age_s=HOUR_S, dry_run=True).removed
        assert 2 * HOUR_S - 1 < found.age_s < 2 * HOUR_S + 600
        assert cleaned(folder, 0, min_age_s=3 * HOUR_S, dry_run=True).removed == ()


# ---------------------------------------------------------------- how much goes


def test_no_more_goes_than_has_to_and_the_figures_add_up(folder):
    store = opened(folder)
    for number in range(10):
        keep(store, bytes([number]) * 10_000, key=key_of(number), compute_ms=1.0 + number)
    sizes = {path.stem: path.stat().st_size for path in blobs_of(folder)}
    before = sum(sizes.values())
    done = cleaned(folder, before - 25_000)
    gone = sizes.keys() - {path.stem for path in blobs_of(folder)}
    assert len(gone) == 3
    assert {one.digest for one in done.removed} == gone
    assert [one.compute_ms for one in done.removed] == [1.0, 2.0, 3.0]
    assert done.before_bytes == before
    assert done.freed_bytes == sum(sizes[digest] for digest in gone)
    assert done.after_bytes == sum(path.stat().st_size for path in blobs_of(folder))
    assert (done.over_bytes, done.failed, done.pinned_bytes, done.young_bytes) == (0, (), 0, 0)
    assert len(records_of(folder)) == 10
    assert surveyed(folder) == walked(folder)
    assert cleaned(folder, before - 25_000).removed == ()


def test_a_dry_run_says_what_would_go_and_changes_nothing(folder):
    store = opened(folder)
    for number in range(5):
        keep(store, bytes([number]) * 10_000, key=key_of(number), compute_ms=1.0 + number)
    (folder / "tmp" / f"{files.host()}-999999999-1").write_bytes(b"left")
    os.utime(folder / "tmp" / f"{files.host()}-999999999-1", (0, 0))
    cleaned(folder, 0, dry_run=True)
    before = apart_from_the_index(folder)
    said = cleaned(folder, 25_000, dry_run=True)
    assert apart_from_the_index(folder) == before
    done = cleaned(folder, 25_000)
    assert [one.digest for one in said.removed] == [one.digest for one in done.removed]
    assert (said.freed_bytes, said.after_bytes) == (done.freed_bytes, done.after_bytes)
    assert (
        (said.temporary, said.temporary_bytes) == (done.temporary, done.temporary_bytes) == (1, 4)
    )
    assert (said.dry_run, done.dry_run) == (True, False)


@pytest.mark.parametrize("max_bytes", [0, 1, 1 << 62, 10**400])
def test_a_limit_may_be_of_any_size(folder, max_bytes):
    keep(opened(folder), bytes(MIDDLE))
    done = cleaned(folder, max_bytes)
    assert len(blobs_of(folder)) == len(done.removed) ^ 1 == (max_bytes > MIDDLE)


@pytest.mark.parametrize(
    "limits",
    [
        {"max_bytes": -1},
        {"max_bytes": True},
        {"max_bytes": 1.0},
        {"max_bytes": "20G"},
        {"max_bytes": None},
        {"min_age_s": -1.0},
        {"min_age_s": float("nan")},
        {"min_age_s": "1h"},
        {"min_age_s": True},
        {"min_age_s": None},
    ],
)
def test_a_limit_that_is_none_takes_nothing(folder, limits):
    keep(opened(folder), bytes(MIDDLE))
    with pytest.raises(InvalidInput, match="0 or more, not"):
        collect(Folder(str(folder)), **{"max_bytes": 0, **limits})
    assert len(blobs_of(folder)) == 1


def test_a_cache_that_is_not_there_or_only_read(folder):
    assert cleaned(folder, 0, dry_run=True).removed == ()
    assert not folder.exists()
    keep(opened(folder), bytes(MIDDLE))
    reader = Folder(str(folder), read_only=True)
    with pytest.raises(OSError, match="read only"):
        collect(reader, max_bytes=0, min_age_s=0.0)
    assert len(collect(reader, max_bytes=0, min_age_s=0.0, dry_run=True).removed) == 1
    assert len(blobs_of(folder)) == 1


def test_it_says_how_far_it_is(folder, monkeypatch):
    monkeypatch.setattr(unlinking, "_AT_ONCE", 2)
    for number in range(5):
        keep(opened(folder), bytes([number]) * 4_000, key=key_of(number))
    told, nbytes = [], blobs_of(folder)[0].stat().st_size
    cleaned(folder, 0, progress=lambda done, total: told.append((done, total)))
    assert told[-3:] == [(count * nbytes, 5 * nbytes) for count in (2, 4, 5)]
    assert all(0 < done <= total for done, total in told)


# ---------------------------------------------------------------- who stays


def test_what_is_pinned_stays_above_any_limit(folder):
    store = opened(folder)
    kept = keep(store, b"1" * MIDDLE, b"2" * MIDDLE, key=KEY)
    keep(store, b"3" * MIDDLE, key=OTHER, compute_ms=1e9)
    pin(Folder(str(folder)), "best", KEY)
    done = cleaned(folder, 10)
    assert {path.stem for path in blobs_of(folder)} == {*kept}
    nbytes = sum(path.stat().st_size for path in blobs_of(folder))
    assert (done.pinned_bytes, done.after_bytes, done.over_bytes) == (nbytes, nbytes, nbytes - 10)
    unpin(Folder(str(folder)), "best")
    assert cleaned(folder, 10).after_bytes == 0


def test_a_pin_of_what_is_not_there_spares_nothing_and_harms_nothing(folder):
    store = opened(folder)
    keep(store, b"1" * MIDDLE, key=KEY)
    pin(Folder(str(folder)), "lost", OTHER)
    pin(Folder(str(folder)), "best", KEY)
    records_of(folder)[0].unlink()
    used(folder, blobs_of(folder)[0].stem, 2 * HOUR_S)
    done = cleaned(folder, 0)
    assert (done.pinned_bytes, done.after_bytes) == (0, 0)


def test_what_was_used_lately_stays(folder):
    store = opened(folder)
    (young,) = keep(store, b"1" * MIDDLE, key=key_of(1), compute_ms=0.0)
    (old,) = keep(store, b"2" * MIDDLE, key=key_of(2), compute_ms=1e9)
    used(folder, old, 2 * HOUR_S)
    done = collect(Folder(str(folder)), max_bytes=0)  # an hour is what it has by itself
    assert [one.digest for one in done.removed] == [old]
    assert [path.stem for path in blobs_of(folder)] == [young]
    assert done.young_bytes == done.after_bytes == done.over_bytes
    assert opened(folder).lookup(key_of(2)) is not None


def test_what_is_used_between_the_look_and_the_removal_stays(folder, monkeypatch):
    store = opened(folder)
    (digest,) = keep(store, bytes(MIDDLE))
    used(folder, digest, DAY_S)
    ranked = collecting.ranked

    def read_first(*args):
        assert value_of(opened(folder), digest) == bytes(MIDDLE)  # which is a use
        return ranked(*args)

    monkeypatch.setattr(collecting, "ranked", read_first)
    done = cleaned(folder, 0)
    assert (done.removed, len(blobs_of(folder))) == ((), 1)
    assert done.after_bytes == blobs_of(folder)[0].stat().st_size


# ---------------------------------------------------------------- what nobody needs


def orphan(folder, number, ago_s):
    store = opened(folder)
    (digest,) = keep(store, bytes([number]) * MIDDLE, key=key_of(number))
    (folder / "actions" / "00" / f"{key_of(number)}.json").unlink()
    used(folder, digest, ago_s)
    return digest


def test_orphans_go_below_the_limit_but_not_young_ones(folder):
    old, young = orphan(folder, 1, 2 * HOUR_S), orphan(folder, 2, HOUR_S / 2)
    keep(opened(folder), bytes(MIDDLE), key=KEY, compute_ms=0.0)
    done = cleaned(folder, 1 << 40)
    assert [(one.digest, one.reason) for one in done.removed] == [(old, "orphan")]
    done = cleaned(folder, 0)  # its writer may be about to name it, so no limit takes it
    assert [one.reason for one in done.removed] == ["value"]
    assert [path.stem for path in blobs_of(folder)] == [young]
    assert done.young_bytes == done.over_bytes == blobs_of(folder)[0].stat().st_size


def test_an_orphan_has_the_age_that_is_asked_for_where_that_is_longer(folder):
    orphan(folder, 1, 5 * HOUR_S)
    assert cleaned(folder, 1 << 40, min_age_s=6 * HOUR_S).removed == ()
    assert len(cleaned(folder, 1 << 40, min_age_s=4 * HOUR_S).removed) == 1


def test_a_blob_whose_record_the_index_has_missed_is_no_orphan(folder, monkeypatch):
    store = opened(folder)
    (digest,) = keep(store, b"1" * MIDDLE, key=key_of(1))
    used(folder, digest, 2 * HOUR_S)
    survey(Folder(str(folder)))
    monkeypatch.setattr("soma_cache.folder.changes.note", lambda *_, **__: None)
    (unseen,) = keep(store, b"2" * MIDDLE, key=key_of(2))
    used(folder, unseen, 2 * HOUR_S)
    before_s = (folder / "actions" / "00").stat().st_mtime - DAY_S
    os.utime(folder / "actions" / "00", (before_s, before_s))
    survey(Folder(str(folder)))
    (folder / "actions" / "00" / f"{key_of(3)}.json").write_bytes(b"")
    os.utime(folder / "actions" / "00", (before_s, before_s))
    assert cleaned(folder, 1 << 40).removed == ()


def test_what_killed_writers_have_left_goes(folder):
    opened(folder)
    host = files.host()
    cases = {  # name -> (age, whether it goes)
        f"{host}-999999999-1": (2 * HOUR_S, True),
        f"{host}-999999999-2": (HOUR_S / 2, False),
        f"{host}-{os.getpid()}-3": (2 * HOUR_S, False),
        f"{host}-{os.getpid()}-4": (2 * DAY_S, True),
        "elsewhere-999999999-5": (2 * HOUR_S, False),
        "elsewhere-999999999-6": (2 * DAY_S, True),
        "doctor-999999999-0123abcd": (2 * DAY_S, True),
        "doctor-999999999-0123abce": (2 * HOUR_S, False),
        "what else": (2 * DAY_S, False),
        "notes-2-b.txt": (2 * DAY_S, False),
        f"{host}-{'9' * 30}-7": (2 * DAY_S, False),
    }
    for name, (age_s, _) in cases.items():
        path = folder / "tmp" / name
        path.write_bytes(b"12345")
        os.utime(path, (time.time() - age_s,) * 2)
    done = cleaned(folder, 1 << 40)
    left = {path.name for path in (folder / "tmp").iterdir()}
    assert left == {name for name, (_, goes) in cases.items() if not goes}
    assert (done.temporary, done.temporary_bytes) == (4, 20)


def test_a_process_is_there_or_not():
    assert sweeping._is_alive(os.getpid())
    assert sweeping._is_alive(1)
    assert not sweeping._is_alive(999_999_999)
    assert not sweeping._is_alive(9_999_999_999)


# ---------------------------------------------------------------- what will not go


def test_what_cannot_be_removed_is_named_and_stops_nothing(folder, monkeypatch):
    store = opened(folder)
    digests = [keep(store, bytes([n]) * MIDDLE, key=key_of(n))[0] for n in range(4)]
    unlink = os.unlink

    def refusing(path, *args, **choice):
        if digests[1] in str(path):
            raise PermissionError(1, "Operation not permitted", path)
        unlink(path, *args, **choice)

    monkeypatch.setattr(os, "unlink", refusing)
    done = cleaned(folder, 0)
    assert [path.stem for path in blobs_of(folder)] == [digests[1]]
    ((failed, why),) = done.failed
    assert failed == digests[1]
    assert "not permitted" in why
    assert done.after_bytes == done.over_bytes == blobs_of(folder)[0].stat().st_size
    with pytest.raises(OSError, match=f"{digests[1]}.bin.*not permitted"):
        store.gc(max_bytes=0)


def test_the_next_go_where_one_cannot(folder, monkeypatch):
    store = opened(folder)
    digests = [
        keep(store, bytes([n]) * MIDDLE, key=key_of(n), compute_ms=1.0 + n)[0] for n in range(4)
    ]
    unlink = os.unlink

    def refusing(path, *args, **choice):
        if digests[0] in str(path):
            raise PermissionError(1, "Operation not permitted", path)
        unlink(path, *args, **choice)

    monkeypatch.setattr(os, "unlink", refusing)
    done = cleaned(folder, 3 * (MIDDLE + 1_000))
    assert [one.digest for one in done.removed] == [digests[1]]
    assert done.over_bytes == 0


@pytest.mark.parametrize("given", [0, 1, 2])
def test_with_few_threads_or_none_each_goes_once_and_is_counted(folder, monkeypatch, given):
    for number in range(100):
        keep(opened(folder), bytes([number]) * 4_000, key=key_of(number))
    start, started, unlink, unlinked = threading.Thread.start, [], os.unlink, []

    def refusing(thread):
        if thread.name == "soma-gc":
            if len(started) >= given:
                raise RuntimeError("can't start new thread")
            started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refusing)
    monkeypatch.setattr(os, "unlink", lambda path: (unlinked.append(path), unlink(path)))
    before = sum(path.stat().st_size for path in blobs_of(folder))
    done = cleaned(folder, 0)
    assert (len(done.removed), done.freed_bytes, len(started)) == (100, before, given)
    assert blobs_of(folder) == []
    gone = [path for path in unlinked if path.endswith(".bin")]
    assert len(gone) == len({*gone}) == 100


def test_who_stops_it_waits_for_no_more_than_a_file_of_each_thread(folder, monkeypatch):
    for number in range(200):
        keep(opened(folder), bytes([number]) * 4_000, key=key_of(number))
    main, stopped, unlink = threading.get_ident(), threading.Event(), unlinking._unlinked

    def stopping(*args):
        if threading.get_ident() == main:
            stopped.set()
            raise KeyboardInterrupt
        stopped.wait(60)
        return unlink(*args)

    monkeypatch.setattr(unlinking, "_unlinked", stopping)
    with pytest.raises(KeyboardInterrupt):
        cleaned(folder, 0)
    assert len(blobs_of(folder)) >= 200 - 2 * (unlinking._THREADS - 1)
    assert not [one for one in threading.enumerate() if one.name == "soma-gc"]
    assert surveyed(folder) == walked(folder)


# ---------------------------------------------------------------- what cannot be read


def broken(paths, monkeypatch):
    """Have files and folders fail to be read, for this process."""
    names = {str(path) for path in paths}
    for name in ("open", "scandir", "listdir"):
        call = getattr(os, name)

        def failing(path, *args, call=call, **choice):
            if path in names:  # which ours are, and those of pathlib are none
                raise OSError(5, "Input/output error", path)
            return call(path, *args, **choice)

        monkeypatch.setattr(os, name, failing)


def there_old(folder):
    """Have three values that may go; return the paths of their records, in order."""
    for number, key in enumerate((KEY, OTHER, "ef" * 32)):
        (digest,) = keep(opened(folder), bytes([number]) * MIDDLE, key=key, compute_ms=1.0 + number)
        used(folder, digest, 2 * HOUR_S)
    return sorted(records_of(folder))


@pytest.mark.parametrize("what", ["record", "shard", "actions"])
def test_where_records_cannot_be_read_no_blob_is_an_orphan(folder, monkeypatch, what):
    first, *_ = there_old(folder)
    unread = {"record": first, "shard": first.parent, "actions": folder / "actions"}[what]
    lost = {"record": 1, "shard": 1, "actions": 3}[what]
    shutil.rmtree(folder / "index")  # so that no log says what to look at
    broken([unread], monkeypatch)
    dry = cleaned(folder, 1 << 40, dry_run=True)
    done = cleaned(folder, 1 << 40)
    assert (dry.removed, done.removed, len(blobs_of(folder))) == ((), (), 3)
    name = str(unread.relative_to(folder))
    assert [one for one, _ in done.unreadable] == [one for one, _ in dry.unreadable] == [name]
    assert "Input/output error" in done.unreadable[0][1]
    nbytes = blobs_of(folder)[0].stat().st_size
    assert done.unsure_bytes == lost * nbytes
    assert [one.reason for one in cleaned(folder, 0).removed] == ["value"] * (3 - lost)
    assert len(blobs_of(folder)) == lost


def test_of_a_record_that_was_read_before_it_is_known_what_it_names(folder, monkeypatch):
    first, *_ = there_old(folder)
    survey(Folder(str(folder)))
    broken([first], monkeypatch)
    done = cleaned(folder, 1 << 40)
    assert (done.removed, done.unsure_bytes) == ((), 0)


def test_blobs_that_cannot_be_listed_are_told_and_the_others_go(folder, monkeypatch):
    there_old(folder)
    closed = blobs_of(folder)[0].parent
    broken([closed, folder / "tmp"], monkeypatch)
    done = cleaned(folder, 0, dry_run=True)
    assert len(done.removed) == 2
    assert [name for name, _ in done.unreadable] == [str(closed.relative_to(folder)), "tmp"]
    found = survey(Folder(str(folder)))
    assert [name for name, _ in found.unreadable] == [str(closed.relative_to(folder)), "tmp"]
    assert (found.records, found.blobs) == (3, 3)  # as they were when it could be listed


def test_a_pinned_record_that_cannot_be_read_stops_it(folder, monkeypatch):
    first, *_ = there_old(folder)
    pin(Folder(str(folder)), "paper", KEY)
    broken([first], monkeypatch)
    for choice in ({}, {"dry_run": True}):
        with pytest.raises(OSError, match=rf"{first}.*Input/output.*'paper'.*unpin NAME"):
            cleaned(folder, 0, **choice)
    assert len(blobs_of(folder)) == 3


# ---------------------------------------------------------------- pins that say no key


@pytest.mark.parametrize("end", ["", "\n", "\r\n", " \n\n"])
def test_a_pin_may_end_as_it_likes(folder, end):
    keep(opened(folder), bytes(MIDDLE), key=KEY)
    (folder / "pins").mkdir()
    (folder / "pins/p").write_bytes(f"{KEY}{end}".encode())
    assert cleaned(folder, 0).removed == ()
    assert pins(Folder(str(folder))) == {"p": KEY}


@pytest.mark.parametrize(
    "said", [b"", KEY[:40].encode(), b"\x00" * 65, f"{KEY[:-1]}ü\n".encode(), None]
)
def test_a_pin_that_says_no_key_stops_who_would_remove_something(folder, monkeypatch, said):
    there = Folder(str(folder))
    keep(opened(folder), bytes(MIDDLE), key=KEY)
    used(folder, blobs_of(folder)[0].stem, 2 * HOUR_S)
    pin(there, "a b", KEY)
    path = folder / "pins" / "a%20b"
    if said is None:
        broken([path], monkeypatch)
    else:
        path.unlink()
        path.write_bytes(said)
    for work in (lambda: cleaned(folder, 0), lambda: remove(there, KEY)):
        with pytest.raises(OSError, match=rf"{path} does not say what the pin 'a b' keeps.*unpin"):
            work()
    assert (len(blobs_of(folder)), len(records_of(folder))) == (1, 1)
    for found in (survey(there).unreadable, verify(there).unreadable):
        assert [name for name, _ in found] == ["pins/a%20b"]
    assert pins(there) == {}
    unpin(there, "a b")
    assert len(cleaned(folder, 0).removed) == 1


def test_a_pin_that_says_no_key_can_be_put_anew(folder):
    keep(opened(folder), bytes(MIDDLE), key=KEY)
    (folder / "pins").mkdir()
    (folder / "pins/p").write_bytes(b"what")
    pin(Folder(str(folder)), "p", KEY)
    assert cleaned(folder, 0).removed == ()


# ---------------------------------------------------------------- tmp


def test_nothing_is_swept_behind_a_link(folder, tmp_path):
    opened(folder)
    (tmp_path / "mine").mkdir()
    path = tmp_path / "mine" / f"{files.host()}-999999999-1"
    path.write_bytes(b"1")
    os.utime(path, (0, 0))
    (folder / "tmp").rmdir()
    (folder / "tmp").symlink_to(tmp_path / "mine")
    assert cleaned(folder, 1 << 40).temporary == 0
    assert path.exists()


def test_folders_that_were_moved_aside_go_after_a_day(folder, monkeypatch):
    opened(folder)
    ours, other = folder / "tmp" / f"{files.host()}-999999999-1", folder / "tmp" / "mine"
    for path in (ours, other):
        (path / "below").mkdir(parents=True)
        (path / "below" / "file").write_bytes(b"12345")
        os.utime(path, (0, 0))
    (folder / "tmp" / f"{files.host()}-999999999-2").symlink_to(other)
    assert cleaned(folder, 1 << 40).temporary == 0  # when it was moved there counts
    monkeypatch.setattr(collecting, "now_s", lambda *_, **__: time.time() + DAY_S + 60)
    dry, done = cleaned(folder, 1 << 40, dry_run=True), cleaned(folder, 1 << 40)
    assert (dry.temporary, done.temporary, done.temporary_bytes) == (1, 1, 5)
    assert (ours.exists(), (other / "below" / "file").exists()) == (False, True)


# ---------------------------------------------------------------- what it is for


class Long(Filter):
    """Takes long, and gives a number."""

    def forward(self, x, state):
        return float(x.sum())


class Large(Filter):
    """Takes a moment, and gives much."""

    def forward(self, x, state):
        return np.tile(x, 10_000)


def test_a_small_result_that_took_long_outlives_a_large_one_that_took_a_moment(folder):
    store = opened(folder)
    small, large = b"s" * 3_000, b"l" * 3_000_000
    (long,) = keep(store, small, key=KEY, compute_ms=60_000.0)
    keep(store, large, key=OTHER, compute_ms=20.0)
    done = cleaned(folder, 1_000_000)
    assert [path.stem for path in blobs_of(folder)] == [long]
    assert [one.compute_ms for one in done.removed] == [20.0]


def test_after_a_gc_everything_still_gives_the_same(folder):
    x = np.arange(1000.0)
    first = Graph.somatize(Large() >> Long())
    expected = first.forward(x)
    for max_bytes in (0, 1000, 1 << 30):
        cleaned(folder, max_bytes)
        again = Graph.somatize(Large() >> Long())
        assert again.forward(x) == expected
        assert again.last_run.hits >= 1
        assert np.array_equal(Graph.somatize(Large()).forward(x), np.tile(x, 10_000))
    assert_sound(folder)
