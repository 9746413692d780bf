"""What is asked for when a cache on disk is opened, and what the environment says of it."""

from __future__ import annotations

import json
import os
import stat
from uuid import uuid4

import numpy as np
import pytest

from soma import Graph, InvalidInput, MissingPackage, UnknownName
from soma.engine import MemoryStore
from soma_cache import DiskStore, open_store
from soma_cache.opening import default_folder
from support.cache_folders import assert_sound, everything, records_of
from support.cache_processes import study_in_a_session
from support.cache_remotes import (
    Calls,
    forward_with,
    forward_with_in_a_session,
    move_about,
)
from support.cache_stores import MIDDLE, keep, opened
from support.cache_work import ALL_CALLS, LARGE, SMALL, studies, study, study_twice
from support.notes import CALLS, noted

SIZES = (SMALL, MIDDLE, LARGE)


# ---------------------------------------------------------------- the address of a tier

PASSWORD = "hunter2"  # noqa: S105  # of nobody
BROKEN = {
    "malformed": ("http://[x", InvalidInput, "file:///shared/cache"),
    "path": ("/shared/cache", InvalidInput, "file:///shared/cache"),
    "relative path": ("shared/cache", InvalidInput, "file:///shared/cache"),
    "unknown": (f"nobody://u:{PASSWORD}@host/x", UnknownName, "'file'"),
    "absent": (f"s3://u:{PASSWORD}@bucket/x", MissingPackage, 'pip install "soma-core[s3]"'),
    "secret with a slash": (f"s3://u:a/{PASSWORD}@bucket", MissingPackage, "pip install"),
    "secret with a query": (f"s3://u:a?{PASSWORD}@bucket", MissingPackage, "pip install"),
    "token": (f"s3://bucket/x?token={PASSWORD}", MissingPackage, "pip install"),
    "token with a sign": (f"s3://bucket/x?t=a@{PASSWORD}", MissingPackage, "pip install"),
    "without a scheme": (f"//u:{PASSWORD}@host/x", InvalidInput, "file:///shared/cache"),
    "of a user": (f"u:{PASSWORD}@host/x", UnknownName, "'file'"),
    "odd host": (f"s3://u:{PASSWORD}@ho\u2100st/x", InvalidInput, "file:///shared/cache"),
    "elsewhere": (f"file://u:{PASSWORD}@host/x", InvalidInput, "file:///shared/cache"),
    "odd query": (f"file:///x?token={PASSWORD}", InvalidInput, "read_only"),
    "two lines": ("s3://bucket/a\nb", MissingPackage, "pip install"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_tier_in_the_environment_that_cannot_be_opened_costs_a_line(forker, folder, what):
    url, _, wanted = BROKEN[what]
    done = forker.start(study_twice, SMALL, MIDDLE, SOMA_CACHE_REMOTE=url).wait()
    assert done.value == ([(True, ALL_CALLS)] * 2, [(True, [])] * 2)
    (said,) = done.stderr.splitlines()
    assert said.startswith("soma: the remote cache ")
    assert "SOMA_CACHE_REMOTE" in said
    assert wanted in said
    assert PASSWORD not in said
    assert len(assert_sound(folder)) == 6


@pytest.mark.parametrize("what", BROKEN)
def test_a_tier_that_was_named_and_cannot_be_opened_is_refused(tmp_path, capfd, what):
    url, error, wanted = BROKEN[what]
    with pytest.raises(error) as found:
        open_store(tmp_path / "cache", url=url)
    assert wanted in str(found.value)
    assert PASSWORD not in str(found.value)
    if "://" in url:
        with pytest.raises(error):
            Graph(cache=url)
    assert not (tmp_path / "cache").exists()
    assert capfd.readouterr().err == ""


def test_an_empty_address_is_none(forker, folder):
    done = forker.start(study, SMALL, SOMA_CACHE_REMOTE="").wait()
    assert (done.value, done.stderr) == ((True, ALL_CALLS), "")
    assert len(assert_sound(folder)) == 3


def test_children_of_sessions_work_without_a_tier_that_cannot_be_opened(forker, tmp_path):
    children = [
        forker.start(
            study_in_a_session,
            MIDDLE,
            SOMA_CACHE_REMOTE=BROKEN[what][0],
            SOMA_CACHE_DIR=str(tmp_path / what),
        )
        for what in ("malformed", "path", "unknown", "absent")
    ]
    for child in children:
        done = child.wait()
        assert (done.status, done.value) == (0, True), done.stderr
        (said,) = done.stderr.splitlines()
        assert "SOMA_CACHE_REMOTE" in said
        assert PASSWORD not in said
    for what in ("malformed", "path", "unknown", "absent"):
        assert len(assert_sound(tmp_path / what)) == 3


# ---------------------------------------------------------------- other settings


@pytest.fixture
def syncs(monkeypatch):
    found = []
    monkeypatch.setattr(os, "fsync", lambda fd: found.append(os.fstat(fd).st_ino))
    return found


@pytest.mark.parametrize("said", ["", "auto", "always"])
def test_how_to_sync_may_be_said(monkeypatch, folder, syncs, capfd, said):
    is_synced = said == "always"
    monkeypatch.setenv("SOMA_CACHE_FSYNC", said)
    store = open_store(folder)
    del syncs[:]
    keep(store, bytes(MIDDLE), compute_ms=1.0)
    inodes = {path.stat().st_ino for path in records_of(folder)}
    assert bool(inodes & set(syncs)) == is_synced
    assert bool(syncs) == is_synced
    assert capfd.readouterr().err == ""


def test_a_way_to_sync_that_there_is_not_costs_a_line_and_is_auto(
    monkeypatch, folder, syncs, capfd
):
    said = f"never-{uuid4().hex}"
    monkeypatch.setenv("SOMA_CACHE_FSYNC", said)
    for number in range(3):
        store = open_store(folder.parent / f"{folder.name}-{number}")
        assert isinstance(store, DiskStore)
        del syncs[:]
        keep(store, bytes(MIDDLE), compute_ms=1.0)
        assert syncs == []
        keep(store, bytes(MIDDLE), compute_ms=1000.0)
        assert syncs != []
    (line,) = capfd.readouterr().err.splitlines()
    assert said in line
    assert "'auto' or 'always'" in line


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ({"read_only": "false"}, "read_only is True or False"),
        ({"read_only": 0}, "read_only is True or False"),
        ({"read_only": None}, "read_only is True or False"),
        ({"url": 3}, "url is a text"),
        ({"url": b"file:///x"}, "url is a text"),
        ({"url": True}, "url is a text"),
        ({"path": ""}, "path of a cache"),
        ({"path": b"x"}, "path of a cache"),
        ({"path": 3}, "path of a cache"),
        ({"max_bytes": "1G"}, "max_bytes is a whole number"),
    ],
)
def test_what_cannot_be_understood_is_refused(folder, choice, wanted):
    with pytest.raises(InvalidInput, match=wanted):
        open_store(**choice)
    assert not folder.exists()


