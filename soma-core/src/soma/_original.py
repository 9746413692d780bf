"""Notice the original Soma, whose distribution is called somatize and brings the same modules."""

from __future__ import annotations

import os
import sys

__all__ = ["tell_if_installed"]


def tell_if_installed() -> None:
    """Say on stderr, in one sentence, that the original is installed beside this one.

    Only the names in the folders of ``sys.path`` are read: asking importlib.metadata would cost
    every import 45 ms.
    """
    for folder in dict.fromkeys(sys.path):
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208  # pathlib would cost every import
        except OSError:
            continue
        for name in names:
            if name.startswith("somatize-") and name.endswith(".dist-info"):
                version = name[len("somatize-") : -len(".dist-info")]
                print(  # noqa: T201  # a notice
                    f"soma: somatize {version}, the original, is installed too and brings modules "
                    "of the same names, so which code runs depends on the order of installation: "
                    "pip uninstall somatize, then install soma-core again",
                    file=sys.stderr,
                )
                return
