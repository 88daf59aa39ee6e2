"""Calibration: this machine's unit costs, measured with the join's own code on its own store."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from semistream.api import build_master
from semistream.cost.calibration import operations
from semistream.cost.calibration.known import KNOWN
from semistream.cost.calibration.reads import median_curve, reads_of
from semistream.cost.calibration.runs import (
    Counts,
    Observed,
    Trial,
    counted,
    fitted,
    observe,
    side_by_side,
)
from semistream.cost.calibration.standards import Standards
from semistream.cost.calibration.turns import Pace
from semistream.cost.models import MODELS
from semistream.cost.profile import Profile
from semistream.cost.unit_costs import Curve, Fit, UnitCosts
from semistream.master import open_master
from semistream.system.machine import describe
from semistream.workloads import Stream, Zipf, master_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from semistream.master import FileMaster

    Say = Callable[[str, int, int], None]

__all__ = ["Effort", "calibrate"]


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    rows: int
    """Rows of the master, of 120 B each as in the papers."""
    trials: tuple[Trial, ...]
    pace: Pace
    read_seconds: float
    repeats: int
    largest: int
    """Bytes of the largest window whose distance is measured."""
    settles: bool = True
    """Whether runs are long enough for caches to settle; else counts are taken as known."""


QUICK = Effort(
    rows=150_000,
    trials=(
        Trial(0.03, 1.0, "mapped"),
        Trial(0.12, 1.0, "mapped"),
        Trial(0.06, 1.0, "direct"),
    ),
    pace=Pace(seconds=0.02, rounds=3, warm=0.02),
    read_seconds=0.3,
    repeats=5,
    largest=1 << 26,
    settles=False,
)
THOROUGH = Effort(
    rows=1_000_000,
    trials=(
        Trial(0.01, 1.0, "mapped"),
        Trial(0.20, 0.0, "mapped"),
        Trial(0.10, 1.0, "mapped"),
        Trial(0.01, 0.0, "direct"),
        Trial(0.20, 1.0, "direct"),
        Trial(0.05, 0.5, "direct"),
        Trial(0.20, 0.0, "direct"),
        Trial(0.01, 1.0, "direct"),
        Trial(0.10, 1.0, "direct"),
    ),
    pace=Pace(seconds=0.2, rounds=10, warm=1.5),
    read_seconds=3.0,
    repeats=15,
    largest=1 << 28,
)

_IN_MEMORY = (
    Trial(0.10, 1.0, "mapped", at_once=True),
    Trial(3.0, 1.0, "mapped"),
    Trial(3.0, 1.0, "direct"),
)
"""Where no page is brought: looked up at once in mapped ones, and with a budget for all of R."""
_SIDE_BY_SIDE = {f"pcsrj {read}": f"cachejoin {read}" for read in ("mapped", "direct")}
"""Loops that are several of another, in threads."""


def _nothing() -> None:
    """Do nothing."""


def _silent(what: str, done: int, total: int) -> None:
    """Say nothing."""


def calibrate(
    folder: Path | None = None,
    *,
    quick: bool = False,
    effort: Effort | None = None,
    say: Say = _silent,
) -> Profile:
    """Measure this machine's unit costs.

    Parameters
    ----------
    folder
        Where a master is built to measure with, on the disk that matters; it is removed again. A
        temporary folder where not given.
    quick
        Some 15 seconds on a small master, rather than minutes on one of 120 MB.
    effort
        What exactly is measured, instead of ``quick``.
    say
        Is told what is measured now, and how far that is: a name, steps done, steps in all.
    """
    effort = effort or (QUICK if quick else THOROUGH)
    with _one_thread(), tempfile.TemporaryDirectory(dir=folder, prefix="calibrate-") as name:
        steps = _Steps(say, 3 + (1 + len(MODELS)) * len(effort.trials) + len(_IN_MEMORY))
        steps("a master to measure with")
        path = Path(name) / "master"
        build_master(master_table(effort.rows, stride=2), path, key="key", filter=False)
        masters = {read: open_master(path, read) for read in ("mapped", "direct")}
        costs = _operations(masters["mapped"], effort, steps)
        runs, reads, standards = _runs(masters, effort, steps)
    costs = replace(costs.with_reads(reads), standards=standards)
    fits = _fits(runs, costs, effort.settles)
    machine = describe() | {"busiest": round(steps.load, 2)}
    return Profile(replace(costs, fits=fits), machine, quick)


def _fits(runs: dict[str, list[Observed]], costs: UnitCosts, settled: bool) -> dict[str, Fit]:
    """Fit every loop, by way to read; mapped ones first, for they tell more of rows.

    A page that comes from the disk costs more than its read: it is cold, and so are the processor's
    caches. That is much the same for all algorithms, so that what most have tells of each.
    """
    counts = {kind: _counts(kind, some, settled) for kind, some in runs.items()}
    alone = [kind for kind in runs if kind not in _SIDE_BY_SIDE]
    mapped, direct = (
        [kind for kind in alone if kind.endswith(read)] for read in ("mapped", "direct")
    )
    found = {kind: fitted(runs[kind], costs, counts[kind]) for kind in mapped}
    alike = {kind: found.get(f"{kind.removesuffix(' direct')} mapped") for kind in direct}
    first = {k: fitted(runs[k], costs, counts[k], alike[k]) for k in direct}
    colder = [first[k].step - like.step for k, like in alike.items() if like is not None]
    cold = statistics.median(colder) if colder else 0.0
    for kind in direct:
        found[kind] = fitted(runs[kind], costs, counts[kind], alike[kind], cold)
    for kind in runs.keys() - alone:
        found[kind] = side_by_side(runs[kind], costs, counts[kind], found[_SIDE_BY_SIDE[kind]])
    return found


def _counts(kind: str, runs: list[Observed], settled: bool) -> Counts:
    return counted(runs) if settled else KNOWN.get(kind.rsplit(" ", 1)[0], Counts())


class _Steps:
    """Counts what is done, and notes how busy the machine was at most."""

    def __init__(self, say: Say, total: int) -> None:
        self._say, self._total, self._done = say, total, 0
        self.load = 0.0

    def __call__(self, what: str) -> None:
        self._say(what, self._done, self._total)
        self._done += 1
        self.load = max(self.load, os.getloadavg()[0])

    def of(self, how: str, name: str) -> None:
        """Count a run of an algorithm."""
        self(f"{name}, {how}")


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let Arrow use one thread, as a task of a cluster has."""
    before = pa.cpu_count(), pa.io_thread_count()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    try:
        yield
    finally:
        pa.set_cpu_count(before[0])
        pa.set_io_thread_count(before[1])


