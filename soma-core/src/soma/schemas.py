"""What a node says it takes or gives: a word, or the dtype and shape of an array.

    "text" "json" "messages" "bytes"          {"dtype": "float32", "shape": (None, 64)}

Schemas are a promise between neighbours, compared when a graph is compiled. They are not looked at
while data flows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soma.errors import InvalidFilter, did_you_mean, shown

__all__ = ["SCHEMA_WORDS", "check_schema", "clash_of"]

SCHEMA_WORDS = ("text", "json", "messages", "bytes")
_KEYS = {"dtype", "shape"}


def check_schema(where: str, schema: Any) -> None:
    """Refuse what is no schema.

    Raises:
        InvalidFilter: it is neither None, one of the words, nor a mapping of dtype and shape.
    """
    if schema is None or schema in SCHEMA_WORDS:
        return
    if isinstance(schema, str):
        raise InvalidFilter(
            f"{where}: there is no schema {schema!r}.{did_you_mean(schema, SCHEMA_WORDS)}"
        )
    if not isinstance(schema, Mapping) or not schema or set(schema) - _KEYS:
        words = ", ".join(map(repr, SCHEMA_WORDS))
        raise InvalidFilter(
            f"{where} must be one of {words}, or a mapping with 'dtype', 'shape' or both, "
            f"not {shown(schema)}"
        )
    if "dtype" in schema and not isinstance(schema["dtype"], str):
        raise InvalidFilter(
            f"{where}: dtype is a text such as 'float32', not {shown(schema['dtype'])}"
        )
    shape = schema.get("shape", ())
    if not isinstance(shape, list | tuple) or not all(map(_is_axis, shape)):
        raise InvalidFilter(
            f"{where}: shape is a tuple of lengths, None for a free axis, not {shown(shape)}"
        )


def _is_axis(one: Any) -> bool:
    return one is None or (isinstance(one, int) and not isinstance(one, bool) and one >= 0)


def clash_of(given: Any, taken: Any) -> str:
    """Return why what one node gives is not what the next takes; empty if it is, or may be."""
    if given is None or taken is None:
        return ""
    return _clash(given, taken)


def _clash(given: Any, taken: Any) -> str:
    if isinstance(given, str) or isinstance(taken, str):
        return "" if given == taken else f"it gives {_said(given)} and {_said(taken)} is taken"
    one, other = given.get("dtype"), taken.get("dtype")
    if one is not None and other is not None and _dtype(one) != _dtype(other):
        return f"it gives {one} and {other} is taken"
    have, want = given.get("shape"), taken.get("shape")
    if have is None or want is None:
        return ""
    if len(have) != len(want):
        return f"it gives {len(have)} axes {_said(have)} and {len(want)} are taken {_said(want)}"
    return next(
        (
            f"axis {axis} has length {a} in {_said(have)} and {b} is taken in {_said(want)}"
            for axis, (a, b) in enumerate(zip(have, want, strict=True))
            if a is not None and b is not None and a != b
        ),
        "",
    )


def _dtype(name: str) -> str:
    """Return one spelling for each dtype: numpy's where it knows it, else what was written."""
    import numpy as np

    try:
        return str(np.dtype(name))
    except TypeError:  # torch's bfloat16, say
        return name


def _said(schema: Any) -> str:
    if isinstance(schema, str):
        return repr(schema)
    return str(dict(schema)) if isinstance(schema, Mapping) else str(tuple(schema))
