"""For all tests: Ctrl-C is heard, however they were started."""

from __future__ import annotations

import signal

# A shell starts what runs in the background deaf to it, and Python then leaves it so.
signal.signal(signal.SIGINT, signal.default_int_handler)
