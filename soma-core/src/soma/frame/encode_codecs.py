"""How objects are written that have a codec, and what is said of those that have none."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from soma._notices import tell_once
from soma.codecs import RegisteredCodec, full_name, pickle_buffers
from soma.errors import CodecError, MissingCodec, describe_error
from soma.frame.layout import FLAG_PICKLE
from soma.frame.tokens import INLINE_BYTES, Code

if TYPE_CHECKING:
    from soma.frame.encode import _Writer

__all__ = ["missing_codec", "write_with_codec"]


def write_with_codec(writer: _Writer, value: Any, codec: RegisteredCodec) -> None:
    """Write an object with a codec.

    Raises:
        CodecError: the codec failed, or returned something else than it has to.
    """
    if codec.pickle:
        buffers = _called(writer, codec, value, pickle_buffers)
        writer.flags |= FLAG_PICKLE
        writer.out.tokens.append([int(Code.PICKLE), codec.kind, len(buffers)])
        writer.out.buffers += buffers
    elif codec.dump_buffers is not None:
        meta, buffers = _checked_buffers(codec, _called(writer, codec, value, codec.dump_buffers))
        of = _of_subclass(codec, value)
        writer.out.tokens.append([int(Code.CODEC_BUFFERS), codec.kind, len(buffers), *of])
        writer.out.buffers += buffers
        writer.enter(value, (meta,))
    else:
        raw = _called(writer, codec, value, codec.dump)
        if type(raw) is not bytes:
            raise CodecError(
                f"The codec for {codec.type_name!r} (kind {codec.kind!r}) has to return bytes, "
                f"and it returned a {type(raw).__name__!r}"
            )
        of = _of_subclass(codec, value)
        if len(raw) < INLINE_BYTES:
            writer.out.tokens.append([int(Code.CODEC), codec.kind, raw, *of])
        else:
            writer.out.tokens.append([int(Code.CODEC), codec.kind, None, *of])
            writer.out.buffers.append(raw)


def _of_subclass(codec: RegisteredCodec, value: Any) -> list[str]:
    """Return what tells an object of a subclass from one of the codec's own class.

    Nothing says that the codec writes what the subclass adds; so at least its name is in the hash,
    and its author is told once.
    """
    cls = type(value)
    if cls is codec.type or cls in codec.also:
        return []
    tell_once(
        ("subclass", codec.kind, full_name(cls)),
        f"a {full_name(cls)} is written by the codec of {codec.type_name}, its base, and may come "
        f"back as one: register a codec for {full_name(cls)} if it holds more",
    )
    return [full_name(cls)]


def _called(
    writer: _Writer, codec: RegisteredCodec, value: Any, function: Callable[[Any], Any]
) -> Any:
    try:
        return function(value)
    except Exception as error:
        raise CodecError(
            f"The codec for {codec.type_name!r} (kind {codec.kind!r}) failed to write "
            f"{writer.path_to(value)}: {describe_error(error)}"
        ) from error


def _checked_buffers(codec: RegisteredCodec, found: Any) -> tuple[Any, list[memoryview]]:
    where = f"The codec for {codec.type_name!r} (kind {codec.kind!r})"
    if not (isinstance(found, tuple) and len(found) == 2):  # noqa: PLR2004  # (meta, buffers)
        raise CodecError(
            f"{where} has to return (meta, buffers) from dump_buffers, and it returned a "
            f"{type(found).__name__!r}"
        )
    meta, buffers = found
    try:
        return meta, [_flat(memoryview(one)) for one in buffers]
    except (TypeError, ValueError) as error:
        raise CodecError(
            f"{where} has to return contiguous buffers from dump_buffers: {error}"
        ) from error


def _flat(view: memoryview) -> memoryview:
    return view.cast("B") if view.nbytes else memoryview(b"")  # which has no shape to cast


def missing_codec(writer: _Writer, value: Any) -> MissingCodec:
    """Return what to raise for an object that nobody says how to write down."""
    cls = type(value)
    start = f"{writer.path_to(value)} is a {full_name(cls)}, and nothing says how to write one down"
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
        return MissingCodec(f"{start}: it is code, not a value")
    return MissingCodec(
        f"{start}. Register it beside the class: "
        f"soma.codec({full_name(cls)!r}, {cls.__name__}, dump=..., load=...)"
    )
