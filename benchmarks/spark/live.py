"""Enrichment from a live database, beside the ways that are usual."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product

from benchmarks.harness.command import Benchmark, Grid, Job, option
from benchmarks.harness.record import Record
from benchmarks.harness.samples import ratio, thousands
from benchmarks.harness.table import Sheet
from benchmarks.spark.data import Batches, Products, Sales
from benchmarks.spark.database import JARS, Store
from benchmarks.spark.engine import Caller, Engines
from benchmarks.spark.queries import DifferentRowsError, fingerprint, time_batches, versions, warm
from benchmarks.spark.systems import Setting
from semistream.errors import OptionError
from semistream.spark.cluster.jars import folder_for
from semistream.spark.cluster.maven import download
from semistream.units import format_bytes

_SYSTEMS = {
    "enrich": "enrich-database",
    "plain": "jdbc-one-list",
    "jdbc": "jdbc",
    "rows": "database-rows",
    "bound": "bound",  # does not join: what it takes to go through Python and back
}
_LABELS = {
    "enrich": "enrich",
    "plain": "foreachBatch, JDBC by one key list",
    "jdbc": "foreachBatch, JDBC by several, broadcast",
    "rows": "row by row in mapInArrow",
    "bound": "constant columns by mapInArrow (bound)",
}
_CHECKED_ABSENT = 0.1
_LIMIT = 200.0  # seconds of a query, below those in which its process must answer


@dataclass(frozen=True)
class LiveGrid(Grid):
    """The table, the budgets, and the batches of a round."""

    rows: int = option(2_000_000, "Rows of the table, R.")
    batch_rows: tuple[int, ...] = option((100_000, 500_000), "Rows per micro-batch.")
    shares: tuple[float, ...] = (0.05, 0.275)
    """Budgets, as shares of the table's bytes; with the second the cache itself has about 5 %."""
    exponent: float = 1.0
    rounds: int = option(3, "The number of samples.")
    batches: int = 6
    """Of a round, `dropped` of which are not counted."""
    dropped: int = 2
    row_batches: int = 3
    """Of a round of the row-by-row way, which is slow; of no more rows than ``row_rows``."""
    row_rows: int = 50_000
    chunks: tuple[int, ...] = (5_000, 50_000)
    """Lengths of a JDBC key list; the better one, by a trial, is taken."""
    seed: int = 0

    def quick(self) -> LiveGrid:
        return replace(
            self, rows=100_000, batch_rows=(20_000,), rounds=2, batches=4, chunks=(5000,)
        )


def measure(job: Job[LiveGrid]) -> Iterator[None]:
    """Measure enrichment from a database, beside a JDBC key list and row-by-row lookups.

    In micro-batches of files, into no sink, on local[2]; the budget is 5 % of the table. The rows
    of all systems are compared before they are timed. The server itself counts its queries, so
    nothing else should use it meanwhile.
    """
    if not job.urls:
        msg = "no database to measure was given: --url, or make bench-live, which starts two"
        raise OptionError(msg)
    jars = [download(jar, folder_for() / "jdbc") for jar in JARS]
    config = {"spark.jars": ",".join(map(str, jars)), "spark.driver.memory": "2g"}
    grid = job.grid
    with Engines({"main": "local[2]"}, config) as engines:
        job.say("starting Spark")
        job.record["machine"] |= engines.call("main", versions)
        for url in job.urls:
            at = Setting(Products(grid.rows, job.folder), "left", 0, url=url)
            contest = _Contest(grid, at, engines)
            job.say(f"{at.store.kind}: loading {grid.rows:,} rows; the same rows?")
            at.store.load(at.products)
            contest.check()
            for batch_rows, share in product(grid.batch_rows, grid.shares):
                memory = int(share * at.products.bytes)
                cell = {"store": at.store.kind, "batch_rows": batch_rows, "memory": memory}
                if not job.has("cells", cell):
                    job.say(f"{at.store.kind}: batches of {batch_rows:,}, {share:.1%} of R")
                    about = cell | {"version": at.store.version(), "rows": grid.rows}
                    job.add("cells", about | contest.measure(batch_rows, memory), *cell)
                yield


