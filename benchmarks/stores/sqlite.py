"""SQLite: a table whose key is its row id."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.stores.base import ByKey, Ints


class Sqlite(ByKey):
    """SQLite, asked for the de-duplicated keys of a chunk in one statement, or row by row."""

    name, package = "sqlite", "sqlite3"
    note = "page cache of the budget, and the operating system's beside it"

    def build(self, rows: pa.RecordBatchReader) -> None:
        names = self.schema.names
        columns = ", ".join([f"{self.key} INTEGER PRIMARY KEY", *names[1:]])
        with sqlite3.connect(self.path) as connection:
            connection.execute(f"CREATE TABLE master ({columns})")
            insert = f"INSERT INTO master VALUES ({', '.join('?' * len(names))})"  # noqa: S608
            for batch in rows:
                connection.executemany(insert, zip(*batch.to_pydict().values(), strict=True))
        connection.close()

    def open(self) -> None:
        self._connection = sqlite3.connect(self.path)
        self._connection.execute(f"PRAGMA cache_size = -{self.memory // 1024}")
        names = ", ".join(self.payload.names)
        self._row = f"SELECT {names} FROM master WHERE {self.key} = ?"  # noqa: S608
        wanted = f"json_each(?) AS wanted JOIN master AS m ON m.{self.key} = wanted.value"
        self._rows = f"SELECT m.* FROM {wanted}"  # noqa: S608

    def row(self, key: int) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self._connection.execute(self._row, (key,)).fetchone()
        return found

    def _fetch(self, keys: Ints) -> tuple[Ints, pa.RecordBatch]:
        rows = self._connection.execute(self._rows, [json.dumps(keys.tolist())]).fetchall()
        columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) or [
            [] for _ in self.schema
        ]
        arrays = [pa.array(c, f.type) for c, f in zip(columns[1:], self.payload, strict=True)]
        present = np.searchsorted(keys, np.array(columns[0], np.int64))
        return present, pa.RecordBatch.from_arrays(arrays, schema=self.payload)

    def close(self) -> None:
        self._connection.close()
