"""What a process keeps open from task to task: each Python worker has one, and the driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from semistream.master import FileMaster
    from semistream.master.database.master import DatabaseMaster
    from semistream.master.database.store import Store
    from semistream.master.snapshots.pins import Pin
    from semistream.spark.lookup.job import Copies

__all__ = ["PROCESS"]


@dataclass(frozen=True)
class _ProcessCache:
    masters: dict[tuple[str, str], dict[object, FileMaster]] = field(default_factory=dict)
    """(path, way of reading) → snapshot → the opened master."""
    databases: dict[tuple[str, str, Store], DatabaseMaster] = field(default_factory=dict)
    """The master that change feeds of this process report to, by its identity."""
    pins: dict[str, tuple[tuple[str, str], Pin]] = field(default_factory=dict)
    """Path → the micro-batch of the last task here, and its pin."""
    copies: dict[tuple[str, Copies], tuple[float, str, str]] = field(default_factory=dict)
    """(source, limits) → when the source was last asked, the snapshot, the folder of the copy."""
    copy_locks: dict[Path, int] = field(default_factory=dict)
    """Copy → the handle whose lock keeps other processes from removing it."""
    known_shapes: set[tuple[str, str, str]] = field(default_factory=set)
    """(query, path, shape) whose note beside the master was compared."""
    warnings: set[tuple[str, str]] = field(default_factory=set)
    """(path, reason) of warnings that were given."""


PROCESS = _ProcessCache()
