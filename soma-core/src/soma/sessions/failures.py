"""Exceptions on their way home from another process.

    raised there ──pack_error──► type, notes, traceback as text, cause ──raise_error──► raised here

An exception keeps its type where it survives being pickled and unpickled, which is tried where it
was raised; else a ``RemoteError`` stands for it and names the type. The surprise: many classes do
not survive, since their ``__init__`` takes something else than ``args`` has. Those are put together
again from ``args`` and attributes, without a call of ``__init__``.
"""

from __future__ import annotations

import builtins
import os
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from soma.engine.blobs import Blob
from soma.errors import RemoteError, SessionCancelled, describe_error
from soma.sessions.child.guard import Cancelled
from soma.sessions.wire import Message

__all__ = ["pack_error", "raise_error"]

_CAUSES = 20
"""How many causes of causes travel as exceptions; the text tells of all."""
_TEXT = 100_000
"""Characters of a traceback or a note; of longer ones the middle is left out."""
_NOTES = 100
"""How many notes travel."""
_SOMA = os.path.dirname(os.path.dirname(__file__)) + os.sep  # noqa: PTH120  # compared as text
_USER_CODE_OF_SOMA = os.path.join(_SOMA, "testing", "")  # noqa: PTH118  # as above
_OWN = vars(BaseException)
"""What every exception has, whatever its class says under the same names."""


def pack_error(error: BaseException) -> tuple[dict[str, Any], list[Blob]]:
    """Return what a message says of an exception. Never fails, whatever the exception does."""
    try:
        if any(isinstance(one, Cancelled) for one in _chain(error)):
            return {"cancelled": True}, []
        return _packed(error)
    except BaseException:  # noqa: BLE001  # its methods may raise whatever they like
        told = {"type": _type_name(error), "text": _type_name(error), "notes": [], "blob": -1}
        text = f"A {_type_name(error)} of which nothing can be told\n"
        return {"cancelled": False, "errors": [told], "traceback": text}, []


def _packed(error: BaseException) -> tuple[dict[str, Any], list[Blob]]:
    errors, blobs = [], list[Blob]()
    for one in _causes(error):
        blob = _pickled(one)
        errors.append(
            {
                "type": _type_name(one),
                "text": _cut(_described(one)),
                "notes": _notes(one),
                "blob": -1 if blob is None else len(blobs),
            }
        )
        if blob is not None:
            blobs.append(blob)
    return {"cancelled": False, "errors": errors, "traceback": _traceback(error)}, blobs


def raise_error(message: Message, where: str) -> NoReturn:
    """Raise the exception that a message tells of.

    Args:
        message: what ``pack_error`` has returned, as it came.
        where: what the note about the traceback says of the place: ``"local-1, pid 4711"``.

    Raises:
        SessionCancelled: the call was cancelled.
        BaseException: what was raised there; ``RemoteError`` for what cannot travel.
    """
    fields = message.fields
    if fields["cancelled"]:
        raise SessionCancelled(f"The call was cancelled ({where})")
    made: BaseException | None = None
    for told in reversed(fields["errors"]):
        cause, made = made, _unpacked(told, message.blobs)
        if cause is not None:
            _OWN["__cause__"].__set__(made, cause)  # somebody else's class may be frozen
    if made is None:
        made = RemoteError("an exception of which nothing is known")
    _add_notes(made, [f"remote traceback ({where}):\n{fields['traceback'].rstrip()}"])
    raise made


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its cause, the cause of that, and so on."""
    seen = set[int]()
    now: BaseException | None = error
    while now is not None and id(now) not in seen and len(seen) < _CAUSES:
        seen.add(id(now))
        yield now
        now = _OWN["__cause__"].__get__(now)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what it was raised in or from, back to the first."""
    seen = set[int]()
    now: BaseException | None = error
    while now is not None and id(now) not in seen:
        seen.add(id(now))
        yield now
        now = _OWN["__cause__"].__get__(now) or _OWN["__context__"].__get__(now)


def _type_name(error: BaseException) -> str:
    cls = type(error)
    try:
        name = f"{cls.__module__}.{cls.__qualname__}"
    except BaseException:  # noqa: BLE001  # its metaclass refuses
        name = f"{vars(type)['__name__'].__get__(cls)}"
    return name.removeprefix("builtins.")


def _described(error: BaseException) -> str:
    """Return its type and text, whatever its methods and its metaclass do."""
    try:
        return describe_error(error)
    except BaseException:  # noqa: BLE001  # as said
        return f"{_type_name(error)}: (its message cannot be shown)"


def _notes(error: BaseException) -> list[str]:
    try:
        found = getattr(error, "__notes__", ())
        notes = [found] if isinstance(found, str) else list(found)
        cut = [_cut(note) for note in notes[:_NOTES] if isinstance(note, str)]
    except BaseException:  # noqa: BLE001  # somebody else's class
        return []
    return cut if len(notes) <= _NOTES else [*cut, f"[{len(notes) - _NOTES} more notes]"]


