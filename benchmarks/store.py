"""Records of results, as JSON files that are whole at any time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from semistream.cost.tuning.record import compact
from semistream.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_record", "write_record"]


def write_record(record: dict[str, Any], path: Path) -> None:
    """Replace the file at once: whoever reads it, or is interrupted, finds a whole record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(compact(record) + "\n")
    new.replace(path)


def read_record(path: Path) -> dict[str, Any]:
    """Read a record."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        msg = f"{path} is not a record of results: {error}"
        raise OptionError(msg) from None
    if not isinstance(record, dict) or "kind" not in record:
        msg = f"{path} is not a record of results of this version; measure it anew"
        raise OptionError(msg)
    return record
