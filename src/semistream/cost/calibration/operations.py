"""What operations on rows cost: each measured by itself, with the join's own code."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.arrow.gather import OutputColumns
from semistream.arrow.memory import take_rows
from semistream.cost.calibration.least_squares import non_negative
from semistream.cost.unit_costs import Curve, RowCost
from semistream.engine.cache import Cache
from semistream.engine.window import Chunk, Window
from semistream.engine.window import RowCost as WindowCost
from semistream.kernels.chains import GONE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from semistream.master import FileMaster

__all__ = [
    "append_and_expire",
    "far_curve",
    "give_out",
    "median_seconds",
    "output_cost",
    "plain_rows",
    "plain_shape",
    "probe_cost",
    "take_in_cost",
    "window_seconds",
]

_ROWS = 1 << 15
_SHAPES = ((1, 8), (3, 24), (3, 256), (10, 80), (6, 120), (3, 1000))
"""Columns and bytes of the rows that are tried."""
_PAGE_ROWS, _PAIRS = 1024, 4096


@dataclass(frozen=True)
class _Point:
    """A shape and what a row of it took."""

    columns: int
    size: int
    seconds: float


def plain_shape(columns: int, size: int) -> pa.Schema:
    """Give 64-bit numbers, the last column having what is left of the bytes."""
    last = size - 8 * (columns - 1)
    kinds = [pa.int64()] * (columns - 1) + [pa.binary(last) if last > 8 else pa.int64()]
    return pa.schema([(f"c{i}", kind) for i, kind in enumerate(kinds)])


def plain_rows(schema: pa.Schema, count: int) -> pa.RecordBatch:
    """Give so many rows of columns of fixed width."""
    columns = []
    for field in schema:
        content = pa.py_buffer(bytes(count * field.type.byte_width))
        columns.append(pa.Array.from_buffers(field.type, count, [None, content]))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    """Give the median time of some calls."""
    spent = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        spent.append(time.perf_counter() - start)
    return float(np.median(spent))


def _fitted(points: Sequence[_Point]) -> RowCost:
    """Give a fixed part, one a column and one a byte that fit; errors count in relation."""
    terms = np.array([[1.0, p.columns, p.size] for p in points])
    seconds = np.array([p.seconds for p in points])
    seconds = np.maximum(seconds, 1e-12)  # a busy machine may make a difference vanish
    return RowCost(*non_negative(terms / seconds[:, None], np.ones(len(points))).tolist())


def take_in_cost(master: FileMaster, repeats: int) -> RowCost:
    """Measure c_S: the code and the page of a stream row."""
    draw = np.random.default_rng(0)
    keys = pa.array(draw.integers(0, 2 * master.rows, _ROWS))

    def work() -> None:
        codes = master.keys.encode([keys])
        master.page_of(codes.values)

    return RowCost(median_seconds(work, repeats) / _ROWS)


def append_and_expire(repeats: int) -> tuple[RowCost, RowCost]:
    """Measure c_A and c_E: append a row to the window, move one when a quarter is gone."""
    appended, moved = [], []
    for columns, size in _SHAPES:
        append, move = window_seconds(plain_rows(plain_shape(columns, size), _ROWS), repeats)
        appended.append(_Point(columns, size, append))
        moved.append(_Point(columns, size, move))
    return _fitted(appended), _fitted(moved)


def window_seconds(rows: pa.RecordBatch, repeats: int) -> tuple[float, float]:
    """Measure what it takes to append a row like these to a window, and to move it."""
    cost = WindowCost.of(rows.schema, _PAGE_ROWS, exact=True)
    chunk, count = _chunk(rows), rows.num_rows
    many = 9 * count // 2  # room for four chunks, not for five
    capacity = cost(many, int(many * chunk.sizes.mean()))
    append, move = [], []
    for _ in range(repeats):
        window = Window(rows.schema, capacity, cost)
        start = time.perf_counter()
        for _ in range(4):
            window.admit(chunk, 0.0, 0)
        append.append((time.perf_counter() - start) / (4 * count))
        window.state[np.random.default_rng(0).permutation(4 * count)[:count]] = GONE
        window.leave(count, count)
        start = time.perf_counter()
        window.admit(chunk, 0.0, 0)  # it has room only where others make way
        spent = time.perf_counter() - start - count * append[-1]
        move.append(max(spent, 0.0) / (3 * count))
    return float(np.median(append)), float(np.median(move))


def _chunk(rows: pa.RecordBatch) -> Chunk:
    draw, count = np.random.default_rng(0), rows.num_rows
    codes = draw.integers(0, 1 << 40, count)
    pages = draw.integers(0, _PAGE_ROWS, count).astype(np.int32)
    return Chunk(rows, codes, pages, np.full(count, rows.nbytes // count, dtype=np.int32))


def probe_cost(repeats: int) -> RowCost:
    """Measure c_H: look a code up in a cache that has half of them."""
    draw = np.random.default_rng(0)
    schema = pa.schema([("code", pa.int64()), ("payload", pa.binary(112))])
    cache = Cache(schema, 1 << 24)
    codes = np.arange(_ROWS)
    batch = plain_rows(schema, _ROWS).set_column(0, "code", pa.array(codes))
    cache.load(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    cache.epoch()
    asked = draw.integers(0, 2 * _ROWS, _ROWS)
    out = np.empty(_ROWS, dtype=np.int64), np.empty(_ROWS, dtype=np.int64)
    hit = np.zeros(_ROWS, dtype=np.bool_)
    return RowCost(
        median_seconds(lambda: cache.probe(asked, (0, -1), False, *out, hit), repeats) / _ROWS
    )


def output_cost(repeats: int) -> RowCost:
    """Measure c_O: gather a row's columns from window and page into a batch."""
    points = []
    for columns, size in _SHAPES:
        schema = plain_shape(columns, size)
        rows, page = plain_rows(schema, _ROWS), plain_rows(schema, _PAGE_ROWS)
        draw = np.random.default_rng(0)
        index, places = draw.integers(0, _ROWS, _PAIRS), draw.integers(0, _PAGE_ROWS, _PAIRS)
        spent = median_seconds(lambda: give_out(rows, page, index, places), repeats)  # noqa: B023
        points.append(_Point(2 * columns, 2 * size, spent / _PAIRS))
    return _fitted(points)


def give_out(
    rows: pa.RecordBatch,
    page: pa.RecordBatch,
    index: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
) -> None:
    """Gather columns of a page and of stream rows, as output does."""
    gathered = OutputColumns(page.schema.types, len(places))
    gathered.append(page.columns, places)
    gathered.arrays()
    take_rows(rows, index)


def far_curve(largest: int, repeats: int) -> Curve:
    """Measure how much dearer rows are in a large window, whose memory the caches do not hold."""
    sizes = [size for size in (1 << 20, 1 << 23, 1 << 26, 1 << 28) if size <= largest]
    schema = plain_shape(3, 24)
    spent = []
    for size in sizes:
        rows = plain_rows(schema, size // 24)
        index = np.random.default_rng(0).integers(0, rows.num_rows, _PAIRS)
        spent.append(median_seconds(lambda: take_rows(rows, index), repeats))  # noqa: B023
    slower = np.maximum.accumulate(np.array(spent) / spent[0])
    return Curve(tuple(float(size) for size in sizes), tuple(slower.tolist()))