@dataclass
class _Contest:
    """The systems before one store."""

    grid: LiveGrid
    at: Setting
    engines: Caller
    order: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.order = random.Random(self.grid.seed)  # noqa: S311 - an order

    def check(self) -> None:
        """Check that all systems give the same rows, a part of which has no match."""
        batches = self._sales(min(2000, *self.grid.batch_rows), 1, absent=_CHECKED_ABSENT)
        memory = int(max(self.grid.shares) * self.at.products.bytes)
        at = replace(self.at, memory=memory)
        given = {
            name: self.engines.call("main", fingerprint, system, at, batches)
            for name, system in _SYSTEMS.items()
            if name != "bound"
        }
        if len({tuple(each) for each in given.values()}) > 1:
            msg = f"the systems give different rows: {given}"
            raise DifferentRowsError(msg)

    def measure(self, batch_rows: int, memory: int) -> Record:
        """Run every system in every round."""
        grid, slow = self.grid, min(batch_rows, self.grid.row_rows)
        streams = dict.fromkeys(_SYSTEMS, self._sales(batch_rows, grid.batches))
        streams["rows"] = self._sales(slow, grid.row_batches)
        at = replace(self.at, memory=memory)
        at = replace(at, chunk=self._best_chunk(at, streams["jdbc"]))
        # The hot rows are in the cache, as they are in a query that has run for a while.
        self._run("enrich", at, streams["enrich"])
        sizes = {name: slow if name == "rows" else batch_rows for name in _SYSTEMS}
        systems: dict[str, Record] = {
            name: {"batch_rows": sizes[name], "milliseconds": []} for name in _SYSTEMS
        }
        for _ in range(grid.rounds):
            for name in self.order.sample(list(_SYSTEMS), len(_SYSTEMS)):
                systems[name]["milliseconds"].append(self._run(name, at, streams[name]))
        for name, system in systems.items():
            before = _queries(at.store)
            self._run(name, at, streams[name])
            asked, rows = _queries(at.store) - before, sizes[name] * streams[name].count
            system["queries_a_million"] = round(1e6 * asked / rows)
        return {"chunk": at.chunk, "systems": systems}

    def _run(self, name: str, at: Setting, batches: Batches) -> list[int]:
        took: list[int] = self.engines.call(
            "main", time_batches, _SYSTEMS[name], at, batches, _LIMIT
        )
        return took

    def _best_chunk(self, at: Setting, batches: Batches) -> int:
        trial = replace(batches, count=self.grid.dropped + 1)
        took = {
            chunk: self._run("jdbc", replace(at, chunk=chunk), trial)[-1]
            for chunk in self.grid.chunks
        }
        return min(took, key=lambda chunk: took[chunk])

    def _sales(self, batch_rows: int, count: int, absent: float = 0.0) -> Batches:
        sales = Sales(self.grid.rows, self.grid.exponent, batch_rows, count, absent=absent)
        return sales.prepare(self.at.products.folder)


def _queries(store: Store) -> int:
    """Return how many queries the server has answered, when it has counted them."""
    time.sleep(store.late)
    return store.queries()


def sheets(record: Record) -> Iterator[Sheet]:
    """Return a table for each store."""
    for store in dict.fromkeys(cell["store"] for cell in record["cells"]):
        yield _sheet(record, [cell for cell in record["cells"] if cell["store"] == store])


def _sheet(record: Record, cells: list[Record]) -> Sheet:
    def rates(cell: Record, name: str) -> list[float]:
        system, dropped = cell["systems"][name], record["grid"]["dropped"]
        middles = [statistics.median(warm(took, dropped)) for took in system["milliseconds"]]
        return [1000 * system["batch_rows"] / middle for middle in middles]

    def times(cell: Record, mine: str, theirs: str) -> str:
        return ratio(rates(cell, mine), rates(cell, theirs)).show(".1f", "×")

    rows, bounds = [], []
    for name, label in _LABELS.items():
        for cell in (cell for cell in cells if name in cell["systems"]):
            system = cell["systems"][name]
            sizes = (f"{system['batch_rows']:,}", format_bytes(cell["memory"]))
            versus = "" if name == "enrich" else times(cell, "enrich", name)
            asked = f"{system['queries_a_million']:,}"
            rows.append((label, *sizes, thousands(rates(cell, name)), asked, versus))
    for cell in (cell for cell in cells if "bound" in cell["systems"]):
        best = max(("plain", "jdbc"), key=lambda name: statistics.median(rates(cell, name)))
        size = f"{cell['batch_rows']:,} ({format_bytes(cell['memory'])})"
        bounds.append(f"{times(cell, 'bound', best)} in batches of {size}")
    note = "median of rounds (range); ratios round by round"
    if bounds:
        note += f"; the bound to the better key list: {', '.join(bounds)}"
    heads = ("", "rows of a batch", "budget of enrich", "thousand rows/s", "queries a million rows")
    first = cells[0]
    title = (
        f"{first['version'].partition('(')[0].strip()}: R = {first['rows']:,} × 120 B, "
        f"Zipf {record['grid']['exponent']:g}, {record['machine']['master']}"
    )
    return Sheet(title, (*heads, "enrich to it"), tuple(rows), note)


LIVE = Benchmark(
    "live",
    "milliseconds of micro-batches on Spark, enriched from a database",
    LiveGrid,
    measure,
    sheets,
    servers=("PostgreSQL", "MariaDB"),
)
