"""Algorithms on two processes: each has half of R, of the stream and of the memory, as in PCSRJ."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.engine.workload import Feed, Workload
from benchmarks.harness.processes import Child
from benchmarks.harness.run import Run, one_thread
from papers.run.cells import Cell, Group
from papers.run.measure import Bench, facts_of, started, watched
from semistream import build_master
from semistream.errors import BudgetError
from semistream.join import Join
from semistream.master import open_master
from semistream.metrics import Metrics

Facts = dict[str, Any]


NODES = 2
_STRIDE = 2  # of the keys: every second number is one


@dataclass(frozen=True)
class Node:
    """What one process has: a part of R, and of the stream."""

    number: int
    master: Path
    rows: int
    exponent: float
    feed_rows: int

    def feed(self) -> tuple[pa.RecordBatch, ...]:
        """Return this node's half of the stream: the mapper's work, done before it is timed."""
        stream = Workload("1:1", self.rows).stream(self.exponent)
        batches = Feed.of(stream, self.feed_rows).batches
        return tuple(batch.filter(_mine(batch["key"], self.number)) for batch in batches)


class _Did(NamedTuple):
    """What a join of a process has done so far."""

    metrics: Metrics
    window_rows: int
    spent: float


def _mine(keys: pa.Array, number: int) -> pa.Array:
    """Return which keys belong to a node: even or odd, as the paper's hash does."""
    place = pc.divide(keys, _STRIDE)
    return pc.equal(pc.bit_wise_and(place, NODES - 1), number)


def _halves(rows: int, folder: Path, page_bytes: str) -> list[Path]:
    """Build a master for each node."""
    paths = []
    for number in range(NODES):
        path = folder / f"node-{rows}-{number}-{page_bytes}"
        if not (path / "manifest.json").exists():
            table = Workload("1:1", rows).table()
            mine = (batch.filter(_mine(batch["key"], number)) for batch in table)
            reader = pa.RecordBatchReader.from_batches(table.schema, mine)
            build_master(reader, path, key="key", page_bytes=page_bytes, filter=False)
        paths.append(path)
    return paths


class _Part:
    """A node's joins by the labels of their lines, within its process."""

    def __init__(self, node: Node) -> None:
        self._batches = node.feed()
        self._master = open_master(node.master, "direct")
        self._runs: dict[str, Run] = {}

    def begin(self, label: str, algorithm: str, memory: int) -> str | None:
        """Start a join; return why not, if it is refused."""
        schema = self._batches[0].schema
        try:
            join = Join(self._master, schema, on="key", memory=memory, algorithm=algorithm)
        except BudgetError as error:
            return str(error)
        self._runs[label] = Run(join, itertools.cycle(self._batches))
        return None

    def warm(self, label: str, seconds: float, longer: float) -> _Did:
        """Let a join settle."""
        self._runs[label].warm_up(seconds, longer)
        return self._did(label, 0.0)

    def watch(self, label: str, seconds: float) -> _Did:
        """Let a join go on, by the clock: a node whose turn ends later would be alone then."""
        return self._did(label, self._runs[label].spend(seconds))

    def _did(self, label: str, spent: float) -> _Did:
        return _Did(self._runs[label].join.metrics, self._runs[label].window_rows, spent)

    def close(self) -> None:
        """End all joins."""
        for run in self._runs.values():
            run.join.close()


_part: _Part | None = None
"""The joins of this process, if it is a node."""


def _become(node: Node) -> None:
    """Be this node."""
    global _part  # noqa: PLW0603 - one a process
    one_thread()
    _part = _Part(node)


def _do(what: str, *given: object) -> Any:
    """Call a method of the node that this process is."""
    return getattr(_part, what)(*given)


class Processes:
    """A process for each node; all do what they are asked at the same time."""

    def __init__(self) -> None:
        self._children = [Child() for _ in range(NODES)]

    def become(self, nodes: Sequence[Node]) -> None:
        """Have each process be a node."""
        self._all([(_become, node) for node in nodes])

    def ask(self, what: str, *given: object) -> list[Any]:
        """Return what each node answers."""
        return self._all([(_do, what, *given)] * NODES)

    def _all(self, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        try:
            for child, call in zip(self._children, calls, strict=True):
                child.begin(*call)
            return [child.result() for child in self._children]
        except BaseException:  # what is not read would be taken for the next answer
            processes.cache_clear()
            for child in self._children:
                child.close()
            raise


@cache
def processes() -> Processes:
    """Return the processes, which are started once and end with this one."""
    return Processes()


class _Shared(Run):
    """A line on all nodes as one run: what they do at the same time is added up."""

    def __init__(self, nodes: Processes, cell: Cell) -> None:
        self._nodes, self._label = nodes, cell.label
        self._metrics, self._rows = Metrics(), 1
        self.join = cast("Join", self)
        asked = cell.label, cell.series.algorithm, cell.memory // NODES
        refused = [answer for answer in nodes.ask("begin", *asked) if answer]
        if refused:
            raise BudgetError(refused[0])

    def _ask(self, what: str, *given: float) -> float:
        answers = self._nodes.ask(what, self._label, *given)
        self._metrics = Metrics.total(did.metrics for did in answers)
        self._rows = sum(did.window_rows for did in answers)
        return float(max(did.spent for did in answers))

    def warm_up(self, seconds: float, longer: float = 1.0) -> None:
        """Let all nodes settle, at the same time."""
        self._ask("warm", seconds, longer)

    def watch(self, seconds: float) -> float:
        """Let all nodes go on at the same time; return the seconds of the slowest."""
        return self._ask("watch", seconds)

    @property
    def metrics(self) -> Metrics:
        """What all nodes did."""
        return self._metrics

    @property
    def window_rows(self) -> int:
        """How many rows wait in all nodes."""
        return self._rows

    def close(self) -> None:
        """Do nothing: a process ends its joins when it rests."""


def side_by_side(group: Group, bench: Bench, folder: Path) -> Iterator[tuple[Cell, Facts]]:
    """Measure rates in turn, of one process and of two."""
    runs: dict[str, Run] = {}
    cells = {cell.label: cell for cell in group.cells}
    processes().become(_nodes(group, bench, folder))
    for label, cell in cells.items():
        try:
            runs[label] = _begun(cell, bench)
        except BudgetError as error:
            yield cell, {"refused": str(error).split(";")[0]}
    for label, seen in watched(runs, bench.scale).items():
        runs[label].join.close()
        yield cells[label], facts_of(seen) | {"memory": cells[label].memory}
    processes().ask("close")


def _begun(cell: Cell, bench: Bench) -> Run:
    if cell.series.processes == 1:
        return started(cell, bench)
    return _Shared(processes(), cell)


def _nodes(group: Group, bench: Bench, folder: Path) -> list[Node]:
    paths = _halves(group.rows, folder, bench.scale.page_bytes)
    rows = max(bench.scale.feed_rows, group.rows)
    return [
        Node(number, path, group.rows, group.exponent, rows) for number, path in enumerate(paths)
    ]
