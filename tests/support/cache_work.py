"""Filters, and what child processes do, for tests of the disk cache.

Whatever is computed is compared here with the same in plain numpy; what comes back says whether it
was right, and which calls of user code it has taken.
"""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from blake3 import blake3

from soma import Filter, Graph
from soma.engine import actions
from soma_cache import DiskStore, open_store
from soma_cache.folder import Folder
from support.cache_folders import assert_sound, blobs_of, damage, records_of
from support.notes import CALLS, note

SMALL, MIDDLE, LARGE = 20, 10_000, 200_000
"""Items of 8 bytes: what lies in the record, in a small file, and in one that is mapped."""


class Add(Filter):
    def __init__(self, amount):
        self.amount = amount

    def forward(self, x, state):
        note("add")
        return x + self.amount


class Learn(Filter):
    """Its state is as large as its input."""

    def fit(self, x, y=None):
        note("fit")
        return {"seen": x * 3}

    def forward(self, x, state):
        note("learn")
        return x + state["seen"]


def drawn(number, nbytes):
    return np.random.default_rng(number).integers(0, 256, nbytes, dtype=np.uint8)


class Outcome(NamedTuple):
    right: bool
    calls: list[str]
    """Of user code, in order."""


ALL_CALLS = ["add", "fit", "learn"]
"""What a study computes where nothing is kept."""


def study(items, **choice):
    """Fit and forward a graph of two nodes; nothing of it is referred to afterwards."""
    del CALLS[:]
    x = np.arange(items, dtype=float)
    g = Graph.somatize(Add(1.0) >> Learn(), **choice)
    g.fit(x)
    right = bool(np.array_equal(g.state()["learn"]["seen"], 3 * (np.arange(items) + 1.0)))
    out = g.forward(x)
    right = right and bool(np.array_equal(out, 4 * (np.arange(items) + 1.0)))
    right = right and out.dtype == np.float64
    del g, out
    gc.collect()  # a map of a file that is cut afterwards must not be looked at
    return Outcome(right, list(CALLS))


def studies(sizes=(SMALL, MIDDLE, LARGE), **choice):
    """Return what each size gave, as one outcome."""
    found = [study(one, **choice) for one in sizes]
    return Outcome(all(one.right for one in found), [call for one in found for call in one.calls])


def study_and_damage(folder, kind, items):
    """Study, damage every blob, and study again in the same process."""
    first = study(items)
    damage(blobs_of(folder), kind)
    return first, study(items)


def flip_every_byte(folder, bit):
    """Return the places at which a flipped record has given anything but three calls."""
    wrong = []
    path = max(records_of(folder), key=lambda one: one.stat().st_size)
    raw = path.read_bytes()
    folder_of_one = Folder(folder)
    for place in range(len(raw)):
        path.unlink()
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1 << bit]) + raw[place + 1 :])
        if folder_of_one.record(path.stem) is not None:
            wrong.append(place)
        if place % 50 == 0:
            found = study(SMALL, cache=DiskStore(Folder(folder)))
            if not found.right or len(found.calls) != 1:
                wrong.append((place, found))
    path.unlink()
    path.write_bytes(raw)
    return wrong


def replace_by_no_frame(folder):
    """Have the record of the last node name bytes that are no frame."""
    raw = b"these are no frame at all" * 1000
    one = Folder(folder)
    digest = one.write(b"", [memoryview(raw)], None)
    assert digest == blake3(raw).hexdigest()
    found = [one.record(path.stem).record for path in records_of(folder)]
    (record,) = [
        each for each in found if each.origin["node"] == "learn" and "output" in each.outputs
    ]
    one.put_record(replace(record, outputs={"output": digest}), {})


def study_twice(*sizes):
    """Return what each size gave, all of them once and then again, in one process."""
    return [study(one) for one in sizes], [study(one) for one in sizes]


def study_on_full_disk(items, others):
    """Study where there is one megabyte of room, and then something smaller, and again.

    In a file system that ends with this process; None where none can be made.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    folder = os.environ["SOMA_CACHE_DIR"]
    Path(folder).mkdir()
    flags = 1 << 14 | 1 << 18  # MS_REC | MS_PRIVATE
    if (
        libc.unshare(0x00020000) != 0  # CLONE_NEWNS
        or libc.mount(b"none", b"/", None, flags, None) != 0
        or libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, b"size=1m") != 0
    ):
        return None
    found = [study(items), study(others)]
    left = [path.name for path in Path(folder, "tmp").iterdir()]
    return [*found, study(others)], left, len(assert_sound(Path(folder)))


def study_without_folder(items):
    """Study, lose the folder, and study the same and something else."""
    found = [study(items)]
    shutil.rmtree(os.environ["SOMA_CACHE_DIR"])
    return [*found, study(items), study(items + 1)]


def study_at(now_s, *sizes):
    """Study at another time of day, and let go of all blobs then."""
    time.time = lambda: now_s
    time.time_ns = lambda: int(now_s * 1e9)
    actions.time = time.time
    return studies(sizes), open_store().gc(max_bytes=0)


def study_read_only(folder, sizes):
    """Use a store that was opened to be read; return as well which errors changing it gives."""
    store = open_store(folder, read_only=True)
    found = studies(sizes, cache=store)
    other, again = study(MIDDLE + 1, cache=store), study(MIDDLE + 1, cache=store)
    key = next(store.records()).key
    refused = []
    for change in (
        lambda: store.pin("best", key),
        lambda: store.gc(max_bytes=0),
    ):
        try:
            change()
        except OSError as error:
            refused.append(error.errno)
    assert store.gc(max_bytes=0, dry_run=True) > 0
    return found, other, again, refused


def look_around(folder):
    store = open_store(folder)
    counts = store.stats()
    return counts["records"], counts["blobs"], store.verify(), store.gc(max_bytes=0) > 0
