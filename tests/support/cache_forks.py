"""Forks while a thread of this process is inside SQLite: what the child finds then."""

from __future__ import annotations

import json
import os
import threading
import time

from soma_cache import forks, index
from soma_cache.folder import Folder
from soma_cache.index import consult

__all__ = ["forked_beside", "forked_inside"]


def _count(folder):
    return consult(Folder(folder), lambda tables: tables.sums().records)


def _forked(folder):
    """Return what a child says: how many records there are, and whether the disk has told it."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            asked = []
            in_memory = index._in_memory
            index._in_memory = lambda *args: asked.append(args) or in_memory(*args)
            index._PATIENCE_S = 0.0
            said = [_count(folder), not asked]
            os.write(theirs, json.dumps(said).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        said = json.loads(answer.read() or "null")
    os.waitpid(pid, 0)
    return said


def forked_beside(folder, stays):
    """Fork while another thread holds the lock, until it sees that, or beyond it."""
    inside, done = threading.Event(), threading.Event()
    if stays:
        forks._PATIENCE_S = 0.01

    def hold(tables):
        with tables.changing():
            inside.set()
            until = time.monotonic() + 30
            while not (done.wait(0.001) or time.monotonic() > until):
                if not stays and forks._locks.door.locked():
                    break

    thread = threading.Thread(target=consult, args=(Folder(folder), hold))
    thread.start()
    inside.wait(30)
    try:
        return _forked(folder)
    finally:
        done.set()
        thread.join()


def forked_inside(folder):
    """Fork in the midst of a question."""
    return consult(Folder(folder), lambda _: _forked(folder))
