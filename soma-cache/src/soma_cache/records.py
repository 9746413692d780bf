"""Records as they lie on disk: one line of JSON that says of itself whether it is whole.

    {"check":"<16 hex digits>","key":"...","outputs":{"output":{"digest":...,"bytes":...}},...}

The check is the BLAKE3 of everything behind it, so that a record that was cut, flipped or edited
is a miss. It holds its own key as well: one that lies under another's name is none. A small output
lies in the record itself, base64; that is still the frame whose BLAKE3 is its digest.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

from blake3 import blake3

from soma.contracts import ActionRecord
from soma_cache.layout import INLINE_BYTES, is_hash

__all__ = ["REST", "Read", "dump_record", "has_right_check", "load_record", "unpack_inline"]

_scan = vars(json.JSONDecoder())["scan_once"]
"""What ``json.loads`` does, without what it does for texts that begin with something else."""
_EFFECTS = ("pure", "impure")
_encode = json.JSONEncoder(separators=(",", ":")).encode
_CHECK = b'{"check":"'
_DIGITS = 16
_MOST_NUMBER = 1e300
"""A whole number in JSON may be larger than any float."""
_MOST_BYTES = 1 << 62
REST = len(_CHECK) + _DIGITS + len(b'",')
"""Where begins what the check is of."""


class Read(NamedTuple):
    """A record, and the small outputs that lie in it."""

    record: ActionRecord
    inline: Mapping[str, str]
    """Digest -> the bytes of its frame, base64: most are never asked for."""


def dump_record(record: ActionRecord, inline: Mapping[str, bytes]) -> bytes:
    """Return a record as bytes.

    Args:
        record: the record.
        inline: digest -> bytes, of the outputs that lie in it.
    """
    outputs = {}
    for name, digest in record.outputs.items():
        output: dict[str, Any] = {"digest": digest, "bytes": record.bytes.get(name, 0)}
        if digest in inline:
            output["inline"] = b64encode(inline[digest]).decode("ascii")
        outputs[name] = output
    fields = {
        "key": record.key,
        "name": record.name,
        "outputs": outputs,
        "compute_ms": record.compute_ms,
        "effect": record.effect,
        "expensive": record.expensive,
        "pickled": record.pickled,
        "created_at": record.created_at,
        "origin": dict(record.origin),
        "parts": {part: digest.hex() for part, digest in record.parts.items()},
    }
    rest = _encode(fields)[1:].encode("ascii") + b"\n"
    return b"".join((_CHECK, _check(rest), b'",', rest))


def load_record(raw: bytes, key: str, *, tier: str = "") -> Read | None:
    """Return the record that the bytes are; None where they are not that of this key, or not whole.

    Args:
        raw: the bytes.
        key: the key under which they lay.
        tier: where that was.
    """
    if not has_right_check(raw):
        return None
    try:
        return _loaded(_scan(raw.decode("ascii"), 0)[0], key, tier)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, StopIteration):
        return None  # somebody else's, with a check of ours


def has_right_check(raw: bytes) -> bool:
    """Say whether the bytes of a record are all there, and as they were written."""
    check = _check(memoryview(raw)[REST:])
    return raw[:REST] == b"".join((_CHECK, check, b'",'))


def _loaded(fields: dict[str, Any], key: str, tier: str) -> Read | None:
    if fields["key"] != key or not _is_sound(fields):
        return None
    outputs, nbytes, inline = {}, {}, {}
    for name, output in fields["outputs"].items():
        digest, size = output["digest"], output["bytes"]
        if not is_hash(digest) or type(size) is not int or not 0 <= size <= _MOST_BYTES:
            return None
        outputs[name], nbytes[name] = digest, size
        text = output.get("inline")
        if text is not None:
            if type(text) is not str or size > INLINE_BYTES or len(text) != -(-size // 3) * 4:
                return None
            inline[digest] = text
    record = ActionRecord(
        key=key,
        outputs=outputs,
        bytes=nbytes,
        compute_ms=fields["compute_ms"],
        name=fields["name"],
        parts={part: bytes.fromhex(digest) for part, digest in fields["parts"].items()},
        pickled=fields["pickled"],
        effect=fields["effect"],
        expensive=fields["expensive"],
        origin=fields["origin"],
        created_at=fields["created_at"],
        tier=tier,
    )
    return Read(record, inline)


def _is_sound(fields: dict[str, Any]) -> bool:
    """Say whether what else it says is of the kind that it should be."""
    return (
        0.0 <= fields["compute_ms"] <= _MOST_NUMBER
        and 0.0 <= fields["created_at"] <= _MOST_NUMBER
        and fields["effect"] in _EFFECTS
        and type(fields["pickled"]) is type(fields["expensive"]) is bool
        and type(fields["name"]) is str
        and type(fields["origin"]) is type(fields["outputs"]) is dict
        and bool(fields["outputs"])
        and all(type(one) is str for one in fields["origin"].values())
    )


def unpack_inline(text: str, digest: str) -> bytes | None:
    """Return the bytes of an output that lies in a record; None where they are not its bytes."""
    try:
        raw = b64decode(text, validate=True)
    except (ValueError, TypeError):
        return None
    return raw if blake3(raw).hexdigest() == digest else None


def _check(rest: bytes | memoryview) -> bytes:
    return blake3(rest).hexdigest(_DIGITS // 2).encode("ascii")
