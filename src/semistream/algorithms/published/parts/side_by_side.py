"""Several joins side by side, each for a part of the key space."""

from __future__ import annotations

import weakref
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import numpy as np

from semistream.algorithms.published.parts.ordered import plain_slices
from semistream.arrow.memory import take_rows
from semistream.engine.operator import Operator
from semistream.engine.plan import MemoryUse
from semistream.errors import RowTooLargeError
from semistream.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from semistream.engine.plan import Runtime
    from semistream.spec import JoinSpec

    Batches = Iterator[pa.RecordBatch]

__all__ = ["Router"]

_BESIDE = 40  # bytes a row for its code, its page and its place in a node's share


class Router(Operator):
    """Sends each row to the node of its key; the nodes work at the same time, in threads.

    A node's share of the key space is every n-th page of the master. All nodes rest while a batch
    is out: so what is counted is exact, and the order of the output is always the same, a batch of
    each node in turn.

    Parameters
    ----------
    spec
        The join.
    nodes
        The joins that do the work, all with the same budget.
    room
        Bytes for rows on their way to the nodes.
    runtime
        Its clock and its longest wait.
    """

    def __init__(
        self,
        spec: JoinSpec,
        nodes: Sequence[Operator],
        room: int,
        runtime: Runtime,
    ) -> None:
        self.nodes = nodes
        self.metrics = Metrics()
        self._spec, self._room = spec, room
        self._clock, self._max_wait = runtime.clock, runtime.max_wait
        self._on_their_way: list[pa.RecordBatch] = []
        self._ready: list[pa.RecordBatch] = []
        self._numbers = range(len(nodes))
        self._turn = 0
        self._pool = ThreadPoolExecutor(len(nodes), thread_name_prefix="semistream-node")
        weakref.finalize(self, self._pool.shutdown, wait=False)

    @property
    def memory_used(self) -> MemoryUse:
        """Bytes held now, by component, over all nodes."""
        used = MemoryUse(router=sum(batch.nbytes for batch in self._on_their_way))
        for node in self.nodes:
            for name, size in node.memory_used.items():
                used[name] = used.get(name, 0) + size
        used["output"] += sum(batch.nbytes for batch in self._ready)
        return used

    @property
    def waiting(self) -> int:
        """How many rows wait for their page, on all nodes."""
        return sum(node.waiting for node in self.nodes)

    def check(self, batch: pa.RecordBatch) -> None:
        """Refuse a batch with a row that a node could not hold, before any of it is taken."""
        try:
            self.nodes[0].check(batch)
        except RowTooLargeError as error:
            msg = f"{error} (A node's memory is meant; there are {len(self.nodes)}.)"
            raise RowTooLargeError(msg) from None

    def run(self, batch: pa.RecordBatch, arrived: float | None = None) -> Batches:
        """Take in a batch, slice by slice; yield what becomes ready."""
        now = self._clock() if arrived is None else arrived
        plain = self._spec.plain_stream
        for rows, _ in plain_slices(batch, plain, self._room, copies=2, beside=_BESIDE):
            self._on_their_way = self._shares(rows)
            pairs = zip(self.nodes, self._on_their_way, strict=True)
            yield from self._rounds(
                [node.run(share, now) for node, share in pairs if share.num_rows]
            )
            self._on_their_way = []
            yield from self._serve_overdue()

    def drain(self) -> Batches:
        """Answer every row that waits."""
        yield from self._rounds([node.drain() for node in self.nodes])

    def close(self) -> None:
        """Release everything; rows that wait are lost."""
        self._pool.shutdown()
        for node in self.nodes:
            node.close()
        vars(self).clear()

    def tick(self) -> Batches:
        """Do what is due on every node; without max_wait, one round on the next that is busy."""
        if self._max_wait is not None:
            yield from self._serve_overdue()
            return
        order = [*self.nodes[self._turn :], *self.nodes[: self._turn]]
        self._turn = (self._turn + 1) % len(self.nodes)
        busy = next((node for node in order if node.waiting), None)
        if busy is not None:
            yield from self._rounds([busy.tick()])

    def _serve_overdue(self) -> Batches:
        """Serve overdue rows until none is, on any node: meanwhile others' rows come due."""
        before = -1
        while self._max_wait is not None and before != self.waiting:
            before = self.waiting
            yield from self._rounds([node.tick() for node in self.nodes])

    def _rounds(self, work: list[Batches]) -> Batches:
        """Run the nodes side by side until each has a batch; yield these in order; repeat."""
        while work:
            futures = [self._pool.submit(next, each, None) for each in work]
            wait(futures)  # also where one failed: none may work on behind our back
            results = [future.result() for future in futures]
            work = [each for each, batch in zip(work, results, strict=True) if batch is not None]
            self._ready = [batch for batch in results if batch is not None]
            self.metrics = Metrics.total(node.metrics for node in self.nodes)
            del results, futures
            while self._ready:
                yield self._ready.pop(0)

    def _shares(self, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Return the rows of each node, in order of arrival."""
        homes = self._homes(rows)
        if (homes == homes[0]).all():  # no copy: so a single row may be as wide as it likes
            return [rows.slice(0, rows.num_rows * bool(n == homes[0])) for n in self._numbers]
        return [take_rows(rows, np.flatnonzero(homes == n)) for n in self._numbers]

    def _homes(self, rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
        """Return the node of each row: that of its key's page."""
        keys = [rows.column(name) for name in self._spec.stream_keys]
        codes = self._spec.master.keys.encode(keys).values
        return self._spec.master.page_of(codes) % len(self.nodes)
