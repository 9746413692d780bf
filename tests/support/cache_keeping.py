"""What processes do beside a gc, a verify and each other."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from soma import Filter, Graph
from soma.frame import decode_parts
from soma_cache import open_store
from soma_cache.collecting import collect
from soma_cache.folder import Folder
from soma_cache.survey import survey
from soma_cache.verifying import verify

__all__ = [
    "collect_in_a_loop",
    "hold_maps",
    "keep_house_without_rights",
    "survey_in_a_loop",
    "verify_in_a_loop",
    "write_values",
]

LARGE = 2 << 20


class Step(Filter):
    """Gives a large array; the numbers that writers share are computed once."""

    def __init__(self, number):
        self.number = number

    def forward(self, x, state):
        return np.full(LARGE // 8, x + self.number)


class Sum(Filter):
    def forward(self, x, state):
        return float(x.sum())


def write_values(folder, first, count):
    """Compute and look up values; return how many were not as they should be."""
    wrong = 0
    for number in range(first, first + count):
        for _ in range(2):  # the second finds it, or makes it again
            found = Graph.somatize(Step(number % 7) >> Sum()).forward(1.0)
            wrong += found != (LARGE // 8) * (1.0 + number % 7)
            whole = Graph.somatize(Step(number)).forward(1.0)
            wrong += not (whole == 1.0 + number).all()
    return wrong


def hold_maps(folder, done, count):
    """Hold what the store gives, and look at it until others are done; return what was wrong."""
    held, wrong, turn = {}, 0, 0
    while not all(Path(one).exists() for one in done) and turn < count:
        turn += 1
        store = open_store(folder)
        for record in list(store.records())[:20]:
            for digest in record.outputs.values():
                frame = store.read(digest)
                if frame is not None and digest not in held:
                    held[digest] = decode_parts(*frame)
        for value in held.values():
            if isinstance(value, np.ndarray):
                wrong += not (value == value[0]).all()
                value[1] = value[0]  # it is ours
        if len(held) > 10:
            held.pop(next(iter(held)))
        time.sleep(0.002)
    return wrong


def _in_a_loop(work, done, count):
    for _ in range(count):
        work()
        if all(Path(one).exists() for one in done):
            break
        time.sleep(0.001)
    work()


def collect_in_a_loop(folder, done, count, max_bytes):
    """Collect until others are done; return the bytes that were freed, and who would not go."""
    freed, failed = 0, []

    def work():
        nonlocal freed
        found = collect(Folder(folder), max_bytes=max_bytes, min_age_s=0.0)
        freed += found.freed_bytes
        failed.extend(found.failed)

    _in_a_loop(work, done, count)
    return freed, failed


def verify_in_a_loop(folder, done, count):
    """Verify until others are done; return what was said to be damaged."""
    found = []

    def work():
        one = verify(Folder(folder), everything=True)
        found.extend((*one.blobs, *one.records, *one.unreadable))

    _in_a_loop(work, done, count)
    return found


def survey_in_a_loop(folder, done, count):
    """Look at the figures until others are done; return the last."""
    found = []
    _in_a_loop(lambda: found.append(survey(Folder(folder))), done, count)
    return found[-1].records, found[-1].blobs


def keep_house_without_rights(folder):
    """Ask for figures, and for what may not be; for somebody who may only read."""
    found = survey(Folder(folder))
    checked = verify(Folder(folder), everything=True)
    try:
        said = str(collect(Folder(folder), max_bytes=0, min_age_s=0.0).failed)
    except OSError as error:
        said = str(error)
    done = collect(Folder(folder), max_bytes=0, min_age_s=0.0, dry_run=True)
    return found.blobs, checked.checked, said, len(done.removed)
