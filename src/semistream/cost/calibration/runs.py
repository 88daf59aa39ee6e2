"""What whole loops cost: short runs of every algorithm, and the fudge factors that fit them."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from semistream.algorithms import choose
from semistream.cost.calibration.least_squares import non_negative
from semistream.cost.calibration.turns import SETTLING, steady_seconds, watch_in_turn
from semistream.cost.demand import Demand
from semistream.cost.models import Setting, kind_of, loop_of
from semistream.cost.queue import solve
from semistream.cost.run import Run
from semistream.cost.unit_costs import Fit
from semistream.join import Join
from semistream.spec import JoinSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from semistream.cost.calibration.turns import Pace, Slice
    from semistream.cost.loop import Loop
    from semistream.cost.unit_costs import Rows, UnitCosts
    from semistream.master import FileMaster

    Floats = npt.NDArray[np.float64]

__all__ = ["Counts", "Observed", "Trial", "counted", "fitted", "observe", "side_by_side"]

_WITHOUT_CACHE = 1e-3  # a share of hits below it tells nothing of a cache
_DOUBT = 0.15  # what another way to read counts beside a run
_SAME = 0.5  # and what its rows do: they cost the same however their pages came
_SMALL = 0.1
_USUAL = Fit(rows=2.0, hits=2.0)  # where runs leave it open
_LEAST, _MOST = 0.05, 4.0  # bounds of what is fitted
_JUDGE, _STEP = 2.5, 1e-3  # what is expected of judge to step, and how much they may differ


class Counts(NamedTuple):
    """The factors of a `Fit` that do not depend on the machine."""

    fill: float = 1.0
    cached: float = 1.0


class Trial(NamedTuple):
    """A setting in which an algorithm is run; one that would look rows up at once may not."""

    share: float
    """The budget, as a share of R."""
    exponent: float
    read: str
    at_once: bool = False


@dataclass(frozen=True)
class Observed:
    """What a run did, and how long it took."""

    kind: str
    trial: Trial
    seconds: float
    answered: int
    pages: int
    hits: float
    """The share of rows that the cache answered."""
    setting: Setting
    drift: Mapping[str, float] = field(default_factory=dict)
    """What reads took while it ran, to what they usually took, by way to read."""

    @property
    def rate(self) -> float:
        """Stream rows answered in a second."""
        return max(1, self.answered) / self.seconds

    @property
    def rows_a_page(self) -> float:
        """Stream rows answered for each page that was read."""
        return max(1, self.answered) / max(1, self.pages)


def observe(
    names: Sequence[str],
    master: FileMaster,
    trial: Trial,
    batches: Sequence[pa.RecordBatch],
    pace: Pace,
    say: Callable[[str], None],
    beside: Callable[[], None],
) -> Iterator[Observed]:
    """Run algorithms on a stream that never ends; watch them in turn once they have settled."""
    memory = int(trial.share * master.statistics.bytes)
    spec = JoinSpec.resolve(master, batches[0].schema, "key", "inner", None, "")
    options: dict[str, dict[str, Any]] = {name: {} for name in names}
    options["adaptive"] = {"at_once": trial.at_once}
    with ExitStack() as stack:
        runs = {}
        for name in names:
            say(name)
            join = Join(
                master, spec.stream, on="key", memory=memory, algorithm=name, **options[name]
            )
            runs[name] = Run(stack.enter_context(join), itertools.cycle(batches))
            runs[name].warm_up(pace.warm, SETTLING)
        before = {name: run.join.metrics.rows_in for name, run in runs.items()}
        seen = watch_in_turn(runs, pace, beside)
        ages = {n: (before[n] + run.join.metrics.rows_in) / 2 for n, run in runs.items()}
    each = batches[0].num_rows
    demand = Demand.zipf(master.statistics.values, trial.exponent, master.pages)
    for name, slices in seen.items():
        _, task, plan = choose(name, spec, memory, None, options[name])
        yield _observed(trial, slices, Setting(task, plan, demand, Fit(), ages[name], each))


def _observed(trial: Trial, slices: Sequence[Slice], setting: Setting) -> Observed:
    answered = sum(part.rows for part in slices)
    return Observed(
        kind=kind_of(setting.plan),
        trial=trial,
        seconds=steady_seconds(slices),
        answered=answered,
        pages=sum(part.pages for part in slices),
        hits=sum(part.hits for part in slices) / max(1, answered),
        setting=setting,
    )


def counted(runs: Sequence[Observed]) -> Counts:
    """Find the factors with which a model counts what runs did: pages, and hits of the cache.

    They are the implementation's, not the machine's.
    """
    cached = _middle([_matching_cache(run) for run in runs if run.hits > _WITHOUT_CACHE])
    return Counts(_middle([_matching_fill(run, cached) for run in runs]), cached)


def fitted(
    runs: Sequence[Observed],
    costs: UnitCosts,
    counts: Counts,
    like: Fit | None = None,
    cold: float = 0.0,
) -> Fit:
    """Find the factors with which a model takes as long as runs did.

    The runs are all of one way to read. What they counted is taken as it was, so that a cache that
    has not settled does not spoil their times. ``like`` is what is expected: where runs leave it
    open whether rows or pages were dear, it decides; ``cold`` is what a page that is waited for
    costs beyond it.
    """
    fit = Fit(fill=counts.fill, cached=counts.cached)
    times = [_times(run, _as_counted(run, fit), costs.drifted(run.drift)) for run in runs]
    if times[0].ahead:
        return _overlapping(fit, times, like)
    expected = replace(like, step=max(0.0, like.step + cold)) if like else None
    return _one_by_one(fit, times, expected)


def side_by_side(runs: Sequence[Observed], costs: UnitCosts, counts: Counts, node: Fit) -> Fit:
    """Find how much longer loops take beside each other; by itself each is one of ``node``."""
    fit = replace(node, fill=counts.fill, cached=counts.cached)
    longer = [_longer(run, costs.drifted(run.drift), fit) for run in runs]
    return replace(fit, beside=max(0.0, float(np.median(longer))))


def _longer(run: Observed, costs: UnitCosts, fit: Fit) -> float:
    loop = _as_counted(run, fit)
    alone = costs.seconds(fit, loop, run.setting.shape, run.trial.read)
    return (loop.nodes * loop.w / run.rate / alone - 1) / max(1, loop.nodes - 1)


def _as_counted(run: Observed, fit: Fit) -> Loop:
    """Give the loop of a run, with the rows that it answered as it counted them."""
    loop = loop_of(replace(run.setting, fit=fit))
    if not run.pages:
        return loop
    w = loop.pages * run.rows_a_page
    known = loop.w_F / loop.w
    return replace(loop, w_S=w * (1 - run.hits - known), w_N=w * run.hits, w_F=w * known)


class _Times(NamedTuple):
    """The seconds of an iteration, as far as they are known."""

    whole: float
    """What it took."""
    disk: float
    met: float
    """Pages that were met."""
    judged: float
    """Those of which a value entered the cache."""
    rows: Rows
    reads: float
    ahead: int


def _times(run: Observed, loop: Loop, costs: UnitCosts) -> _Times:
    return _Times(
        whole=loop.nodes * loop.w / run.rate,
        disk=costs.disk(loop, run.trial.read),
        met=loop.pages + loop.met,
        judged=loop.judged,
        rows=costs.rows_seconds(loop, run.setting.shape),
        reads=loop.reads,
        ahead=loop.ahead,
    )


def _one_by_one(fit: Fit, times: Sequence[_Times], like: Fit | None) -> Fit:
    """Find step, rows, hits and judge, none below zero, so that relative errors are least."""
    terms = np.array(
        [(t.met, t.rows.matching + t.rows.waiting, t.rows.hits, t.judged) for t in times]
    )
    whole = np.array([t.whole for t in times])
    rest = np.maximum(whole - [t.disk for t in times], 0.0)
    terms, wanted = terms / whole[:, None], rest / whole
    usual, doubt, same = (like, _DOUBT, _SAME) if like else (_USUAL, _DOUBT / 4, _DOUBT / 4)
    expected = np.array([usual.step, max(usual.rows, _SMALL), max(usual.hits, _SMALL), usual.judge])
    weights = np.where(expected > 0, [doubt, same, doubt, doubt], 0.0)
    terms = np.vstack([terms, np.diag(weights / np.where(expected > 0, expected, 1.0))])
    wanted = np.append(wanted, weights)
    if not usual.judge and terms[:, 3].any():  # few runs cannot tell it from a step
        terms = np.vstack([terms, np.array([-_JUDGE, 0.0, 0.0, 1.0]) * _DOUBT / _STEP])
        wanted = np.append(wanted, 0.0)
    step, rows, hits, judge = non_negative(terms, wanted).tolist()
    return replace(fit, step=step, rows=rows, hits=hits, judge=judge)


def _overlapping(fit: Fit, times: Sequence[_Times], like: Fit | None) -> Fit:
    """Find rows, hits, step and wake likewise, where pages are read while others are matched.

    The larger of the two counts, so there is no straight line to fit: all combinations are tried.
    A step is the same however pages are read.
    """
    rows = np.geomspace(0.25, 8.0, 41)[:, None, None, None]
    hits = np.geomspace(0.25, 16.0, 25)[None, :, None, None]
    steps = np.append(0.0, np.geomspace(5e-6, 4e-4, 25)) if like is None else np.array([like.step])
    step = steps[None, None, :, None]
    wakes = np.append(0.0, np.geomspace(1e-5, 6e-4, 30)) if like else np.zeros(1)
    wake = wakes[None, None, None, :]
    error = np.zeros((rows.size, hits.size, steps.size, wakes.size))
    for t in times:
        met = rows * t.rows.matching + step * t.met
        before = rows * t.rows.waiting + hits * t.rows.hits
        found = np.maximum(t.disk + wake * t.reads, met) + before
        error = error + np.log(found / t.whole) ** 2
    usual = like or _USUAL
    error = error + (_DOUBT * np.log(rows / max(usual.rows, _SMALL))) ** 2
    error = error + (_DOUBT * np.log(hits / max(usual.hits, _SMALL))) ** 2
    a, b, c, d = np.unravel_index(int(error.argmin()), error.shape)
    return replace(
        fit,
        rows=float(rows.ravel()[a]),
        hits=float(hits.ravel()[b]),
        step=float(steps[c]),
        wake=float(wakes[d]),
    )


def _middle(values: Sequence[float]) -> float:
    return float(np.median(values)) if values else 1.0


def _matching(wanted: float, found: Callable[[float], float]) -> float:
    """Give the factor at which a model that rises with it gives what was seen."""
    if found(_LEAST) == found(_MOST):
        return 1.0  # it has no part in this model
    if found(_LEAST) >= wanted:
        return _LEAST
    return min(_MOST, solve(found, wanted, _MOST, rounds=12))


def _matching_cache(run: Observed) -> float:
    def hits(cached: float) -> float:
        return loop_of(replace(run.setting, fit=Fit(cached=cached))).hit_rate

    return _matching(run.hits, hits)


def _matching_fill(run: Observed, cached: float) -> float:
    def rows_a_page(fill: float) -> float:
        loop = loop_of(replace(run.setting, fit=Fit(fill=fill, cached=cached)))
        return 1 / max(1e-12, loop.pages_a_row)

    return _matching(run.rows_a_page, rows_a_page) if run.pages and run.rows_a_page > 1.001 else 1.0
