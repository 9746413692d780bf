"""How values of the standard library are read. Imported when the first one is met."""

from __future__ import annotations

import datetime as dt
import decimal
import pathlib
import uuid
import zoneinfo
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from soma.errors import FrameError
from soma.frame.tokens import Code

if TYPE_CHECKING:
    from soma.frame.decode import _Reader

__all__ = ["READERS"]

_PATHS = {
    cls.__name__: cls
    for cls in (
        pathlib.PosixPath,
        pathlib.PurePosixPath,
        pathlib.WindowsPath,
        pathlib.PureWindowsPath,
    )
}


def _date(reader: _Reader, year: int, month: int, day: int) -> Any:  # noqa: ARG001  # readers' form
    return dt.date(year, month, day)


def _time(reader: _Reader, *fields: int) -> Any:
    hour, minute, second, microsecond, fold = fields
    clock = (hour, minute, second, microsecond)
    return reader.opened(1, lambda zone: dt.time(*clock, zone[0], fold=fold))


def _datetime(reader: _Reader, *fields: int) -> Any:
    year, month, day, hour, minute, second, microsecond, fold = fields
    moment = (year, month, day, hour, minute, second, microsecond)
    return reader.opened(1, lambda zone: dt.datetime(*moment, tzinfo=zone[0], fold=fold))


def _timedelta(reader: _Reader, days: int, seconds: int, micros: int) -> Any:  # noqa: ARG001  # as above
    return dt.timedelta(days, seconds, micros)


def _timezone(reader: _Reader, days: int, seconds: int, micros: int, name: str | None) -> Any:  # noqa: ARG001  # as above
    offset = dt.timedelta(days, seconds, micros)
    return dt.timezone(offset) if name is None else dt.timezone(offset, name)


def _zoneinfo(reader: _Reader, key: str) -> Any:  # noqa: ARG001  # as above
    return zoneinfo.ZoneInfo(key)


def _decimal(reader: _Reader, sign: int, digits: str, exponent: int | str) -> Any:  # noqa: ARG001  # as above
    if not (digits.isascii() and (digits.isdigit() or not digits)):
        raise FrameError("The frame has a decimal whose digits are none")
    return decimal.Decimal((sign, tuple(map(int, digits)), exponent))  # type: ignore[arg-type]  # F, n, N


def _uuid(reader: _Reader, raw: bytes, safe: int | None) -> Any:  # noqa: ARG001  # as above
    return uuid.UUID(bytes=raw, is_safe=uuid.SafeUUID(safe))


def _path(reader: _Reader, name: str, raw: bytes) -> Any:  # noqa: ARG001  # as above
    return _PATHS[name](raw.decode("utf-8", "surrogatepass"))


READERS: dict[int, Callable[..., Any]] = {
    Code.DATE: _date,
    Code.TIME: _time,
    Code.DATETIME: _datetime,
    Code.TIMEDELTA: _timedelta,
    Code.TIMEZONE: _timezone,
    Code.ZONEINFO: _zoneinfo,
    Code.DECIMAL: _decimal,
    Code.UUID: _uuid,
    Code.PATH: _path,
}
