"""A drift: the hot keys change at one row, and the rate is followed slice by slice."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from benchmarks.engine.matrix import READS
from benchmarks.engine.workload import Feed, Workload
from benchmarks.harness.claims import candidate
from benchmarks.harness.command import Benchmark, Grid, Job, option
from benchmarks.harness.figure import has
from benchmarks.harness.record import Record
from benchmarks.harness.run import Run, one_thread
from benchmarks.harness.samples import rounded
from benchmarks.harness.table import Sheet
from semistream.algorithms import algorithms
from semistream.join import Join
from semistream.master import open_master

_BACK = 0.90
_STEADY = 3  # slices whose median counts: one alone may be noise


@dataclass(frozen=True)
class DriftGrid(Grid):
    """The stream before and after the drift, and how often it is joined."""

    algorithms: tuple[str, ...] = option(
        (), "Instead of ours and CACHEJOIN.", "algorithm", known=algorithms()
    )
    rows: int = option(2_000_000, "Rows of the master, R.")
    share: float = 0.05
    reads: tuple[str, ...] = option(READS, "Only these reads.", "read", known=READS)
    exponent: float = 1.0
    before: int = 2_000_000
    """Stream rows before the drift; the last half of them gives the rate before."""
    after: int = 4_000_000
    slice_rows: int = 200_000
    repeats: int = option(3, "How many times to join the stream; a slice's rate is the median.")
    page_bytes: str = "128KB"

    def complete(self) -> DriftGrid:
        names = self.algorithms or dict.fromkeys([candidate(algorithms()), "cachejoin"])
        return replace(
            self,
            algorithms=tuple(names),
            before=self.rows,
            after=2 * self.rows,
            slice_rows=max(1, self.rows // 10),
        )

    @property
    def steps(self) -> int:
        return len(self.reads)


def rows_until_back(before: float, after: Sequence[float], slice_rows: int) -> int | None:
    """Return the rows after the drift until the rate is back at 90 % of what it was before.

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


def measure(job: Job[DriftGrid]) -> Iterator[None]:
    """Measure how soon the rate is back at 90 % after the hot keys change."""
    one_thread()
    grid = job.grid
    workload = Workload("1:1", grid.rows)
    path = workload.prepare(job.folder, grid.page_bytes)
    stream = workload.stream(grid.exponent, drift_at=grid.before)
    feed = Feed.of(stream, grid.before + grid.after, grid.slice_rows // 4)
    memory = job.record["memory"] = int(grid.share * workload.bytes)
    for read in grid.reads:
        missing = [
            name
            for name in grid.algorithms
            if not job.has("curves", {"read": read, "algorithm": name})
        ]
        slices: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in missing}
        for _ in range(grid.repeats):
            for name in missing:
                job.say(f"{name}, {read}")
                master = open_master(path, read)
                join = Join(master, feed.schema, on="key", memory=memory, algorithm=name)
                slices[name].append(list(_slices(join, feed.batches, grid.slice_rows)))
        for name, runs in slices.items():
            curve = {"read": read, **_curve(name, runs, grid)}
            job.add("curves", curve, "read", "algorithm")
        yield


def _slices(
    join: Join, batches: Sequence[pa.RecordBatch], rows: int
) -> Iterator[tuple[float, float]]:
    """Yield rate and pages read a row, for each slice of the rows offered."""
    run, offered = Run(join, iter(batches)), 0
    while offered < sum(batch.num_rows for batch in batches):
        offered += rows
        before, spent = join.metrics, 0.0
        while join.metrics.rows_in < offered or run.is_within_batch:
            spent += run.step()
        now = join.metrics
        taken = now.rows_in - before.rows_in
        yield taken / spent, (now.pages_read - before.pages_read) / taken


def _curve(name: str, runs: list[list[tuple[float, float]]], grid: DriftGrid) -> Record:
    """Put runs together: the median of each slice, the rate before, and when it is back."""
    drift = grid.before // grid.slice_rows

    def back(rates: Sequence[float]) -> tuple[float, int | None]:
        before = statistics.median(rates[drift // 2 : drift])
        return before, rows_until_back(before, rates[drift:], grid.slice_rows)

    each = [[rate for rate, _ in run] for run in runs]
    rates = [statistics.median(slices) for slices in zip(*each, strict=True)]
    pages = [statistics.median(p for _, p in slices) for slices in zip(*runs, strict=True)]
    steady, after = back(rates)
    return {
        "algorithm": name,
        "before": rounded(steady),
        "back_after": after,
        "back_after_each": [back(one)[1] for one in each],
        "rates": [rounded(rate) for rate in rates],
        "pages_a_row": [float(f"{page:.3g}") for page in pages],
        "runs": [[rounded(rate) for rate in one] for one in each],
    }


def sheets(record: Record) -> Iterator[Sheet]:
    """Return when the rate is back: algorithm and read down."""
    grid = record["grid"]
    drift = grid["before"] // grid["slice_rows"]

    def back(rows: int | None) -> str:
        return "not yet" if rows is None else f"{rows / 1e6:g}M rows"

    rows = [
        (
            curve["algorithm"],
            curve["read"],
            f"{curve['before'] / 1e3:,.0f}",
            f"{min(curve['rates'][drift:]) / curve['before']:.0%}",
            back(curve["back_after"]),
            ", ".join(map(back, curve["back_after_each"])),
        )
        for curve in record["curves"]
    ]
    heads = ("algorithm", "read", "thousand rows/s before", "lowest after", "back at 90 % after")
    title = f"The hot keys change: {grid['share']:.0%} of R, Zipf {grid['exponent']:g}"
    note = f"in slices of {grid['slice_rows']:,} rows, by the medians of {grid['repeats']} runs"
    yield Sheet(title, (*heads, "each run"), tuple(rows), note)


def draw(record: Record, figure: Any) -> None:
    """Draw the rate over the stream's rows: one panel a way of reading, a line an algorithm."""
    grid = record["grid"]
    panels = figure.subplots(1, len(grid["reads"]), squeeze=False)[0]
    for panel, read in zip(panels, grid["reads"], strict=True):
        for curve in (c for c in record["curves"] if c["read"] == read):
            x = [(i + 1) * grid["slice_rows"] / 1e6 for i in range(len(curve["rates"]))]
            panel.plot(x, [rate / 1e6 for rate in curve["rates"]], label=curve["algorithm"])
        panel.axvline(grid["before"] / 1e6, color="grey", linestyle=":")
        panel.set(xlabel="stream rows, million", title=f"{read}, {grid['share']:.0%} of R")
        panel.set_ylim(0, None)
    panels[0].set_ylabel("million stream rows/s")
    panels[0].legend(fontsize="small")


DRIFT = Benchmark(
    "drift",
    "stream rows a second, slice by slice, as the hot keys change at one row",
    DriftGrid,
    measure,
    sheets,
    {"drift": (has("curves"), draw)},
)
