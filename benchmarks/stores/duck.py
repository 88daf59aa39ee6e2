"""DuckDB: on disk within a limit, and with all of the master in memory."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from benchmarks.stores.base import Engine


class DuckDb(Engine):
    """DuckDB with the master in a database file, one thread, and a memory limit."""

    name, package = "duckdb", "duckdb"
    note = "memory_limit of the budget; builds on the chunk and scans the table"
    least = 128 << 20  # a chunk of 500,000 rows and what it is joined to
    unique = False

    def build(self, rows: pa.RecordBatchReader) -> None:
        import duckdb

        with duckdb.connect(str(self.path)) as connection:
            _fill(connection, rows)

    def open(self) -> None:
        import duckdb

        self._connection = _one_thread(duckdb.connect(str(self.path), read_only=True))
        self._connection.execute(f"SET memory_limit = '{self.memory} B'")

    def join(self, chunk: pa.RecordBatch, how: str = "inner") -> pa.Table:
        self._connection.register("chunk", pa.Table.from_batches([chunk]))
        columns = f"chunk.*, master.* EXCLUDE ({self.key})"
        # A relation, not execute(): its way to Arrow makes no extra copy.
        query = f"SELECT {columns} FROM chunk {how} JOIN master USING ({self.key})"  # noqa: S608
        return self._connection.sql(query).to_arrow_table()

    def close(self) -> None:
        self._connection.close()


class DuckDbInMemory(DuckDb):
    """DuckDB with all of the master in memory, without a limit."""

    name = "duckdb-memory"
    note = "all of R in memory"

    def build(self, rows: pa.RecordBatchReader) -> None:
        with pa.OSFile(str(self.path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as file:
            for batch in rows:
                file.write_batch(batch)

    def open(self) -> None:
        import duckdb

        self._connection = _one_thread(duckdb.connect())
        with pa.memory_map(str(self.path)) as source:
            _fill(self._connection, pa.ipc.open_file(source).read_all().to_reader())


def _fill(connection: Any, rows: pa.RecordBatchReader) -> None:
    connection.register("source", rows)
    connection.execute("CREATE TABLE master AS SELECT * FROM source")
    connection.unregister("source")


def _one_thread(connection: Any) -> Any:
    connection.execute("SET threads = 1")
    connection.execute("SET preserve_insertion_order = false")
    return connection
