"""Predicted against measured: what `semistream.plan` says of a `Join`, and what it then does."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from benchmarks.engine.workload import Feed, Workload
from benchmarks.harness.command import Benchmark, Grid, Job, option
from benchmarks.harness.record import Record
from benchmarks.harness.run import Run, one_thread
from benchmarks.harness.samples import rounded
from benchmarks.harness.table import Sheet
from semistream.join import Join
from semistream.master import open_master
from semistream.planning.planner import JoinPredictor, pose

_KEYS = ("rows", "share", "exponent")


@dataclass(frozen=True)
class PlanGrid(Grid):
    """The joins that are predicted and measured, on direct reads."""

    rows: tuple[int, ...] = option((2_000_000,), "Rows of the master, R.")
    shares: tuple[float, ...] = option((0.01, 0.05, 0.20), "Budgets, as shares of R.", "share")
    exponents: tuple[float, ...] = option((0.0, 1.0), "Zipf exponents of the stream.", "exponent")
    seconds: float = 1.0
    """How long a sample takes."""
    rounds: int = option(5, "Samples of a join; the median counts.")
    warm: float = option(20.0, "Seconds for a join to settle, at most.")
    page_bytes: str = "128KB"

    def quick(self) -> PlanGrid:
        return replace(
            self, rows=(100_000,), shares=(0.1,), seconds=0.05, rounds=2, warm=0.5,
            page_bytes="16KB",
        )  # fmt: skip

    @property
    def steps(self) -> int:
        return len(self.rows) * len(self.shares) * len(self.exponents)


def measure(job: Job[PlanGrid]) -> Iterator[None]:
    """Predict and measure every join; the machine's unit costs are measured once a master."""
    one_thread()
    grid = job.grid
    for rows, exponent in product(grid.rows, grid.exponents):
        workload = Workload("1:1", rows)
        path = workload.prepare(job.folder, grid.page_bytes)
        feed = Feed.of(workload.stream(exponent), 2 * rows)
        for share in grid.shares:
            where = {"rows": rows, "share": share, "exponent": exponent}
            if not job.has("points", where):
                job.say(f"{rows:,} rows, {share:.0%}, Zipf {exponent:g}")
                memory = int(share * workload.bytes)
                job.add("points", {**where, **_point(path, memory, feed, exponent, grid)}, *_KEYS)
            yield


def _point(path: Path, memory: int, feed: Feed, exponent: float, grid: PlanGrid) -> Record:
    master = open_master(path, "direct")
    problem = pose(master, skew=exponent, stream_schema=feed.schema, on="key")
    point = JoinPredictor(problem).predict(memory)
    join = Join(master, feed.schema, on="key", memory=memory)
    run = Run(join, feed.forever())
    run.warm_up(grid.warm / 4, 4)
    before = join.metrics
    samples = [run.sample(grid.seconds) for _ in range(grid.rounds)]
    after = join.metrics
    rows = after.rows_in - before.rows_in
    return {
        "memory": memory,
        "predicted": rounded(point.rate),
        "samples": [rounded(sample) for sample in samples],
        "predicted_from_memory": round(point.from_memory, 4),
        "from_memory": round((after.cache_hits - before.cache_hits) / rows, 4),
        "predicted_pages": float(f"{point.pages / point.rate:.4g}"),
        "pages": float(f"{(after.pages_read - before.pages_read) / rows:.4g}"),
    }


def sheets(record: Record) -> Iterator[Sheet]:
    """Return predicted and measured rates, and their errors."""
    rows, errors = [], []
    for point in record["points"]:
        measured = statistics.median(point["samples"])
        errors.append(point["predicted"] / measured - 1)
        rows.append(
            (
                f"{point['rows'] / 1e6:g}M",
                f"{point['share']:.0%}",
                f"{point['exponent']:g}",
                f"{point['predicted'] / 1e3:,.0f}",
                f"{measured / 1e3:,.0f}",
                f"{errors[-1]:+.0%}",
                f"{point['predicted_from_memory']:.1%} / {point['from_memory']:.1%}",
                f"{1000 * point['predicted_pages']:.3g} / {1000 * point['pages']:.3g}",
            )
        )
    first = ("R", "memory", "Zipf", "thousand rows/s predicted", "measured", "error")
    heads = (*first, "from memory", "pages for 1,000 rows")
    median = statistics.median(abs(error) for error in errors) if errors else 0.0
    note = f"`Join` on direct reads; the median error of a rate is {median:.0%}"
    yield Sheet("Predicted against measured", heads, tuple(rows), note)


PLAN = Benchmark(
    "plan",
    "stream rows a second, predicted by a plan and measured",
    PlanGrid,
    measure,
    sheets,
    {},
)
