"""Measuring a drift: the hot keys change at one row, and the rate is followed slice by slice."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.workload import Feed, Workload
from semistream.cost.run import Run, one_thread, rounded
from semistream.join import Join
from semistream.master import open_master
from semistream.system.machine import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

__all__ = ["DriftGrid", "measure_drift", "rows_until_back"]

_BACK = 0.90
_STEADY = 3  # slices whose median counts: one alone may be noise


@dataclass(frozen=True)
class DriftGrid:
    """What is measured."""

    algorithms: tuple[str, ...]
    rows: int = 2_000_000
    share: float = 0.05
    reads: tuple[str, ...] = ("mapped", "direct")
    exponent: float = 1.0
    before: int = 2_000_000
    """Stream rows before the drift; the last half of them gives the rate before."""
    after: int = 4_000_000
    slice_rows: int = 200_000
    repeats: int = 3
    """Runs of the same stream; a slice's rate is the median over them."""
    page_bytes: str = "128KB"

    @property
    def runs(self) -> int:
        """How many times the stream is joined."""
        return len(self.algorithms) * len(self.reads) * self.repeats


def rows_until_back(before: float, after: Sequence[float], slice_rows: int) -> int | None:
    """Give the rows after the drift until the rate is back at 90 % of what it was before.

    That is the end of the first slice from which on the median of three is, None if none is.

    Examples
    --------
    >>> rows_until_back(100, [20, 95, 50, 60, 91, 93, 99], 1000)
    5000
    >>> rows_until_back(100, [20, 30, 40], 1000) is None
    True
    """
    for number, rate in enumerate(after):
        following = after[number : number + _STEADY]
        if len(following) == _STEADY and min(rate, statistics.median(following)) >= _BACK * before:
            return (number + 1) * slice_rows
    return None


def measure_drift(grid: DriftGrid, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure the grid; give a record that can be written as JSON."""
    one_thread()
    workload = Workload("1:1", grid.rows)
    path = workload.prepare(folder, grid.page_bytes)
    stream = workload.stream(grid.exponent, drift_at=grid.before)
    feed = Feed.of(stream, grid.before + grid.after, grid.slice_rows // 4)
    memory = int(grid.share * workload.bytes)
    curves = []
    for read in grid.reads:
        slices: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in grid.algorithms}
        for _ in range(grid.repeats):
            for name in grid.algorithms:
                say(f"{name}, {read}")
                master = open_master(path, read)
                join = Join(master, feed.schema, on="key", memory=memory, algorithm=name)
                slices[name].append(list(_slices(join, feed.batches, grid.slice_rows)))
        curves += [{"read": read, **_curve(name, slices[name], grid)} for name in slices]
    return {
        "kind": "drift",
        "what": "stream rows a second, slice by slice, as the hot keys change at one row",
        "machine": describe(),
        "grid": asdict(grid),
        "memory": memory,
        "curves": curves,
    }


def _slices(
    join: Join, batches: Sequence[pa.RecordBatch], rows: int
) -> Iterator[tuple[float, float]]:
    """Give rate and pages read a row, for each slice of the rows offered."""
    run, offered = Run(join, iter(batches)), 0
    while offered < sum(batch.num_rows for batch in batches):
        offered += rows
        before, spent = join.metrics, 0.0
        while join.metrics.rows_in < offered or run.is_within_batch:
            spent += run.step()
        now = join.metrics
        taken = now.rows_in - before.rows_in
        yield taken / spent, (now.pages_read - before.pages_read) / taken


def _curve(name: str, runs: list[list[tuple[float, float]]], grid: DriftGrid) -> dict[str, Any]:
    """Put runs together: the median of each slice, the rate before, and when it is back."""
    rates = [statistics.median(run[i][0] for run in runs) for i in range(len(runs[0]))]
    pages = [statistics.median(run[i][1] for run in runs) for i in range(len(runs[0]))]
    drift = grid.before // grid.slice_rows
    steady = statistics.median(rates[drift // 2 : drift])
    each = [
        rows_until_back(
            statistics.median([s[0] for s in run[drift // 2 : drift]]),
            [s[0] for s in run[drift:]],
            grid.slice_rows,
        )
        for run in runs
    ]
    return {
        "algorithm": name,
        "before": rounded(steady),
        "back_after": rows_until_back(steady, rates[drift:], grid.slice_rows),
        "back_after_each": each,
        "rates": [rounded(rate) for rate in rates],
        "pages_a_row": [float(f"{page:.3g}") for page in pages],
        "runs": [[rounded(rate) for rate, _ in run] for run in runs],
    }
