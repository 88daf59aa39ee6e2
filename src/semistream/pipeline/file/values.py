"""How the values of a pipeline file are read: each reader gives a value, or says what is wrong."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from semistream.errors import OptionError
from semistream.missing import WORDS
from semistream.pipeline.file.problems import Mistakes, Problem, collect, nearest, unknown
from semistream.units import parse_bytes, parse_count, parse_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from semistream.pipeline.file.node import Node, Scalar

__all__ = [
    "choice",
    "count",
    "flag",
    "flag_or_size",
    "interval",
    "key",
    "mapping",
    "names",
    "number",
    "on_missing",
    "scalar",
    "schema",
    "seconds",
    "size",
    "text",
]

T = TypeVar("T")

_INTERVAL = re.compile(r"([0-9]+)\s*(ms|s|m|min|h|d|(?:millisecond|second|minute|hour|day)s?)")
_SHORT = {"ms": "millisecond", "s": "second", "m": "minute", "min": "minute"}
_SHORT |= {"h": "hour", "d": "day"}
_TYPES = {
    *("boolean", "byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint"),
    *("float", "real", "double", "decimal", "dec", "numeric", "string", "char", "varchar"),
    *("binary", "date", "timestamp", "timestamp_ntz", "timestamp_ltz", "array", "map", "struct"),
}


def text(node: Node) -> str:
    """Read text that is not empty."""
    if isinstance(node.value, (bool, int, float)):
        raise node.mistake(f"must be text, not {node.shown}; if it is meant, write it in quotes")
    if not isinstance(node.value, str) or not node.value.strip():
        raise node.mistake(f"must be text, not {node.shown}")
    return node.value


def scalar(node: Node) -> Scalar:
    """Read a single value of any type."""
    if isinstance(node.value, (tuple, dict)) or node.value is None:
        raise node.mistake(f"must be a single value, not {node.shown}")
    return node.value


def flag(node: Node) -> bool:
    """Read true or false."""
    if not isinstance(node.value, bool):
        raise node.mistake(f"must be true or false, not {node.shown}")
    return node.value


def flag_or_size(node: Node) -> bool | int:
    """Read true or false, or a limit in bytes."""
    if isinstance(node.value, bool):
        return node.value
    try:
        return size(node)
    except Mistakes:
        raise node.mistake(f"must be true, false or a size as 50GB, not {node.shown}") from None


def number(least: float, most: float) -> Callable[[Node], float]:
    """Read a number within limits."""

    def read(node: Node) -> float:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise node.mistake(f"must be a number, not {node.shown}")
        if not least <= value <= most:
            raise node.mistake(f"must be from {least:g} to {most:g}, not {node.shown}")
        return value

    return read


def count(least: int = 1) -> Callable[[Node], int]:
    """Read a whole number, such as 2000000 or 2M."""

    def read(node: Node) -> int:
        value = node.value
        if least == 0 and value == 0 and not isinstance(value, bool):
            return 0
        try:
            return parse_count(value, node.where)  # type: ignore[arg-type] # it says what it takes
        except OptionError:
            raise node.mistake(
                f"must be a whole number of at least {least}, such as 1000 or 2M, not {node.shown}"
            ) from None

    return read


def size(node: Node) -> int:
    """Read a size in bytes, such as 64MB."""
    try:
        return parse_bytes(node.value)  # type: ignore[arg-type] # it says what it takes
    except OptionError:
        raise node.mistake(f"must be a size in bytes, such as 64MB, not {node.shown}") from None


def seconds(node: Node) -> float:
    """Read a time: seconds, or a number with a unit, such as 10m."""
    try:
        return parse_seconds(node.value, node.where)  # type: ignore[arg-type] # it says what it takes
    except OptionError:
        raise node.mistake(
            f"must be a time, such as 30 (seconds), 10m or 2h, not {node.shown}"
        ) from None


def choice(words: Callable[[], Iterable[str]] | tuple[str, ...]) -> Callable[[Node], str]:
    """Read one of a few words."""

    def read(node: Node) -> str:
        choices = tuple(words() if callable(words) else words)
        value = "null" if node.value is None else node.value  # what YAML takes the word for
        if value not in choices:
            shown = node.text if isinstance(node.value, (str, int, float)) else node.shown
            raise Mistakes.at(node.mark, unknown(node.where, shown, choices))
        return str(value)

    return read


def _several(items: Iterable[Node], read: Callable[[Node], T]) -> list[T]:
    """Read all, so that all mistakes are found."""
    found: list[T] = []
    problems: list[Problem] = []
    for item in items:
        with collect(problems):
            found.append(read(item))
    if problems:
        raise Mistakes(problems)
    return found


def names(read: Callable[[Node], str] = text) -> Callable[[Node], tuple[str, ...]]:
    """Read a list of names; one alone needs no brackets."""

    def several(node: Node) -> tuple[str, ...]:
        items = node.value if isinstance(node.value, tuple) else (node,)
        found = _several(items, read)
        for i, item in enumerate(found):
            if item in found[:i]:
                raise node.mistake(f"names {item!r} twice")
        return tuple(found)

    return several


def mapping(read: Callable[[Node], T]) -> Callable[[Node], dict[str, T]]:
    """Read a mapping from names to values."""

    def pairs(node: Node) -> dict[str, T]:
        if not isinstance(node.value, dict):
            raise node.mistake(f"must be a mapping, as {{name: value}}, not {node.shown}")
        return dict(zip(node.value, _several(node.value.values(), read), strict=True))

    return pairs


def key(node: Node) -> tuple[str, ...] | dict[str, str]:
    """Read what a join is on: a column, a list of them, or stream column: master column."""
    if isinstance(node.value, dict) and node.value:
        return mapping(text)(node)
    found = names()(node)
    if not found:
        raise node.mistake("is empty; name the key's columns")
    return found


def on_missing(node: Node) -> str | dict[str, Scalar]:
    """Read what becomes of rows without a master row: a word, or default values."""
    if isinstance(node.value, dict):
        return mapping(scalar)(node)
    if node.value is None:
        return "null"  # what YAML takes the word for
    if node.value not in WORDS:
        shown = node.text if isinstance(node.value, (str, int, float)) else node.shown
        told = unknown(node.where, shown, WORDS)
        raise Mistakes.at(node.mark, f"{told} Or give default values, as {{price: 0.0}}.")
    return str(node.value)


def schema(node: Node) -> str:
    """Read columns and types: ``id long, name string``, or a mapping from names to types."""
    if isinstance(node.value, dict):
        columns = mapping(_column_type)(node)
        if not columns:
            raise node.mistake("is empty; give column: type")
        quoted = (name.replace("`", "``") for name in columns)
        return ", ".join(
            f"`{name}` {kind}" for name, kind in zip(quoted, columns.values(), strict=True)
        )
    return text(node)


def _column_type(node: Node) -> str:
    kind = text(node)
    word = re.match(r"[a-z_]*", kind.strip().lower())
    if not word or word[0] not in _TYPES:
        near = nearest(word[0] if word else kind, _TYPES)
        raise node.mistake(
            f"{kind!r} is not a type of Spark's; types are long, int, double, string, boolean, "
            f"date, timestamp, decimal(10,2), binary, array<…>, struct<…>.{near}"
        )
    return kind


def interval(node: Node) -> str:
    """Read when batches start: an interval, or ``available now``."""
    plain = str(node.value).strip().lower().replace("_", " ").replace("-", " ")
    if plain in {"once", "available now"}:
        return "available now"
    if isinstance(node.value, str) and (found := _INTERVAL.fullmatch(plain)):
        unit = _SHORT.get(found[2]) or found[2].removesuffix("s")
        return f"{found[1]} {unit}s"
    near = nearest(plain.split()[-1] if plain else "", ["seconds", "minutes", "available now"])
    raise node.mistake(
        f"{node.shown} is not known; give an interval such as 10s or '10 seconds' (ms, s, m, h, d, "
        "or in words), or 'available now' to process what is there and end; without it "
        f"a batch starts when the one before ends.{near}"
    )
