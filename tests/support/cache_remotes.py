"""What child processes do with remote tiers and folders, for tests of the disk cache."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from pathlib import Path

import numpy as np

from soma import Filter, Graph
from soma.frame import encode
from soma.sessions import LocalRunner
from soma_cache import DiskStore, locks, sending
from soma_cache import folder as folder_module
from soma_cache.folder import Folder
from soma_cache.remote import Remote
from support.broken_tiers import DictTier
from support.cache_work import MIDDLE, SMALL, study
from support.notes import note

X = np.arange(6.0)
MULTIPROCESSING = """
import multiprocessing
import os
import sys

import numpy as np

from soma import Filter, Graph


class Times(Filter):
    def __init__(self, amount):
        self.amount = amount

    def forward(self, x, state):
        return x * self.amount


def work(amount):
    x = np.arange(5000.0)
    found = Graph.somatize(Times(amount)).forward(x)
    if not np.array_equal(found, x * amount):
        sys.exit(3)


if __name__ == "__main__":
    work(1.0)
    for amount, method in ((2.0, "fork"), (3.0, "forkserver"), (4.0, "spawn")):
        context = multiprocessing.get_context(method)
        child = context.Process(target=work, args=(amount,))
        child.start()
        child.join(60)
        print(method, child.exitcode, flush=True)
    os._exit(0)  # what the parent has is not sent: it has had no end
"""


class Refuses(DictTier):
    """Takes nothing."""

    def put(self, name, frame):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


class Hangs(DictTier):
    """Takes for ever."""

    def put(self, name, frame):
        threading.Event().wait()


def _behind(tier, name):
    folder = Folder(os.environ["SOMA_CACHE_DIR"])
    folder.prepare()
    return DiskStore(folder, remote=Remote(tier, name, patience_s=1000.0))


def study_before_one_that_refuses(items):
    """Study with a tier that fails in its own way."""
    return study(items, cache=_behind(Refuses(), "lab"))


def study_before_one_that_hangs(items):
    """Study; at the end, for which there is no limit here, a file says that it has begun."""
    sending._EXIT_S = 1000.0
    finish = sending.Sender.finish

    def finish_and_say(sender, timeout_s):
        Path("ends").touch()
        finish(sender, timeout_s)

    sending.Sender.finish = finish_and_say
    global _kept  # noqa: PLW0603  # to the end of the process
    _kept = _behind(Hangs(), "lab")
    return study(items, cache=_kept)


_kept = None


def study_and_flush(items):
    """Study and wait until the tier has all of it; there are no other tiers in this process."""
    found = study(items)
    for sender in list(sending._all):
        assert sender.flush(60)
    return found


def study_where_another_version_was_put(with_parts):
    """Study, have somebody put a cache of version 3 in the place, and study something else."""
    locks._LOOK_EVERY_S = 0.0
    folder = Path(os.environ["SOMA_CACHE_DIR"])
    found = [study(MIDDLE)]
    shutil.rmtree(folder)
    put_version_3(folder, with_parts=with_parts)
    before = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    found += [study(MIDDLE + 1), study(SMALL), study(MIDDLE + 1)]
    after = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return found, before, after


def put_version_3(folder, *, with_parts):
    folder.mkdir()
    (folder / "format.json").write_bytes(b'{"version": 3, "hash": "b3", "features": ["inline"]}\n')
    if with_parts:
        for name in ("tmp", "actions", "cas/b3", "pins"):
            (folder / name).mkdir(parents=True)
        for number in range(256):
            (folder / "actions" / f"{number:02x}").mkdir()
            (folder / "cas" / "b3" / f"{number:02x}").mkdir()


def write_what_is_too_long():
    """Return the error of a write, and which threads of ours are alive then."""
    hash_parts = folder_module.hash_parts

    def slowly(header, buffers):
        time.sleep(0.3)
        return hash_parts(header, buffers)

    folder_module.hash_parts = slowly
    folder = Folder(os.environ["SOMA_CACHE_DIR"])
    folder.prepare()
    frame = encode(bytes(6 << 20))
    try:
        folder.write(frame.header, frame.buffers, None)
    except OSError as error:
        alive = [one.name for one in threading.enumerate() if one.name.startswith("soma")]
        return error.errno, alive, list(Path(folder.root, "tmp").iterdir())
    return None


class Calls(Filter):
    """Asks somebody with a token."""

    _secret = ("token", "key")

    def __init__(self, token, key, amount):
        self.token = token
        self._key = key
        self.amount = amount

    def forward(self, x, state):
        note("calls")
        return x + self.amount


def forward_with(token, key, **choice):
    return Graph.somatize(Calls(token, key, 1.0), **choice).forward(X).tolist()


def forward_with_in_a_session(token, key):
    g = Graph.somatize(Calls(token, key, 1.0))
    with LocalRunner() as runner:
        return runner.open(g.program()).forward(X).tolist()


def move_about(here, there):
    """Use a graph here and there, and in a session; return in which folder its cache lies."""
    os.chdir(here)
    g = Graph.somatize(Calls("t", "k", 1.0))
    g.forward(X)
    os.chdir(there)
    g.forward(X + 1)
    with LocalRunner() as runner:
        runner.open(g.program()).forward(X + 2)
    return g._cache.store.path
