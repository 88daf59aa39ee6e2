"""Measuring the least memory for a rate: arrivals in real time, and the backlog they leave."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from benchmarks.workload import BATCH_ROWS, Feed, Workload
from semistream.cost.calibration.reads import with_reads_of
from semistream.cost.demand import Demand
from semistream.cost.planning.least import least_memory
from semistream.cost.planning.question import Question
from semistream.cost.run import Run, one_thread, rounded
from semistream.errors import BudgetError
from semistream.join import Join
from semistream.master import open_master
from semistream.spec import JoinSpec
from semistream.system.machine import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from semistream.cost.profile import Profile

    Record = dict[str, Any]
    Say = Callable[[str], None]

__all__ = [
    "RULE",
    "SustainGrid",
    "Trace",
    "Wall",
    "measure_sustain",
    "sustain",
]

RULE = (
    "backlog: rows that have arrived and were not offered yet; it is bounded if its mean in the "
    "last quarter of the time is at most that in the second quarter plus one second of arrivals, "
    "and the operator was busy for less than 99.5 % of the time after the first quarter"
)
_TOLERANCE = 1.0  # seconds of arrivals
_BUSY = 0.995
_LEAST_SLEEP = 1e-4  # below the precision of a clock, time would not pass
_SLOT = 0.5  # seconds over which the backlog is averaged for the record


@dataclass(frozen=True)
class SustainGrid:
    """What is measured."""

    algorithms: tuple[str, ...] = ("meshjoin", "hybridjoin", "cachejoin", "moij", "adaptive")
    rows: int = 2_000_000
    exponent: float = 1.0
    read: str = "direct"
    share: float = 0.10
    """The budget, as a share of R, whose predicted rate λ is a part of."""
    load: float = 0.6
    """That part."""
    times: tuple[float, ...] = (1.15, 0.60)
    """Budgets, as multiples of the least memory for λ."""
    seconds: float = 120.0
    batch_seconds: float = 0.05
    """Arrivals of so many seconds are a batch."""
    warm: float = 8.0
    """Seconds for caches to settle before arrivals begin, at most."""
    page_bytes: str = "128KB"
    read_seconds: float = 1.0
    """How long reads are measured before the least memory is found, as the planner does."""

    @property
    def runs(self) -> int:
        """How many times arrivals are joined."""
        return len(self.algorithms) * len(self.times)


class Clock(Protocol):
    """Tells the time, and waits."""

    def now(self) -> float:
        """Give the time in seconds."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class Wall:
    """The clock on the wall."""

    now = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


