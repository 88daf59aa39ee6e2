"""Sizes, counts and times as people write them: ``"64MB"`` is 64 × 1,024 × 1,024 bytes."""

from __future__ import annotations

import math
import operator
import re
import time
from datetime import timedelta

from semistream.errors import OptionError

__all__ = ["elapsed", "format_bytes", "parse_bytes", "parse_count", "parse_seconds"]

_UNITS = {unit: 1024**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB"))}
_LARGEST = 1 << 63  # sizes are 64-bit integers in what is compiled
_SHOWN = 40  # characters of a size that messages repeat
_WRITABLE_BITS = 14_000  # some 4,200 digits; from 4,300 on Python refuses to write a number
_THOUSANDS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_TIME = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|min|h|d)\s*")
_SIZE = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?)\s*([KMGT]?)i?B?\s*", re.IGNORECASE)
_COUNT = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?)\s*([KMB]?)\s*", re.IGNORECASE)

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Return seconds since the system began; unlike `time.monotonic` also those that it slept.

    It is the same in all processes: rows held for a while grow old while a laptop is closed.
    """
    return time.clock_gettime(_CLOCK)


def parse_bytes(size: int | str, what: str = "memory") -> int:
    """Return the number of bytes that ``size`` stands for.

    Parameters
    ----------
    size
        Bytes as an int, or a string with a unit (B, KB, MB, GB, TB; 1 KB = 1,024 bytes).
    what
        The argument's name, for the error.

    Examples
    --------
    >>> parse_bytes("64MB"), parse_bytes("1.5 KB"), parse_bytes(4096)
    (67108864, 1536, 4096)
    >>> parse_bytes("many")
    Traceback (most recent call last):
    semistream.errors.OptionError: memory='many' is not a size; ...
    """
    if isinstance(size, str) and (found := _SIZE.fullmatch(size)):
        number, unit = found.groups()
        bytes_ = float(re.sub("[_,]", "", number)) * _UNITS[f"{unit.upper()}B"]
        size = int(bytes_) if bytes_ < _LARGEST else size
    elif not isinstance(size, bool | str) and hasattr(size, "__index__"):
        size = operator.index(size)  # NumPy's integers, too
    if isinstance(size, bool) or not isinstance(size, int) or not 0 < size < _LARGEST:
        shown = _shortened(size)
        msg = (
            f"{what}={shown!r} is not a size; give bytes as a positive int, or a string with one "
            f"of the units {', '.join(_UNITS)} (1 KB = 1,024 bytes), for example '64MB', below "
            "2^63 bytes"
        )
        raise OptionError(msg)
    return size


def _shortened(value: object) -> object:
    """Return a value as a message shows it: Python refuses to write numbers of 4,300 digits."""
    if isinstance(value, int) and value.bit_length() > _WRITABLE_BITS:
        return f"a number of {value.bit_length()} bits"
    text = str(value)
    return value if len(text) < _SHOWN else f"{text[:_SHOWN]}…"


def parse_count(value: int | str, what: str = "rows") -> int:
    """Return the number that ``value`` stands for: K, M and B are thousands, millions, billions.

    Examples
    --------
    >>> parse_count("2M"), parse_count("1.5k"), parse_count(10)
    (2000000, 1500, 10)
    >>> parse_count("9" * 400)
    Traceback (most recent call last):
    semistream.errors.OptionError: rows='9999...' is not a count; ...
    >>> parse_count("many")
    Traceback (most recent call last):
    semistream.errors.OptionError: rows='many' is not a count; ...
    """
    if isinstance(value, str) and (found := _COUNT.fullmatch(value)):
        digits, unit = found.groups()
        number = float(re.sub("[_,]", "", digits)) * _THOUSANDS[unit.upper()]
        value = round(number) if number < _LARGEST else value
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < _LARGEST:
        msg = (
            f"{what}={_shortened(value)!r} is not a count; give a positive int, or one with K, M "
            "or B for thousands, millions and billions, for example '2M', below 2^63"
        )
        raise OptionError(msg)
    return value


def format_bytes(size: float) -> str:
    """Write a size with the unit that suits it.

    Examples
    --------
    >>> format_bytes(800), format_bytes(131072), format_bytes(25_000_000)
    ('800 B', '128 KB', '23.84 MB')
    """
    unit = next((u for u in reversed(_UNITS) if abs(size) >= _UNITS[u]), "B")
    number = size / _UNITS[unit]
    return f"{number:.4g} {unit}" if number < 10_000 and unit != "B" else f"{number:.0f} {unit}"


def parse_seconds(time: float | str | timedelta, what: str = "keep") -> float:
    """Return the number of seconds that ``time`` stands for.

    Parameters
    ----------
    time
        Seconds as a number, a timedelta, or a string with a unit (ms, s, m or min, h, d).
    what
        The argument's name, for the error.

    Examples
    --------
    >>> parse_seconds("7d"), parse_seconds("1.5 h"), parse_seconds(30)
    (604800.0, 5400.0, 30.0)
    >>> parse_seconds("soon")
    Traceback (most recent call last):
    semistream.errors.OptionError: keep='soon' is not a time; ...
    """
    if isinstance(time, timedelta):
        time = time.total_seconds()
    if isinstance(time, int) and time >= _LARGEST:
        time = math.inf  # for ever; float() refuses larger ones
    if isinstance(time, str) and (found := _TIME.fullmatch(time)):
        time = float(found[1]) * _SECONDS[found[2]]
    if isinstance(time, bool) or not isinstance(time, int | float) or not time >= 0:
        msg = (
            f"{what}={time!r} is not a time; give seconds as a number, or a string with one of "
            f"the units {', '.join(_SECONDS)}, for example '7d'"
        )
        raise OptionError(msg)
    return float(time)
