"""How arrays and numpy scalars are written. Imported when the first one is met."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from soma.frame import arrays
from soma.frame.encoded import Encoded
from soma.frame.layout import build_header
from soma.frame.tokens import Code

if TYPE_CHECKING:
    from soma.frame.encode import _Writer

__all__ = ["whole_array", "write_array", "write_mapped", "write_scalar"]

_REMEMBERED = 512
_HEADERS: dict[tuple[Any, ...], bytes] = {}
"""(dtype, shape) -> the header of a frame that is one plain array."""


def whole_array(array: np.ndarray[Any, Any]) -> Encoded | None:
    """Return the frame of an array, as the walk gives it; None for one that takes more care.

    Most values are such arrays, and most of those look like one that was written before.
    """
    flags, dtype = array.flags, array.dtype
    plain = dtype.kind in "biufcmMSU" and dtype.char not in "gG"
    if not (plain and flags.c_contiguous and flags.writeable and flags.aligned):
        return None
    key = (dtype.num, dtype.str, dtype.type, array.shape)
    header = _HEADERS.get(key)
    if header is None:
        token = [int(Code.ARRAY), arrays.describe_dtype(dtype), list(array.shape), "C"]
        header = build_header([token], [array.nbytes], 0)
        if len(_HEADERS) >= _REMEMBERED:
            _HEADERS.clear()
        _HEADERS[key] = header
    pieces = (arrays.raw_bytes(array),)
    return Encoded(header, pieces, pickled=False, original=array, rearranged=False)


def write_array(writer: _Writer, array: np.ndarray[Any, Any]) -> None:
    """Write an array: its memory as a buffer, or its elements where it holds objects.

    An array that is neither C- nor F-contiguous is made C-contiguous first.
    """
    original, order = array, arrays.order_of(array)
    writer.meet(array)
    if not (array.flags.writeable and array.flags.aligned):
        writer.shared = True
    if not order:
        array, order = np.ascontiguousarray(array), "C"
        writer.rearranged = True
    shape = list(array.shape)
    if array.dtype == np.object_:
        writer.out.tokens.append([int(Code.OBJECTS), shape, order])
        writer.enter(original, array.reshape(-1).tolist())
        return
    dtype = arrays.describe_dtype(array.dtype)
    if array.dtype.hasobject:
        _write_records(writer, original, dtype, order)
    else:
        writer.out.tokens.append([int(Code.ARRAY), dtype, shape, order])
        writer.out.buffers.append(arrays.raw_bytes(arrays.clean(array)))


def write_mapped(writer: _Writer, array: np.ndarray[Any, Any]) -> None:
    """Write an array that lies in a file (``np.load(mmap_mode="r")``) as the array that it is."""
    shared = writer.shared
    write_array(writer, array.view(np.ndarray))
    writer.rearranged = True  # what goes on is an array as well: cold and warm alike ...
    writer.shared = shared  # ... but still the file, which may be larger than memory


def write_scalar(writer: _Writer, value: np.generic) -> None:
    """Write a numpy scalar."""
    if value.dtype.hasobject:
        array = np.array(value)
        _write_records(writer, array, arrays.describe_dtype(array.dtype), "S")
        return
    dtype, raw = arrays.describe_scalar(value)
    writer.out.tokens.append([int(Code.SCALAR), dtype, raw])


def _write_records(writer: _Writer, array: np.ndarray[Any, Any], dtype: str, order: str) -> None:
    fields = arrays.split_fields(array)
    writer.out.tokens.append([int(Code.RECORDS), dtype, list(array.shape), order])
    writer.enter(array, fields)
