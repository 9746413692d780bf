"""The test vectors of docs/formats: frames in a file, read and written anew.

To add one, add its expression to ``EXPRESSIONS`` and run this file as a script; a vector that is
there never changes.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path, PurePosixPath
from uuid import UUID

import numpy as np
import pytest
from blake3 import blake3

from soma.frame import decode, encode

VECTORS = Path(__file__).parents[2] / "docs" / "formats" / "soma1-vectors.json"

EXPRESSIONS = {
    "none": "None",
    "bignum": "-(2**70)",
    "nan": "float('nan')",
    "negative-zero": "-0.0",
    "surrogate": "'\\ud800'",
    "long-text": "'x' * 1024",
    "nested": (
        "{'weights': np.arange(6, dtype='<f4').reshape(2, 3), 'history': [0.5] * 40, "
        "'when': dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.timezone.utc)}"
    ),
    "packed-ints": "tuple(range(-16, 16))",
    "packed-bools": "[True, False] * 16",
    "set": "{1, 'a', None, (1, 2), frozenset({3})}",
    "standard": (
        "[dt.date(2026, 1, 2), dt.timedelta(1, 2, 3), Decimal('-0.10'), UUID(int=1), "
        "PurePosixPath('a/b'), range(0, 9, 2), slice(None, 3), ..., 1 - 2j]"
    ),
    "fortran": "np.asfortranarray(np.arange(6, dtype='>i2').reshape(2, 3))",
    "zero-dimensional": "np.array(1.5)",
    "structured": (
        "np.array([(1, 2.0), (3, 4.0)], np.dtype([('a', 'i1'), ('b', '<f8')], align=True))"
    ),
    "objects": "np.array([1, 'a', None], dtype=object)",
    "scalar": "np.float32(0.1)",
}
NAMES = {
    "np": np,
    "dt": dt,
    "Decimal": Decimal,
    "UUID": UUID,
    "PurePosixPath": PurePosixPath,
}


def value_of(name: str):
    return eval(EXPRESSIONS[name], dict(NAMES))  # noqa: S307  # our own text


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_vector_is_what_the_value_gives_and_reads_as_it(name):
    vector = json.loads(VECTORS.read_text())[name]
    raw = bytes.fromhex(vector["frame"])
    assert vector["value"] == EXPRESSIONS[name]
    assert vector["blake3"] == blake3(raw).hexdigest()
    assert encode(value_of(name)).to_bytes() == raw
    assert encode(decode(raw)).to_bytes() == raw


def test_there_is_a_vector_for_each_expression_and_no_other():
    assert set(json.loads(VECTORS.read_text())) == set(EXPRESSIONS)


def main() -> None:
    vectors = json.loads(VECTORS.read_text()) if VECTORS.exists() else {}
    for name, expression in EXPRESSIONS.items():
        if name not in vectors:
            raw = encode(value_of(name)).to_bytes()
            digest = blake3(raw).hexdigest()
            vectors[name] = {"value": expression, "blake3": digest, "frame": raw.hex()}
    VECTORS.write_text(json.dumps(vectors, indent=2) + "\n")


if __name__ == "__main__":
    main()
