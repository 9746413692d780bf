"""A child that hears Ctrl-C, however the tests themselves were started."""

from __future__ import annotations

import signal

__all__ = ["hear_ctrl_c"]


def hear_ctrl_c():
    """For ``preexec_fn``: a shell starts what runs in the background deaf to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
