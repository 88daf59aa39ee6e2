"""Changes and the rows that they change: both sorted by code, in blocks of whole join values.

A block has the columns of a page and a weight: 1 for a row that comes, −1 for one that goes, 0 for
a key that goes with all its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.arrow.keys import is_among
from semistream.errors import MasterError
from semistream.master.lake.table import Scope
from semistream.master.protocol import CODE
from semistream.master.sync.identity import row_ids
from semistream.names import unused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

__all__ = ["Merged", "MisfitError", "merged", "net", "weighted", "whole_values"]


class MisfitError(MasterError):
    """Changes take rows away that are not there."""


@dataclass(frozen=True)
class Merged:
    """What became of some rows."""

    rows: pa.RecordBatch
    changed: npt.NDArray[np.int64]
    """The codes whose rows are not those that were there, sorted."""
    upserted: int = 0
    """Rows that were not there."""
    deleted: int = 0
    """Rows of join values that have none any more."""


def weighted(rows: pa.RecordBatch, weight: int) -> pa.RecordBatch:
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


def net(block: pa.RecordBatch) -> pa.RecordBatch:
    """Leave out rows that come as often as they go."""
    weights, ids = _weights(block), row_ids(_unweighted(block))
    left = _sums(ids, weights)
    mine = np.flatnonzero(np.sign(weights) == np.sign(left[ids]))
    return block.take(pa.array(mine[_rank(ids[mine]) < np.abs(left)[ids[mine]]]))


def merged(
    old: pa.RecordBatch, block: pa.RecordBatch, scope: Scope, keys: tuple[str, ...] = ()
) -> Merged:
    """Apply a block of changes to the old rows of its range of codes.

    ``keys`` are the columns that make a key, where its code alone does not.
    """
    every = np.arange(old.num_rows)
    near = every if scope is Scope.ALL else every[is_among(_codes(old), _codes(block))]
    weights, new = _weights(block), _unweighted(block)
    if not len(near) and (weights >= 0).all():
        return _added(old, new.take(pa.array(np.flatnonzero(weights))))
    both = pa.concat_batches([old.take(pa.array(near)), new])
    ids, count = row_ids(both), len(near)
    stays = _stays(both, count, scope, keys)
    wanted = _sums(ids, np.append(stays, weights))
    if (wanted < 0).any():
        msg = "the changes take rows away that are not there; build the master again"
        raise MisfitError(msg)
    had = np.bincount(ids[:count], minlength=len(wanted))
    # Of equal rows the old ones stay first, so that what does not change does not move.
    there = np.append(np.ones(count, dtype=np.bool_), weights > 0)
    order = np.flatnonzero(there)
    kept = order[_rank(ids[order]) < wanted[ids[order]]]
    chosen = np.append(near[kept[kept < count]], old.num_rows + kept[kept >= count] - count)
    far = np.delete(every, near)
    codes = _codes(both)
    gone = ~np.isin(codes[:count], codes[kept])
    return Merged(
        _in_order(pa.concat_batches([old, new]), np.append(far, chosen)),
        np.unique(codes[(wanted != had)[ids]]),
        int(np.maximum(wanted - had, 0).sum()),
        int(gone.sum()),
    )


def _added(old: pa.RecordBatch, new: pa.RecordBatch) -> Merged:
    rows = pa.concat_batches([old, new])
    rows = _in_order(rows, np.arange(rows.num_rows)) if old.num_rows else new
    return Merged(rows, np.unique(_codes(new)), new.num_rows)


def _stays(
    both: pa.RecordBatch, count: int, scope: Scope, keys: tuple[str, ...]
) -> npt.NDArray[np.int64]:
    """Give 1 for each old row that no block of this scope replaces."""
    if scope is Scope.ROWS:
        return np.ones(count, dtype=np.int64)
    if scope is Scope.ALL or not keys:
        return np.zeros(count, dtype=np.int64)
    ids = row_ids(both, [CODE, *keys])  # two keys may have one code
    return (~np.isin(ids[:count], ids[count:])).astype(np.int64)


def _codes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    return np.asarray(rows.column(0).to_numpy())


def _weights(block: pa.RecordBatch) -> npt.NDArray[np.int64]:
    return np.asarray(block.column(block.num_columns - 1).to_numpy()).astype(np.int64)


def _unweighted(block: pa.RecordBatch) -> pa.RecordBatch:
    return block.remove_column(block.num_columns - 1)


def _sums(ids: npt.NDArray[np.int64], weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.bincount(ids, weights).astype(np.int64)


def _rank(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Give for each number how many equal ones stand before it."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    rank = np.empty(len(ids), dtype=np.int64)
    rank[order] = np.arange(len(ids)) - np.searchsorted(ordered, ordered)
    return rank


def _in_order(rows: pa.RecordBatch, chosen: npt.NDArray[np.int64]) -> pa.RecordBatch:
    order = np.argsort(_codes(rows)[chosen], kind="stable")
    return rows.take(pa.array(chosen[order]))
