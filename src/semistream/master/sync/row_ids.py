"""Numbers of rows, equal where rows are equal, exactly and for every type that pages hold.

Values are compared bit by bit: a zero that became negative is another value, a NaN is itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.arrow.types import buffer, items_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

__all__ = ["row_ids"]

_WORDS = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}


def row_ids(rows: pa.RecordBatch, columns: Iterable[str] | None = None) -> npt.NDArray[np.int64]:
    """Assign numbers to rows by their values in ``columns`` (all of them by default).

    Examples
    --------
    >>> rows = pa.record_batch({"id": [7, 8, 7], "tags": [["a"], None, ["a"]]})
    >>> row_ids(rows).tolist()
    [0, 1, 0]
    """
    ids = np.zeros(rows.num_rows, dtype=np.int64)
    for name in rows.schema.names if columns is None else columns:
        ids = _number_pairs(ids, _ids(rows.column(name)))
    return ids


def _number_pairs(
    one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Assign numbers to pairs of numbers, which are small: no product overflows."""
    pairs = one * (other.max(initial=0) + 1) + other
    return np.unique(pairs, return_inverse=True)[1].astype(np.int64)


def _ids(array: pa.Array) -> npt.NDArray[np.int64]:
    """Assign numbers to the values of an array, null being one of them."""
    t, kind = pa.types, array.type
    if t.is_null(kind):
        return np.zeros(len(array), dtype=np.int64)
    if t.is_union(kind):
        return _union_ids(array)
    if t.is_struct(kind):
        ids = _valid(array)
        for number in range(kind.num_fields):
            ids = _number_pairs(ids, _ids(array.field(number)))
        return np.where(_valid(array) == 0, 0, ids + 1)
    if t.is_nested(kind):
        return _ids(_packed(array))
    if t.is_floating(kind):
        array = array.view(_WORDS[kind.bit_width])
    encoded = array.dictionary_encode().indices
    # Where a value is null its number is not set.
    return np.where(_valid(array) == 0, 0, buffer(encoded, 1, np.int32) + np.int64(1))


def _valid(array: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False)).astype(np.int64)


def _packed(array: pa.Array) -> pa.Array:
    """Encode lists and maps as bytes: the numbers of their items, one after the other."""
    bounds, items = items_of(array)
    offsets = pa.array(bounds * 8, pa.int64()).buffers()[1]
    numbers = pa.py_buffer(np.ascontiguousarray(_ids(items)))
    packed = pa.Array.from_buffers(pa.large_binary(), len(array), [None, offsets, numbers])
    return pc.if_else(array.is_valid(), packed, pa.scalar(None, pa.large_binary()))


def _union_ids(array: pa.Array) -> npt.NDArray[np.int64]:
    types = buffer(array, 1, np.int8)
    ids = types.astype(np.int64) + 1
    for number, code in enumerate(array.type.type_codes):
        child = _ids(array.field(number))
        ids = _number_pairs(ids, np.where(types == code, child + 1, 0))
    return ids
