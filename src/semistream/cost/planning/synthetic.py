"""A synthetic stream with a master's own keys, that asks for them as a `Demand` says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.arrow.types import encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from semistream.cost.demand import Demand
    from semistream.master import FileMaster
    from semistream.spec import JoinSpec

    Ints = npt.NDArray[np.int64]

__all__ = ["BATCH_ROWS", "MasterKeys", "SyntheticStream", "read_keys", "synthetic_demand"]

BATCH_ROWS = 65_536
"""Rows of a batch, where not said otherwise."""
_MOST_KEYS = 1 << 22
_VARIES = 32  # bytes of a value that varies, as plans assume


@dataclass(frozen=True, eq=False)
class MasterKeys:
    """Join values of a master, in the order of its pages."""

    values: pa.RecordBatch
    """The key columns."""
    first: Ints
    """Where the values of each page begin, and where those of the last one end."""


def read_keys(master: FileMaster, most: int = _MOST_KEYS) -> MasterKeys:
    """Read join values from all pages: all of them, or as many of each page as ``most`` allows.

    Examples
    --------
    >>> import tempfile, semistream as ss
    >>> table = pa.table({"id": ["a", "b", "b"], "n": [1, 2, 3]})
    >>> keys = read_keys(ss.build_master(table, tempfile.mkdtemp(), key="id"))
    >>> sorted(keys.values["id"].to_pylist()), keys.first.tolist()
    (['a', 'b'], [0, 2])
    """
    reader, each = master.reader(), max(1, most // max(1, master.pages))
    found = []
    for page in range(master.pages):
        batch = reader.load(master.parts(page)[0], 1)[0]  # further parts have the same value
        _, rows = np.unique(batch.column(0).to_numpy(), return_index=True)
        if len(rows) > each:
            rows = rows[np.linspace(0, len(rows) - 1, each).astype(np.int64)]
        found.append(_keys(master, batch).take(pa.array(rows)))
    table = pa.Table.from_batches(found).combine_chunks()
    first = np.cumsum([0, *(len(batch) for batch in found)])
    return MasterKeys(table.to_batches()[0], first)


def _keys(master: FileMaster, page: pa.RecordBatch) -> pa.RecordBatch:
    if master.keys.exact:
        return pa.record_batch({master.key[0]: master.keys.decode(page.column(0))})
    return page.select(list(master.key))


def synthetic_demand(demand: Demand) -> Demand:
    """Give what a synthetic stream asks for: the master's keys, whatever matches each has.

    Examples
    --------
    >>> from semistream.cost.demand import Demand
    >>> synthetic_demand(Demand.zipf(1000, 1.0, 10, absent=0.2)).absent
    0.0
    """
    return replace(demand, absent=0.0, matches=None)


@dataclass(frozen=True, eq=False)
class SyntheticStream:
    """An endless stream for a join; rows without a match are left out."""

    spec: JoinSpec
    demand: Demand
    keys: MasterKeys
    seed: int = 0

    @cached_property
    def order(self) -> Ints:
        """The key for each rank of the demand, as a row of the key table.

        The first ranks have keys of the pages that the demand gives them, as long as those have
        any left; the other ranks have what is left over all pages, in random order.
        """
        page, first = self.demand.page, self.keys.first
        by_page = np.argsort(page, kind="stable")
        sorted_page = page[by_page]
        place = np.arange(len(page)) - np.searchsorted(sorted_page, sorted_page)
        row = first[sorted_page] + place
        fits = row < first[sorted_page + 1]
        free = np.ones(int(first[-1]), dtype=np.bool_)
        free[row[fits]] = False
        rest = np.random.default_rng(self.seed).permutation(np.flatnonzero(free))
        order = np.full(max(len(page), int(first[-1])), -1, dtype=np.int64)
        order[by_page[fits]] = row[fits]
        left = np.flatnonzero(order < 0)
        order[left[: len(rest)]] = rest[: len(left)]
        return order[order >= 0]

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Draw batches without end; the same seed gives the same rows."""
        rng = np.random.default_rng(self.seed)
        others = {field.name: _filler(field.type, rows) for field in self.spec.stream}
        while True:
            drawn = self.keys.values.take(pa.array(self.order[self._ranks(rng, rows)]))
            named = dict(zip(self.spec.stream_keys, drawn.columns, strict=True))
            columns = [
                encode(named[field.name], field.type) if field.name in named else others[field.name]
                for field in self.spec.stream
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self.spec.stream)

    @cached_property
    def _ends(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Where each group of keys begins, and the share of rows up to its end."""
        size = self.demand.size
        return np.cumsum(size) - size, np.cumsum(size * self.demand.share)

    def _ranks(self, rng: np.random.Generator, rows: int) -> Ints:
        starts, until = self._ends
        group = np.minimum(np.searchsorted(until, rng.random(rows)), len(until) - 1)
        rank = starts[group] + rng.random(rows) * self.demand.size[group]
        return rank.astype(np.int64) % len(self.order)


def _filler(kind: pa.DataType, rows: int) -> pa.Array:
    """Give a column of one value; nulls where the type is neither plain numbers nor texts."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.repeat(pa.scalar(b"x" * _VARIES, pa.binary()).cast(kind), rows)
    if pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind):
        zeros = pa.py_buffer(bytes(-(-rows * kind.bit_width // 8)))
        return pa.Array.from_buffers(kind, rows, [None, zeros])
    return pa.nulls(rows, kind)
