"""What rows of the join at hand cost, where they are unlike those of a profile.

A profile's rows have an integer key and columns of fixed width. A key that is found by a hash has
to be hashed and compared, texts are copied one by one: both cost several times as much. So they are
measured with the master's own rows, beside rows like a profile's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.arrow.memory import take_rows
from semistream.arrow.types import row_width
from semistream.cost.calibration.operations import (
    give_out,
    median_seconds,
    plain_rows,
    plain_shape,
    window_seconds,
)
from semistream.cost.unit_costs import RowCost
from semistream.engine.output import gathered_schema

if TYPE_CHECKING:
    from semistream.cost.unit_costs import UnitCosts
    from semistream.spec import JoinSpec

__all__ = ["unlike", "with_rows_of"]

_ROWS, _PAIRS, _REPEATS = 1 << 14, 4096, 7
_TEXT = "some text of a row"


def unlike(spec: JoinSpec) -> str:
    """Say what is unlike a profile's rows in those of a join; nothing where they are alike."""
    varies = [f.name for f in gathered_schema(spec) if row_width(f.type) is None]
    found = [] if spec.files.keys.exact else ["its key is found by a hash"]
    found += [f"{', '.join(map(repr, varies))} vary in width"] if varies else []
    return " and ".join(found)


def with_rows_of(costs: UnitCosts, spec: JoinSpec) -> UnitCosts:
    """Give costs with c_S, c_A, c_E and c_O as this join's own rows have them, if they differ."""
    if not unlike(spec):
        return costs
    page = _some_rows(spec)
    stream = _stream_rows(spec, page)
    taken = costs.c_S if spec.files.keys.exact else _take_in(spec, stream)
    waits = sum(window_seconds(stream, _REPEATS)) / sum(window_seconds(_like(stream), _REPEATS))
    out = _output_seconds(spec, stream, page) / _output_seconds(None, _like(stream), _like(page))
    return replace(
        costs,
        c_S=taken,
        c_A=costs.c_A.times(max(1.0, waits)),
        c_E=costs.c_E.times(max(1.0, waits)),
        c_O=costs.c_O.times(max(1.0, out)),
    )


def _some_rows(spec: JoinSpec) -> pa.RecordBatch:
    """Read a page, and give the columns of it that output needs."""
    first = spec.files.reader(1).load(0, 1)[0]
    return first.select(gathered_schema(spec).names)


def _stream_rows(spec: JoinSpec, page: pa.RecordBatch) -> pa.RecordBatch:
    """Make stream rows with keys of a page, as far as it has them."""
    at = pa.array(np.random.default_rng(0).integers(0, page.num_rows, _ROWS))
    keys = dict(zip(spec.stream_keys, spec.files.key, strict=True))
    columns = []
    for field in spec.stream:
        if keys.get(field.name) in page.schema.names:
            columns.append(page.column(keys[field.name]).take(at).cast(field.type))
        elif row_width(field.type) is None:
            columns.append(pa.array([_TEXT] * _ROWS).cast(field.type))
        else:
            columns.append(plain_rows(pa.schema([field]), _ROWS).column(0))
    return pa.RecordBatch.from_arrays(columns, schema=spec.stream)


def _like(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Give as many rows of as many columns and bytes, as a profile's are."""
    size = max(8 * rows.num_columns, rows.nbytes // max(1, rows.num_rows))
    return plain_rows(plain_shape(rows.num_columns, size), rows.num_rows)


def _take_in(spec: JoinSpec, stream: pa.RecordBatch) -> RowCost:
    master, keys = spec.master, [stream.column(name) for name in spec.stream_keys]
    seconds = median_seconds(lambda: master.page_of(master.keys.encode(keys).values), _REPEATS)
    return RowCost(seconds / stream.num_rows)


def _output_seconds(spec: JoinSpec | None, stream: pa.RecordBatch, page: pa.RecordBatch) -> float:
    """Give the seconds to give pairs out; keys that were found by a hash are compared as well."""
    draw = np.random.default_rng(0)
    index = draw.integers(0, stream.num_rows, _PAIRS)
    places = draw.integers(0, page.num_rows, _PAIRS)
    compared = [] if spec is None or spec.files.keys.exact else list(spec.stream_keys)

    def work() -> None:
        give_out(stream, page, index, places)
        for name in compared:
            keys = take_rows(stream.select([name]), index).column(0)
            pc.equal(keys, keys)

    return median_seconds(work, _REPEATS)
