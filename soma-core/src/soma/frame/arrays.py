"""numpy in frames: dtypes as text, arrays as buffers. Imported when the first array is met.

Three surprises. An array of Python objects holds addresses, so it is written element by element.
The gaps in structured items, and the unused bytes of an x87 ``longdouble``, hold whatever was in
memory before, so they are zeroed on the way. And a dtype is written as text that must give the very
same dtype again: what numpy cannot name exactly is refused rather than guessed.
"""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from soma.errors import FrameError, MissingCodec, describe_error, shown

__all__ = [
    "clean",
    "count_fields",
    "describe_dtype",
    "describe_scalar",
    "fill_objects",
    "join_fields",
    "make_array",
    "make_scalar",
    "order_of",
    "raw_bytes",
    "read_dtype",
    "split_fields",
]

_KINDS = "biufcmMSUV"
_REMEMBERED = 512
_KNOWN: dict[tuple[Any, ...], str] = {}
_X87 = np.finfo(np.longdouble).nmant == 63 and np.dtype(np.longdouble).itemsize == 16  # noqa: PLR2004  # x87's 63 bits in 16 bytes


def describe_dtype(dtype: np.dtype[Any]) -> str:
    """Return the dtype as text: ``"<f8"``, or JSON for a structured one.

    Metadata that somebody has attached to it is no part of that.

    Raises:
        MissingCodec: numpy cannot name the dtype exactly.
    """
    # By these and not by the dtype: numpy takes some for equal that are not the same.
    key = (dtype.num, dtype.str, dtype.type)
    if dtype.names is not None:
        return _describe_dtype(dtype)
    known = _KNOWN.get(key)
    if known is None:
        known = _KNOWN[key] = _describe_dtype(dtype)
        if len(_KNOWN) > _REMEMBERED:
            _KNOWN.clear()
    return known


def _describe_dtype(dtype: np.dtype[Any]) -> str:
    try:
        structured = dtype.names is not None
        text = json.dumps(_structure(dtype), sort_keys=True) if structured else _plain(dtype)
        same = _is_same(read_dtype(text, objects=dtype.hasobject), dtype)
    except (FrameError, TypeError, ValueError):
        same = False
    if not same:
        raise MissingCodec(
            f"An array of dtype {dtype} cannot be written down: numpy has no exact name for it. "
            "Convert it, or wrap it in a class of yours and register a codec"
        )
    return text


