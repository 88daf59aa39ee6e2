"""What the papers print: points and statements, each with where it was read."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass

from papers.reading import folder
from semistream.errors import OptionError
from semistream.units import parse_bytes, parse_count

COLUMNS = ("figure", "series", "x", "value", "unit", "read", "section", "statement")
_READ = ("text", "table", "figure")


@dataclass(frozen=True)
class Published:
    """A point, or a statement without numbers; ``figure`` is empty for tables of settings."""

    figure: str
    series: str
    """A line's name; ``a/b`` is the ratio of two."""
    x: float | None
    value: float | None
    unit: str
    read: str
    """Whether it was read from text, a table or a figure."""
    section: str
    statement: str


def published(paper: str) -> list[Published]:
    """Return what a paper prints.

    Examples
    --------
    >>> [(p.x / 2**20, p.value) for p in published("x-hybridjoin") if p.unit == "tuples"]
    [(50.0, 400000.0), (250.0, 2000000.0)]
    """
    text = (folder() / paper / "published.csv").read_text(encoding="utf-8")
    return read_published(text.splitlines(), f"{paper}/published.csv")


def read_published(lines: Iterable[str], name: str) -> list[Published]:
    """Read the lines of a file; a wrong one is an error that says which."""
    reader = csv.DictReader(lines)
    if tuple(reader.fieldnames or ()) != COLUMNS:
        msg = f"{name}:1: the columns must be {','.join(COLUMNS)}"
        raise OptionError(msg)
    return [_point(row, f"{name}:{reader.line_num}") for row in reader]


def _point(row: dict[str, str], where: str) -> Published:
    if row["read"] not in _READ:
        msg = f"{where}: {OptionError.unknown('read', row['read'], _READ)}"
        raise OptionError(msg)
    if bool(row["x"]) != bool(row["value"]):
        msg = f"{where}: a point has x and value; a statement has neither"
        raise OptionError(msg)
    try:
        x, value = _number(row["x"]), _number(row["value"])
    except OptionError as error:
        msg = f"{where}: {error}"
        raise OptionError(msg) from None
    rest = {name: row[name] for name in COLUMNS if name not in {"x", "value"}}
    return Published(x=x, value=value, **rest)


def _number(text: str) -> float | None:
    """Read a number, a count such as 2M or a size such as 50MB; None where there is nothing."""
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        return float(parse_bytes(text) if text.upper().endswith("B") else parse_count(text))
