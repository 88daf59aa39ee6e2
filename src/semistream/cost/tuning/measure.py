"""Tuning by measurement: the same choices, run side by side."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from semistream.algorithms import choose
from semistream.cost.run import WARM_ROWS, Run, rounded
from semistream.cost.spread import Spread, ratio, spread
from semistream.errors import BudgetError
from semistream.join import Join
from semistream.spec import JoinSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from semistream.cost.tuning.knobs import Value
    from semistream.master import FileMaster

    Options = Mapping[str, Value]
    Say = Callable[[str], None]

__all__ = ["Candidate", "Curve", "Sampling", "distinct", "measured"]


class Sampling(NamedTuple):
    """How long each candidate is watched."""

    seconds: float = 0.25
    """A sample takes so long, and until a window of rows was answered, for three times as long."""
    warm: float = 1.5
    """Seconds for caches to settle, at most."""
    rounds: int = 3
    """Samples of each; in each round every candidate has its turn, so that noise hits all alike."""
    final: int = 7
    """Samples of the model's and of the best one against each other."""

    def age(self, rate: float) -> float:
        """Give about how many rows a join of such a rate has had amid its samples.

        Examples
        --------
        >>> some = Sampling(seconds=0.5, warm=5.0, rounds=4)
        >>> some.age(1000.0), some.age(100_000.0)
        (6000.0, 350000.0)
        """
        warm = min(rate * self.warm, WARM_ROWS)
        return warm + rate * self.seconds * self.rounds / 2


class Candidate(NamedTuple):
    """A choice of the knobs, and the master that it is tried on."""

    options: Options
    """What stands in the record; with ``page_bytes`` it describes the master."""
    master: FileMaster
    given: Mapping[str, Any]
    """The options of the join."""
    untuned: bool = False
    """Whether it is what is done without tuning."""


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
        share = ratio(*self.final)
        return Spread(1 - share.middle, 1 - share.most, 1 - share.least)


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

    Each holds ``memory`` bytes while this lasts, for all go on where their last sample ended.

    Parameters
    ----------
    chosen
        Which of the candidates is the model's choice.
    batches
        The stream, given again and again; its key has the names of the master's.
    """
    runs = _runs(name, memory, candidates, batches)
    for candidate, run in zip(candidates, runs, strict=True):
        say(f"{name}: {_text(candidate.options)} settles")
        run.warm_up(sampling.warm)
    say(f"{name}: {len(runs)} choices in turn")
    samples = _in_turn(runs, sampling.seconds, sampling.rounds)
    middles = [spread(some).middle for some in samples]
    best = middles.index(max(middles))
    final = [samples[chosen], samples[best]]
    if best != chosen:
        say(f"{name}: the model's choice against {_text(candidates[best].options)}")
        final = _in_turn([runs[chosen], runs[best]], sampling.seconds, sampling.final)
    for run in runs:
        run.join.close()
    options = tuple(candidate.options for candidate in candidates)
    return Curve(options, tuple(samples), best, chosen, (final[0], final[1]))


def distinct(
    name: str, memory: int, candidates: Sequence[Candidate], schema: pa.Schema
) -> list[Candidate]:
    """Leave out candidates that have no plan, or the same one as another."""
    found: dict[Any, Candidate] = {}
    for candidate in candidates:
        master = candidate.master
        spec = JoinSpec.resolve(master, schema, list(master.key), "inner", None, "")
        try:
            _, _, plan = choose(name, spec, memory, None, candidate.given)
        except BudgetError:
            continue
        same = (master.snapshot, *plan.components.items(), *plan.settings.items())
        kept = found.get(same, candidate)
        found[same] = kept._replace(untuned=kept.untuned or candidate.untuned)
    return list(found.values())


def _runs(
    name: str, memory: int, candidates: Sequence[Candidate], batches: Sequence[pa.RecordBatch]
) -> list[Run]:
    schema = batches[0].schema
    joins = (
        Join(c.master, schema, on=list(c.master.key), memory=memory, algorithm=name, **c.given)
        for c in candidates
    )
    return [Run(join, itertools.cycle(batches)) for join in joins]


def _in_turn(runs: Sequence[Run], seconds: float, rounds: int) -> list[list[int]]:
    samples: list[list[int]] = [[] for _ in runs]
    for turn in range(rounds):
        for place in range(len(runs)):
            number = (turn + place) % len(runs)  # each round begins with another one
            samples[number].append(max(1, rounded(runs[number].sample(seconds))))
    return samples


def _text(options: Options) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items()) or "untuned"
