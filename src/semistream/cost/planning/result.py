"""The planner's answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from semistream.cost.planning.advice import advise
from semistream.cost.planning.show import as_text
from semistream.engine.plan import Task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semistream.cost.planning.answers import Answer
    from semistream.cost.planning.asked import Asked
    from semistream.cost.planning.cluster import Cluster
    from semistream.cost.planning.question import Question

__all__ = ["Planning"]

_STEPS = range(-6, 7)  # the picture goes from an eighth of the memory to eight times as much

Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True, eq=False)
class Planning:
    """What every algorithm is predicted to do, best first; print it to read it."""

    question: Question
    asked: Asked
    answers: tuple[Answer, ...]
    machine_memory: int
    """Bytes of memory of the machine that the unit costs are of."""
    notes: tuple[str, ...] = ()
    """Where the unit costs and the stream's skew are from."""
    stream: Mapping[str, Any] = field(default_factory=dict)
    """What is known of the stream: its law, absent rows, matches; and of its sample."""
    cluster: Cluster | None = None

    @property
    def winner(self) -> Answer | None:
        """The highest rate, or the least memory for a rate; None where no budget gives the rate."""
        return self.answers[0] if self.answers[0].prediction else None

    @cached_property
    def advice(self) -> list[str]:
        """What to know before taking the winner, in plain sentences; often there is nothing."""
        return advise(self)

    def curve(self, name: str) -> Points:
        """Give an algorithm's predicted rate over memory, as far as budgets are large enough."""
        middle = self.asked.memory or (self.winner.memory if self.winner else self.question.whole)
        sizes = [round(middle * 2 ** (step / 2)) for step in _STEPS]
        found = ((size, self.question.rate(name, size)) for size in sizes)
        return tuple((size, rate) for size, rate in found if rate)

    @cached_property
    def curves(self) -> dict[str, Points]:
        """The curves of all algorithms, best first."""
        return {answer.algorithm: self.curve(answer.algorithm) for answer in self.answers}

    def as_dict(self) -> dict[str, Any]:
        """Give everything for programs; whatever is predicted is called so.

        The curves are those of the algorithms that there is a prediction for.
        """
        master = self.question.spec.files
        return {
            "master": {"path": str(master.path), "rows": master.rows, "read": master.read},
            "asked": vars(self.asked),
            "stream": self._stream(),
            "winner": self.winner.algorithm if self.winner else None,
            "algorithms": [answer.as_dict() for answer in self.answers],
            "curves": {a.algorithm: self.curves[a.algorithm] for a in self.answers if a.prediction},
            "cluster": self.cluster.as_dict() if self.cluster else None,
            "advice": self.advice,
            "notes": list(self.notes),
        }

    def _stream(self) -> dict[str, Any]:
        """Give the stream that was planned for; bytes are those that the window holds of a row."""
        spec = self.question.spec
        row = Task.of(spec, 1 << 20, None).stream_row
        return {**self.stream, "columns": len(spec.stream), "row_bytes": row}

    def __str__(self) -> str:
        return as_text(self)
