"""Delta tables, read without a JVM by the package ``deltalake``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from semistream.errors import OptionError
from semistream.master.lake.parquet import scan
from semistream.master.lake.table import Feed, LakeTable, Scope, conform, project
from semistream.master.place import show_source, without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Delta"]

_TYPE = "_change_type"
_CAME = pa.array(["insert", "update_postimage"])
_WENT = pa.array(["delete", "update_preimage"])
_FEED = "delta.enableChangeDataFeed"
_MAPPING = "delta.columnMapping.mode"


@dataclass(frozen=True)
class Delta(LakeTable):
    """A Delta table at a version."""

    kind: ClassVar[str] = "delta"
    errors: ClassVar[tuple[type[Exception], ...]] = (DeltaError,)
    table: DeltaTable
    columns: tuple[str, ...] | None

    @classmethod
    def open(
        cls, source: str | DeltaTable, version: int | None, columns: tuple[str, ...] | None
    ) -> Delta:
        """Load a table's log up to a version, or to the newest."""
        if isinstance(source, DeltaTable) and version in {None, source.version()}:
            return cls(source, columns)
        return cls(_load(source, version), columns)

    @property
    def schema(self) -> pa.Schema:
        """The columns that are read."""
        return project(pa.schema(self.table.schema().to_arrow()), self.columns)

    @property
    def note(self) -> dict[str, Any]:
        """Its entry in a manifest."""
        return {
            "kind": self.kind,
            "uri": _plain(self.table.table_uri),
            "version": self.table.version(),
            "table": str(self.table.metadata().id),
            "mapped": _is_mapped(self.table),
        }

    def count(self) -> int | None:
        """Return how many rows the log says there are, if it says so of every file."""
        rows = pa.table(self.table.get_add_actions()).column("num_records")
        return None if rows.null_count else int(pc.sum(rows).as_py() or 0)

    def batches(self, memory: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows: file by file, or as deltalake joins them with its deletion vectors."""
        try:
            files = _dataset(self.table)
        except DeltaError:  # deletion vectors, column mapping
            return self._scanned()
        return scan(files.get_fragments(), self.schema, memory)

    def _scanned(self) -> Iterator[pa.RecordBatch]:
        names, schema = self.schema.names, self.schema
        try:
            for batch in pa.RecordBatchReader.from_stream(self.table.scan(columns=names)):
                yield conform(batch, schema)
        except DeltaError as error:
            reason = without_secrets(str(error))
            msg = (
                f"{_plain(self.table.table_uri)}: deltalake does not read this table ({reason}); "
                "let Spark read it: build_master(spark.read.format('delta').load(…), …)"
            )
            raise OptionError(msg) from error

    def is_newer(self, since: Mapping[str, Any]) -> bool:
        """Return whether this version comes after the noted one."""
        if since["table"] != str(self.table.metadata().id):
            msg = (
                f"{_plain(self.table.table_uri)} is not the table that the master was built from: "
                "it was made anew there; build the master again"
            )
            raise OptionError(msg)
        version = self.table.version()
        if version < since["version"]:
            raise self.older_error(since, version)
        return bool(version > since["version"])

    def feeds(self, since: Mapping[str, Any], memory: int) -> Iterator[Feed]:
        """Yield the change data feed, where it is on, the files that came and went, all rows."""
        start, mapped = since["version"], since.get("mapped") or _is_mapped(self.table)
        if not mapped and _has_feed(self.table):
            yield Feed("change data feed", Scope.ROWS, lambda: self._change_feed(start + 1))
        if not mapped:  # else a column may have the name that another had before
            yield Feed("files", Scope.ROWS, lambda: self._files(start, memory))
        yield self.all_rows(memory)

    def _change_feed(self, start: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        schema, end = self.schema, self.table.version()
        feed = self.table.load_cdf(
            starting_version=start, ending_version=end, columns=[*schema.names, _TYPE]
        )
        for batch in pa.RecordBatchReader.from_stream(feed):
            kinds, rows = batch.column(_TYPE).cast(pa.string()), conform(batch, schema)
            for weight, some in ((1, _CAME), (-1, _WENT)):
                yield weight, rows.filter(pc.is_in(kinds, some))

    def _files(self, start: int, memory: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        old, new = _fragments(_reload(self.table, start)), _fragments(self.table)
        for weight, some, others in ((-1, old, new), (1, new, old)):
            mine = [some[path] for path in some.keys() - others.keys()]
            for batch in scan(mine, self.schema, memory):
                yield weight, batch


def _fragments(table: DeltaTable) -> dict[str, pyarrow.dataset.ParquetFileFragment]:
    return {file.path: file for file in _dataset(table).get_fragments()}


def _has_feed(table: DeltaTable) -> bool:
    """Return whether there is a change data feed that is right.

    Where a file goes that has a deletion vector, deltalake 1.6.6 reports the rows that the vector
    took before, not those that go now.
    """
    vectors = "deletionVectors" in (table.protocol().reader_features or ())
    return not vectors and table.metadata().configuration.get(_FEED) == "true"


def _is_mapped(table: DeltaTable) -> bool:
    return table.metadata().configuration.get(_MAPPING, "none") != "none"


def _dataset(table: DeltaTable) -> pyarrow.dataset.Dataset:
    """Return the files; deltalake itself would return mapped columns, all null."""
    if _is_mapped(table):
        msg = "the columns have other names in the files"
        raise DeltaError(msg)
    return table.to_pyarrow_dataset()


def _plain(uri: str) -> str:
    """Return a path for what is on this machine, and a URI without secrets for all else."""
    parts = urlsplit(uri)
    return unquote(parts.path).rstrip("/") if parts.scheme == "file" else without_secrets(uri)


def _reload(table: DeltaTable, version: int | None) -> DeltaTable:
    options = getattr(table, "_storage_options", None)
    return DeltaTable(table.table_uri, version=version, storage_options=options)


def _load(source: str | DeltaTable, version: int | None) -> DeltaTable:
    try:
        if isinstance(source, DeltaTable):
            return _reload(source, version)
        return DeltaTable(source, version=version)
    except TableNotFoundError as error:
        msg = f"{show_source(source)}: no Delta table is there"
        raise OptionError(msg) from error
    except DeltaError as error:
        reason = without_secrets(str(error))
        msg = (
            f"{show_source(source)}: version {version} cannot be loaded ({reason}); choose another"
        )
        raise OptionError(msg) from error
