"""Changes and the rows that they change: both sorted by code, in blocks of whole join values.

A block has the columns of a page and a weight: 1 for a row that comes, −1 for one that goes, 0 for
a key that goes with all its rows. Rows are equal if all values are, bit by bit: a zero that became
negative is another value, a NaN is itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.arrow.keys import is_among
from semistream.arrow.types import buffer, items_of
from semistream.errors import MasterError
from semistream.master.lake.table import Scope
from semistream.master.protocol import CODE
from semistream.names import unused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

__all__ = ["Merged", "MisfitError", "add_weight", "cancel", "merge", "row_ids", "whole_values"]

_WORDS = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}


class MisfitError(MasterError):
    """Changes take rows away that are not there."""


@dataclass(frozen=True)
class Merged:
    """The outcome of a merge."""

    rows: pa.RecordBatch
    changed: npt.NDArray[np.int64]
    """The codes whose rows are not those that were there, sorted."""
    upserted: int = 0
    """Rows that were not there."""
    deleted: int = 0
    """Rows of join values that have none any more."""


def add_weight(rows: pa.RecordBatch, weight: int) -> pa.RecordBatch:
    """Return rows of a page as changes: with their weight in a last column."""
    field = pa.field(unused("__weight", rows.schema.names), pa.int8())
    return rows.append_column(field, pa.array(np.full(rows.num_rows, weight, dtype=np.int8)))


def whole_values(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut sorted rows anew, so that all rows of a code are in one batch."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        codes = _codes(batch)
        if not len(codes):
            continue
        cut = int(np.searchsorted(codes, codes[-1]))
        if cut or (held and _codes(held[-1])[-1] != codes[-1]):
            head = [*held, batch.slice(0, cut)]
            yield pa.concat_batches(head) if len(head) > 1 else head[0]
            held.clear()
        held.append(batch.slice(cut))
    if held:
        yield pa.concat_batches(held)


def cancel(block: pa.RecordBatch) -> pa.RecordBatch:
    """Leave out rows that come as often as they go."""
    new, weights = _split_weights(block)
    ids = row_ids(new)
    left = _sums(ids, weights)
    mine = np.flatnonzero(np.sign(weights) == np.sign(left[ids]))
    return block.take(pa.array(mine[_rank(ids[mine]) < np.abs(left)[ids[mine]]]))


def merge(
    old: pa.RecordBatch, block: pa.RecordBatch, scope: Scope, keys: tuple[str, ...] = ()
) -> Merged:
    """Apply a block of changes to the old rows of its range of codes.

    ``keys`` are the columns that make a key, where its code alone does not.
    """
    every = np.arange(old.num_rows)
    near = every if scope is Scope.ALL else every[is_among(_codes(old), _codes(block))]
    new, weights = _split_weights(block)
    if not len(near) and (weights >= 0).all():
        new = new.take(pa.array(np.flatnonzero(weights)))
        rows = pa.concat_batches([old, new])
        rows = _in_order(rows, np.arange(rows.num_rows)) if old.num_rows else new
        return Merged(rows, np.unique(_codes(new)), new.num_rows)
    both = pa.concat_batches([old.take(pa.array(near)), new])
    ids, count = row_ids(both), len(near)
    stays = _stays(both, count, scope, keys)
    wanted = _sums(ids, np.append(stays, weights))
    if (wanted < 0).any():
        msg = "the changes take rows away that are not there; build the master again"
        raise MisfitError(msg)
    had = np.bincount(ids[:count], minlength=len(wanted))
    # Of equal rows the old ones stay first, so that what does not change does not move.
    order = np.flatnonzero(np.append(np.ones(count, dtype=np.bool_), weights > 0))
    kept = order[_rank(ids[order]) < wanted[ids[order]]]
    chosen = np.append(near[kept[kept < count]], old.num_rows + kept[kept >= count] - count)
    codes = _codes(both)
    return Merged(
        _in_order(pa.concat_batches([old, new]), np.append(np.delete(every, near), chosen)),
        np.unique(codes[(wanted != had)[ids]]),
        int(np.maximum(wanted - had, 0).sum()),
        int((~np.isin(codes[:count], codes[kept])).sum()),
    )


def _stays(
    both: pa.RecordBatch, count: int, scope: Scope, keys: tuple[str, ...]
) -> npt.NDArray[np.int64]:
    """Return 1 for each old row that no block of this scope replaces, else 0."""
    if scope is Scope.ROWS:
        return np.ones(count, dtype=np.int64)
    if scope is Scope.ALL or not keys:
        return np.zeros(count, dtype=np.int64)
    ids = row_ids(both, [CODE, *keys])  # two keys may have one code
    return (~np.isin(ids[:count], ids[count:])).astype(np.int64)


def _codes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    return np.asarray(rows.column(0).to_numpy())


def _split_weights(block: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    last = block.num_columns - 1
    return block.remove_column(last), np.asarray(block.column(last).to_numpy()).astype(np.int64)


def _sums(ids: npt.NDArray[np.int64], weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.bincount(ids, weights).astype(np.int64)


def _rank(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return for each number how many equal ones stand before it."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    rank = np.empty(len(ids), dtype=np.int64)
    rank[order] = np.arange(len(ids)) - np.searchsorted(ordered, ordered)
    return rank


def _in_order(rows: pa.RecordBatch, chosen: npt.NDArray[np.int64]) -> pa.RecordBatch:
    order = np.argsort(_codes(rows)[chosen], kind="stable")
    return rows.take(pa.array(chosen[order]))


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
