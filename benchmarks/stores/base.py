"""What an engine is: a master in a store of others, joined chunk by chunk."""

from __future__ import annotations

import importlib.util
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Engine(ABC):
    """A master in a store of its own.

    Parameters
    ----------
    path
        Its file or folder.
    schema
        The master's columns, the key first, which is an integer.
    memory
        Bytes for its own cache.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    note: ClassVar[str]
    """What it holds, and where."""
    least: ClassVar[int] = 0
    """Bytes without which it does not run: in a worker it has them whatever the budget."""
    unique: ClassVar[bool] = True
    """Whether it needs one row a key."""

    def __init__(self, path: Path, schema: pa.Schema, memory: int) -> None:
        self.path, self.schema, self.memory = path, schema, memory

    @classmethod
    def missing(cls) -> str:
        """Return what is missing, nothing if it can run."""
        if importlib.util.find_spec(cls.package) is not None:
            return ""
        return f"{cls.package} is not installed: `make setup` installs it"

    @classmethod
    def store(cls) -> str:
        """Return the kind of its file: some read the same one in another way."""
        return cls.name

    @property
    def key(self) -> str:
        """The key's name, on both sides."""
        return str(self.schema.names[0])

    @cached_property
    def payload(self) -> pa.Schema:
        """The master's columns without the key."""
        return pa.schema(list(self.schema)[1:])

    @abstractmethod
    def build(self, rows: pa.RecordBatchReader) -> None:
        """Store the master's rows, which come in order of their keys."""

    @abstractmethod
    def open(self) -> None:
        """Make ready for joins."""

    @abstractmethod
    def join(self, chunk: pa.RecordBatch, how: str = "inner") -> pa.Table:
        """Join a chunk, inner or left: the stream's columns, then the master's without key."""

    def close(self) -> None:
        """Let go of the store."""


def placed(chunk: pa.RecordBatch, rows: pa.RecordBatch, places: Ints, how: str) -> pa.Table:
    """Put the row at its place beside each row of a chunk; -1 is a row without a match."""
    absent = places < 0
    if absent.any() and how == "inner":
        chunk, places = chunk.filter(pa.array(~absent)), places[~absent]
        absent = np.zeros(len(places), np.bool_)
    wanted = pa.array(places, mask=absent if absent.any() else None)
    columns = [*chunk.columns, *rows.take(wanted).columns]
    names = [*chunk.schema.names, *rows.schema.names]
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(columns, names=names)])


class ByKey(Engine):
    """A store that is asked for keys."""

    def join(self, chunk: pa.RecordBatch, how: str = "inner") -> pa.Table:
        """Ask for each key once, then put its row beside every stream row that has it."""
        keys, of_row = np.unique(chunk[self.key].to_numpy(), return_inverse=True)
        present, rows = self._fetch(keys)
        place = np.full(len(keys), -1)
        place[present] = np.arange(len(present))
        return placed(chunk, rows, place[of_row], how)

    def join_rows(self, chunk: pa.RecordBatch, how: str = "inner") -> pa.Table:
        """Ask for the key of every row by itself."""
        found = [self.row(key) for key in chunk[self.key].to_pylist()]
        rows = [row for row in found if row is not None]
        columns = list(zip(*rows, strict=True)) or [()] * len(self.payload)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, self.payload, strict=True)]
        there = np.array([row is not None for row in found], np.bool_)
        places = np.where(there, np.cumsum(there) - 1, -1)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.payload)
        return placed(chunk, batch, places, how)

    @abstractmethod
    def row(self, key: int) -> tuple[Any, ...] | None:
        """Return the row of one key, without it."""

    @abstractmethod
    def _fetch(self, keys: Ints) -> tuple[Ints, pa.RecordBatch]:
        """Return which of the keys are there, and their rows in the same order."""


def built(
    kind: type[Engine],
    path: Path,
    schema: pa.Schema,
    memory: int,
    rows: Callable[[], pa.RecordBatchReader],
) -> Engine:
    """Return the engine whose store is at a path; if it is not there, build it atomically."""
    if not path.exists():
        unfinished = path.with_name(f"{path.name}-unfinished")
        if unfinished.is_dir():
            shutil.rmtree(unfinished)
        unfinished.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        kind(unfinished, schema, memory).build(rows())
        unfinished.rename(path)
    return kind(path, schema, memory)
