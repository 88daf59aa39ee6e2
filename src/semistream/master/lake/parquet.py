"""Parquet files, and folders of them; versions differ by their files."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet

from semistream.errors import OptionError
from semistream.master.lake.table import Feed, LakeTable, Scope, conform, project
from semistream.master.place import locate, show_source, without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["ParquetFiles", "scan"]

_BATCH_BYTES = 8 << 20  # larger batches save no time, and are copied when they are encoded
_MOST_ROWS = 1 << 16  # of narrow rows
# What Spark has. Arrow would take nanoseconds, which begin in 1677 and end in 2262: 9999-12-31, the
# end of many a dimension, would become a day in 1816 without a word.
_INT96 = {"coerce_int96_timestamp_unit": "us"}
_OPTIONS: dict[str, Any] = {"pre_buffer": False, "buffer_size": 1 << 16, **_INT96}
_SINK_LOG = "_spark_metadata"
_SPARK_NOTE = b"org.apache.spark.sql.parquet.row.metadata"
_DAY_TIME = re.compile("interval (day|hour|minute|second)")


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
        system, path = locate(source)
        # Of a file alone, folders named like hive partitions above it are not columns.
        hive = "hive" if _is_folder(source, system, path) else None
        kind = pyarrow.dataset.ParquetFileFormat(**_INT96)
        try:
            files = pyarrow.dataset.dataset(path, filesystem=system, format=kind, partitioning=hive)
        except pa.ArrowInvalid as error:
            raise _unreadable(source, error) from error
        if not files.files:
            msg = f"{show_source(source)} holds no Parquet file"
            raise OptionError(msg)
        uri = source if "://" in source else str(Path(source).absolute())
        return cls(uri, files, columns)

    @property
    def schema(self) -> pa.Schema:
        """The columns that are read, with the types that their writer meant."""
        return project(self._every, self.columns)

    @cached_property
    def _every(self) -> pa.Schema:
        # The columns are those of the first file, as the dataset has found them.
        meant = _as_written(next(self.dataset.get_fragments()))
        return pa.schema([meant.get(field.name, field) for field in self.dataset.schema])

    @cached_property
    def files(self) -> dict[str, list[int]]:
        """The size and the time of the last change of each file, in nanoseconds."""
        infos = self.dataset.filesystem.get_file_info(self.dataset.files)
        return {info.path: [info.size, info.mtime_ns] for info in infos}

    @property
    def note(self) -> dict[str, Any]:
        """Its entry in a manifest."""
        uri = without_secrets(self.uri)
        return {"kind": self.kind, "uri": uri, "version": None, "files": self.files}

    def count(self) -> int | None:
        """Return how many rows the files say they have."""
        try:
            return int(self.dataset.count_rows())
        except pa.ArrowInvalid as error:
            raise _unreadable(self.uri, error) from error

    def batches(self, memory: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows, file by file."""
        return scan(self.dataset.get_fragments(), self.schema, memory)

    def is_newer(self, since: Mapping[str, Any]) -> bool:
        """Return whether a file came, went or changed."""
        return bool(self.files != since["files"])

    def feeds(self, since: Mapping[str, Any], memory: int) -> Iterator[Feed]:
        """Yield the rows of new files; all, if a file is gone, for then so are the rows it had."""
        old = since["files"]
        if all(self.files.get(path) == facts for path, facts in old.items()):
            new = [f for f in self.dataset.get_fragments() if f.path not in old]
            came = lambda: ((1, batch) for batch in scan(new, self.schema, memory))  # noqa: E731
            yield Feed("files", Scope.ROWS, came)
        yield self.all_rows(memory)


def _is_folder(source: str, system: pyarrow.fs.FileSystem, path: str) -> bool:
    """Return whether this is a folder; refuse what is missing, or has files that do not count."""
    place, log = system.get_file_info([path, f"{path.rstrip('/')}/{_SINK_LOG}"])
    if place.type is pyarrow.fs.FileType.NotFound:
        msg = (
            f"{show_source(source)} does not exist; give a Parquet file or a folder of them, a "
            "Delta or an Iceberg table"
        )
        raise OptionError(msg)
    if log.type is pyarrow.fs.FileType.Directory:
        msg = (
            f"{show_source(source)} was written by a stream of Spark: only its log, {_SINK_LOG}, "
            "tells which files count, and a batch that was repeated has left others, with the same "
            "rows again. Let Spark read it: build_master(spark.read.parquet(…), …), or let the "
            "stream write a Delta table"
        )
        raise OptionError(msg)
    return place.type is pyarrow.fs.FileType.Directory


