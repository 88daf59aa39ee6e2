"""What Java must know to read a snapshot: its files, and where in them is what."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pyarrow as pa

from semistream.arrow.page_directory import layout
from semistream.arrow.types import plain_type
from semistream.master.files.drafts import ReadFile
from semistream.spark.types import transfer_type, type_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semistream.master import FileMaster, Master

__all__ = ["describe_snapshot", "directory_bytes", "why_unreadable"]

_WIDE = {pa.large_string(), pa.large_binary()}
_TEXTS = {pa.string(), pa.binary()} | _WIDE
_NUMBERS = {pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()}
_UNSIGNED = {pa.uint8(), pa.uint16(), pa.uint32()}
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 0, "ns": -1_000}
"""What a number of each unit is multiplied with to be microseconds; if negative, divided by."""
_INDEX = ("code", "offset", "length", "rows", "checksum")
_LARGEST = 1 << 29  # bytes of a page: offsets within it fit in Java's int
_OBJECT = 16  # bytes of a Java array beside its items
_REFERENCE = 8  # bytes of a reference without compression


def why_unreadable(master: FileMaster, select: Sequence[str]) -> str:
    """Return why Java cannot read these columns of a master, or its keys; empty if it can."""
    if len(master.key) > 1:
        return "the key has several columns"
    if not _has_integer_key(master) and master.keys.types[0] not in {pa.string(), pa.binary()}:
        kind = master.schema.field(master.key[0]).type
        return f"keys of type {type_name(kind)} are compared in Python"
    if master.statistics.parts != master.pages or master.statistics.largest_part > _LARGEST:
        return "pages are too large"
    if not str(master.path.absolute()).isascii():
        return "Java may not find a path with letters that are not ASCII"
    for field in (master.schema.field(name) for name in select):
        if not _is_readable(field):
            return (
                f"the column {field.name!r} of type {type_name(field.type)} is converted in Python"
            )
    return ""


def _has_integer_key(master: Master) -> bool:
    """Return whether a code is the key, a signed number."""
    return master.keys.exact and master.keys.types[0] == pa.int64()


def _compared_key(master: Master) -> tuple[str, ...]:
    """Return the column of the key, where codes do not tell keys apart."""
    return () if _has_integer_key(master) else master.key


def _is_readable(field: pa.Field) -> bool:
    """Return whether Java makes of a column's values what Spark's getters return."""
    kind, t = plain_type(field.type), pa.types
    if t.is_decimal128(kind):
        return bool(kind == transfer_type(field))
    return kind in _TEXTS | _NUMBERS | _UNSIGNED or t.is_timestamp(kind) or t.is_date32(kind)


def _conversion(kind: pa.DataType) -> int:
    """Return how Java converts values: see `Columns.java`."""
    if pa.types.is_timestamp(kind):
        return _MICROSECONDS[kind.unit]
    return int(kind in _UNSIGNED)


def describe_snapshot(master: FileMaster, select: Sequence[str]) -> str:
    """Return the text that `Description.java` parses; the index was verified."""
    key = _compared_key(master)
    columns, buffers = layout(master.page_schema, [*select, *key])
    manifest, index = master.manifest, ReadFile(master.path / master.manifest.name("index"))
    content = index.mapped()
    lines = pa.ipc.open_file(content).get_batch(0)
    description = {
        "pages": str(master.pages_file.path.absolute()),
        "pages_bytes": manifest.pages_bytes,
        "page_count": master.pages,
        "largest_page": master.statistics.largest_part,
        "index": str(index.path.absolute()),
        "index_bytes": index.size,
        "index_checksum": manifest.index_checksum,
        # Where the columns of the index begin in its file.
        **{n: lines.column(n).buffers()[1].address - content.address for n in _INDEX},
        "buffers": buffers,
        "fields": len(select),
        "key": len(select) if key else -1,
        "seed": master.keys.seed_words.view("<i8").tolist(),
        "validity": [column.lines.start for column in columns],
        "values": [column.lines.start + 1 for column in columns],
        "bytes": [column.lines.stop - 1 for column in columns],
        "converted": [_conversion(column.kind) for column in columns],
        "wide": [int(column.kind in _WIDE) for column in columns],
        "bits": [0 if column.kind in _TEXTS else column.kind.bit_width for column in columns],
    }
    texts = {
        name: ",".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in description.items()
    }
    return urlencode(texts)


def directory_bytes(master: Master, select: Sequence[str]) -> int:
    """Return the most bytes that Java holds of a snapshot: of each page, where its parts are."""
    numbers = 2 + len(layout(master.page_schema, [*select, *_compared_key(master)])[1])
    return master.pages * (8 + 8 + _REFERENCE + _OBJECT + 4 * numbers)
