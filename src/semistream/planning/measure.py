"""Measure a machine's unit costs, in seconds: with the rows at hand, and the disk they lie on.

Rows are timed by the processor's clock, on pages in memory, so that other work on the machine
counts little; reads of the disk by the wall's.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from semistream.algorithms.adaptive import Adaptive
from semistream.algorithms.published.hybridjoin import Hybridjoin
from semistream.algorithms.resident import Resident
from semistream.engine.plan import Task
from semistream.errors import MasterError, OptionError
from semistream.master import FileMaster
from semistream.planning.demand import Demand, draw_batches
from semistream.planning.machine import Machine
from semistream.planning.simulate import Running
from semistream.system.machine import describe
from semistream.system.user_cache import user_cache

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt
    import pyarrow as pa

    from semistream.algorithms import Algorithm
    from semistream.planning.simulate import Work
    from semistream.planning.view import View
    from semistream.spec import JoinSpec

    Floats = npt.NDArray[np.float64]

__all__ = ["machine_at_hand", "measure_disk", "measure_rows"]

_BATCH = 32_768
_BATCHES = 8
_RESIDENT = 1 << 34  # bytes: a plan that holds all of a view, which has 64 MB at most
_TIMES = 3
_DISK_SECONDS = 0.4  # of each way of reading
_FEW, _MANY = 8, 96  # rows a page that wait: what a page costs shows in one, a row in the other
_OLD = 90 * 86_400  # seconds after which unit costs are measured again


def machine_at_hand(spec: JoinSpec, view: View, *, again: bool = False) -> Machine:
    """Return this machine's unit costs for a join: those kept in the user's cache, or new ones."""
    path = _kept_in(spec, view)
    if not again and path.exists() and time.time() - path.stat().st_mtime < _OLD:
        try:
            return replace(Machine.load(path), source=f"measured earlier ({path})")
        except OptionError:
            path.unlink(missing_ok=True)  # of another version: measured anew
    machine = measure_rows(spec, view)
    machine = replace(measure_disk(view.path, machine), source=f"measured just now ({path})")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(machine.dump())
    return machine


def _kept_in(spec: JoinSpec, view: View) -> Path:
    """Return the file of unit costs of joins like this one, on this machine and disk."""
    here = describe()
    parts = [here[name] for name in ("cpu", "cores", "python", "versions")]
    parts += [view.path.stat().st_dev, view.manifest.page_bytes]
    parts += [str(spec.stream), str(view.page_schema), spec.how, spec.payload]
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()
    return user_cache() / f"machine-{digest}.json"


# -- the disk ------------------------------------------------------------------------------


def measure_disk(path: Path, machine: Machine) -> Machine:
    """Return a machine with what reads of the master at a path cost, past the system's cache."""
    try:
        direct = FileMaster.current(path, "direct")
    except MasterError:  # a file system without direct reads: its own memory, most likely
        return machine
    size = direct.manifest.pages_bytes / max(1, direct.statistics.parts)
    alone, _ = _sweep(direct, 1, 1)
    single, submit = _sweep(direct, 16, 1)
    run = max(1, min(16, direct.statistics.parts // 16))
    large, _ = _sweep(direct, 4 * run, run)
    bandwidth = max(size / single, run * size / large)
    return replace(
        machine,
        read=max(0.0, alone - size / bandwidth),
        bandwidth=bandwidth,
        in_flight=max(1.0, alone / single),
        submit=submit,
    )


def _sweep(master: FileMaster, parts: int, run: int) -> tuple[float, float]:
    """Return the wall's and the processor's seconds of a read of ``run`` parts at random places."""
    reader, rng = master.reader(parts, run), np.random.default_rng(0)
    runs, done = max(1, master.statistics.parts // run), 0
    wall, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < _DISK_SECONDS:
        places = np.unique(rng.integers(0, runs, 64))
        done += sum(1 for _ in reader.sweep((run * places[:, None] + np.arange(run)).ravel()))
    return (time.perf_counter() - wall) / done, (time.process_time() - cpu) / done


# -- rows -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Bench:
    """Joins on the view alone, as if it were all of the master."""

    spec: JoinSpec
    view: View

    def batches(self, skew: float) -> list[pa.RecordBatch]:
        demand = Demand.zipf(self.view.statistics.values, skew)
        return list(islice(draw_batches(self.spec, demand, self.view, 0, _BATCH), _BATCHES))

    def join(self, kind: type[Algorithm], memory: int, **options: bool) -> Running:
        task = Task.of(self.spec, memory, None)
        return Running(kind, task, kind.plan(task, **options))

    @property
    def window_row(self) -> float:
        return Task.of(self.spec, 1 << 30, None).window_row

    def budget(self, rows_a_page: int) -> int:
        """Return memory for a window of so many rows a page, and what is needed beside it."""
        task = Task.of(self.spec, 64 << 20, None)
        fixed = 8 * task.page_bytes + 4 * self.view.pages + 4 * task.output_row
        return int(1.5 * (rows_a_page * self.view.pages * self.window_row + fixed))


def measure_rows(spec: JoinSpec, view: View) -> Machine:
    """Return the defaults with what rows and pages like these cost, in memory."""
    bench = _Bench(replace(spec, master=replace(view, read="direct")), view)
    even = bench.batches(0.0)
    rows = sum(batch.num_rows for batch in even)
    costs = {"intake": _intake(bench, even) / rows}
    costs |= _held(bench, even, rows, costs["intake"])
    costs |= _pages(bench, even, costs["output"])
    machine = Machine(**costs, upkeep=0.0, append=0.0, chunk=0.0, step=0.0)
    return _steady(bench, machine)


def _timed(action: Callable[[], object]) -> float:
    """Return the least seconds of some runs: what is above it is other work of the machine."""
    action()  # compiled code is loaded, memory is touched
    spent = []
    for _ in range(_TIMES):
        begin = time.process_time()
        action()
        spent.append(time.process_time() - begin)
    return min(spent)


def _intake(bench: _Bench, batches: list[pa.RecordBatch]) -> float:
    names, master = bench.spec.stream_keys, bench.spec.master

    def take_in() -> None:
        for batch in batches:
            codes = master.keys.encode([batch.column(name) for name in names])
            master.page_of(codes.values)

    return _timed(take_in)


def _held(
    bench: _Bench, batches: list[pa.RecordBatch], rows: int, intake: float
) -> dict[str, float]:
    """Measure rows answered from memory: without output, with it, and from mapped pages."""
    spec = bench.spec
    silent = replace(spec, how="anti", payload=())  # of rows that all match it puts out nothing
    mapped = replace(spec, master=replace(bench.view, read="mapped"))
    joins = (
        replace(bench, spec=silent).join(Resident, _RESIDENT),
        bench.join(Resident, _RESIDENT),
        replace(bench, spec=mapped).join(Adaptive, 64 << 20, at_once=True),
    )
    probed, answered, looked_up = (_timed(partial(join.take, *batches)) / rows for join in joins)
    for join in joins:
        join.close()
    output = max(0.0, answered - probed)
    return {
        "probe": max(0.0, probed - intake),
        "output": output,
        "lookup": max(0.0, looked_up - intake),
    }


def _pages(bench: _Bench, batches: list[pa.RecordBatch], output: float) -> dict[str, float]:
    """Measure runs of pages that meet few rows, and many: both tell a run from a row."""
    seen = []
    for each in (_FEW, _MANY):
        join = bench.join(Adaptive, bench.budget(2 * each))
        rows = min(_BATCH, each * bench.view.pages // _BATCHES + 1)
        few = [batch.slice(0, rows) for batch in batches]
        spent = []
        for _ in range(1 + _TIMES):
            join.take(*few)
            begin, before = time.process_time(), join.work
            join.drain()
            spent.append((time.process_time() - begin, join.work - before))
        seen.append(min(spent, key=itemgetter(0)))
        join.close()
    (less, few_), (more, many) = seen
    row = max(0.0, (more - less) / max(1, many.out - few_.out))
    run = max(0.0, less - few_.out * row) / max(1, few_.reads)
    return {"match": max(0.0, row - output), "run": run}


def _steady(bench: _Bench, machine: Machine) -> Machine:
    """Return the machine with the costs that only show in joins that go on: moves, chunks, steps.

    Each is what is left of a run's seconds when all that is known is taken off.
    """
    even, hot = (
        [_run(bench, Adaptive, bench.budget(each), skew) for each in (_FEW, _MANY)]
        for skew in (0.0, 1.0)
    )
    left = [1 - machine.seconds(work, depth=0) / spent for work, spent in even]
    counts = [(work.appended / spent, work.chunks / spent) for work, spent in even]
    append, chunk = _non_negative(np.array(counts), np.array(left)).tolist()
    machine = replace(machine, append=append, chunk=chunk)
    # What a row costs more where there is a cache to keep.
    more = [(spent - machine.seconds(work, depth=0)) / max(1, work.kept) for work, spent in hot]
    machine = replace(machine, upkeep=max(0.0, min(more)))
    work, spent = _run(bench, Hybridjoin, bench.budget(_FEW), 0.0)
    rest = spent - machine.seconds(work, depth=0)  # a step costs nothing so far
    return replace(machine, step=max(0.0, rest / max(1.0, work.steps)))


def _run(bench: _Bench, kind: type[Algorithm], memory: int, skew: float) -> tuple[Work, float]:
    """Run a join until its window has turned over, then time it."""
    join, batches = bench.join(kind, memory), bench.batches(skew)
    join.take(*batches)
    runs = []
    for _ in range(_TIMES):
        before, begin = join.work, time.process_time()
        join.take(*batches)
        runs.append((join.work - before, time.process_time() - begin))
    join.close()
    work, spent = min(runs, key=itemgetter(1))
    return replace(work, steps=work.steps if kind is Hybridjoin else 0.0), spent


def _non_negative(terms: Floats, wanted: Floats) -> Floats:
    """Return the least-squares solution; terms that would be below zero are left out, one by one.

    Examples
    --------
    >>> _non_negative(np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([3.0, 2.0, 1.0]))
    array([2., 0.])
    """
    used, costs = np.arange(terms.shape[1]), np.zeros(terms.shape[1])
    while len(used):
        found = np.linalg.lstsq(terms[:, used], wanted, rcond=None)[0]
        if (found >= 0).all():
            costs[used] = found
            break
        used = np.delete(used, np.argmin(found))
    return costs
