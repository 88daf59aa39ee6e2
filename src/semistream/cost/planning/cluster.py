"""What a cluster makes of a plan: memory a worker, load between workers, network."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from semistream.algorithms import choose
from semistream.cost.planning.loads import by_key, by_page
from semistream.engine.plan import Task
from semistream.errors import BudgetError, OptionError
from semistream.hotset.sizes import HostShare
from semistream.units import format_bytes

if TYPE_CHECKING:
    from semistream.cost.planning.answers import Answer
    from semistream.cost.planning.loads import Load
    from semistream.cost.planning.question import Question

__all__ = ["Cluster", "Way", "check_workers", "cluster_of"]

_MILLION = 1_000_000


@dataclass(frozen=True)
class Way:
    """One way to bring stream rows to the workers."""

    name: str
    rate: float
    """Predicted rows a second of all workers, the one with the largest load at its limit."""
    skew: float
    """The largest load to the mean one."""
    network_bytes: int
    """What a million rows move between workers, as Arrow holds them: not compressed."""


@dataclass(frozen=True)
class Cluster:
    """What the winner is predicted to do on several workers."""

    workers: int
    algorithm: str
    memory: int
    """Bytes for each worker."""
    ways: tuple[Way, ...]
    note: str

    def as_dict(self) -> dict[str, Any]:
        """Give everything for programs."""
        ways = [
            {
                "rows_go": way.name,
                "predicted_rate": way.rate,
                "largest_load_to_mean": way.skew,
                "network_bytes_a_million_rows": way.network_bytes,
            }
            for way in self.ways
        ]
        return asdict(self) | {"ways": ways}


def check_workers(workers: int) -> int:
    """Refuse a number of workers that is none."""
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        msg = f"cluster={workers!r} is not possible; give the number of workers, from 1 on"
        raise OptionError(msg)
    return workers


def cluster_of(question: Question, workers: int, winner: Answer) -> Cluster:
    """Predict what so many workers do with the winner's budget each."""
    row = Task.of(question.spec, winner.memory, None).stream_row
    moved = int(_MILLION * row * (workers - 1) / workers)
    name, memory = winner.algorithm, winner.memory
    stay = Way("where they are", workers * question.rate(name, memory), 1.0, 0)

    def way(what: str, load: Load) -> Way:
        rate = question.of(load.demand).rate(name, memory) / load.share
        return Way(what, rate, load.skew, moved)

    routed = way("to their page's worker", by_page(question.demand, workers))
    hashed = way("by a hash of the key", by_key(question.demand, workers))
    return Cluster(workers, name, memory, (stay, routed, hashed), _note(question, winner))


def _note(question: Question, winner: Answer) -> str:
    """Say how a worker's tasks share its memory, as `enrich` plans it."""
    share = HostShare(".", tasks=1)
    try:
        _, _, plan = choose(winner.algorithm, question.spec, winner.memory, None, {}, shared=share)
    except BudgetError:
        plan = None
    if plan is None or not plan.host:
        return "the tasks of a worker divide its memory"
    size = format_bytes(sum(plan.host.values()))
    return f"of each worker's memory, {size} hold what its tasks share, who divide the rest"
