"""Run a join on a view of its master, and count what it does for a stream row."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semistream.engine.observer import Observer
from semistream.engine.plan import Runtime
from semistream.hotset.plan import Host
from semistream.hotset.sizes import HEADER, HostSizes, overhead
from semistream.planning.demand import draw_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from semistream.algorithms import Algorithm
    from semistream.engine.engine import Engine
    from semistream.engine.plan import Plan, Task
    from semistream.engine.window import Chunk
    from semistream.planning.demand import Demand
    from semistream.planning.view import View

    Batches = Iterator[pa.RecordBatch]

__all__ = ["Running", "Trial", "Work", "count_work"]

_FIXED = {"pages", "output", "blocks", "lookup"}  # bytes that do not follow the master's size
_SCALED = {"window_rows", "least_window", "l", "cached_pages", "threshold"}  # settings that do
_LEAST_SLICE = 32_768  # rows: fewer, and chance is more than the tolerance below
_MOST_SLICE = 500_000
_MOST_PAGES = 8192  # of a slice: enough to count, where nearly every row takes a page of its own
_WINDOWS = 64  # times that a window of few rows turns over: each row is then a step of its own
_TURNS = 10  # times the rows that the memory could hold: as often as `adaptive` moves memory
_SLICES = 6
_SAME = 0.02  # slices that differ by less are taken for a join that has settled


@dataclass(frozen=True)
class Work:
    """What a join did, or does for a row; counts of the whole master, not of the view."""

    rows: float = 0.0
    probed: float = 0.0
    """Rows that a cache was asked for."""
    kept: float = 0.0
    """Rows with which a cache was kept current: not where it holds all of the master."""
    hits: float = 0.0
    """Rows answered by a cache, or by pages that stay in memory."""
    known: float = 0.0
    """Rows known to have no match without a page."""
    looked_up: float = 0.0
    """Rows answered at once, from mapped pages in memory."""
    appended: float = 0.0
    """Rows that waited in the window."""
    out: float = 0.0
    """Rows that came out, those looked up at once left out."""
    pages: float = 0.0
    reads: float = 0.0
    bytes: float = 0.0
    chunks: float = 0.0
    """Pieces in which the stream was taken in."""
    steps: float = 0.0
    """Rounds of a loop that brings a page or a few; a sweep's are its chunks'."""

    @property
    def from_memory(self) -> float:
        """The share of rows that needed no page."""
        return (self.hits + self.known + self.looked_up) / max(self.rows, 1e-9)

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __mul__(self, factor: float) -> Work:
        return Work(*(getattr(self, f.name) * factor for f in fields(self)))

    def __sub__(self, other: Work) -> Work:
        return self + other * -1


@dataclass(frozen=True, eq=False)
class Trial:
    """What is simulated: a chosen join, its stream, and how it is run."""

    kind: type[Algorithm]
    task: Task
    plan: Plan
    view: View
    demand: Demand
    batch_rows: int
    """Rows of a batch that is offered, or of a micro-batch."""
    copies: int = 1
    """Tasks that have such a join each, for their part of the pages."""
    hosts: int = 1
    """Hosts that these tasks are on."""
    micro: bool = False
    """Whether a batch is answered to its end, and the next one has a join of its own."""
    seed: int = 0


class _Chunks(Observer):
    """Counts the pieces in which rows are taken in."""

    count = 0

    def on_chunk(self, engine: Engine, chunk: Chunk) -> None:  # noqa: ARG002 - only how many
        self.count += 1


class Running:
    """A join whose work is counted, on a clock that stands still."""

    def __init__(self, kind: type[Algorithm], task: Task, plan: Plan) -> None:
        self._chunks, self._resident = _Chunks(), kind.complete
        self._join = kind.operator(task, plan, Runtime(lambda: 0.0, observer=self._chunks))

    def take(self, *batches: pa.RecordBatch) -> None:
        """Take batches in; what comes out is dropped."""
        for batch in batches:
            for _ in self._join.run(batch):
                pass

    def drain(self) -> None:
        """Answer all that wait."""
        for _ in self._join.drain():
            pass

    def close(self) -> None:
        """Release all memory."""
        self._join.close()

    @property
    def work(self) -> Work:
        """What was done so far."""
        m = self._join.metrics
        asked = m.rows_in - m.looked_up - (0 if self._resident else m.filtered)
        probed = asked if m.cache_hits or self._resident else 0
        return Work(
            rows=m.rows_in,
            probed=probed,
            kept=0 if self._resident else probed,
            hits=m.cache_hits + m.pinned_hits,
            known=m.filtered,
            looked_up=m.looked_up,
            appended=m.rows_in - m.filtered - m.looked_up - m.cache_hits,
            out=max(0, m.rows_out - m.looked_up),
            pages=m.pages_read,
            reads=m.reads,
            bytes=m.bytes_read,
            chunks=self._chunks.count,
            steps=m.iterations,
        )


def count_work(trial: Trial) -> Work:
    """Run a join on the view until it has settled; return the work of a row."""
    with tempfile.TemporaryDirectory() as folder:
        task, plan = _shrink(trial, folder)
        slices = _slices(trial, task, plan)
        last = next(slices)
        for each in slices:
            settled = (
                abs(each.pages - last.pages) <= _SAME * last.pages
                and abs(each.from_memory - last.from_memory) <= _SAME
            )
            last = each
            if settled:
                break
    return _magnify(last, trial, plan)


def _shrink(trial: Trial, folder: str) -> tuple[Task, Plan]:
    """Return task and plan for the view: what follows the master's size is scaled alike."""
    task, plan, view = trial.task, trial.plan, trial.view
    part = trial.copies / view.stride
    parts = {
        name: size if name in _FIXED else max(1, int(size * part))
        for name, size in plan.components.items()
    }
    rows = plan.settings.output_rows or task.output_rows
    scaled: dict[str, Any] = {
        n: max(1, int(plan.settings[n] * part)) for n in _SCALED if n in plan.settings
    }
    spec = replace(task.spec, master=view)
    host = task.host
    if isinstance(host, Host):
        host = _shrink_host(host, view, trial.hosts / view.stride, folder)
    small = replace(
        task,
        spec=spec,
        memory=max(1, int(task.memory * part)),
        filter_words=task.filter_words // view.stride,
        host=host,
    )
    return small, replace(
        plan,
        components=replace(plan.components, **parts),
        settings=replace(plan.settings, output_rows=rows, **scaled),
    )


