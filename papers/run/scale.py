"""How large and how long: the papers' sizes, or smaller ones at the same shares of memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks.harness.rounds import Pace
from semistream.errors import OptionError

if TYPE_CHECKING:
    from papers.experiment import Experiment

__all__ = ["SCALES", "Scale", "scale_of"]

_PLAIN = 8_000_000  # rows: up to here R is as large as in the papers unless it is to be quick
_TENTH = 0.1
_SETTLING = 1.6e6  # rows of R whose caches settle in a second


@dataclass(frozen=True)
class Scale:
    """The size of data, and how long it is measured."""

    name: str
    pace: Pace
    page_bytes: str = "128KB"
    most_rows: int | None = None
    """Of the largest R of an experiment; the others, and memory, are smaller by as much."""
    full: bool = False
    """Whether more than 8M rows are as many as in the papers, not a tenth of them."""
    feed_rows: int = 4_000_000
    """Of the stream that is given again and again, at least."""
    spark_rows: int = 4_000_000
    """Of the stream that is given to Spark, once a round."""
    budgets: tuple[float, ...] = (0.5, 0.7, 1.0, 1.4, 2.0)
    """Where the least memory for a rate is looked for: times what the planner asks for."""
    candidates: int = 7
    """Values of a part of memory that are tried where its optimum is looked for."""

    def factor(self, experiment: Experiment) -> float:
        """Give by how much R and memory are smaller than in the paper.

        Examples
        --------
        >>> from papers.reading import experiments
        >>> moij = experiments("moij/figure-7a")["moij/figure-7a"]
        >>> [scale.factor(moij) for scale in SCALES.values()]
        [0.0025, 0.1, 1.0]
        """
        rows = experiment.data.rows
        largest = max(experiment.values) if experiment.vary == "rows" else rows
        if self.most_rows:
            return min(1.0, self.most_rows / largest)
        return 1.0 if self.full or largest <= _PLAIN else _TENTH

    def settled(self, rows: int) -> Scale:
        """Give the same with time for the caches of so many rows to settle.

        Examples
        --------
        >>> [SCALES[name].settled(8_000_000).pace.warm for name in ("quick", "default")]
        [0.05, 5.0]
        """
        if self.most_rows:
            return self
        warm = max(self.pace.warm, rows / _SETTLING)
        return replace(self, pace=self.pace._replace(warm=warm))


SCALES = {
    scale.name: scale
    for scale in (
        Scale(
            "quick",
            Pace(0.01, 2, 0.05),
            "16KB",
            250_000,
            feed_rows=150_000,
            spark_rows=25_000,
            budgets=(0.5, 2.0),
            candidates=4,
        ),
        Scale("default", Pace(0.15, 12, 2.0)),
        Scale("full", Pace(0.15, 12, 2.0), full=True),
    )
}
"""By name."""


def scale_of(quick: bool, full: bool) -> Scale:
    """Choose a scale by the command's flags."""
    if quick and full:
        msg = "--quick and --full are contrary; give one of them"
        raise OptionError(msg)
    return SCALES["quick" if quick else "full" if full else "default"]
