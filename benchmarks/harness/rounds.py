"""Rounds: every side has its turn in each, so that what the machine does hits all alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.harness.run import Run
from benchmarks.harness.samples import rounded

SETTLING = 4
"""Times as long as windows are given caches to settle, before a run is watched."""
_REWEIGHTINGS = 30  # far more than the fit needs to converge
_EXACT = 1e-3  # an error below this fraction of a slice counts as this
_FEWEST = 5  # slices of a run, however long its turns are
_AGREED = 0.05  # standard error of the mean rate, below which slices agree


def take_rounds(
    rounds: int, bound: Callable[[], float] | None, takers: Mapping[str, Callable[[], float]]
) -> tuple[list[int], dict[str, list[int]]]:
    """Take a sample of each in every round, each round beginning with another one."""
    bounds: list[int] = []
    samples: dict[str, list[int]] = {name: [] for name in takers}
    names = list(takers)
    for number in range(rounds):
        if bound is not None:
            bounds.append(rounded(bound()))
        first = number % max(1, len(names))
        for name in names[first:] + names[:first]:
            samples[name].append(rounded(takers[name]()))
    return bounds, samples


class Pace(NamedTuple):
    """How long runs are watched."""

    seconds: float
    """Of one slice."""
    rounds: int
    """Slices of each run; fewer where a turn of the join takes longer, and they agree."""
    warm: float
    """Seconds for windows to be turned over, at most; caches have `SETTLING` times as long."""


class Slice(NamedTuple):
    """What a run did in a moment."""

    rows: int
    pages: int
    hits: int
    seconds: float


def watch_in_turn(runs: Mapping[str, Run], pace: Pace) -> dict[str, list[Slice]]:
    """Watch runs that have settled, a slice of each in turn.

    A slice is whole turns of a join. Where these are long there are fewer slices, as many as take
    as long in all, `_FEWEST` at the least, and more for as long as they differ much. What is left
    of the turn that warmed up is no part.
    """
    for run in runs.values():
        run.watch(pace.seconds)
    slices: dict[str, list[Slice]] = {name: [] for name in runs}
    for _ in range(pace.rounds):
        for name, run in runs.items():
            if not _are_enough(slices[name], pace):
                slices[name].append(_slice(run, pace.seconds))
    return slices


def _are_enough(slices: Sequence[Slice], pace: Pace) -> bool:
    if len(slices) < min(_FEWEST, pace.rounds):
        return False
    spent = sum(part.seconds for part in slices)
    return spent >= pace.rounds * pace.seconds and _agree(slices)


def _agree(slices: Sequence[Slice]) -> bool:
    """Check whether slices have about the same rate.

    Examples
    --------
    >>> [_agree([Slice(rows, 1, 0, 1.0) for rows in each]) for each in ([9, 10, 11], [2, 10, 11])]
    [True, False]
    """
    rates = np.array([part.rows / part.seconds for part in slices])
    return bool(rates.std() <= _AGREED * rates.mean() * np.sqrt(len(rates)))


def _slice(run: Run, seconds: float) -> Slice:
    before = run.join.metrics
    spent = run.watch(seconds)
    after = run.join.metrics
    return Slice(
        after.answered - before.answered,
        after.pages_read - before.pages_read,
        after.cache_hits - before.cache_hits,
        spent,
    )


def steady_seconds(slices: Sequence[Slice]) -> float:
    """Return the seconds that all slices would have taken without the machine's stalls.

    A disk that others use as well stands still now and then, and the mean is then as much theirs as
    the join's. A page and a row are given the seconds that most slices agree on (the least sum of
    absolute errors), as the median does for one number.

    Examples
    --------
    >>> even = [Slice(100, pages, 0, 0.01 * pages + 0.1) for pages in (5, 10, 20, 40)]
    >>> stalled = Slice(100, 10, 0, 3.0)
    >>> round(steady_seconds([*even, stalled]), 3)  # 85 pages and 500 rows
    1.35
    """
    terms = np.array([(part.pages, part.rows) for part in slices], dtype=np.float64)
    seconds = np.array([part.seconds for part in slices])
    weights = np.ones(len(slices))
    for _ in range(_REWEIGHTINGS):
        costs = _non_negative(terms * weights[:, None], seconds * weights)
        error = np.abs(terms @ costs - seconds)
        weights = 1 / np.sqrt(np.maximum(error, _EXACT * seconds))
    return float((terms @ costs).sum() or seconds.sum())  # nothing done: all of it was a stall


def _non_negative(
    terms: npt.NDArray[np.float64], wanted: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Solve least squares in two unknowns, of which none may be negative."""
    nearest, best = float(wanted @ wanted), np.zeros(2)
    for some in ([0, 1], [0], [1]):
        values = np.linalg.lstsq(terms[:, some], wanted, rcond=None)[0]
        error = float(((terms[:, some] @ values - wanted) ** 2).sum())
        # Errors that differ by less than this are equal but for rounding: then both parts stay.
        if (values >= 0).all() and error < nearest - 1e-12 * float(wanted @ wanted):
            nearest, best = error, np.zeros(2)
            best[some] = values
    return best