def _shrink_host(host: Host, view: View, part: float, folder: str) -> Host:
    """Return the host's hot set with room for its part of the rows, in a folder of its own."""
    beside, sizes = overhead(len(host.schema)), host.sizes
    slot = beside + (sizes.slot - beside) * part
    counters = 1 << max(3, int(sizes.counters * part).bit_length() - 1)  # a power of two
    small = HostSizes(
        slot=max(1, round(slot / HEADER)) * HEADER,
        shards=sizes.shards,
        staged=max(1, round(sizes.staged * part / HEADER)) * HEADER,
        counters=counters,
        merge=int(sizes.merge * part),
    )
    return replace(host, root=Path(folder), master=view, sizes=small)


def _slices(trial: Trial, task: Task, plan: Plan) -> Iterator[Work]:
    """Yield the mean work of a row, slice by slice."""
    view, parts = trial.view, plan.components
    host = task.host.sizes.rows_bytes if isinstance(task.host, Host) else 0
    held = (parts.window + parts.cache + host) / task.cache_cost(1, view.row_bytes)
    turns = 0 if parts.lookup and view.is_mapped else _TURNS  # nothing to settle
    few = min(_LEAST_SLICE, _WINDOWS * (plan.settings.window_rows or _LEAST_SLICE))
    rows = min(_MOST_SLICE, max(few, int(turns * held)))
    size = max(1, min(rows, trial.batch_rows // view.stride))
    batches = draw_batches(task.spec, trial.demand, view, trial.seed, size)
    run = _micro_batches if trial.micro else _one_join
    work = run(trial.kind, task, plan, batches)
    for _ in range(_SLICES):
        done = Work()
        while done.rows < rows and done.pages < _MOST_PAGES:
            done += next(work)
        yield done * (1 / done.rows)


def _one_join(kind: type[Algorithm], task: Task, plan: Plan, batches: Batches) -> Iterator[Work]:
    """Yield the work of each batch, of a join that goes on."""
    join, before = Running(kind, task, plan), Work()
    try:
        for batch in batches:
            join.take(batch)
            now = join.work
            yield now - before
            before = now
    finally:
        join.close()


def _micro_batches(
    kind: type[Algorithm], task: Task, plan: Plan, batches: Batches
) -> Iterator[Work]:
    """Yield the work of each batch, which has a join of its own, as Spark's tasks do."""
    for batch in batches:
        join = Running(kind, task, plan)
        join.take(batch)
        join.drain()
        work = join.work
        join.close()
        yield work


def _magnify(work: Work, trial: Trial, plan: Plan) -> Work:
    """Return the work of the whole: a chunk of it has as many more rows as it has more pages."""
    times = 1 if work.looked_up else trial.view.stride
    steps = 0.0 if plan.components.blocks else work.steps
    return replace(work, chunks=work.chunks / times, steps=steps)
