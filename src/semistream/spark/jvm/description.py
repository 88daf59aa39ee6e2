"""What Java must know to read a snapshot: its files, and where in them is what."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pyarrow as pa

from semistream.arrow.page_directory import layout
from semistream.arrow.types import plain_type
from semistream.master.files.drafts import ReadFile
from semistream.spark.types import transferred, type_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semistream.master import FileMaster, Master

__all__ = ["described", "known_bytes", "unreadable"]

_WIDE = {pa.large_string(), pa.large_binary()}
_TEXTS = {pa.string(), pa.binary()} | _WIDE
_NUMBERS = {pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()}
_UNSIGNED = {pa.uint8(), pa.uint16(), pa.uint32()}
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 0, "ns": -1_000}
"""What a number of each unit is multiplied with to be microseconds; if negative, divided by."""
_INDEX = ("code", "offset", "length", "rows", "checksum")
_LARGEST = 1 << 29  # bytes of a page
_OBJECT = 16  # bytes of a Java array beside its items
_REFERENCE = 8


def unreadable(master: FileMaster, select: Sequence[str]) -> str:
    """Say why Java does not read these columns of a master, or find keys; nothing if it does."""
    if len(master.key) > 1:
        return "the key has several columns"
    if not _is_whole(master) and master.keys.types[0] not in {pa.string(), pa.binary()}:
        kind = master.schema.field(master.key[0]).type
        return f"keys of type {type_name(kind)} are compared in Python"
    if master.statistics.parts != master.pages or master.statistics.largest_part > _LARGEST:
        return "pages are too large"
    if not str(master.path.absolute()).isascii():
        return "Java may not find a path with letters that are not ASCII"
    for name in select:
        kind = master.schema.field(name).type
        if not _is_readable(master.schema.field(name)):
            return f"the column {name!r} of type {type_name(kind)} is converted in Python"
    return ""


def _is_whole(master: Master) -> bool:
    """Whether a code is the key, a signed number."""
    return master.keys.exact and master.keys.types[0] == pa.int64()


def _compared(master: Master) -> tuple[str, ...]:
    """Give the column of the key, where codes do not tell keys apart."""
    return () if _is_whole(master) else master.key


def _is_readable(field: pa.Field) -> bool:
    """Whether Java makes of a page's values of a column what Spark's getters are to give."""
    kind, t = plain_type(field.type), pa.types
    if t.is_decimal128(kind):
        return bool(kind == transferred(field))
    return kind in _TEXTS | _NUMBERS | _UNSIGNED or t.is_timestamp(kind) or t.is_date32(kind)


def _conversion(kind: pa.DataType) -> int:
    """Give what Java makes of values: see `Columns.java`."""
    if pa.types.is_timestamp(kind):
        return _MICROSECONDS[kind.unit]
    return int(kind in _UNSIGNED)


def described(master: FileMaster, select: Sequence[str]) -> str:
    """Give the description that `Description.java` takes apart; the index was verified."""
    key = _compared(master)
    columns, buffers = layout(master.page_schema, [*select, *key])
    manifest, index = master.manifest, ReadFile(master.path / master.manifest.name("index"))
    told = {
        "pages": str(master.pages_file.path.absolute()),
        "pages_bytes": manifest.pages_bytes,
        "page_count": master.pages,
        "largest_page": master.statistics.largest_part,
        "index": str(index.path.absolute()),
        "index_bytes": index.size,
        "index_checksum": manifest.index_checksum,
        **_index_columns(index.mapped()),
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
    return urlencode({name: _text(value) for name, value in told.items()})


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _index_columns(content: pa.Buffer) -> dict[str, int]:
    """Give where the columns of an index begin in its file."""
    batch = pa.ipc.open_file(content).get_batch(0)
    return {name: batch.column(name).buffers()[1].address - content.address for name in _INDEX}


def known_bytes(master: Master, select: Sequence[str]) -> int:
    """Give the most bytes that Java holds of a snapshot: of each page, where its parts are."""
    numbers = 2 + len(layout(master.page_schema, [*select, *_compared(master)])[1])
    return master.pages * (8 + 8 + _REFERENCE + _OBJECT + 4 * numbers)
