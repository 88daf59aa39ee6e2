"""Ours beside other stores: the same stream, the same master, the same memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks.engine.workload import Bound, Feed, Workload
from benchmarks.harness.claims import candidate
from benchmarks.harness.command import Benchmark, Grid, Job, option
from benchmarks.harness.memory import PeakMemory, resident_bytes
from benchmarks.harness.processes import Child, ChildError
from benchmarks.harness.record import Record
from benchmarks.harness.rounds import take_rounds
from benchmarks.harness.run import Run, one_thread
from benchmarks.harness.samples import ratio, thousands
from benchmarks.harness.table import Sheet
from benchmarks.stores import ENGINES, Engine, built
from semistream.algorithms import algorithms
from semistream.errors import SemistreamError
from semistream.join import Join
from semistream.master import open_master
from semistream.units import format_bytes, parse_bytes

_MOST_BOUND_ROWS = 5_000_000  # a larger master is not read into memory for the bound


@dataclass(frozen=True)
class StoreGrid(Grid):
    """Who is measured, in which chunks, at which size."""

    algorithm: str = candidate(algorithms())
    rows: int = option(2_000_000, "Rows of the master for all stores.")
    large: int = option(20_000_000, "Rows of a larger master, for DuckDB alone; 0 leaves it out.")
    engines: tuple[str, ...] = option(
        tuple(ENGINES), "Only this engine.", "engine", known=tuple(ENGINES)
    )
    chunks: tuple[int, ...] = (100_000, 1_000_000)
    """Stream rows in a chunk: every engine is measured with each, ours with the first."""
    memory: int = option(64 << 20, "The budget, also of stores' own caches.", read=parse_bytes)
    exponent: float = 1.0
    seconds: float = option(1.0, "Seconds per sample.")
    rounds: int = option(3, "The number of samples.")
    page_bytes: str = "128KB"

    @property
    def sizes(self) -> list[StoreGrid]:
        """The grid for all stores, and that of the larger master."""
        grids = [self]
        if self.large and "duckdb" in self.engines:
            grids.append(replace(self, rows=self.large, engines=("duckdb",)))
        return [
            replace(grid, chunks=tuple(sorted({min(chunk, grid.rows) for chunk in grid.chunks})))
            for grid in grids
        ]

    @property
    def steps(self) -> int:
        return len(self.sizes)

    @property
    def workload(self) -> Workload:
        """The master and the stream: 1:1, rows of 120 B."""
        return Workload("1:1", self.rows)

    def feed(self, chunk: int) -> Feed:
        """Make stream rows beforehand: four chunks of the largest size."""
        return Feed.of(self.workload.stream(self.exponent), 4 * max(self.chunks), chunk)


@dataclass
class Contest:
    """One engine that joins chunks of one size again and again."""

    engine: Engine
    feed: Feed
    _turn: int = field(default=0, init=False)

    @property
    def chunk_rows(self) -> int:
        """How many rows a chunk has."""
        return len(self.feed.batches[0])

    @property
    def label(self) -> str:
        """The engine and its chunks."""
        return f"{self.engine.name}, chunks of {self.chunk_rows:,}"

    def sample(self, seconds: float) -> float:
        """Return the stream rows joined in a second, over about so many seconds."""
        rows, spent = 0, 0.0
        while spent < seconds:
            chunk = self.feed.batches[self._turn % len(self.feed.batches)]
            self._turn += 1
            start = time.perf_counter()
            self.engine.join(chunk)
            spent += time.perf_counter() - start
            rows += chunk.num_rows
        return rows / spent

    def check(self, right: pa.Table) -> str:
        """Join the first chunk; return why it could not, such as for want of memory.

        Raises
        ------
        SemistreamError
            The rows are not the right ones.
        """
        try:
            joined = self.engine.join(self.feed.batches[0])
        except Exception as error:  # each engine has errors of its own
            return str(error).splitlines()[0]
        if not joined.cast(right.schema).sort_by("sale").combine_chunks().equals(right):
            msg = f"{self.label}: the rows are not those of the join"
            raise SemistreamError(msg)
        return ""


def engine_at(kind: type[Engine], grid: StoreGrid, folder: Path) -> Engine:
    """Return the engine, its master built if it was not there."""
    path, schema = folder / f"{kind.name}-{grid.rows}", grid.workload.table().schema
    return built(kind, path, schema, grid.memory, grid.workload.table)


def measure(job: Job[StoreGrid]) -> Iterator[None]:
    """Measure DuckDB, LMDB, RocksDB and SQLite, and joins with all of R in memory, beside ours.

    Each joins the stream chunk by chunk on one thread, with the master in a file of its own or all
    of it in memory (Arrow, DuckDB and Polars), and returns the same columns as Arrow; the rows are
    compared before it is timed. The memory of each is measured in a process of its own.
    """
    one_thread()
    for grid in job.grid.sizes:
        if not job.has("settings", {"rows": grid.rows}):
            job.add("settings", _measure(grid, job.folder, job.say), "rows")
        yield


def _measure(grid: StoreGrid, folder: Path, say: Callable[[str], None]) -> Record:
    folder.mkdir(parents=True, exist_ok=True)
    say(f"R = {grid.rows:,}: masters")
    path = grid.workload.prepare(folder, grid.page_bytes)
    feeds = [grid.feed(chunk) for chunk in grid.chunks]
    kinds = [kind for name, kind in ENGINES.items() if name in grid.engines]
    left_out = {kind.name: kind.missing() for kind in kinds if kind.missing()}
    engines = [engine_at(kind, grid, folder) for kind in kinds if not kind.missing()]
    contests = [Contest(engine, feed) for engine in engines for feed in feeds]
    memory = {c.label: _in_child(_engine_memory, grid, c.engine, c.chunk_rows) for c in contests}
    memory[grid.algorithm] = _in_child(_own_memory, grid, path)
    for engine in engines:
        engine.open()
    say(f"R = {grid.rows:,}: the same rows?")
    for feed in feeds:
        right = _joined(grid, path, feed)
        for contest in [c for c in contests if c.feed is feed]:
            if failure := contest.check(right):
                left_out[contest.label] = failure
                contests.remove(contest)
    say(f"R = {grid.rows:,}: rounds")
    bounds, samples = _rounds(grid, path, feeds[0], contests)
    held = {c.label: resident_bytes(c.engine.path) for c in contests}
    held[grid.algorithm] = resident_bytes(path)
    for engine in engines:
        engine.close()
    rates = {
        name: {"samples": samples[name], **memory[name], "files_held": held[name]}
        for name in samples
    }
    notes = {engine.name: engine.note for engine in engines}
    return {**asdict(grid), "bound": bounds, "rates": rates, "notes": notes, "left_out": left_out}


def _join(grid: StoreGrid, path: Path, schema: pa.Schema) -> Join:
    master = open_master(path)
    return Join(master, schema, on="key", memory=grid.memory, algorithm=grid.algorithm)


def _joined(grid: StoreGrid, path: Path, feed: Feed) -> pa.Table:
    """Return the rows of the first chunk, joined by us."""
    join = _join(grid, path, feed.schema)
    rows = [*join.offer(feed.batches[0]), *join.drain()]
    return pa.Table.from_batches(rows, join.schema).sort_by("sale").combine_chunks()


def _rounds(
    grid: StoreGrid, path: Path, feed: Feed, contests: list[Contest]
) -> tuple[list[int], dict[str, list[int]]]:
    run = Run(_join(grid, path, feed.schema), feed.forever())
    run.warm_up(10 * grid.seconds)
    for contest in contests:
        contest.sample(1e-9)
    takers = {grid.algorithm: partial(run.sample, grid.seconds)}
    takers |= {contest.label: partial(contest.sample, grid.seconds) for contest in contests}
    if grid.rows > _MOST_BOUND_ROWS:
        return take_rounds(grid.rounds, None, takers)
    bound = partial(Bound(grid.workload).sample, feed, grid.seconds / 4)
    return take_rounds(grid.rounds, bound, takers)


# -- memory, in a process of its own, where nothing was freed before --------------------------


def _in_child(measure: Callable[..., dict[str, int]], *arguments: object) -> dict[str, int]:
    with Child() as child, suppress(ChildError):
        child.call(one_thread)
        sizes: dict[str, int] = child.call(measure, *arguments)
        return sizes
    return {}


def _engine_memory(grid: StoreGrid, engine: Engine, chunk_rows: int) -> dict[str, int]:
    chunk = next(grid.workload.stream(grid.exponent).batches(chunk_rows, chunk_rows))
    with PeakMemory() as peak:
        engine.open()
        for _ in range(3):
            engine.join(chunk)
    return {"grown_bytes": peak.grown}


def _own_memory(grid: StoreGrid, path: Path) -> dict[str, int]:
    feed = Feed.of(grid.workload.stream(grid.exponent), grid.chunks[0] * 4, grid.chunks[0])

    def run_for(seconds: float, memory: int) -> Run:
        run = Run(_join(replace(grid, memory=memory), path, feed.schema), feed.forever())
        run.warm_up(seconds)
        return run

    run_for(0.0, grid.memory // 4)  # the compiled code is the process's, whatever the budget
    with PeakMemory() as peak:
        run = run_for(grid.seconds, grid.memory)
    return {"grown_bytes": peak.grown, "counted_bytes": run.most_used}


def sheets(record: Record) -> Iterator[Sheet]:
    """Return a table a size of R: ours and the stores down."""
    for setting in record["settings"]:
        mine = setting["rates"][setting["algorithm"]]["samples"]
        rows = [
            (
                name,
                thousands(rate["samples"]),
                ratio(mine, rate["samples"]).show(unit="×"),
                format_bytes(rate["grown_bytes"]) if "grown_bytes" in rate else "not known",
                format_bytes(rate["files_held"]),
            )
            for name, rate in setting["rates"].items()
        ]
        heads = ("", "thousand rows/s", "ours is ahead", "process grew by", "files held beside")
        size = f"R = {setting['rows']:,} × 120 B, Zipf {setting['exponent']:g}"
        title = f"Beside other stores: {size}, {format_bytes(setting['memory'])}, one thread each"
        notes = [f"{name}: {note}" for name, note in setting["notes"].items()]
        notes += [f"{name} was left out: {why}" for name, why in setting["left_out"].items()]
        yield Sheet(title, heads, tuple(rows), "; ".join(notes))


STORES = Benchmark(
    "stores",
    "stream rows a second beside other stores, one thread each",
    StoreGrid,
    measure,
    sheets,
)
