"""The planner: what a budget buys, or what a rate costs, before anything runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semistream.algorithms import algorithms as known_algorithms
from semistream.cost.answers import for_memory, for_rate
from semistream.cost.cluster import check_workers, cluster_of
from semistream.cost.current import current_profile
from semistream.cost.demand import Demand
from semistream.cost.loads import by_page
from semistream.cost.planning import Asked, Planning
from semistream.cost.profile import Profile
from semistream.cost.question import Question
from semistream.cost.rates import parse_rate
from semistream.cost.stream import stream_like
from semistream.errors import BudgetError, OptionError
from semistream.master import Master, open_master
from semistream.spec import JoinSpec
from semistream.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from semistream.cost.answers import Answer
    from semistream.cost.unit_costs import UnitCosts
    from semistream.spec import On

__all__ = ["plan"]


def plan(  # noqa: PLR0913 - a question has these parts; all but one have defaults
    master: Master | str | os.PathLike[str],
    *,
    memory: int | str | None = None,
    rate: float | str | None = None,
    skew: float = 1.0,
    absent: float = 0.0,
    sample: Any = None,  # noqa: ANN401 - a Sample, or what one can be taken of
    stream_schema: pa.Schema | None = None,
    stream_row: int = 20,
    on: On | None = None,
    how: str = "inner",
    select: Sequence[str] | None = None,
    algorithms: Sequence[str] | None = None,
    profile: Profile | str | os.PathLike[str] | None = None,
    cluster: int | None = None,
    batch_rows: int | None = None,
    say: Callable[[str, int, int], None] | None = None,
) -> Planning:
    """Predict what every algorithm does with a budget, or the least budget for a rate.

    Parameters
    ----------
    master
        The master table, or the folder of one (its pages are then taken to be mapped).
    memory, rate
        Exactly one: a budget such as ``"64MB"``, or stream rows a second such as ``"200k"``.
    skew, absent
        The stream's Zipf exponent, and the share of its rows that have no match.
    sample
        What the stream is like instead: files or a topic of it, or a `Sample` of them.
    stream_schema, stream_row
        The stream's columns; or the bytes of a row, of which the key is a part.
    on, how, select
        As for `Join`; ``on`` is the master's key where it is not given.
    algorithms
        Only these; all if not given.
    profile
        Unit costs of a machine, or their file. Without it those of this machine, which are
        measured quickly, once, where they are not known.
    cluster
        How many workers there are; ``memory`` is then that of each, ``rate`` that of all.
    batch_rows
        How many stream rows arrive together: then a batch join is compared.
    say
        Is told how far a measurement is: what, done, of how many.

    Examples
    --------
    >>> import tempfile, semistream as ss
    >>> from semistream.cost.example import example_profile
    >>> from semistream.workloads import master_table
    >>> master = ss.build_master(master_table(20_000), tempfile.mkdtemp(), key="key")
    >>> planning = ss.plan(master, memory="1MB", skew=1.0, profile=example_profile())
    >>> planning.winner.algorithm in ss.algorithms(), planning.winner.rate > 100_000
    (True, True)
    >>> ss.plan(master, rate="100k", profile=example_profile()).winner.memory < 2_000_000
    True
    """
    asked = _asked(memory, rate, batch_rows)
    opened = master if isinstance(master, Master) else open_master(master)
    stream = _Stream.of(opened, skew, absent, sample, on)
    schema = stream_schema or stream_like(opened, stream.row_bytes or stream_row)
    spec = JoinSpec.resolve(opened, schema, on or list(opened.key), how, select, "")
    costs = _Costs.of(profile, opened, say)
    question = Question(spec, stream.demand, costs.units, _names(algorithms))
    return _planned(question, asked, cluster, costs, (costs.note, stream.note))


def _asked(memory: int | str | None, rate: float | str | None, batch_rows: int | None) -> Asked:
    if (memory is None) == (rate is None):
        msg = (
            f"memory={memory!r} and rate={rate!r}: give exactly one, a budget such as '64MB' to "
            "learn what it buys, or rows a second such as '200k' to learn what they need"
        )
        raise OptionError(msg)
    if batch_rows is not None and batch_rows < 1:
        msg = f"batch_rows={batch_rows!r} is not possible; give how many rows arrive together"
        raise OptionError(msg)
    return Asked(
        None if memory is None else parse_bytes(memory),
        None if rate is None else parse_rate(rate),
        batch_rows,
    )


def _names(given: Sequence[str] | None) -> tuple[str, ...]:
    known = known_algorithms()
    for name in given or ():
        if name not in known:
            raise OptionError.unknown("algorithm", name, known)
    return tuple(given or known)


@dataclass(frozen=True, eq=False)
class _Stream:
    """What the stream asks for, and how that is known."""

    demand: Demand
    note: str
    row_bytes: int | None = None

    @classmethod
    def of(
        cls,
        master: Master,
        skew: float,
        absent: float,
        sample: Any,
        on: On | None,  # noqa: ANN401
    ) -> _Stream:
        if not master.statistics.values:
            msg = f"{master.path}: this master has no rows, so there is nothing to plan"
            raise OptionError(msg)
        if sample is None:
            found = Demand.zipf(master.statistics.values, skew, master.pages, absent=absent)
            return cls(found, f"Stream: Zipf's law with exponent {skew:g}, {absent:.1%} absent.")
        if isinstance(sample, (str, os.PathLike)):
            take = import_module("semistream.cost.sample").sample_source
            sample = take(sample, master, on or list(master.key))
        note = f"Stream, sampled:\n{sample.describe()}"
        return cls(sample.demand(master), note, round(sample.row_bytes))


@dataclass(frozen=True)
class _Costs:
    """Unit costs, the memory of their machine, and where they are from."""

    units: UnitCosts
    machine_memory: int
    note: str

    @classmethod
    def of(
        cls,
        given: Profile | str | os.PathLike[str] | None,
        master: Master,
        say: Callable[[str, int, int], None] | None,
    ) -> _Costs:
        if given is None:
            profile, note = current_profile(master.path.parent, say)
        else:
            profile = given if isinstance(given, Profile) else Profile.load(Path(given))
            doubts = "; ".join(profile.doubts())
            where = "" if isinstance(given, Profile) else f" of {Path(given)}"
            note = (
                f"Unit costs: as given{where}{f' (not of this machine: {doubts})' * bool(doubts)}."
            )
        return cls(profile.costs, int(profile.machine["memory_bytes"]), note)


def _planned(
    question: Question, asked: Asked, workers: int | None, costs: _Costs, notes: tuple[str, str]
) -> Planning:
    answered, rate = question, asked.rate
    if workers is not None and rate is not None:
        load = by_page(question.demand, check_workers(workers))
        answered, rate = question.of(load.demand), rate * load.share
    answers = _answers(answered, asked.memory, rate)
    cluster = None
    if workers is not None and answers[0].prediction:
        cluster = cluster_of(question, check_workers(workers), answers[0])
    return Planning(answered, asked, answers, costs.machine_memory, notes, cluster)


def _answers(question: Question, memory: int | None, rate: float | None) -> tuple[Answer, ...]:
    """Ask for each algorithm, and put the best first."""
    if memory is None:
        found = [for_rate(question, name, rate or 0.0) for name in question.names]
        key = lambda a: (a.prediction is None, a.memory, -a.rate, -(a.most or 0.0))  # noqa: E731
        return tuple(sorted(found, key=key))
    found = [for_memory(question, name, memory) for name in question.names]
    if all(answer.prediction is None for answer in found):
        least, name = min((answer.least or 0, answer.algorithm) for answer in found)
        msg = (
            f"memory={memory:,} bytes ({format_bytes(memory)}) is too small for every algorithm; "
            f"the least that works is {least:,} bytes ({format_bytes(least)}), for {name!r}. "
            "Smaller pages (page_bytes= of build_master) need less."
        )
        raise BudgetError(msg)
    return tuple(sorted(found, key=lambda a: (-a.rate, a.least or 0)))
