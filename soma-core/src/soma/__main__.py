"""``python -m soma`` is the ``soma`` command."""

from __future__ import annotations

from soma.cli import main

if __name__ == "__main__":
    main()
