"""Filters, functions and codecs on their way into another process.

    filter ──pack_node──► Packed(token, blob) ──────► unpack(blob) ──► a filter with its state

A filter travels as what it is, never as what it was made with: the path of its class, or the class
by value (soma.pickling), and its state, ``__getstate__`` respected. Its arrays lie beside the
pickle in the buffers of the blob. What cannot travel is named by its path (unsendable.py), here,
before anything is sent. The token says whether the other process has all of this already.

What comes home may hold objects of classes that were sent by value (soma.pickling).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from soma.codecs import codec, registered
from soma.engine.blobs import Blob
from soma.frame.encoded import hash_parts
from soma.identity.names import local_name
from soma.pickling import loads
from soma.sessions.unsendable import Subject, not_sendable

__all__ = [
    "Packed",
    "pack_codecs",
    "pack_function",
    "pack_node",
    "pack_together",
    "pack_value",
    "register_codecs",
    "unpack",
    "unpack_together",
]


class Packed:
    """A pickle and its buffers, which are still the memory of what was packed."""

    __slots__ = ("_blob", "_raw", "_views", "token")

    def __init__(self, raw: bytes, views: Sequence[memoryview]) -> None:
        self._raw, self._views = raw, views
        self._blob: Blob | None = None
        lengths = ",".join(str(len(view)) for view in views).encode()
        self.token = hash_parts(raw + lengths, views)
        """BLAKE3 of all of it. Equal for an unchanged object, within this process."""

    @property
    def blob(self) -> Blob:
        """The bytes to send. They are copied when first asked for: ask at once, or never."""
        if self._blob is None:
            self._blob = Blob(self._raw, self._views)
            self._views = ()
        return self._blob


def pack_node(node_id: str, node: Any) -> Packed:
    """Return a filter, or a function that is a node, as bytes.

    Raises:
        NotSendable: something in it cannot travel; the message names node and attribute.
    """
    return _pack(node, [_node(node_id, node)])


def pack_function(fn: Callable[..., Any], what: str) -> Packed:
    """Return a function as bytes.

    Args:
        fn: anything that can be called.
        what: how a message names it: "The function given to call".

    Raises:
        NotSendable: something in it cannot travel; the message says where.
    """
    return _pack(fn, [Subject(what, ((_name(fn), fn),), "Make it where it is used")])


def pack_value(value: Any, what: str, path: str = "value") -> Packed:
    """Return any object as bytes.

    Args:
        value: the object.
        what: how a message begins that refuses it.
        path: how the message names the object itself.

    Raises:
        NotSendable: something in it cannot travel; the message says where.
    """
    return _pack(value, [Subject(what, ((path, value),), "Leave it out in __getstate__")])


def unpack(blob: Blob) -> Any:
    """Return the object that was packed, with memory of its own.

    Raises:
        Exception: whatever unpickling raises.
    """
    return loads(*blob.frame())


def pack_codecs() -> Packed | None:
    """Return the codecs that the user has registered, for ``register_codecs``; None if none are.

    Those of plugins are found where they are needed.

    Raises:
        NotSendable: something in one of them cannot travel; the message names its kind.
    """
    rows = _codec_rows()
    return _pack(rows, [_codec(row) for row in rows]) if rows else None


def register_codecs(blob: Blob) -> None:
    """Register codecs that were packed. Having them already does no harm.

    Raises:
        CodecError: the kind of one of them belongs to another type here.
    """
    _register(unpack(blob))


def pack_together(nodes: Mapping[str, Any]) -> Packed:
    """Return several nodes, and the user's codecs, as one: what they share stays shared.

    Raises:
        NotSendable: something in them cannot travel; the message names node or kind.
    """
    rows = _codec_rows()
    subjects = [_node(id_, node) for id_, node in nodes.items()]
    return _pack((rows, dict(nodes)), [*subjects, *map(_codec, rows)])


def unpack_together(blob: Blob) -> dict[str, Any]:
    """Register the codecs that were packed together, and return the nodes by id.

    Raises:
        CodecError: the kind of a codec belongs to another type here.
        Exception: whatever unpickling raises.
    """
    rows, nodes = unpack(blob)
    _register(rows)
    return dict(nodes)


def _pack(root: Any, subjects: Sequence[Subject]) -> Packed:
    from soma.pickling.by_value import Pickler  # brings cloudpickle, which a child may never need

    file, views = io.BytesIO(), list[memoryview]()
    pickler = Pickler(file, lambda buffer: views.append(buffer.raw()))
    try:
        pickler.dump(root)
    except MemoryError:
        raise
    except Exception as error:
        raise not_sendable(error, pickler.last, subjects, pickler.by_value) from error
    return Packed(file.getvalue(), views)


def _node(node_id: str, node: Any) -> Subject:
    is_code = isinstance(node, type) or hasattr(node, "__code__")
    inside = "Make it inside the function" if is_code else "Leave it out in __getstate__"
    name = _name(node)
    return Subject(
        f"Node {node_id!r}" if is_code else f"Node {node_id!r} ({local_name(type(node))})",
        ((name if is_code else "self", node),),
        f"{inside}, make it when it is needed, or give the node target='local'",
    )


def _name(fn: Any) -> str:
    return local_name(fn) if hasattr(fn, "__qualname__") else local_name(type(fn))


def _codec(row: Mapping[str, Any]) -> Subject:
    parts = tuple((name, part) for name, part in row.items() if name != "kind")
    return Subject(f"Codec {row['kind']!r}", parts, "Make it where it is used")


def _codec_rows() -> list[dict[str, Any]]:
    """Return what ``codec`` was called with, for each kind that the user registered."""
    rows = []
    for one in registered():
        if " " in one.registered_by:  # a distribution and its version, not a module
            continue
        row = {"kind": one.kind, "type": one.type, "pickle": one.pickle}
        if not one.pickle:
            row |= {"dump": one.dump, "load": one.load}
            row |= {"dump_buffers": one.dump_buffers, "load_buffers": one.load_buffers}
        rows.append(row)
    return rows


def _register(rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        codec(**row)
