"""PCSRJ on two processes: each has half of R, of the stream and of the memory."""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from semistream.bench.matrix import one_thread
from semistream.bench.run import Run
from semistream.bench.workload import Feed, Workload
from semistream.errors import BudgetError
from semistream.join import Join
from semistream.master import build_master, open_master
from semistream.metrics import Metrics
from semistream.reproduce.measure import facts_of, started, watched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection
    from pathlib import Path

    from semistream.reproduce.cells import Cell, Group
    from semistream.reproduce.measure import Bench

    Facts = dict[str, Any]

__all__ = ["NODES", "Node", "Processes", "side_by_side"]

NODES = 2
_STRIDE = 2  # of the keys: every second number is one


@dataclass(frozen=True)
class Node:
    """What one process is told."""

    number: int
    master: Path
    memory: int
    rows: int
    exponent: float
    feed_rows: int

    def feed(self) -> tuple[pa.RecordBatch, ...]:
        """Give this node's half of the stream: the mapper's work, done before it is timed."""
        stream = Workload("1:1", self.rows).stream(self.exponent)
        batches = Feed.of(stream, self.feed_rows).batches
        return tuple(batch.filter(_mine(batch["key"], self.number)) for batch in batches)


def _mine(keys: pa.Array, number: int) -> pa.Array:
    """Tell which keys belong to a node: even or odd, as the paper's hash does."""
    place = pc.divide(keys, _STRIDE)
    return pc.equal(pc.bit_wise_and(place, NODES - 1), number)


def _halves(rows: int, folder: Path, page_bytes: str) -> list[Path]:
    """Build a master for each node."""
    found = []
    for number in range(NODES):
        path = folder / f"node-{rows}-{number}-{page_bytes}"
        if not (path / "manifest.json").exists():
            table = Workload("1:1", rows).table()
            mine = (batch.filter(_mine(batch["key"], number)) for batch in table)
            reader = pa.RecordBatchReader.from_batches(table.schema, mine)
            build_master(reader, path, key="key", page_bytes=page_bytes, filter=False)
        found.append(path)
    return found


def _serve(connection: Connection, node: Node) -> None:
    """Run one node's CACHEJOIN for as long as it is told to."""
    one_thread()
    batches = node.feed()
    master = open_master(node.master, "direct")

    def forever() -> Iterator[pa.RecordBatch]:
        while True:
            yield from batches

    try:
        join = Join(master, batches[0].schema, on="key", memory=node.memory, algorithm="cachejoin")
    except BudgetError as error:
        connection.send(str(error))
        return
    with join:
        run = Run(join, forever())
        connection.send(None)
        while (asked := connection.recv()) is not None:
            what, seconds = asked
            spent = 0.0
            if what == "warm":
                run.warm_up(seconds)
            else:
                spent = run.watch(seconds)
            connection.send((join.metrics, run.window_rows, spent))


class Processes(Run):
    """The nodes as one run: what they do at the same time is added up."""

    def __init__(self, nodes: list[Node]) -> None:
        context = multiprocessing.get_context("spawn")
        self._ends: list[Connection] = []
        self._processes = []
        self._metrics, self._rows = Metrics(), 1
        for node in nodes:
            mine, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, node), daemon=True)
            process.start()
            theirs.close()
            self._ends.append(mine)
            self._processes.append(process)
        self.join = cast("Join", self)
        refused = [answer for answer in (end.recv() for end in self._ends) if answer]
        if refused:
            self.close()
            raise BudgetError(refused[0])

    def _ask(self, what: str, seconds: float) -> float:
        for end in self._ends:
            end.send((what, seconds))
        answers = [end.recv() for end in self._ends]
        self._metrics = Metrics.total(metrics for metrics, _, _ in answers)
        self._rows = sum(rows for _, rows, _ in answers)
        return float(max(spent for _, _, spent in answers))

    def warm_up(self, seconds: float) -> None:
        """Let all nodes settle, at the same time."""
        self._ask("warm", seconds)

    def watch(self, seconds: float) -> float:
        """Let all nodes go on at the same time; give the seconds of the slowest."""
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
        """End the processes."""
        for end, process in zip(self._ends, self._processes, strict=True):
            if process.is_alive():
                end.send(None)
            process.join()
            end.close()


def side_by_side(group: Group, bench: Bench, folder: Path) -> Iterator[tuple[Cell, Facts]]:
    """Measure rates in turn, PCSRJ on processes of its own."""
    runs: dict[str, Run] = {}
    cells = {cell.label: cell for cell in group.cells}
    for label, cell in cells.items():
        try:
            if cell.series.algorithm == "pcsrj":
                runs[label] = Processes(_nodes(cell, bench, folder))
            else:
                runs[label] = started(cell, bench)
        except BudgetError as error:
            yield cell, {"refused": str(error).split(";")[0]}
    for label, seen in watched(runs, bench.scale).items():
        runs[label].join.close()
        yield cells[label], facts_of(seen) | {"memory": cells[label].memory}


def _nodes(cell: Cell, bench: Bench, folder: Path) -> list[Node]:
    paths = _halves(cell.rows, folder, bench.scale.page_bytes)
    rows = max(bench.scale.feed_rows, cell.rows)
    each = cell.memory // NODES
    return [
        Node(number, path, each, cell.rows, cell.exponent, rows)
        for number, path in enumerate(paths)
    ]
