"""Parquet files, and folders of them; their files are what tells versions apart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet

from semistream.errors import OptionError
from semistream.master.lake.place import located, named, without_secrets
from semistream.master.lake.table import Feed, LakeTable, conformed, projected
from semistream.master.sync.merge import Scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["ParquetFiles", "scan"]

_BATCH_BYTES = 8 << 20
_MOST_ROWS = 1 << 16
# What Spark has. Arrow would take nanoseconds, which begin in 1677 and end in 2262: 9999-12-31, the
# end of many a dimension, would become a day in 1816 without a word.
_INT96 = {"coerce_int96_timestamp_unit": "us"}
_OPTIONS: dict[str, Any] = {"pre_buffer": False, "buffer_size": 1 << 16, **_INT96}
_SINK_LOG = "_spark_metadata"


@dataclass(frozen=True)
class ParquetFiles(LakeTable):
    """A Parquet file or a folder of them, also with folders named ``column=value``."""

    kind: ClassVar[str] = "parquet"
    uri: str
    dataset: pyarrow.dataset.Dataset
    columns: tuple[str, ...] | None

    @classmethod
    def open(cls, source: str, columns: tuple[str, ...] | None) -> ParquetFiles:
        """Find the files."""
        system, path = located(source)
        # Of a file alone, folders named like hive partitions above it are not columns.
        hive = "hive" if _is_folder(source, system, path) else None
        kind = pyarrow.dataset.ParquetFileFormat(**_INT96)
        try:
            files = pyarrow.dataset.dataset(path, filesystem=system, format=kind, partitioning=hive)
        except pa.ArrowInvalid as error:
            raise _unreadable(source, error) from error
        if not files.files:
            msg = f"{named(source)} holds no Parquet file"
            raise OptionError(msg)
        uri = source if "://" in source else str(Path(source).absolute())
        return cls(uri, files, columns)

    @property
    def schema(self) -> pa.Schema:
        """The columns that are read; what old writers stored as INT96 are instants."""
        return projected(self._every, self.columns)

    @cached_property
    def _every(self) -> pa.Schema:
        # The columns are those of the first file, as the dataset has found them.
        instants = _int96_columns(next(self.dataset.get_fragments()))
        fields = self.dataset.schema
        return pa.schema([_instant_field(f) if f.name in instants else f for f in fields])

    @cached_property
    def files(self) -> dict[str, list[int]]:
        """The size and the time of the last change of each file, in nanoseconds."""
        infos = self.dataset.filesystem.get_file_info(self.dataset.files)
        return {info.path: [info.size, info.mtime_ns] for info in infos}

    @property
    def note(self) -> dict[str, Any]:
        """What a manifest says of it."""
        uri = without_secrets(self.uri)
        return {"kind": self.kind, "uri": uri, "version": None, "files": self.files}

    def count(self) -> int | None:
        """Give how many rows the files say they have."""
        try:
            return int(self.dataset.count_rows())
        except pa.ArrowInvalid as error:
            raise _unreadable(self.uri, error) from error

    def batches(self, memory: int) -> Iterator[pa.RecordBatch]:
        """Give all rows, file by file."""
        return scan(self.dataset.get_fragments(), self.schema, memory)

    def is_newer(self, since: Mapping[str, Any]) -> bool:
        """Tell whether a file came, went or changed."""
        return bool(self.files != since["files"])

    def feeds(self, since: Mapping[str, Any], memory: int) -> Iterator[Feed]:
        """Give the rows of new files; all, if a file is gone, for then so are the rows it had."""
        old = since["files"]
        if all(self.files.get(path) == facts for path, facts in old.items()):
            new = [f for f in self.dataset.get_fragments() if f.path not in old]
            came = lambda: ((1, batch) for batch in scan(new, self.schema, memory))  # noqa: E731
            yield Feed("files", Scope.ROWS, came)
        yield Feed("all rows", Scope.ALL, lambda: ((1, b) for b in self.batches(memory)))


def _is_folder(source: str, system: pyarrow.fs.FileSystem, path: str) -> bool:
    """Tell a folder from a file; refuse what is neither, and what has files that do not count."""
    place, log = system.get_file_info([path, f"{path.rstrip('/')}/{_SINK_LOG}"])
    if place.type is pyarrow.fs.FileType.NotFound:
        msg = (
            f"{named(source)} does not exist; give a Parquet file or a folder of them, a "
            "Delta or an Iceberg table"
        )
        raise OptionError(msg)
    if log.type is pyarrow.fs.FileType.Directory:
        msg = (
            f"{named(source)} was written by a stream of Spark: only its log, {_SINK_LOG}, tells "
            "which files count, and a batch that was repeated has left others, with the same rows "
            "again. Let Spark read it: build_master(spark.read.parquet(…), …), or let the stream "
            "write a Delta table"
        )
        raise OptionError(msg)
    return place.type is pyarrow.fs.FileType.Directory


def _int96_columns(file: pyarrow.dataset.ParquetFileFragment) -> set[str]:
    """Give the columns with timestamps as Spark, Hive and Impala wrote them for years."""
    leaves = file.metadata.schema
    found = [leaves.column(i) for i in range(len(leaves))]
    paths = {leaf.path for leaf in found if leaf.physical_type == "INT96"}
    return paths | {path.split(".")[0] for path in paths}


def _instant(kind: pa.DataType) -> pa.DataType:
    """Give a type with UTC in its timestamps: an INT96 is an instant, but does not say so."""
    t = pa.types
    if t.is_timestamp(kind):
        return pa.timestamp(kind.unit, kind.tz or "UTC")
    if t.is_list(kind):
        return pa.list_(_instant_field(kind.value_field))
    if t.is_struct(kind):
        return pa.struct([_instant_field(field) for field in kind])
    if t.is_map(kind):
        return pa.map_(_instant_field(kind.key_field), _instant_field(kind.item_field))
    return kind


def _instant_field(field: pa.Field) -> pa.Field:
    return field.with_type(_instant(field.type))


def _unreadable(source: str, error: Exception) -> OptionError:
    reason = without_secrets(str(error))
    return OptionError(f"{named(source)} is not readable as Parquet: {reason}")


def scan(
    fragments: Iterable[pyarrow.dataset.ParquetFileFragment], schema: pa.Schema, memory: int
) -> Iterator[pa.RecordBatch]:
    """Read file by file, batch by batch; a dataset's scanner would decode whole row groups."""
    for fragment in fragments:
        folders = pyarrow.dataset.get_partition_keys(fragment.partition_expression)
        there = fragment.physical_schema.names
        names = None if set(there) <= set(schema.names) else [n for n in schema.names if n in there]
        rows = max(1, min(_fitting(fragment, memory), _MOST_ROWS))
        with fragment.open() as source, pyarrow.parquet.ParquetFile(source, **_OPTIONS) as file:
            # One thread: each would keep memory of its own, and the build waits for the disk.
            for batch in file.iter_batches(rows, columns=names, use_threads=False):
                yield conformed(batch, schema, folders)


def _fitting(fragment: pyarrow.dataset.ParquetFileFragment, memory: int) -> int:
    """Give how many rows make a batch."""
    size = sum(group.total_byte_size for group in fragment.row_groups)
    rows = sum(group.num_rows for group in fragment.row_groups)
    return int(rows * min(memory, _BATCH_BYTES) // max(1, size))