def _is_same(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Say whether two dtypes are one: numpy takes some for equal whose scalars differ in type."""
    if one != other or one.num != other.num or one.type is not other.type:
        return False
    if one.subdtype is not None and other.subdtype is not None:
        return _is_same(one.subdtype[0], other.subdtype[0])
    return all(_is_same(one[name], other[name]) for name in one.names or ())


@lru_cache(maxsize=512)
def read_dtype(text: str, *, objects: bool = False) -> np.dtype[Any]:
    """Return the dtype that the text describes.

    Raises:
        FrameError: it describes none, or one of Python objects where there may be none.
    """
    structured = text.startswith("{")
    try:
        found: np.dtype[Any] = _from_structure(json.loads(text)) if structured else np.dtype(text)
        exact = found.names is not None if structured else _plain(found) == text
    except Exception as error:  # hostile text may raise whatever numpy can raise
        raise FrameError(f"{shown(text)} is no dtype: {describe_error(error)}") from error
    if not exact or found.subdtype is not None:
        raise FrameError(f"{shown(text)} is no dtype that a frame has")
    if found.hasobject and not (objects and structured):
        raise FrameError(f"{shown(text)} is a dtype whose items are addresses")
    if not structured and found.kind not in _KINDS:
        raise FrameError(f"{shown(text)} is a dtype that a frame does not have")
    if structured and json.dumps(json.loads(text), sort_keys=True) != text:
        raise FrameError(f"{shown(text)} is not written as a frame's dtype is")
    empty = any(found[name].itemsize == 0 for name in found.names or ())
    if found.hasobject and (empty or found.itemsize > _sparse_limit(found)):
        raise FrameError(f"{shown(text)} has items that are mostly gaps")
    return found


def _sparse_limit(dtype: np.dtype[Any]) -> int:
    """Return how large an item may be whose fields are read one by one: gaps are not in a frame."""
    return 64 + 8 * sum(dtype[name].itemsize for name in dtype.names or ())


def _plain(dtype: np.dtype[Any]) -> str:
    """Return numpy's text; with the letter where the text alone means another type of that size."""
    text = str(dtype.str)
    return text if np.dtype(text).num == dtype.num else f"{text[0]}{dtype.char}"


def _structure(dtype: np.dtype[Any]) -> Any:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return [_structure(base), list(shape)]
    if dtype.names is None:
        return dtype.str if dtype.hasobject else _plain(dtype)
    fields = [dtype.fields[name] for name in dtype.names]  # type: ignore[index]  # it has names
    return {
        "names": list(dtype.names),
        "formats": [_structure(field[0]) for field in fields],
        "offsets": [field[1] for field in fields],
        "titles": [field[2:] for field in fields],
        "itemsize": dtype.itemsize,
        "aligned": dtype.isalignedstruct,
    }


def _from_structure(found: Any) -> np.dtype[Any]:
    if isinstance(found, str):
        return np.dtype(found)
    if isinstance(found, list):
        base, shape = found
        return np.dtype((_from_structure(base), tuple(shape)))
    return np.dtype(
        {
            "names": found["names"],
            "formats": [_from_structure(one) for one in found["formats"]],
            "offsets": found["offsets"],
            "titles": [title[0] if title else None for title in found["titles"]],
            "itemsize": found["itemsize"],
        },
        align=found["aligned"],
    )


def order_of(array: np.ndarray[Any, Any]) -> str:
    """Return ``"C"`` or ``"F"``, or an empty text for an array that is neither."""
    if array.flags.c_contiguous:
        return "C"
    return "F" if array.flags.f_contiguous else ""


def raw_bytes(array: np.ndarray[Any, Any]) -> memoryview:
    """Return the memory of a contiguous array, uncopied."""
    if array.nbytes == 0:
        return memoryview(b"")
    flat = (array if array.flags.c_contiguous else array.T).reshape(-1)
    return flat.view(np.uint8).data


def clean(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the contiguous array, or a copy in which unused bytes are zero if it has any."""
    if (array.dtype.names is None and array.dtype.char not in "gG") or not array.size:
        return array
    used = _used_bytes(array.dtype)
    if used.all():
        return array
    result = np.array(array, order="K", subok=False)
    flat = (result if result.flags.c_contiguous else result.T).reshape(-1)
    flat.view(np.uint8).reshape(-1, array.dtype.itemsize)[:, ~used] = 0
    return result


def _used_bytes(dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return, for each byte of an item, whether it means anything."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.tile(_used_bytes(base), prod(shape))
    if dtype.names is None:
        used = np.ones(dtype.itemsize, dtype=np.bool_)
        if _X87 and dtype.char in "gG":
            used.reshape(-1, 16)[:, 10:] = False
        return used
    used = np.zeros(dtype.itemsize, dtype=np.bool_)
    for name in dtype.names:
        field, offset = dtype.fields[name][:2]  # type: ignore[index]  # it has names
        used[offset : offset + field.itemsize] |= _used_bytes(field)
    return used


def split_fields(array: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Return each field of a structured array as a contiguous array."""
    return [np.array(array[name], order="C", subok=False) for name in array.dtype.names or ()]


def join_fields(dtype: str, shape: tuple[int, ...], order: str, fields: list[Any]) -> Any:
    """Return the structured array with these fields; a scalar where the order is ``"S"``."""
    kind = read_dtype(dtype, objects=True)
    names = kind.names or ()
    for name, field in zip(names, fields, strict=True):
        base, more = kind[name].subdtype or (kind[name], ())
        right = type(field) is np.ndarray and field.dtype == base
        if not right or field.shape != (*shape, *more):
            raise FrameError(f"The field {shown(name)} of an array has not its shape and dtype")
    array = np.zeros(shape, kind, order="F" if order == "F" else "C")
    for name, field in zip(names, fields, strict=True):
        array[name][...] = field
    return array[()] if order == "S" else array


def count_fields(dtype: str) -> int:
    """Return how many fields a structured dtype has.

    Raises:
        FrameError: it is not structured.
    """
    kind = read_dtype(dtype, objects=True)
    if not kind.names or not kind.hasobject:
        raise FrameError(f"{shown(dtype)} has no fields that are written one by one")
    return len(kind.names)


def describe_scalar(value: np.generic) -> tuple[str, bytes]:
    """Return (dtype as text, bytes) of a numpy scalar without objects inside."""
    if isinstance(value, np.str_):
        return "str_", value.encode("utf-8", "surrogatepass")  # str() would drop NULs at its end
    if isinstance(value, np.bytes_):
        return "bytes_", bytes(value)
    if value.dtype.char in "gG" or value.dtype.names is not None:
        return describe_dtype(value.dtype), clean(np.array(value)).tobytes()
    return describe_dtype(value.dtype), value.tobytes()


def make_array(dtype: str, shape: tuple[int, ...], order: str, buffer: memoryview) -> Any:
    """Return an array over the buffer, uncopied; writable if the buffer is.

    Raises:
        FrameError: the buffer has not the size that dtype and shape ask for.
    """
    kind = read_dtype(dtype)
    if prod(shape) * kind.itemsize != len(buffer):
        raise FrameError(
            f"An array of shape {shape} and dtype {dtype} has {prod(shape) * kind.itemsize} bytes, "
            f"and its buffer has {len(buffer)}"
        )
    array = np.ndarray(shape, kind, buffer, order=order)  # type: ignore[arg-type]  # checked
    if kind.kind == "U" and array.size:
        points = np.frombuffer(buffer, dtype=np.dtype(f"{kind.str[0]}u4"))
        if points.max(initial=0) > sys.maxunicode:
            raise FrameError("The frame has an array of text with a character that is none")
    return array


def make_scalar(dtype: str, raw: bytes) -> Any:
    """Return the numpy scalar of these bytes.

    Raises:
        FrameError: there are more or fewer bytes than the dtype asks for.
    """
    if dtype == "str_":  # as an item of an array it would lose NULs at its end
        return np.str_(raw.decode("utf-8", "surrogatepass"))
    if dtype == "bytes_":
        return np.bytes_(raw)
    kind = read_dtype(dtype)
    if kind.itemsize != len(raw):
        raise FrameError(f"A scalar of dtype {dtype} has {kind.itemsize} bytes, not {len(raw)}")
    return np.ndarray((), kind, bytearray(raw))[()]


def fill_objects(shape: tuple[int, ...], order: str, items: list[Any]) -> Any:
    """Return an array of Python objects with these elements, given in C order."""
    flat = np.empty(len(items), dtype=object)
    for place, item in enumerate(items):
        flat[place] = item
    array = flat.reshape(shape)
    return np.asfortranarray(array) if order == "F" else array
