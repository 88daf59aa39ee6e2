"""DuckDB: on disk within a limit, and with all of the master in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.stores.base import Engine

if TYPE_CHECKING:
    from typing import Any

__all__ = ["DuckDb", "DuckDbInMemory"]


class DuckDb(Engine):
    """DuckDB with the master in a database file, one thread, and a memory limit."""

    name, package = "duckdb", "duckdb"
    note = "memory_limit of the budget; builds on the chunk and scans the table"
    least = 128 << 20  # a chunk of 500,000 rows and what it is joined to
    unique = False

    def build(self, rows: pa.RecordBatchReader) -> None:
        """Store the rows as a table."""
        import duckdb  # noqa: PLC0415 - an extra

        with duckdb.connect(str(self.path)) as connection:
            _fill(connection, rows)

    def open(self) -> None:
        """Connect, with the limits."""
        import duckdb  # noqa: PLC0415 - an extra

        self._connection = _one_thread(duckdb.connect(str(self.path), read_only=True))
        self._connection.execute(f"SET memory_limit = '{self.memory} B'")

    def join(self, chunk: pa.RecordBatch, how: str = "inner") -> pa.Table:
        """Register the chunk, join, fetch as Arrow."""
        self._connection.register("chunk", pa.Table.from_batches([chunk]))
        columns = f"chunk.*, master.* EXCLUDE ({self.key})"
        # A relation, not execute(): its way to Arrow makes no extra copy.
        query = f"SELECT {columns} FROM chunk {how} JOIN master USING ({self.key})"  # noqa: S608
        return self._connection.sql(query).to_arrow_table()

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


class DuckDbInMemory(DuckDb):
    """DuckDB with all of the master in memory, without a limit."""

    name = "duckdb-memory"
    note = "all of R in memory"

    def build(self, rows: pa.RecordBatchReader) -> None:
        """Keep the rows in a file to load them from."""
        with pa.OSFile(str(self.path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as file:
            for batch in rows:
                file.write_batch(batch)

    def open(self) -> None:
        """Load all rows."""
        import duckdb  # noqa: PLC0415 - an extra

        self._connection = _one_thread(duckdb.connect())
        with pa.memory_map(str(self.path)) as source:
            _fill(self._connection, pa.ipc.open_file(source).read_all().to_reader())


def _fill(connection: Any, rows: pa.RecordBatchReader) -> None:  # noqa: ANN401 - has no types
    connection.register("source", rows)
    connection.execute("CREATE TABLE master AS SELECT * FROM source")
    connection.unregister("source")


def _one_thread(connection: Any) -> Any:  # noqa: ANN401 - has no types
    connection.execute("SET threads = 1")
    connection.execute("SET preserve_insertion_order = false")
    return connection
