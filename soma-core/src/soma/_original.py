"""Notice the original Soma, whose distribution is called somatize and brings the same modules."""

from __future__ import annotations

import os
import sys

__all__ = ["tell_if_installed"]


def tell_if_installed() -> None:
    """Say on stderr, in one sentence, that the original is installed beside this one.

    Only folders of packages are looked into, and only at names: asking importlib.metadata would
    cost every import 45 ms, and a folder of data on ``sys.path`` may be large.
    """
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  # pathlib would cost every import
    packages = [
        folder for folder in sys.path if str(folder).endswith(("site-packages", "dist-packages"))
    ]
    for folder in dict.fromkeys([own, *packages]):
        try:
            names = os.listdir(folder)  # noqa: PTH208  # as above
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
