"""Decides which algorithm a stream needs, from what is seen of it."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from semistream.auto.estimate import estimate
from semistream.auto.watch import Look, Watch, look_of
from semistream.metrics import Metrics

if TYPE_CHECKING:
    import pyarrow as pa

    from semistream.auto.choice import Choice, Planner
    from semistream.auto.sample import Counted, Sample

__all__ = ["Deciding", "Pilot"]

log = logging.getLogger("semistream")

_WINDOWS = 4  # of rows make a period
_LEAST_PERIOD = 1 << 14


class Deciding(Protocol):
    """What tells a join which algorithm to run."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""

    def saw(self, batch: pa.RecordBatch) -> None:
        """Note a batch of the stream."""

    def decide(self, metrics: Metrics) -> Choice | None:
        """Give what is to run, where that is decided anew."""


class Pilot:
    """Plans when the first rows were seen, and again when the stream has changed.

    Parameters
    ----------
    planner
        Finds the fastest algorithm.
    sample
        Room for keys of the stream.
    running
        What runs at first.
    """

    def __init__(self, planner: Planner, sample: Sample, running: Choice) -> None:
        self._planner, self._sample, self._running = planner, sample, running
        self._watch: Watch | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the sample."""
        return self._sample.nbytes

    def saw(self, batch: pa.RecordBatch) -> None:
        """Take some of a batch's keys."""
        self._sample.add(batch)

    def decide(self, metrics: Metrics) -> Choice | None:
        """Give what is to run, where that is decided anew."""
        if not (self._sample.full and self._due(metrics)):
            return None
        counted = self._sample.counted()
        if self._watch is None:
            seen, cause = look_of(metrics, Metrics(), counted.repeated), "the first rows"
        else:
            seen, cause = self._watch.look(metrics, counted.repeated)
        return self._decide(counted, seen, cause, metrics) if cause else None

    def _due(self, metrics: Metrics) -> bool:
        """Whether a period is over; at first, whether enough rows have met their pages.

        Before that it is not known how many rows have no match.
        """
        if self._watch is not None:
            return self._watch.due(metrics)
        return 4 * (metrics.answered - metrics.filtered) >= len(self._sample)

    def _decide(self, counted: Counted, seen: Look, cause: str, metrics: Metrics) -> Choice:
        """Find the fastest, say why it is, and watch it from now on."""
        before = self._running
        best = self._best(counted, seen, cause)
        log.info("auto %s", best.why)
        expected = _expected(best, seen)
        if self._watch is None:
            self._watch = Watch()
        else:
            self._watch.be_patient()
            if best.same(before):  # it does not do what was planned: so be it, from now on
                expected = seen
        period = self._period(best)
        self._watch.begin(expected, period, metrics)
        self._sample.begin(2 * len(self._sample) / period)  # fresh when a period ends
        self._running = best
        return best

    def _best(self, counted: Counted, seen: Look, cause: str) -> Choice:
        """Give what is to run, with the reason in a line."""
        cause = f"{cause}; {counted.rows:,} rows seen"
        found = estimate(counted, self._planner.room.spec.master, seen.absent)
        if found is None:
            return replace(self._running, why=f"stays with {self._running}: {cause}, no match")
        best = self._planner.best(found.demand, self._running)
        verb = "stays with" if best.same(self._running) else "takes"
        look = f"{found.skew}, {seen.absent:.1%} absent"
        return replace(best, why=f"{verb} {best.why}: {cause}, {look}")

    def _period(self, choice: Choice) -> int:
        """Give the rows over which counters are compared: several windows, and the cache's."""
        least = max(_LEAST_PERIOD, len(self._sample))
        if choice.prediction is None:
            return least
        plan, loop = choice.prediction.plan, choice.prediction.loop
        rows = int(plan.settings.get("window_rows", 0)) + int(loop.keys * loop.nodes)
        return max(_WINDOWS * rows, least)


def _expected(choice: Choice, seen: Look) -> Look:
    """Give what the model says that a join will do; the stream stays as it was seen."""
    if choice.prediction is None:
        return seen
    loop = choice.prediction.loop
    return replace(seen, pages=loop.pages_a_row, hits=loop.hit_rate)
