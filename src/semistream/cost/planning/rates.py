"""Rates as people write them: ``"200k"`` is 200,000 rows a second."""

from __future__ import annotations

import math
import re

from semistream.errors import OptionError

__all__ = ["format_rate", "parse_rate"]

_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9}
_RATE = re.compile(
    r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([KMG]?)\s*(?:/s)?\s*", re.IGNORECASE
)


def parse_rate(rate: float | str, what: str = "rate") -> float:
    """Give the stream rows a second that ``rate`` stands for.

    Examples
    --------
    >>> parse_rate("200k"), parse_rate("1.5M"), parse_rate("2e5"), parse_rate(1000)
    (200000.0, 1500000.0, 200000.0, 1000.0)
    >>> parse_rate("fast")
    Traceback (most recent call last):
    semistream.errors.OptionError: rate='fast' is not a rate; ...
    """
    value = 0.0
    if isinstance(rate, str) and (found := _RATE.fullmatch(rate)):
        number, unit = found.groups()
        value = float(re.sub("[_,]", "", number)) * _UNITS[unit.upper()]
    elif isinstance(rate, (int, float)) and not isinstance(rate, bool):
        value = float(rate)
    if not math.isfinite(value) or value <= 0:
        msg = (
            f"{what}={rate!r} is not a rate; give stream rows a second as a positive number, or a "
            "string such as '200k', '1.5M' or '2e5'"
        )
        raise OptionError(msg)
    return value


def format_rate(rate: float) -> str:
    """Write a rate in thousands where it has them, to three digits.

    Examples
    --------
    >>> format_rate(1_234_567), format_rate(45_678), format_rate(12.34)
    ('1.23M', '45.7k', '12.3')
    """
    for unit in ("G", "M", "K"):
        if rate >= 0.9995 * _UNITS[unit]:
            return f"{rate / _UNITS[unit]:.3g}{unit.lower() if unit == 'K' else unit}"
    return f"{rate:.3g}"
