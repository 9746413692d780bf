"""Pickles between processes of one user.

Classes go by path where the other process can import them, else by value; large buffers lie apart
from the pickle.
"""

from __future__ import annotations

import io
from typing import Any

from soma.pickling.unpickling import loads

__all__ = ["dumps", "loads"]


def dumps(value: Any) -> tuple[bytes, list[memoryview]]:
    """Return the pickle of a value, and its buffers, which are still the memory of the value.

    Raises:
        Exception: whatever pickling raises.
    """
    from soma.pickling.by_value import Pickler  # brings cloudpickle, which few processes need

    file, views = io.BytesIO(), list[memoryview]()
    Pickler(file, lambda buffer: views.append(buffer.raw())).dump(value)
    return file.getvalue(), views
