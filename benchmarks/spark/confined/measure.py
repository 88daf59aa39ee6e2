"""Enrichment with a master larger than memory, beside others, all of Spark in a memory cgroup.

Every turn of a system has processes of its own, started inside the group: what one leaves in a heap
or in a cache takes no memory from another, and the group's peak is that of one system.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from benchmarks.harness.cgroup import memory_group
from benchmarks.harness.command import Benchmark, Job
from benchmarks.harness.memory import Footprint, drop_cached, resident_bytes
from benchmarks.harness.record import Record
from benchmarks.spark.comparison import CHECKED_ABSENT, Comparison
from benchmarks.spark.confined.device import demand_of, measure_device
from benchmarks.spark.confined.grid import Cell, ConfinedGrid
from benchmarks.spark.confined.tables import sheets
from benchmarks.spark.data import ROW_BYTES, Batches, Products, Sales
from benchmarks.spark.engine import EngineError, Engines
from benchmarks.spark.queries import DROPPED, Enough, time_batches, versions, warm_up
from benchmarks.spark.systems import SYSTEMS, Setting
from semistream.api import watch
from semistream.errors import SemistreamError
from semistream.master import open_master
from semistream.spark.metrics.report import BatchMetrics
from semistream.units import format_bytes

_TASKS = 2  # at once, as local[2] has them
_MASTERS = {"main": f"local[{_TASKS}]"}
_LONGEST = 1200.0  # seconds without an answer: to sort a table of 50M rows into buckets takes long
_MOST_LEFT = 0.01  # of the pages, in the page cache when a turn begins
_CHECKED_ROWS = 2_000  # of the one batch that is compared
_RECENT = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}  # all of a query
_EVERY = 1.0  # seconds between two looks at memory, each of which costs some milliseconds


def measure(job: Job[ConfinedGrid]) -> Iterator[None]:
    """Measure enrichment from a master larger than memory, in a memory cgroup, beside others.

    All of Spark, the JVM and Python's processes, is in the group, and the page cache that they
    cause counts. Its limit leaves the page cache a fifth of R. The disk is measured before
    every turn, past the page cache, for the rate that it allows at best. It needs the right to
    create memory cgroups, of version 1 or 2; --unconfined does without.
    """
    order = random.Random(job.grid.seed)  # noqa: S311 - an order
    job.record |= {"dropped": DROPPED, "labels": {s: SYSTEMS[s].label for s in job.grid.systems}}
    heap = {"spark.driver.memory": job.grid.prepare_memory}
    with _clean_end(), Engines(_MASTERS, heap, longest=_LONGEST) as engines:
        comparison = Comparison(job.say, engines)
        for cell in job.grid.cells:
            if not job.has("cells", asdict(cell)):
                prepared = _Contest.prepare(job, comparison, cell)
                if "spark" not in job.record["machine"]:
                    job.record["machine"] |= engines.call("main", versions)
                engines.close()  # its memory is the machine's, of which the page cache is made
                job.add("cells", prepared.measure(order), *asdict(cell))
            yield


@dataclass
class _Contest:
    """The systems of one cell, in turn."""

    job: Job[ConfinedGrid]
    cell: Cell
    at: Setting
    able: list[str]
    failed: dict[str, str]
    milliseconds: dict[str, list[list[int]]] = field(default_factory=dict)
    facts: dict[str, list[Record]] = field(default_factory=dict)

    @classmethod
    def prepare(cls, job: Job[ConfinedGrid], comparison: Comparison, cell: Cell) -> _Contest:
        """Make what systems need and compare their rows, outside of the group."""
        products = Products(cell.rows, job.folder, realistic=cell.realistic, page_bytes="auto")
        options = dict(each.split("=", 1) for each in job.grid.options)
        at = replace(Setting.of(products, cell.how, cell.share), options=options)
        rows = min(_CHECKED_ROWS, *job.grid.batch_rows)
        checked = Sales(products.keys, cell.exponent, rows, 1, absent=CHECKED_ABSENT)
        systems = job.grid.systems_of(cell)
        comparison.check(systems, at, checked.prepare(job.folder))
        able = comparison.able(systems, at)
        why = {name: comparison.failure(name, at) for name in systems if name not in able}
        return cls(job, cell, at, able, why)

    @property
    def grid(self) -> ConfinedGrid:
        """What is measured."""
        return self.job.grid

    def measure(self, order: random.Random) -> Record:
        """Return what each system did in each round, and what the disk could do."""
        cell, products = self.cell, self.at.products
        count = self.grid.batches_of(cell.batch_rows)
        stream = Sales(products.keys, cell.exponent, cell.batch_rows, count)
        files = stream.prepare(self.job.folder)
        # No batch comes twice: a cache would know the rows of the second time.
        first = replace(files, count=count // 3)
        rest = replace(files, start=first.count, count=count - first.count)
        demand = demand_of(rest, products.keys, cell.exponent, self.at.memory // ROW_BYTES)
        for number in range(self.grid.rounds):
            for system in order.sample(self.able, len(self.able)):
                self.job.say(f"{cell.label}, round {number + 1}: {system}")
                self._take_turn(system, first, rest)
        about: Record = {"memory": self.at.memory, "pages_bytes": self.pages.stat().st_size}
        about |= {"limit": self.limit if self.grid.is_confined(cell) else None}
        results = {"milliseconds": self.milliseconds, "facts": self.facts, "failed": self.failed}
        return asdict(cell) | about | {"demand": asdict(demand)} | results

    @cached_property
    def pages(self) -> Path:
        """The file of our pages."""
        master = open_master(self.at.products.master(), "direct")
        return master.path / master.manifest.name("pages")

    @property
    def limit(self) -> dict[str, int]:
        """The parts of the cgroup's limit."""
        return self.grid.compose_limit(self.cell, self.at.memory)

    def _take_turn(self, system: str, first: Batches, rest: Batches) -> None:
        """Measure the disk, then a system; one that fails is not tried again in this cell."""
        rng = np.random.default_rng(self.grid.seed)
        device = measure_device(self.pages, self.grid.device_seconds, rng)
        try:
            found = self._sample(system, first, rest)
        except EngineError as error:
            self.failed[system] = str(error)
            self.able.remove(system)
            self.milliseconds.pop(system, None)
            self.facts.pop(system, None)
        else:
            self.milliseconds.setdefault(system, []).append(found.pop("milliseconds"))
            self.facts.setdefault(system, []).append(found | {"device": asdict(device)})

    def _sample(self, system: str, first: Batches, rest: Batches) -> Record:
        """Run a system in a Spark of its own, in a group of its own."""
        left = _drop_stores(self.at.products)
        with ExitStack() as stack:
            group = None
            if self.grid.is_confined(self.cell):
                group = stack.enter_context(memory_group("semistream-bench"))
                group.limit(sum(self.limit.values()))
            engines = Engines(_MASTERS, _config(self.grid), longest=_LONGEST, group=group)
            stack.enter_context(engines)
            try:
                found = self._run(engines, system, first, rest)
            except EngineError as error:
                msg = f"{error}; {group.read_usage() if group else 'no group'}"
                raise EngineError(msg) from None
            usage = group.read_usage() if group else {}
            cached = sum(map(resident_bytes, _stores(self.at.products)))
        return found | usage | {"left_cached": left, "cached": cached}

    def _run(self, engines: Engines, system: str, first: Batches, rest: Batches) -> Record:
        """Warm up, then time batches, and look at the memory of all processes meanwhile."""
        enough = Enough(DROPPED, self.grid.seconds, least=2)
        warming = (self.grid.warm, self.grid.warm_batches, self.grid.limit)
        engines.call("main", warm_up, system, self.at, first, *warming)
        with Footprint(engines.pid("main"), itself=True, every=_EVERY) as footprint:
            timed = (system, self.at, rest, self.grid.limit, enough)
            found: Record = engines.call("main", watch_batches, *timed)
        return found | {"processes": footprint.most}