class Offered(Protocol):
    """What takes batches in: a join."""

    def offer(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Take a batch in."""


class Trace(NamedTuple):
    """What became of arrivals."""

    rate: float
    """Arrivals in a second (λ)."""
    seconds: float
    backlog: list[tuple[float, float]]
    """Seconds since the start, and rows that had arrived and were not offered, in the mean."""
    utilisation: float
    """The share of the time after the first quarter for which the join was busy."""

    @property
    def quarters(self) -> list[float]:
        """The mean backlog in each quarter of the time."""
        each: list[list[float]] = [[], [], [], []]
        for at, rows in self.backlog:
            each[min(3, int(4 * at / self.seconds))].append(rows)
        return [float(np.mean(some)) if some else 0.0 for some in each]

    @property
    def bounded(self) -> bool:
        """Whether the join keeps up, by `RULE`."""
        _, second, _, last = self.quarters
        return last <= second + _TOLERANCE * self.rate and self.utilisation < _BUSY


def sustain(
    join: Offered,
    batches: Iterator[pa.RecordBatch],
    rate: float,
    seconds: float,
    batch_seconds: float,
    clock: Clock,
) -> Trace:
    """Let rows arrive at a rate; offer them a batch at a time, and follow the backlog.

    Rows arrive whether the join keeps up or not: those of the time that it took wait, and are
    offered in the same small batches.
    """
    rows, start = min(BATCH_ROWS, max(1, int(rate * batch_seconds))), clock.now()
    pieces, slots = _pieces(batches, rows), _Slots(_SLOT)
    at, offered, busy = 0.0, 0, 0.0
    while at < seconds:
        waiting = rate * at - offered
        slots.add(at, max(0.0, waiting))
        if waiting < rows:
            clock.sleep(max(_LEAST_SLEEP, (rows - waiting) / rate))
            at = clock.now() - start
            continue
        for _ in join.offer(next(pieces)):
            pass
        begun, at = at, min(clock.now() - start, seconds)
        slots.passed(begun, at, rate, offered)
        busy += max(0.0, at - max(begun, seconds / 4))
        offered += rows
    return Trace(rate, seconds, slots.means(), busy / (seconds * 3 / 4))


def _pieces(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Cut batches into smaller ones of so many rows; what is left of each is not used."""
    for batch in batches:
        for start in range(0, batch.num_rows - rows + 1, rows):
            yield batch.slice(start, rows)


class _Slots:
    """Means of the backlog over short times."""

    def __init__(self, width: float) -> None:
        self._width = width
        self._found: dict[int, list[float]] = {}

    def add(self, at: float, value: float) -> None:
        self._found.setdefault(int(at / self._width), []).append(value)

    def passed(self, begin: float, end: float, rate: float, offered: int) -> None:
        """Add what waited at each slot that began while a batch was taken in."""
        for slot in range(int(begin / self._width) + 1, int(end / self._width) + 1):
            self.add(slot * self._width, rate * slot * self._width - offered)

    def means(self) -> list[tuple[float, float]]:
        return [
            (slot * self._width, float(np.mean(values)))
            for slot, values in sorted(self._found.items())
        ]


def measure_sustain(
    grid: SustainGrid, folder: Path, profile: Profile, say: Say, clock: Clock | None = None
) -> Iterator[Record]:
    """Give the record after every run, each time with one more."""
    one_thread()
    workload = Workload("1:1", grid.rows)
    say("the master")
    master = open_master(workload.prepare(folder, grid.page_bytes), grid.read)
    feed = Feed.of(workload.stream(grid.exponent), max(1_000_000, grid.rows))
    spec = JoinSpec.resolve(master, feed.schema, "key", "inner", None, "")
    demand = Demand.zipf(master.statistics.values, grid.exponent, master.pages)
    record: Record = {
        "kind": "sustain",
        "what": "arrivals at a rate, in real time, with more and less than the least memory for it",
        "machine": describe(),
        "grid": asdict(grid),
        "rule": RULE,
        "master_bytes": workload.bytes,
        "profile": {"machine": dict(profile.machine), "costs": profile.costs.as_dict()},
        "runs": [],
    }
    for name in grid.algorithms:
        say(f"{name}: reads, and the least memory")
        costs = with_reads_of(profile.costs, master, grid.read_seconds)
        question = Question(spec, demand, costs, (name,))
        needed = _needed(grid, name, question)
        for times in grid.times:
            say(f"{name}, {times:.0%} of the least memory")
            facts = {**needed, "times": times, "memory": int(times * needed["least"])}
            facts["predicted"] = rounded(question.rate(name, facts["memory"]))
            record["runs"].append(facts | _run(grid, spec, feed, facts, clock or Wall()))
            yield record


def _needed(grid: SustainGrid, name: str, question: Question) -> Record:
    """Choose λ, and find the least memory for it."""
    budget = int(grid.share * question.spec.files.statistics.bytes)
    rate = grid.load * question.rate(name, budget)
    least = least_memory(question, name, rate).memory if rate else None
    if least is None:
        msg = f"{name!r} has no plan within {grid.share:.0%} of R; take a larger master, or share"
        raise BudgetError(msg)
    return {"algorithm": name, "rate": rounded(rate), "least": least}


def _run(grid: SustainGrid, spec: JoinSpec, feed: Feed, facts: Record, clock: Clock) -> Record:
    try:
        join = Join(
            spec.master, feed.schema, on="key", memory=facts["memory"], algorithm=facts["algorithm"]
        )
    except BudgetError as error:
        return {"refused": str(error).split(";")[0]}
    with join:
        run = Run(join, feed.forever())
        run.warm_up(grid.warm)
        while run.is_within_batch:
            run.step()
        trace = sustain(
            join, feed.forever(), facts["rate"], grid.seconds, grid.batch_seconds, clock
        )
    return {
        "utilisation": round(trace.utilisation, 4),
        "bounded": trace.bounded,
        "quarters": [rounded(rows) for rows in trace.quarters],
        "backlog": [(round(at, 1), rounded(rows)) for at, rows in trace.backlog],
    }
