"""Records of results: JSON files that are complete at any time, and can be resumed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from semistream.errors import OptionError

Record = dict[str, Any]


def write_record(record: Record, path: Path) -> None:
    """Replace the file atomically: an interrupted writer leaves the earlier record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(compact(record) + "\n")
    new.replace(path)


def read_record(path: Path) -> Record:
    """Read a record of any benchmark."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        msg = f"{path} is not a record of results: {error}"
        raise OptionError(msg) from None
    if not isinstance(record, dict) or "kind" not in record:
        msg = f"{path} is not a record of results of this version; measure it anew"
        raise OptionError(msg)
    return record


def compact(record: Record) -> str:
    """Write a record as JSON with one line for each entry of a list of objects.

    Examples
    --------
    >>> print(compact({"what": "rates", "cells": [{"a": 1}, {"a": 2}]}))
    {
     "what": "rates",
     "cells": [
      {"a":1},
      {"a":2}
     ]
    }
    """
    parts = [f" {json.dumps(name)}: {_value(value)}" for name, value in record.items()]
    return "{\n" + ",\n".join(parts) + "\n}"


def _value(value: object) -> str:
    if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
        lines = (f"  {json.dumps(entry, separators=(',', ':'))}" for entry in value)
        return "[\n" + ",\n".join(lines) + "\n ]"
    return json.dumps(value)


def add(record: Record, part: str, entry: Record, identity: Iterable[str]) -> None:
    """Append an entry to a list of the record, or replace the one of the same setting."""
    entries = record.setdefault(part, [])
    setting = {name: entry[name] for name in identity}
    for place, other in enumerate(entries):
        if setting and setting.items() <= other.items():
            entries[place] = entry
            return
    entries.append(entry)


def resumed(before: Record, now: Record, path: Path) -> Record:
    """Return the earlier record to go on with, its grid extended by the settings of the new one.

    Raises
    ------
    OptionError
        What was measured before would not compare with what is measured now.
    """
    grid = json.loads(json.dumps(now["grid"]))  # tuples become lists, as in the file
    for name, value in grid.items():
        old = before["grid"].get(name, value)
        if isinstance(value, list):
            grid[name] = [*old, *(item for item in value if item not in old)]
        elif old != value:
            msg = f"{path} was measured with {name}={old}; resume with the same"
            raise OptionError(msg)
    if before["machine"]["source"] != now["machine"]["source"]:
        msg = f"the code has changed since {path} was begun; measure all cells anew"
        raise OptionError(msg)
    times = [*before.get("resumed", []), datetime.now(UTC).isoformat(timespec="seconds")]
    return before | {"grid": grid, "resumed": times}