def _operations(master: FileMaster, effort: Effort, steps: _Steps) -> UnitCosts:
    steps("rows in and out")
    c_append, c_expire = operations.append_and_expire(effort.repeats)
    steps("rows of a cache, and far ones")
    return UnitCosts(
        c_io={},
        c_S=operations.take_in_cost(master, effort.repeats),
        c_A=c_append,
        c_E=c_expire,
        c_H=operations.probe_cost(effort.repeats),
        c_O=operations.output_cost(effort.repeats),
        far=operations.far_curve(effort.largest, effort.repeats),
        fits={},
    )


def _runs(
    masters: dict[str, FileMaster], effort: Effort, steps: _Steps
) -> tuple[dict[str, list[Observed]], dict[str, Curve], dict[str, float]]:
    """Run every algorithm in every trial, and measure reads before each, and standards beside.

    So the reads are of the same minutes as the runs: a disk that others use is not always as fast.
    """
    found: list[Observed] = []
    reads: dict[str, list[Curve]] = defaultdict(list)
    timed: dict[Trial, dict[str, float]] = {}
    for trial in (*effort.trials, *_IN_MEMORY):
        master = masters[trial.read]
        how = f"{trial.share:.0%} of R, Zipf {trial.exponent:g}, {trial.read}"
        names = ("adaptive",) if trial in _IN_MEMORY else tuple(MODELS)
        if trial not in _IN_MEMORY or trial.read not in reads:
            steps(f"reads, {trial.read}")
            for way, curve in reads_of(master, effort.read_seconds).items():
                reads[way].append(curve)
        say = partial(steps.of, how)
        standards = Standards(master)
        beside = standards.turn if effort.settles and trial not in _IN_MEMORY else _nothing
        found += observe(names, master, trial, _feed(effort, trial), effort.pace, say, beside)
        timed[trial] = standards.seconds
    curves = {way: median_curve(each) for way, each in reads.items()}
    runs, usual = _by_kind(found, timed)
    return runs, curves, usual


def _by_kind(
    found: Sequence[Observed], timed: Mapping[Trial, Mapping[str, float]]
) -> tuple[dict[str, list[Observed]], dict[str, float]]:
    """Give the runs of each loop, with how fast the disk was meanwhile; and what reads took."""
    each: dict[str, list[float]] = defaultdict(list)
    for seconds in timed.values():
        for way, spent in seconds.items():
            each[way].append(spent)
    usual = {way: statistics.median(spent) for way, spent in each.items()}
    runs: dict[str, list[Observed]] = defaultdict(list)
    for run in found:
        drift = {way: spent / usual[way] for way, spent in timed[run.trial].items()}
        runs[f"{run.kind} {run.trial.read}"].append(replace(run, drift=drift))
    return runs, usual


def _feed(effort: Effort, trial: Trial) -> Sequence[pa.RecordBatch]:
    """Make stream rows beforehand, twice as many as there are keys."""
    stream = Stream(Zipf(effort.rows, trial.exponent), stride=2)
    return tuple(stream.batches(min(4_000_000, 2 * effort.rows)))
