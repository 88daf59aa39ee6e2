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
        self._master = planner.room.spec.master
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
        if not self._sample.full or (self._watch and not self._watch.due(metrics)):
            return None
        counted = self._sample.counted()
        if self._watch is None:
            self._watch = Watch()
            seen = look_of(metrics, Metrics(), counted.repeated)
            best = self._best(counted, seen, "the first rows")
            self._begin(self._watch, best, _expected(best, seen), metrics)
            return best
        seen, change = self._watch.look(metrics, counted.repeated)
        if not change:
            return None
        before = self._running
        best = self._best(counted, seen, change)
        # A join that goes on though it does not do what was planned: that is expected from now on.
        expected = seen if best.same(before) else _expected(best, seen)
        self._watch.be_patient()
        self._begin(self._watch, best, expected, metrics)
        return best

    def _best(self, counted: Counted, seen: Look, cause: str) -> Choice:
        """Find the fastest, and say why it is."""
        demand = estimate(counted, self._master, seen.absent)
        best = self._planner.best(demand, self._running)
        verb = "stays with" if best.same(self._running) else "takes"
        why = f"{verb} {best.why}; {cause}: {counted}, {seen.absent:.1%} absent"
        log.info("auto %s", why)
        self._running = replace(best, why=why)
        return self._running

    def _begin(self, watch: Watch, choice: Choice, expected: Look, metrics: Metrics) -> None:
        """Begin to watch, with a sample that will be fresh by the end of a period."""
        period = self._period(choice)
        watch.begin(expected, period, metrics)
        self._sample.begin(2 * len(self._sample) / period)

    def _period(self, choice: Choice) -> int:
        """Give the rows over which counters are compared: several windows, and the cache's."""
        if choice.prediction is None:
            return max(_LEAST_PERIOD, len(self._sample))
        plan, loop = choice.prediction.plan, choice.prediction.loop
        rows = int(plan.settings.get("window_rows", 0)) + int(loop.keys * loop.nodes)
        return max(_WINDOWS * rows, _LEAST_PERIOD, len(self._sample))


def _expected(choice: Choice, seen: Look) -> Look:
    """Give what the model says that a join will do; the stream stays as it was seen."""
    if choice.prediction is None:
        return seen
    loop = choice.prediction.loop
    return replace(seen, pages=loop.pages_a_row, hits=loop.hit_rate)
