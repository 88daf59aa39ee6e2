"""What is joined in a benchmark: masters, the streams that meet them, and the in-memory bound."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream import build_master
from semistream.errors import OptionError
from semistream.workloads import Stream, Zipf, master_table

Ints = NDArray[np.int64]


BATCH_ROWS = 65_536
_STRIDE = 2  # absent keys lie between the master's


@dataclass(frozen=True)
class Workload:
    """A master of about ``rows`` rows, and what the stream asks of it."""

    name: str
    rows: int = 2_000_000
    row_bytes: int = 120
    duplicates: int = 1
    """Rows of a key: 1 is 1:1, more is m:n."""
    absent: float = 0.0
    """The share of stream rows without a match; such a master has a filter."""
    strings: bool = False
    variable: bool = False
    extra: bool = False
    """Whether it is measured in a few settings only."""

    @property
    def keys(self) -> int:
        """How many keys the master has."""
        return max(1, self.rows // self.duplicates)

    @property
    def bytes(self) -> int:
        """The size of R, of which budgets are shares."""
        return self.keys * self.duplicates * self.row_bytes

    def of_rows(self, rows: int) -> Workload:
        """Return the same with a master of another size, counted in rows of 120 B."""
        return replace(self, rows=rows * 120 // self.row_bytes)

    def table(self) -> pa.RecordBatchReader:
        """Make the master's rows, in order of their keys."""
        return master_table(
            self.keys,
            self.row_bytes,
            self.duplicates,
            stride=_STRIDE,
            strings=self.strings,
            variable=self.variable,
        )

    def prepare(self, folder: Path, page_bytes: str = "128KB") -> Path:
        """Build the master, unless it is there already; return its path."""
        kind = "".join(
            [
                f"-{self.duplicates}" if self.duplicates > 1 else "",
                "-strings" if self.strings else "",
                "-variable" if self.variable else "",
                "-filter" if self.absent else "",
            ]
        )
        path = folder / f"master-{self.rows}x{self.row_bytes}{kind}-{page_bytes}"
        if not (path / "manifest.json").exists():
            with_filter = self.absent > 0
            build_master(self.table(), path, key="key", page_bytes=page_bytes, filter=with_filter)
        return path

    def stream(self, exponent: float, seed: int = 0, drift_at: int | None = None) -> Stream:
        """Return the stream, of rows of 20 B."""
        return Stream(
            Zipf(self.keys, exponent),
            seed=seed,
            row_bytes=20,
            absent=self.absent,
            drift_at=drift_at,
            stride=_STRIDE,
            strings=self.strings,
        )


WORKLOADS = (
    Workload("1:1"),
    Workload("m:n", duplicates=3),
    Workload("absent", absent=0.2),
    Workload("wide", rows=2_000_000 * 120 // 1024, row_bytes=1024, extra=True),
    Workload("strings", strings=True, extra=True),
    Workload("variable", variable=True, extra=True),
)
"""All that are measured; the extra ones are as large in bytes as the others."""


def workload_named(name: str) -> Workload:
    """Return the workload of this name."""
    known = {workload.name: workload for workload in WORKLOADS}
    if name not in known:
        raise OptionError.unknown("workload", name, known)
    return known[name]


@dataclass(frozen=True)
class Feed:
    """Stream batches made beforehand, so that making them is not timed."""

    schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...]
    numbers: tuple[Ints, ...]
    """For each batch the keys as numbers, also where they are strings."""

    @classmethod
    def of(cls, stream: Stream, rows: int, batch_rows: int = BATCH_ROWS) -> Feed:
        """Make the first ``rows`` rows of a stream."""
        batches = tuple(stream.batches(rows, batch_rows))
        plain = batches
        if stream.strings:
            plain = tuple(replace(stream, strings=False).batches(rows, batch_rows))
        return cls(stream.schema, batches, tuple(batch["key"].to_numpy() for batch in plain))

    def forever(self) -> Iterator[pa.RecordBatch]:
        """Return the batches again and again."""
        while True:
            yield from self.batches


class Bound:
    """Arrow's gather of all output rows from the whole master in memory, their places known.

    There is no index and no look-up in it: the numbers of the rows that match are found before the
    clock starts. For m:n these are all rows of a key; stream rows without a match are left out,
    but counted as answered, as the joins count them. Strings and texts are gathered as such.
    """

    def __init__(self, workload: Workload) -> None:
        payload = workload.table().read_all().drop_columns(["key"])
        self._master = payload.combine_chunks().to_batches()[0]
        self._duplicates = workload.duplicates
        self._plain = workload.duplicates == 1 and not workload.absent

    def sample(self, feed: Feed, seconds: float) -> float:
        """Return the stream rows answered in a second, over about so many seconds."""
        rows, spent = 0, 0.0
        while spent < seconds:
            for batch, numbers in zip(feed.batches, feed.numbers, strict=True):
                places = self.places(numbers)
                start = time.perf_counter()
                self.gather(batch, *places)
                spent += time.perf_counter() - start
                rows += batch.num_rows
                if spent >= seconds:
                    break
        return rows / spent

    def gather(self, batch: pa.RecordBatch, left: Ints, right: Ints) -> pa.RecordBatch:
        """Put stream rows and master rows side by side."""
        mine = batch if self._plain else batch.take(pa.array(left))
        matches = self._master.take(pa.array(right))
        names = [*mine.schema.names, *matches.schema.names]
        return pa.RecordBatch.from_arrays([*mine.columns, *matches.columns], names=names)

    def places(self, numbers: Ints) -> tuple[Ints, Ints]:
        """Return the stream rows that have a match, and the master rows, once for each pair."""
        present = np.flatnonzero(numbers % _STRIDE == 0)
        first = numbers[present] // _STRIDE * self._duplicates
        right = first[:, None] + np.arange(self._duplicates)
        return np.repeat(present, self._duplicates), right.ravel()
