"""Tuning by measurement: the same choices, run side by side."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from semistream.bench.run import Run, rounded
from semistream.bench.summary import Spread, ratio, spread
from semistream.errors import BudgetError
from semistream.join import Join

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from semistream.cost.knobs import Value
    from semistream.master import Master

    Options = Mapping[str, Value]
    Say = Callable[[str], None]

__all__ = ["Candidate", "Curve", "Sampling", "measured"]


class Sampling(NamedTuple):
    """How long each candidate is watched."""

    seconds: float = 0.3
    """A sample takes so long, and until a window of rows was answered, for three times as long."""
    warm: float = 3.0
    """Seconds for caches to settle, at most."""
    rounds: int = 3
    """Samples of each; in each round every candidate has its turn, so that noise hits all alike."""


class Candidate(NamedTuple):
    """A choice of the knobs, and the master that it is tried on."""

    options: Options
    """What stands in the record; with ``page_bytes`` it describes the master."""
    master: Master
    given: Options
    """The options of the join."""


@dataclass(frozen=True)
class Curve:
    """Samples of every candidate, and then of two of them once more."""

    options: tuple[Options, ...]
    samples: tuple[list[int], ...]
    """Stream rows a second of each, round by round."""
    best: int
    """The candidate with the best median."""
    chosen: int
    """The model's candidate."""
    final: tuple[list[int], list[int]]
    """Samples of the model's and of the best one, taken after ``best`` was known."""

    @property
    def shares(self) -> list[Spread]:
        """Each candidate's rate to the best one's, round by round."""
        return [ratio(samples, self.samples[self.best]) for samples in self.samples]

    @property
    def loss(self) -> Spread:
        """Give what the model's choice loses of the best measured rate.

        It is taken from samples of its own: of many candidates the one that seemed best was also
        lucky, and would look worse a second time.
        """
        if self.best == self.chosen:
            return Spread(0.0, 0.0, 0.0)
        return spread(1 - share for share in _shares(*self.final))


def _shares(mine: Sequence[float], theirs: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(mine, theirs, strict=True)]


def measured(
    name: str,
    memory: int,
    candidates: Sequence[Candidate],
    chosen: int,
    batches: Sequence[pa.RecordBatch],
    sampling: Sampling,
    say: Say,
) -> Curve:
    """Run every candidate on the same stream, in turn.

    Each holds ``memory`` bytes while this lasts, for all go on where their last sample ended. One
    that finds no plan is left out.

    Parameters
    ----------
    chosen
        Which of the candidates is the model's choice.
    batches
        The stream, given again and again; its key has the names of the master's.
    """
    runs = _runs(name, memory, candidates, batches)
    for number, run in runs.items():
        say(f"{name}: {_text(candidates[number].options)} settles")
        run.warm_up(sampling.warm)
    say(f"{name}: {len(runs)} choices in turn")
    samples = _in_turn(runs, sampling)
    numbers = list(runs)
    best = max(numbers, key=lambda number: spread(samples[number]).middle)
    say(f"{name}: the model's choice against {_text(candidates[best].options)}")
    again = {number: runs[number] for number in dict.fromkeys((chosen, best))}
    final = _in_turn(again, sampling) if best != chosen else samples
    for run in runs.values():
        run.join.close()
    return Curve(
        tuple(candidates[number].options for number in numbers),
        tuple(samples[number] for number in numbers),
        numbers.index(best),
        numbers.index(chosen),
        (final[chosen], final[best]),
    )


def _runs(
    name: str, memory: int, candidates: Sequence[Candidate], batches: Sequence[pa.RecordBatch]
) -> dict[int, Run]:
    runs, schema = {}, batches[0].schema
    for number, (_, master, given) in enumerate(candidates):
        on = list(master.key)
        try:
            join = Join(master, schema, on=on, memory=memory, algorithm=name, **given)
        except BudgetError:
            continue
        runs[number] = Run(join, itertools.cycle(batches))
    return runs


def _in_turn(runs: Mapping[int, Run], sampling: Sampling) -> dict[int, list[int]]:
    samples: dict[int, list[int]] = {number: [] for number in runs}
    order = list(runs)
    for turn in range(sampling.rounds):
        first = turn % len(order)
        for number in order[first:] + order[:first]:
            samples[number].append(_sample(runs[number], sampling.seconds))
    return samples


def _sample(run: Run, seconds: float) -> int:
    before = run.join.metrics.answered
    spent = run.watch(seconds, 1.0, 3 * seconds)
    return max(1, rounded((run.join.metrics.answered - before) / spent))


def _text(options: Options) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items()) or "untuned"
