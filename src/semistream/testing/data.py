"""Seeded data of the cases: tables and batches from key columns."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.workloads import Zipf

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Columns = Mapping[str, pa.Array]

__all__ = ["batches", "fixed", "master_of", "pick", "stream_of", "text", "with_nulls"]


def fixed(rows: int, width: int, seed: int = 0) -> pa.Array:
    """Return random byte strings of one width."""
    data = np.random.default_rng(seed).bytes(rows * width)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(data)])


def text(rows: int, longest: int, seed: int = 0) -> pa.Array:
    """Return strings of 0 to ``longest`` characters, some of them null."""
    rng = np.random.default_rng(seed)
    letters = "abcdefghijklmnopqrstuvwxyz" * (longest // 26 + 2)
    starts, lengths = rng.integers(0, 26, rows), rng.integers(-1, longest + 1, rows)
    pairs = zip(starts.tolist(), lengths.tolist(), strict=True)
    return pa.array([letters[s : s + n] if n >= 0 else None for s, n in pairs], pa.string())


def with_nulls(array: pa.Array, every: int) -> pa.Array:
    """Return the array with a null in every so many places."""
    rows = pa.array(np.arange(len(array)))
    return array.take(pa.array(rows.to_numpy(), mask=rows.to_numpy() % every == every // 2))


def pick(values: pa.Array, rows: int, exponent: float = 1.0, seed: int = 1) -> pa.Array:
    """Draw from some values by Zipf's law."""
    drawn = Zipf(max(1, len(values)), exponent).sample(rows, np.random.default_rng(seed))
    return values.take(pa.array(drawn))


def master_of(keys: Columns, seed: int = 2) -> pa.Table:
    """Return a master with these keys: rows in no order, and about 100 bytes of payload each."""
    rows = len(next(iter(keys.values())))
    order = pa.array(np.random.default_rng(seed).permutation(rows))
    payload = {
        "surrogate": pa.array(np.arange(rows)),
        "label": text(rows, 20, seed),
        "description": fixed(rows, 64, seed),
    }
    return pa.table({**{name: keys[name].take(order) for name in keys}, **payload})


def stream_of(
    keys: Columns, sizes: Iterable[int] = (), seed: int = 3
) -> tuple[pa.RecordBatch, ...]:
    """Return a stream with these keys, cut into batches of these sizes."""
    rows = len(next(iter(keys.values())))
    filler = fixed(rows, 90, seed)
    table = {"sale": pa.array(np.arange(rows)), **keys, "filler": filler}
    return batches(pa.record_batch(table), sizes)


def batches(rows: pa.RecordBatch, sizes: Iterable[int] = ()) -> tuple[pa.RecordBatch, ...]:
    """Cut rows into batches of these sizes, by default uneven ones; the rest is the last."""
    uneven = np.random.default_rng(4).integers(1, 300, rows.num_rows // 120 + 1)
    bounds = np.cumsum([0, *(list(sizes) or uneven.tolist())])
    bounds = np.append(bounds[bounds < rows.num_rows], rows.num_rows)
    return tuple(rows.slice(a, b - a) for a, b in pairwise(bounds))