def _cut(text: str) -> str:
    if len(text) <= _TEXT:
        return str(text)
    half = _TEXT // 2
    return f"{text[:half]}\n[...]\n{text[-half:]}"


def _pickled(error: BaseException) -> Blob | None:
    """Return an exception as a pickle that can be read; None where there is no such pickle."""
    for form in (error, _Parts(error)):
        blob = _tried(error, form)
        if blob is not None:
            return blob
    return None


def _tried(error: BaseException, form: Any) -> Blob | None:
    with suppress(BaseException):  # somebody else's class, at whatever it does when it is pickled
        from soma.pickling import dumps, loads

        raw, views = dumps(form)
        blob = Blob(raw, views)
        again = loads(*blob.frame())
        if type(again) is type(error) and _described(again) == _described(error):
            return blob
    return None


class _Parts:
    """Pickles as what makes an exception from its parts; of a group, from its members."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> Any:
        error = self._error
        cls = type(error)
        if isinstance(error, BaseExceptionGroup):
            members = tuple(map(_member, error.exceptions))
            return _of_members, (cls, error.message, members, dict(error.__dict__))
        if _native(cls).__basicsize__ != BaseException.__basicsize__:
            raise TypeError(f"{cls.__name__} has parts that only its constructor sets")
        return _of_parts, (cls, error.args, dict(error.__dict__))


def _member(error: BaseException) -> Any:
    """Return what is pickled for a member of a group: what cannot travel is told of."""
    if isinstance(error, BaseExceptionGroup):
        return _Parts(error)
    for form in (error, _Parts(error)):
        if _tried(error, form) is not None:
            return form
    return _remote(_type_name(error), _described(error), _notes(error))


def _native(cls: type[BaseException]) -> type[BaseException]:
    """Return the nearest base of an exception that is Python's own."""
    for base in cls.__mro__:
        is_own: bool = vars(builtins).get(base.__name__) is base
        if is_own and issubclass(base, BaseException):
            return base
    return BaseException


def _of_parts(
    cls: type[BaseException], args: tuple[Any, ...], attributes: Mapping[str, Any]
) -> BaseException:
    made = _native(cls).__new__(cls, *args)  # which sets args, also where the class is frozen
    made.__dict__.update(attributes)
    return made


def _of_members(
    cls: type[BaseExceptionGroup[BaseException]],
    message: str,
    members: tuple[BaseException, ...],
    attributes: Mapping[str, Any],
) -> BaseException:
    made = _native(cls).__new__(cls, message, members)
    made.__dict__.update(attributes)
    return made


def _unpacked(told: Mapping[str, Any], blobs: list[Blob]) -> BaseException:
    found: object = None
    if told["blob"] >= 0:
        with suppress(Exception):  # its class can be imported there and not here
            from soma.pickling import loads

            found = loads(*blobs[told["blob"]].frame())
    if not isinstance(found, BaseException):
        return _remote(told["type"], told["text"], told["notes"])
    _add_notes(found, told["notes"])
    return found


def _remote(name: str, text: str, notes: list[str]) -> RemoteError:
    short = name.rpartition(".")[2]
    said = text.removeprefix(short).removeprefix(": ")
    made = RemoteError(f"{name}: {said}" if said else name)
    _add_notes(made, notes)
    return made


def _add_notes(error: BaseException, notes: list[str]) -> None:
    with suppress(Exception):  # somebody else's class: it may refuse to be read
        known = _notes(error)
        new = [note for note in notes if note not in known]
        try:
            for note in new:
                error.add_note(note)
        except Exception:  # noqa: BLE001  # it refuses notes, or has a text in their place
            vars(error)["__notes__"] = [*known, *new]


def _traceback(error: BaseException) -> str:
    """Return the traceback as text, without the frames of Soma."""
    try:
        told = traceback.TracebackException.from_exception(error)
        _leave_out(told)
        text = "".join(told.format())
    except BaseException:  # noqa: BLE001  # somebody else's __str__
        text = f"The traceback of a {_type_name(error)} cannot be shown\n"
    return _cut(text).encode("utf-8", "backslashreplace").decode()


def _leave_out(told: traceback.TracebackException) -> None:
    """Leave out frames of Soma, and the notes of the exception itself, which it brings along."""
    told.__notes__ = None
    left, seen = [told], set[int]()
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        frames = [frame for frame in one.stack if not _is_ours(frame.filename)]
        one.stack = traceback.StackSummary.from_list(frames)
        left += [inner for inner in (one.__cause__, one.__context__) if inner is not None]
        left += one.exceptions or ()


def _is_ours(file: str) -> bool:
    return file.startswith(_SOMA) and not file.startswith(_USER_CODE_OF_SOMA)
