"""Several threads that do the same, and an end to waiting for them."""

from __future__ import annotations

import threading

__all__ = ["run_in_threads"]


def run_in_threads(work, count):
    """Call ``work(number)`` on so many threads at once; fail if one is not done in a minute."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