def _as_written(file: pyarrow.dataset.ParquetFileFragment) -> dict[str, pa.Field]:
    """Return the columns of a file with the types that their writer meant, by name.

    An INT96, as Spark, Hive and Impala have written timestamps for years, is an instant, but does
    not say so. Spark's intervals are numbers, and only its note in the footer tells.
    """
    schema, noted = file.metadata.schema, _noted_types(file.metadata.metadata or {})
    # By position: a path does not tell a dot in a name from a step down.
    stored = iter([schema.column(i).physical_type for i in range(len(schema))])
    fields = {}
    for field in file.physical_schema:
        count = _leaf_count(field.type)
        notes = list(_noted_leaves(noted.get(field.name)))
        notes = notes if len(notes) == count else [""] * count
        pairs = zip(islice(stored, count), notes, strict=False)
        fields[field.name] = _meant_field(field, pairs)
    return fields


def _leaf_count(kind: pa.DataType) -> int:
    """Return how many columns of Parquet's a type has."""
    if isinstance(kind, pa.BaseExtensionType):
        return _leaf_count(kind.storage_type)
    return sum(_leaf_count(kind.field(i).type) for i in range(kind.num_fields)) or 1


def _noted_types(footer: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Return the types of columns as Spark has noted them, if it has."""
    try:
        return {f["name"]: f["type"] for f in json.loads(footer[_SPARK_NOTE])["fields"]}
    except (KeyError, TypeError, ValueError):
        return {}


def _noted_leaves(noted: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Yield the leaf types of a type of Spark's, in Parquet's order."""
    if not isinstance(noted, dict):
        yield str(noted)
        return
    inner = [noted.get(name) for name in ("keyType", "valueType", "elementType", "sqlType")]
    for kind in [*(f["type"] for f in noted.get("fields", ())), *filter(None, inner)]:
        yield from _noted_leaves(kind)


def _meant(kind: pa.DataType, leaves: Iterator[tuple[str, str]]) -> pa.DataType:
    """Return a type corrected by its leaves: types as stored, and as Spark has noted."""
    t = pa.types
    if t.is_struct(kind):
        return pa.struct([_meant_field(field, leaves) for field in kind])
    if t.is_map(kind):
        key, item = (_meant_field(f, leaves) for f in (kind.key_field, kind.item_field))
        return pa.map_(key, item, kind.keys_sorted)
    if t.is_list(kind):
        return pa.list_(_meant_field(kind.value_field, leaves))
    if t.is_large_list(kind):
        return pa.large_list(_meant_field(kind.value_field, leaves))
    if t.is_fixed_size_list(kind):
        return pa.list_(_meant_field(kind.value_field, leaves), kind.list_size)
    stored, noted = next(leaves, ("", ""))
    if stored == "INT96" and t.is_timestamp(kind):
        return pa.timestamp(kind.unit, kind.tz or "UTC")
    is_time = kind == pa.int64() and _DAY_TIME.match(noted)
    return pa.duration("us") if is_time else kind


def _meant_field(field: pa.Field, leaves: Iterator[tuple[str, str]]) -> pa.Field:
    return field.with_type(_meant(field.type, leaves))


def _unreadable(source: str, error: Exception) -> OptionError:
    reason = without_secrets(str(error))
    return OptionError(f"{show_source(source)} is not readable as Parquet: {reason}")


def scan(
    fragments: Iterable[pyarrow.dataset.ParquetFileFragment], schema: pa.Schema, memory: int
) -> Iterator[pa.RecordBatch]:
    """Read file by file, batch by batch; a dataset's scanner would decode whole row groups."""
    for fragment in fragments:
        folders = pyarrow.dataset.get_partition_keys(fragment.partition_expression)
        there = fragment.physical_schema.names
        names = None if set(there) <= set(schema.names) else [n for n in schema.names if n in there]
        size = sum(group.total_byte_size for group in fragment.row_groups)
        count = sum(group.num_rows for group in fragment.row_groups)
        fitting = int(count * min(memory, _BATCH_BYTES) // max(1, size))
        rows = max(1, min(fitting, _MOST_ROWS))
        with fragment.open() as source, pyarrow.parquet.ParquetFile(source, **_OPTIONS) as file:
            # One thread: each would keep memory of its own, and the build waits for the disk.
            for batch in file.iter_batches(rows, columns=names, use_threads=False):
                yield conform(batch, schema, folders)
