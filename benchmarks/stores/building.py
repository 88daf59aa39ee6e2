"""Building an engine's store, whole or not at all."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    from benchmarks.stores.base import Engine

__all__ = ["built"]


def built(
    kind: type[Engine],
    path: Path,
    schema: pa.Schema,
    memory: int,
    rows: Callable[[], pa.RecordBatchReader],
) -> Engine:
    """Give the engine whose store is at a path; it is built there if it was not."""
    if not path.exists():
        unfinished = path.with_name(f"{path.name}-unfinished")
        _remove(unfinished)
        path.parent.mkdir(parents=True, exist_ok=True)
        kind(unfinished, schema, memory).build(rows())
        unfinished.rename(path)
    return kind(path, schema, memory)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
