"""Measuring ours beside other stores: the same stream, the same master, the same memory."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.engine.build import PeakMemory
from benchmarks.engine.matrix import take_rounds
from benchmarks.memory import resident_bytes
from benchmarks.stores import ENGINES, IN_MEMORY, Engine
from benchmarks.stores.building import built
from benchmarks.workload import Bound, Feed, Workload
from semistream.cost.run import Run, one_thread
from semistream.errors import SemistreamError
from semistream.join import Join
from semistream.master import open_master
from semistream.system.machine import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from multiprocessing.connection import Connection
    from pathlib import Path

__all__ = ["Contest", "StoreGrid", "engine_at", "measure_stores"]

_MOST_BOUND_ROWS = 5_000_000  # a larger master is not read into memory for the bound


@dataclass(frozen=True)
class StoreGrid:
    """Who is measured, in which chunks, at which size."""

    algorithm: str
    rows: int = 2_000_000
    engines: tuple[str, ...] = tuple(kind.name for kind in (*ENGINES, *IN_MEMORY))
    chunks: tuple[int, ...] = (100_000, 1_000_000)
    """Stream rows in a chunk: every engine is measured with each, ours with the first."""
    memory: int = 64 << 20
    exponent: float = 1.0
    seconds: float = 1.0
    rounds: int = 3
    page_bytes: str = "128KB"

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
        """Give the stream rows joined in a second, over about so many seconds."""
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
        """Join the first chunk; give why it could not. Other rows than the right ones are an error.

        An engine may not manage with the memory that it is given.
        """
        try:
            found = self.engine.join(self.feed.batches[0])
        except Exception as error:  # each engine has errors of its own
            return str(error).splitlines()[0]
        if not found.cast(right.schema).sort_by("sale").combine_chunks().equals(right):
            msg = f"{self.label}: the rows are not those of the join"
            raise SemistreamError(msg)
        return ""


def engine_at(kind: type[Engine], grid: StoreGrid, folder: Path) -> Engine:
    """Give the engine, its master built if it was not there."""
    path, schema = folder / f"{kind.name}-{grid.rows}", grid.workload.table().schema
    return built(kind, path, schema, grid.memory, grid.workload.table)


def measure_stores(
    grids: Iterable[StoreGrid], folder: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """Measure every grid; give a record that can be written as JSON."""
    one_thread()
    return {
        "kind": "stores",
        "what": "stream rows a second beside other stores, one thread each",
        "machine": describe(),
        "settings": [_measure(grid, folder, say) for grid in grids],
    }


def _measure(grid: StoreGrid, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    say(f"R = {grid.rows:,}: masters")
    path = grid.workload.prepare(folder, grid.page_bytes)
    feeds = [grid.feed(chunk) for chunk in grid.chunks]
    left_out = {kind.name: kind.missing() for kind in _engines(grid) if kind.missing()}
    engines = [engine_at(kind, grid, folder) for kind in _engines(grid) if not kind.missing()]
    contests = list(_contests(engines, feeds))
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
    held = {c.label: _resident(c.engine.path) for c in contests}
    held[grid.algorithm] = _resident(path)
    for engine in engines:
        engine.close()
    rates = {
        name: {"samples": samples[name], **memory[name], "files_held": held[name]}
        for name in samples
    }
    notes = {engine.name: engine.note for engine in engines}
    return {**asdict(grid), "bound": bounds, "rates": rates, "notes": notes, "left_out": left_out}


def _engines(grid: StoreGrid) -> list[type[Engine]]:
    return [kind for kind in (*ENGINES, *IN_MEMORY) if kind.name in grid.engines]


def _contests(engines: list[Engine], feeds: list[Feed]) -> Iterator[Contest]:
    for engine in engines:
        for feed in feeds:
            yield Contest(engine, feed)


def _join(grid: StoreGrid, path: Path, schema: pa.Schema) -> Join:
    master = open_master(path)
    return Join(master, schema, on="key", memory=grid.memory, algorithm=grid.algorithm)


def _joined(grid: StoreGrid, path: Path, feed: Feed) -> pa.Table:
    """Give the rows of the first chunk, joined by us."""
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
    bound = Bound(grid.workload)
    return take_rounds(grid.rounds, lambda: bound.sample(feed, grid.seconds / 4), takers)


def _resident(path: Path) -> int:
    """Give how much of a store's files the operating system holds."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return sum(resident_bytes(file) for file in files)


# -- memory, in a process of its own, where nothing was freed before --------------------------


def _in_child(measure: Callable[..., dict[str, int]], *arguments: object) -> dict[str, int]:
    # Small arguments only: a child that dies before it has read them would let us wait forever.
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(theirs, measure, *arguments))
    child.start()
    theirs.close()
    try:
        found: dict[str, int] = mine.recv()
    except EOFError:
        found = {}
    child.join()
    return found


def _child(pipe: Connection, measure: Callable[..., dict[str, int]], *arguments: object) -> None:
    one_thread()
    pipe.send(measure(*arguments))


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
