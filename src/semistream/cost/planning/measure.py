"""The winner of a plan, run for some seconds: predicted against measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semistream.cost.planning.rates import format_rate
from semistream.cost.planning.synthetic import (
    BATCH_ROWS,
    SyntheticStream,
    read_keys,
    synthetic_demand,
)
from semistream.cost.predict import predict
from semistream.cost.run import Run
from semistream.errors import OptionError
from semistream.join import Join
from semistream.units import format_bytes

if TYPE_CHECKING:
    from semistream.cost.planning.question import Question
    from semistream.cost.planning.result import Planning
    from semistream.cost.predict import Prediction
    from semistream.spec import JoinSpec

__all__ = ["Measured", "measure"]

_WARM = 3.0  # times as long as the sample lasts, at the most


@dataclass(frozen=True)
class Measured:
    """What an algorithm was predicted to do, and did."""

    algorithm: str
    memory: int
    predicted: float
    """Stream rows a second."""
    measured: float
    predicted_rows_a_page: float | None
    measured_rows_a_page: float | None
    """None where no page was read."""
    absent: float = 0.0
    """The share of the planned stream's rows that have no match: both rates are without them."""

    @property
    def ratio(self) -> float:
        """Measured to predicted: 1 is as predicted, 1.2 a fifth faster."""
        return self.measured / self.predicted

    def __str__(self) -> str:
        without = " (without absent rows)" if self.absent else ""
        return (
            f"{self.algorithm} within {format_bytes(self.memory)}{without}: predicted "
            f"{format_rate(self.predicted)} rows/s, measured {format_rate(self.measured)} "
            f"({self.ratio:.2f} of it){self._pages()}"
        )

    def _pages(self) -> str:
        """Say how many rows a page had: whether the model of reads, or of costs, is off."""
        if self.predicted_rows_a_page is None or self.measured_rows_a_page is None:
            return ""
        predicted, measured = self.predicted_rows_a_page, self.measured_rows_a_page
        return f"; rows a page: predicted {predicted:.4g}, measured {measured:.4g}"

    def as_dict(self) -> dict[str, Any]:
        """Give everything for programs."""
        return vars(self) | {"measured_to_predicted": self.ratio}


def measure(planning: Planning, seconds: float = 5.0) -> Measured:
    """Run the winner on a synthetic stream like the planned one, of the master's own keys.

    It has no absent keys, and the join is young: what is compared is a prediction for a stream
    without them, and for a join that has had as many rows.

    Parameters
    ----------
    planning
        Whose winner to run.
    seconds
        How long to count, after the window is full and caches have settled.
    """
    winner = planning.winner
    if winner is None or not seconds > 0:
        msg = f"seconds={seconds!r}, winner={winner!r}: to measure takes a winner and positive time"
        raise OptionError(msg)
    question, name, memory = planning.question, winner.algorithm, winner.memory
    absent, question = question.demand.absent, question.of(synthetic_demand(question.demand))
    stream = SyntheticStream(question.spec, question.demand, read_keys(question.spec.files))
    with _join(question.spec, name, memory) as join:
        run = Run(join, stream.batches())
        run.warm_up(_WARM * seconds)
        before = join.metrics
        rate = run.sample(seconds)
        after = join.metrics
    expected = _expected(question, name, memory, (before.rows_in + after.rows_in) // 2)
    pages = after.pages_read - before.pages_read
    rows_a_page = (after.answered - before.answered) / pages if pages else None
    w, met = expected.loop.w, expected.loop.pages
    rows = w / met if met else None, rows_a_page
    return Measured(name, memory, expected.rate, rate, *rows, absent)


def _expected(question: Question, name: str, memory: int, age: int) -> Prediction:
    """Predict for a join that has had as many rows as the one that was watched."""
    spec, demand, costs = question.spec, question.demand, question.costs
    return predict(name, spec, memory, demand, costs, age=age, batch=BATCH_ROWS)


def _join(spec: JoinSpec, algorithm: str, memory: int) -> Join:
    on = dict(zip(spec.stream_keys, spec.files.key, strict=True))
    select = list(spec.payload) if spec.how in {"inner", "left"} else None
    return Join(
        spec.master,
        spec.stream,
        on=on,
        how=spec.how,
        memory=memory,
        algorithm=algorithm,
        select=select,
    )
