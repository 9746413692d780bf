"""One thread that starts the children, and looks after them until they have ended.

A child asks the kernel to be killed when the *thread* that started it ends. Children are therefore
started here, by a thread that lives as long as the process does, and not by whoever asks: a thread
of somebody's pool may end while its child has work. The same thread tells what they print, kills
those that take too much memory, and reaps them.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from contextlib import suppress

from soma._notices import tell
from soma.errors import describe_error
from soma.sessions.watched import Watched

__all__ = ["begin"]

_MEMORY_MS = 50
_REAP_MS = 100
"""Where the kernel does not tell when a process ends."""


class _Minder:
    """The children of this process and the thread that minds them."""

    def __init__(self) -> None:
        self._requests: deque[Watched] = deque()
        self._children: list[Watched] = []
        self._by_fd: dict[int, Watched] = {}
        self._poll = select.poll()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        self._poll.register(self._woken, select.POLLIN)
        self.thread = threading.Thread(target=self._run, name="soma-minder", daemon=True)
        self.thread.start()

    def begin(self, child: Watched) -> None:
        """Start a process and look after it."""
        self._requests.append(child)
        os.write(self._wake, b"\0")
        child.started.wait()

    def forget(self) -> None:
        """In a copy of this process after a fork, which has no such thread."""
        for fd in (self._woken, self._wake):
            with suppress(OSError):
                os.close(fd)

    def _run(self) -> None:
        while True:
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001  # whoever waits for a child waits for us
                tell(f"the thread that minds the children goes on after {describe_error(error)}")
                time.sleep(_REAP_MS / 1e3)

    def _turn(self) -> None:
        ready = [fd for fd, _ in self._poll.poll(self._timeout())]
        if self._woken in ready:
            self._start_children()
        for fd in ready:
            if fd in self._by_fd:
                self._attend(fd, self._by_fd[fd])
        for child in list(self._children):
            child.check_memory()
            if child.pidfd < 0:
                self._reap(child)

    def _timeout(self) -> int | None:
        if any(child.memory_bytes is not None for child in self._children):
            return _MEMORY_MS
        return _REAP_MS if any(child.pidfd < 0 for child in self._children) else None

    def _start_children(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._woken, 4096)
        while self._requests:
            child = self._requests.popleft()
            child.begin()
            if child.error is None:
                self._children.append(child)
                self._listen(child)

    def _listen(self, child: Watched) -> None:
        for fd in (child.output.fd if child.output else -1, child.pidfd):
            if fd >= 0:
                self._by_fd[fd] = child
                self._poll.register(fd, select.POLLIN)

    def _ignore(self, fd: int) -> None:
        if self._by_fd.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def _attend(self, fd: int, child: Watched) -> None:
        if fd == child.pidfd:
            self._reap(child)
        elif child.output is not None and not child.output.pump():
            self._ignore(fd)

    def _reap(self, child: Watched) -> None:
        if not child.reap():
            return
        self._children.remove(child)
        for fd in [fd for fd, one in self._by_fd.items() if one is child]:
            self._ignore(fd)
        child.finish()


_lock = threading.Lock()
_minder: _Minder | None = None


def begin(child: Watched) -> None:
    """Start a process on the minder's thread; look after it from then on.

    Raises:
        OSError: it could not be started.
    """
    global _minder  # noqa: PLW0603  # one per process
    with _lock:
        if _minder is None:
            _minder = _Minder()
        minder = _minder
    minder.begin(child)
    if child.error is not None:
        raise child.error


def _after_fork() -> None:
    global _lock, _minder  # noqa: PLW0603  # a thread that did not come along may hold the lock
    _lock = threading.Lock()
    if _minder is not None:
        _minder.forget()
        _minder = None


os.register_at_fork(after_in_child=_after_fork)
