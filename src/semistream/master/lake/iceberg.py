"""Iceberg tables, read without a JVM by the package ``pyiceberg``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import (
    ArrowScan,
    _pyarrow_schema_ensure_small_types,
    _read_all_delete_files,
    schema_to_pyarrow,
)
from pyiceberg.table import FileScanTask, StaticTable, Table

from semistream.errors import OptionError
from semistream.master.lake.table import Feed, LakeTable, Scope, conform, project
from semistream.master.place import show_source, without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyiceberg.schema import Schema

__all__ = ["SCHEME", "Iceberg"]

SCHEME = "iceberg://"


class _Scan(ArrowScan):
    def stream(self, task: FileScanTask) -> Iterator[pa.RecordBatch]:
        """Yield a file's rows batch by batch; the public way holds all of them."""
        deletes = _read_all_delete_files(self._io, [task])
        return self._record_batches_from_scan_tasks_and_deletes([task], deletes)


@dataclass(frozen=True)
class Iceberg(LakeTable):
    """An Iceberg table at a snapshot."""

    kind: ClassVar[str] = "iceberg"
    errors: ClassVar[tuple[type[Exception], ...]] = (Exception,)
    """Stores are read by libraries of their vendors, each with errors of its own."""
    table: Table
    version: int | None
    """The id of the snapshot; None for a table that never had rows."""
    columns: tuple[str, ...] | None
    chosen: bool = False
    """Whether this snapshot was asked for: then its columns are those of its time.

    Else they are those of now: a column that is renamed makes no snapshot.
    """

    @classmethod
    def open(
        cls, source: str | Table, version: int | None, columns: tuple[str, ...] | None
    ) -> Iceberg:
        """Load a table's metadata and choose a snapshot, the current one by default."""
        table = source if isinstance(source, Table) else _load(source)
        if version is None:
            current = table.current_snapshot()
            return cls(table, current.snapshot_id if current else None, columns)
        if table.snapshot_by_id(version) is None:
            known = ", ".join(str(s.snapshot_id) for s in table.snapshots()[-3:]) or "none"
            msg = f"{table.location()}: no snapshot has the id version={version}; the last: {known}"
            raise OptionError(msg)
        return cls(table, version, columns, chosen=True)

    def _projection(self, *names: str) -> Schema:
        at = self.version if self.chosen else None
        return self.table.scan(snapshot_id=at, selected_fields=names or ("*",)).projection()

    @property
    def schema(self) -> pa.Schema:
        """The columns that are read."""
        known = schema_to_pyarrow(self._projection(), include_field_ids=False)
        # 64-bit offsets are for columns of more than 2 GB, which no page is.
        return project(_pyarrow_schema_ensure_small_types(known), self.columns)

    @property
    def _fields(self) -> dict[str, int]:
        known = self._projection(*self.columns or ())
        return {str(known.find_column_name(number)): number for number in sorted(known.field_ids)}

    @property
    def note(self) -> dict[str, Any]:
        """Its entry in a manifest; a catalog's settings, which may be secret, stay out."""
        named = not isinstance(self.table.catalog, NoopCatalog)
        name = f"{SCHEME}{self.table.catalog.name}/{'.'.join(self.table.name())}"
        return {
            "kind": self.kind,
            "uri": name if named else self.table.location(),
            "version": self.version,
            "table": str(self.table.metadata.table_uuid),
            "fields": self._fields,
            "time": self._time(self.version),
        }

    def _time(self, version: int | None) -> int:
        snapshot = None if version is None else self.table.snapshot_by_id(version)
        return 0 if snapshot is None else snapshot.timestamp_ms

    def count(self) -> int | None:
        """Return how many rows the manifests say there are, if no file of deletes has a say."""
        tasks = self._tasks(self.version)
        if any(task.delete_files for task in tasks):
            return None
        return sum(task.file.record_count for task in tasks)

    def _tasks(self, version: int | None) -> list[FileScanTask]:
        if version is None:
            return []
        try:
            return list(self.table.scan(snapshot_id=version).plan_files())
        except (NotImplementedError, ValueError) as error:
            reason = without_secrets(str(error))
            msg = (
                f"{self.table.location()}: pyiceberg does not read this table ({reason}); let "
                "Spark read it: build_master(spark.read.format('iceberg').load(…), …), or rewrite "
                "its data files first"
            )
            raise OptionError(msg) from error

    def batches(self, memory: int) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - Arrow's batches
        """Yield all rows, file by file."""
        return self._read(self._tasks(self.version))

    def _read(self, tasks: Iterable[FileScanTask]) -> Iterator[pa.RecordBatch]:
        schema, known = self.schema, self._projection(*self.columns or ())
        reader = _Scan(self.table.metadata, self.table.io, known, AlwaysTrue())
        for task in tasks:
            for batch in reader.stream(task):
                yield conform(batch, schema)

    def is_newer(self, since: Mapping[str, Any]) -> bool:
        """Return whether this snapshot is another than the noted one."""
        if since["table"] != str(self.table.metadata.table_uuid):
            msg = (
                f"{self.table.location()} is not the table that the master was built from; build "
                "the master again"
            )
            raise OptionError(msg)
        if self._time(self.version) < since["time"]:
            raise self.older_error(since, self.version)
        return bool(self.version != since["version"])

    def feeds(self, since: Mapping[str, Any], memory: int) -> Iterator[Feed]:
        """Yield the files that came and went between the snapshots, or all rows."""
        version = since["version"]
        there = version is None or self.table.snapshot_by_id(version) is not None
        # A column that has the name of another from before has other values in the same files.
        if there and since.get("fields") == self._fields:
            yield Feed("files", Scope.ROWS, lambda: self._files(version))
        yield self.all_rows(memory)

    def _files(self, version: int | None) -> Iterator[tuple[int, pa.RecordBatch]]:
        old, new = _by_content(self._tasks(version)), _by_content(self._tasks(self.version))
        for weight, some, others in ((-1, old, new), (1, new, old)):
            for batch in self._read(some[name] for name in some.keys() - others.keys()):
                yield weight, batch


def _by_content(tasks: list[FileScanTask]) -> dict[object, FileScanTask]:
    """Return tasks by what makes their rows: the file, and the files that delete some of them."""
    return {(t.file.file_path, frozenset(d.file_path for d in t.delete_files)): t for t in tasks}


def _load(source: str) -> Table:
    try:
        if source.startswith(SCHEME):
            catalog, _, name = source.removeprefix(SCHEME).partition("/")
            return load_catalog(catalog).load_table(name)
        return StaticTable.from_metadata(source)
    except Exception as error:
        reason = without_secrets(str(error))
        msg = (
            f"{show_source(source)}: no Iceberg table can be loaded ({reason}); give the path of a "
            f"metadata file, '{SCHEME}<catalog>/<namespace>.<table>' with a catalog of your "
            ".pyiceberg.yaml, or the Table that pyiceberg loaded"
        )
        raise OptionError(msg) from error
