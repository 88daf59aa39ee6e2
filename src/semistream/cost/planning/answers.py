"""What the planner says of one algorithm."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from semistream.cost.planning.least import least_memory
from semistream.cost.planning.question import is_mapped, is_whole
from semistream.cost.predict import standing
from semistream.errors import BudgetError
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from semistream.cost.planning.current import Say
    from semistream.cost.planning.question import Question
    from semistream.cost.predict import Prediction

__all__ = ["Answer", "Split", "for_memory", "for_rate"]


@dataclass(frozen=True)
class Split:
    """How a budget is divided once it has settled, in bytes."""

    window: int
    cache: int
    disk_buffer: int
    pinned: int
    rest: int
    """Output, counters, filter, and what is spare."""

    @classmethod
    def of(cls, prediction: Prediction) -> Split:
        """Take a plan apart; what divides itself at run time, as the model has it."""
        plan, loop = prediction.plan, prediction.loop
        parts = plan.components
        if is_whole(prediction) or is_mapped(prediction):
            window, cache, pinned = 0, parts.get("cache", 0), 0
        else:
            window = int(loop.window_bytes) * loop.nodes
            pinned = parts["pinned"] + parts["window"] - window if "pinned" in parts else 0
            cache = 0 if "pinned" in parts else int(loop.cache_bytes) * loop.nodes
        buffer = parts["pages"]
        return cls(window, cache, buffer, pinned, plan.memory - window - cache - buffer - pinned)


@dataclass(frozen=True)
class Answer:
    """What one algorithm is predicted to do.

    Without a `prediction` the budget is too small, or no budget gives the rate.
    """

    algorithm: str
    prediction: Prediction | None = None
    half: float = 0.0
    """The predicted rate with half the memory; 0 where that is too small."""
    twice: float = 0.0
    """The predicted rate with twice the memory."""
    least: int | None = None
    """The least budget that works, where the given one is too small."""
    most: float | None = None
    """The highest predicted rate, where the one asked for is not reachable."""

    @property
    def memory(self) -> int:
        """The budget in bytes, 0 where there is no prediction."""
        return self.prediction.plan.memory if self.prediction else 0

    @property
    def rate(self) -> float:
        """Predicted stream rows a second, 0 where there is no prediction."""
        return self.prediction.rate if self.prediction else 0.0

    @property
    def split(self) -> Split | None:
        """How the budget is divided."""
        return Split.of(self.prediction) if self.prediction else None

    @property
    def from_memory(self) -> float:
        """The predicted share of stream rows that are answered without reading a page for them."""
        loop = self.prediction.loop if self.prediction else None
        return (loop.w_N + loop.w_F + loop.pinned) / loop.w if loop and loop.w else 0.0

    @property
    def rows_a_page(self) -> float | None:
        """Predicted stream rows for each page that is read; None where none is."""
        loop = self.prediction.loop if self.prediction else None
        return loop.w / loop.pages if loop and loop.pages else None

    def as_dict(self) -> dict[str, Any]:
        """Give the answer for programs."""
        if self.prediction is None:
            known = {"least_memory": self.least, "most_predicted_rate": self.most}
            return {"algorithm": self.algorithm} | {k: v for k, v in known.items() if v is not None}
        return {
            "algorithm": self.algorithm,
            "memory": self.memory,
            "predicted_rate": self.rate,
            "predicted_rate_at_half": self.half,
            "predicted_rate_at_twice": self.twice,
            "predicted_pages_a_second": self.prediction.pages_a_second,
            "predicted_rows_a_page": self.rows_a_page,
            "predicted_from_memory": self.from_memory,
            "holds_whole_master": is_whole(self.prediction),
            "needs_mapped_pages_held": is_mapped(self.prediction),
            "split": asdict(Split.of(self.prediction)),
            "settings": dict(self.prediction.plan.settings),
        }


def for_memory(question: Question, memory: int, say: Say) -> tuple[Answer, ...]:
    """Say what every algorithm makes of a budget, the fastest first; see `standing`."""
    found = list(_each(question, say, lambda name: _with_memory(question, name, memory)))
    if all(answer.prediction is None for answer in found):
        least, name = min((answer.least or 0, answer.algorithm) for answer in found)
        msg = (
            f"memory={memory:,} bytes ({format_bytes(memory)}) is too small for every algorithm; "
            f"the least that works is {least:,} bytes ({format_bytes(least)}), for {name!r}. "
            "Smaller pages (page_bytes= of build_master) need less."
        )
        raise BudgetError(msg)
    found.sort(key=lambda answer: (-standing(answer.algorithm, answer.rate), answer.least or 0))
    return tuple(found)


def for_rate(question: Question, rate: float, say: Say) -> tuple[Answer, ...]:
    """Say what budget every algorithm needs for a rate, the least first."""
    found = list(_each(question, say, lambda name: _with_rate(question, name, rate)))
    reached = [answer for answer in found if answer.prediction]
    short = [answer for answer in found if not answer.prediction]
    reached.sort(key=lambda answer: (answer.memory, -answer.rate))
    return (*reached, *sorted(short, key=lambda answer: -(answer.most or 0.0)))


def _each(question: Question, say: Say, ask: Callable[[str], Answer]) -> Iterator[Answer]:
    for number, name in enumerate(question.names):
        say(f"predict {name}", number, len(question.names))
        yield ask(name)


def _with_memory(question: Question, name: str, memory: int) -> Answer:
    found = question.predict(name, memory)
    if found is None:
        return Answer(name, least=question.least_budget(name))
    half, twice = (question.rate(name, size) for size in (memory // 2, 2 * memory))
    return Answer(name, found, half, twice)


def _with_rate(question: Question, name: str, rate: float) -> Answer:
    found = least_memory(question, name, rate)
    if found.memory is None:
        return Answer(name, most=found.most)
    return _with_memory(question, name, found.memory)
