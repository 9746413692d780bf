"""How values of the standard library are written: times, decimals, paths, and so on.

The table is by name, so that a frame without dates never imports datetime: by the package and the
name of the class, since some Pythons keep a class in a private module of its package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from soma.errors import MissingCodec
from soma.frame.tokens import Code

if TYPE_CHECKING:
    from soma.frame.encode import _Writer

__all__ = ["HANDLERS"]


def _date(writer: _Writer, value: Any) -> None:
    writer.out.tokens.append([int(Code.DATE), value.year, value.month, value.day])


def _time_fields(value: Any) -> list[int]:
    return [value.hour, value.minute, value.second, value.microsecond, value.fold]


def _time(writer: _Writer, value: Any) -> None:
    writer.out.tokens.append([int(Code.TIME), *_time_fields(value)])
    writer.enter(value, (value.tzinfo,))


def _datetime(writer: _Writer, value: Any) -> None:
    date = [value.year, value.month, value.day]
    writer.out.tokens.append([int(Code.DATETIME), *date, *_time_fields(value)])
    writer.enter(value, (value.tzinfo,))


def _timedelta(writer: _Writer, value: Any) -> None:
    writer.out.tokens.append([int(Code.TIMEDELTA), *_delta(value)])


def _delta(value: Any) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _timezone(writer: _Writer, value: Any) -> None:
    offset, *name = value.__getinitargs__()
    writer.out.tokens.append([int(Code.TIMEZONE), *_delta(offset), name[0] if name else None])


def _zoneinfo(writer: _Writer, value: Any) -> None:
    if value.key is None:
        raise MissingCodec(
            f"{writer.path_to(value)} is a time zone that was read from a file and has no key. "
            "Use zoneinfo.ZoneInfo(key)"
        )
    writer.out.tokens.append([int(Code.ZONEINFO), value.key])


def _decimal(writer: _Writer, value: Any) -> None:
    sign, digits, exponent = value.as_tuple()  # str() would follow the context's capitals
    writer.out.tokens.append([int(Code.DECIMAL), sign, "".join(map(str, digits)), exponent])


def _uuid(writer: _Writer, value: Any) -> None:
    writer.out.tokens.append([int(Code.UUID), value.bytes, value.is_safe.value])


def _path(writer: _Writer, value: Any) -> None:
    text = str(value)
    if type(value)(text).parts != value.parts:  # ".\\c:name" reads as a name, "c:name" as a drive
        text = f".\\{text}"
    raw = text.encode("utf-8", "surrogatepass")
    writer.out.tokens.append([int(Code.PATH), type(value).__name__, raw])


HANDLERS: dict[str, Callable[[_Writer, Any], None]] = {
    "datetime.date": _date,
    "datetime.time": _time,
    "datetime.datetime": _datetime,
    "datetime.timedelta": _timedelta,
    "datetime.timezone": _timezone,
    "zoneinfo.ZoneInfo": _zoneinfo,
    "decimal.Decimal": _decimal,
    "uuid.UUID": _uuid,
    "pathlib.PosixPath": _path,
    "pathlib.PurePosixPath": _path,
    "pathlib.WindowsPath": _path,
    "pathlib.PureWindowsPath": _path,
}