def _config(grid: ConfinedGrid) -> dict[str, str]:
    """Return Spark's settings; the heap is taken at once, or the page cache would have the rest."""
    heap = f"{grid.heap >> 20}m"
    touched = f"-Xms{heap} -XX:+AlwaysPreTouch"
    return {"spark.driver.memory": heap, "spark.driver.extraJavaOptions": touched} | _RECENT


def watch_batches(
    system: str, at: Setting, batches: Batches, limit: float, enough: Enough
) -> Record:
    """Return the milliseconds of each micro-batch, and what enrichments say that they did."""
    seen: list[BatchMetrics] = []
    spark = SparkSession.active()
    watch(spark, seen.append)
    took = time_batches(system, at, batches, limit, enough)
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # noqa: SLF001 - else some may lack
    return {"milliseconds": took, "batches": [_metrics(m) for m in seen if m.rows]}


def _metrics(batch: BatchMetrics) -> Record:
    return {
        "hit_rate": round(batch.hit_rate, 4),
        "pages_read": batch.counters["pages_read"],
        "bytes_read": batch.counters["bytes_read"],
        "held": batch.held(_TASKS),
        "budget": batch.budget,
    }


def _stores(products: Products) -> list[Path]:
    """Return the products in all kinds of stores that there are."""
    return sorted(products.folder.glob(products.path("*").name))


def _drop_stores(products: Products) -> int:
    """Let the page cache forget the products; return the bytes that it still has of them."""
    left = {path: drop_cached(path) for path in _stores(products)}
    worst = max(left, key=lambda path: left[path])
    if left[worst] > _MOST_LEFT * products.bytes:
        msg = (
            f"{format_bytes(left[worst])} of {worst} can't be dropped from the page cache; does "
            "another process map it? The figures would be those of the cache"
        )
        raise SemistreamError(msg)
    return sum(left.values())


@contextmanager
def _clean_end() -> Iterator[None]:
    """Let SIGTERM end this process the way an exception does: the group is removed."""

    def end(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


CONFINED = Benchmark(
    "confined",
    "milliseconds of micro-batches on Spark in a memory cgroup, with a master larger than memory",
    ConfinedGrid,
    measure,
    sheets,
)
