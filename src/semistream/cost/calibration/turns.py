"""Runs watched in turn: many short slices of each, so that what the machine does hits all alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from semistream.cost.calibration.least_squares import non_negative

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from semistream.cost.run import Run

__all__ = ["SETTLING", "Pace", "Slice", "steady_seconds", "watch_in_turn"]

_ROUNDS = 30  # of reweighting: far more than it needs
_EXACT = 1e-3  # an error below this share of a slice counts as this
SETTLING = 4
"""Times as long as windows are given caches to settle, before a run is watched."""
_FEWEST = 5  # slices of a run, however long its turns are
_AGREED = 0.05  # standard error of the mean rate, below which slices agree


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


def watch_in_turn(
    runs: Mapping[str, Run], pace: Pace, beside: Callable[[], None] = lambda: None
) -> dict[str, list[Slice]]:
    """Watch runs that have settled, a slice of each in turn, and something beside in each round.

    A slice is whole turns of a join. Where these are long there are fewer slices, as many as take
    as long in all, `_FEWEST` at the least, and more for as long as they differ much. What is left
    of the turn that warmed up is no part.
    """
    for run in runs.values():
        run.watch(pace.seconds)
    found: dict[str, list[Slice]] = {name: [] for name in runs}
    for _ in range(pace.rounds):
        beside()
        for name, run in runs.items():
            if not _are_enough(found[name], pace):
                found[name].append(_slice(run, pace.seconds))
    return found


def _are_enough(slices: Sequence[Slice], pace: Pace) -> bool:
    if len(slices) < min(_FEWEST, pace.rounds):
        return False
    spent = sum(part.seconds for part in slices)
    return spent >= pace.rounds * pace.seconds and _agree(slices)


def _agree(slices: Sequence[Slice]) -> bool:
    """Tell whether slices have about the same rate.

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
    """Give the seconds that all slices would have taken without the machine's stalls.

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
    for _ in range(_ROUNDS):
        found = non_negative(terms * weights[:, None], seconds * weights)
        error = np.abs(terms @ found - seconds)
        weights = 1 / np.sqrt(np.maximum(error, _EXACT * seconds))
    return float((terms @ found).sum() or seconds.sum())  # nothing done: all of it was a stall
