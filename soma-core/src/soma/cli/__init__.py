"""The ``soma`` command.

``soma --version`` answers before click is imported, and a sub-command's own code is imported only
when it is run, so that the command starts quickly however many plugins are installed.
"""

from __future__ import annotations

import sys

from soma._version import __version__

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its status."""
    if sys.argv[1:] == ["--version"]:
        try:
            print(f"soma {__version__}", flush=True)  # noqa: T201  # the answer
        except OSError as error:
            from soma.cli.streams import give_up

            sys.exit(give_up(error))
        return
    from soma.cli.root import run

    sys.exit(run(sys.argv[1:]))
