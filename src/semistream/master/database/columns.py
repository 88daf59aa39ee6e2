"""Columns of a database's table: names, types, and decoding from the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.arrow.types import row_width
from semistream.errors import StoreError
from semistream.kernels.wire import (
    copy_bytes,
    copy_reversed,
    locate_lenenc,
    locate_lengths,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Places = npt.NDArray[np.int32]
    Bytes = npt.NDArray[np.uint8]

__all__ = ["Column", "decode_rows"]

_EPOCH_DAYS = 10_957  # from 1970 to 2000, PostgreSQL's epoch
_EPOCH_MICROSECONDS = _EPOCH_DAYS * 86_400 * 10**6
# PostgreSQL's infinity becomes the last moment that all of Arrow, Spark and Python have.
_LAST_DAY, _FIRST_DAY = 2_932_896, -719_162
_DAY = 86_400 * 10**6


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    kind: pa.DataType
    """Its Arrow type."""
    sql: str
    """The expression that is selected; ``{}`` stands for the quoted name."""
    declared: str
    """Its type in the database."""
    text: bool
    """Whether it travels as text."""
    full: str = ""
    """The same with length, sign and collation, where keys are sent in it."""

    @property
    def padded(self) -> bool:
        """Whether PostgreSQL pads its values with blanks in notifications: char(n)."""
        return self.declared == "bpchar"


def decode_rows(
    data: bytes, rows: int, kinds: Sequence[pa.DataType], texts: Sequence[bool], lenenc: bool
) -> list[pa.Array]:
    """Decode rows that lie one behind the other into columns.

    ``lenenc``: values have MySQL's lengths of one to nine bytes; else PostgreSQL's of four.
    """
    raw = np.frombuffer(data, dtype=np.uint8)
    starts, lengths = (np.empty((len(kinds), rows), dtype=np.int32) for _ in range(2))
    count = (locate_lenenc if lenenc else locate_lengths)(raw, starts, lengths)
    if count != rows:
        msg = (
            f"{rows} rows were announced, and row {count if count >= 0 else -1 - count} is not as "
            "the table was when it was opened: open the master again"
        )
        raise StoreError(msg)
    columns = zip(starts, lengths, kinds, texts, strict=True)
    return [_text(raw, *c[:3]) if c[3] else _number(raw, *c[:3]) for c in columns]


def _validity(lengths: Places) -> pa.Buffer | None:
    if (lengths >= 0).all():
        return None
    return pa.py_buffer(np.packbits(lengths >= 0, bitorder="little"))


def _text(raw: Bytes, starts: Places, lengths: Places, kind: pa.DataType) -> pa.Array:
    ends = np.zeros(len(starts) + 1, dtype=np.int32)
    out = np.empty(int(np.maximum(lengths, 0).sum()), dtype=np.uint8)
    copy_bytes(raw, starts, lengths, ends, out)
    as_is = kind if kind in {pa.string(), pa.binary()} else pa.string()
    buffers = [_validity(lengths), pa.py_buffer(ends), pa.py_buffer(out)]
    texts = pa.Array.from_buffers(as_is, len(starts), buffers)
    if texts.type == kind:
        return texts
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):  # MySQL's zero is no date
        texts = pc.if_else(pc.starts_with(texts, "0000-00-00"), pa.scalar(None, pa.string()), texts)
    if pa.types.is_timestamp(kind) and kind.tz:
        return texts.cast(pa.timestamp(kind.unit)).cast(kind)
    if pa.types.is_floating(kind) and kind != pa.float64():
        return texts.cast(pa.float64()).cast(kind)
    return texts.cast(kind)


def _number(raw: Bytes, starts: Places, lengths: Places, kind: pa.DataType) -> pa.Array:
    if kind == pa.bool_():
        flags = np.zeros(len(starts), dtype=np.uint8)
        copy_reversed(raw, starts, lengths, 1, flags)
        return pa.array(flags.view(np.bool_), mask=lengths < 0)
    width = row_width(kind) or 0
    out = np.zeros(len(starts) * width, dtype=np.uint8)
    wrong = copy_reversed(raw, starts, lengths, width, out)
    if wrong >= 0:
        msg = (
            f"a value of {int(lengths[wrong])} bytes came where the table had {kind} when it was "
            "opened: it was altered meanwhile; open the master again"
        )
        raise StoreError(msg)
    if pa.types.is_date(kind):
        _shift(out.view(np.int32), _EPOCH_DAYS, _FIRST_DAY, _LAST_DAY)
    elif pa.types.is_timestamp(kind):
        last = _LAST_DAY * _DAY + _DAY - 1
        _shift(out.view(np.int64), _EPOCH_MICROSECONDS, _FIRST_DAY * _DAY, last)
    return pa.Array.from_buffers(kind, len(starts), [_validity(lengths), pa.py_buffer(out)])


def _shift(values: npt.NDArray[np.signedinteger], epoch: int, first: int, last: int) -> None:
    """Count from 1970, in place; an infinity becomes the first or last moment."""
    limits = np.iinfo(values.dtype)
    early, late = values == limits.min, values == limits.max
    values += np.where(early | late, 0, epoch).astype(values.dtype)
    values[early], values[late] = first, last