def test_a_graph_refuses_them_as_well(folder):
    for choice in (
        {"cache": "disk", "cache_path": ""},
        {"cache": "disk", "cache_path": 5},
        {"cache": "disk", "cache_path": "x", "cache_max_bytes": "1G"},
    ):
        with pytest.raises(InvalidInput):
            Graph(**choice)
    assert not folder.exists()


@pytest.mark.parametrize("cls", [MemoryStore, DiskStore, dict])
def test_a_class_is_no_store(cls):
    with pytest.raises(InvalidInput, match="cache"):
        Graph(cache=cls)
    assert Graph(cache=MemoryStore())._cache.store is not None


@pytest.mark.parametrize("mode", [0o000, 0o200, 0o300, 0o400, 0o600])
def test_a_folder_that_cannot_be_read_is_not_used(forker, folder, mode):
    assert forker.run(studies, SIZES).calls == ALL_CALLS * 3
    before = everything(folder)
    kept = stat.S_IMODE(folder.stat().st_mode)
    folder.chmod(mode)
    try:
        done = forker.start(study_twice, *SIZES, plain=True).wait()
    finally:
        folder.chmod(kept)
    assert done.value == ([(True, ALL_CALLS)] * 3, [(True, [])] * 3)
    (said,) = done.stderr.splitlines()
    assert str(folder) in said
    assert "PermissionError" in said
    assert "is used" not in said
    assert "memory" in said
    assert everything(folder) == before


def test_a_relative_folder_stays_where_it_was(forker, tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    path = forker.run(move_about, str(here), str(there), SOMA_CACHE_DIR="a/cache")
    assert path == f"{here}/a/cache"
    assert list(there.iterdir()) == []
    assert len(assert_sound(here / "a" / "cache")) == 3
    monkeypatch.setenv("SOMA_CACHE_DIR", "a/cache")
    monkeypatch.chdir(here)
    assert default_folder() == f"{here}/a/cache"
    store = open_store()
    monkeypatch.chdir(there)
    assert store.path == store.open_options["path"] == f"{here}/a/cache"
    assert default_folder() == f"{there}/a/cache"


# ---------------------------------------------------------------- secrets

TOKEN, OTHER_TOKEN = "a-token-that-nobody-else-has", "another-token"
PARTS = {"attribute amount", "method forward"}


def assert_open(parts):
    assert set(parts) >= PARTS
    assert not [name for name in parts if "token" in name or "key" in name]


def test_the_hash_of_a_secret_is_in_no_record_in_memory():
    g = Graph.somatize(Calls(TOKEN, "k", 1.0), cache="memory")
    g.forward(np.arange(2.0))
    (record,) = g._cache.store.records()
    assert_open(record.parts)


@pytest.mark.parametrize("work", [forward_with, forward_with_in_a_session])
def test_the_hash_of_a_secret_is_in_no_record_on_disk(forker, folder, work):
    assert forker.run(work, TOKEN, "k") == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    (record,) = assert_sound(folder)
    assert_open(record["parts"])
    assert TOKEN not in json.dumps(record)


def test_what_is_computed_depends_on_a_secret_all_the_same(folder):
    store = opened(folder)
    del CALLS[:]
    for token, key, calls in (
        (TOKEN, "k", 1),
        (TOKEN, "k", 1),
        (OTHER_TOKEN, "k", 2),
        (TOKEN, "l", 3),
        (OTHER_TOKEN, "k", 3),
        (TOKEN, "k", 3),
    ):
        forward_with(token, key, cache=store)
        assert noted("calls") == calls
    records = assert_sound(folder)
    assert len({one["key"] for one in records}) == 3
    assert len({json.dumps(one["parts"], sort_keys=True) for one in records}) == 1
