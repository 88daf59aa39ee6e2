"""The planner: what a budget buys, or what a rate costs, before anything runs."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, cast

from semistream.algorithms import algorithms as known_algorithms
from semistream.cost.calibration.own_rows import unlike, with_rows_of
from semistream.cost.calibration.reads import with_reads_of
from semistream.cost.models import MODELS, check_model
from semistream.cost.planning.answers import for_memory, for_rate
from semistream.cost.planning.asked import Asked
from semistream.cost.planning.cluster import check_workers, cluster_of
from semistream.cost.planning.current import Current, current_profile, given, no_one
from semistream.cost.planning.loads import by_page
from semistream.cost.planning.question import Question
from semistream.cost.planning.result import Planning
from semistream.cost.planning.stream import stream_like, stream_of
from semistream.errors import OptionError
from semistream.master.database.address import is_url
from semistream.master.database.master import DatabaseMaster
from semistream.master.open import as_master
from semistream.names import listed
from semistream.spec import JoinSpec

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import pyarrow as pa

    from semistream.cost.planning.answers import Answer
    from semistream.cost.planning.current import Say
    from semistream.cost.profile import Profile
    from semistream.cost.sampling.sample import Sample
    from semistream.cost.unit_costs import UnitCosts
    from semistream.master import FileMaster
    from semistream.spec import On

__all__ = ["plan"]

_READ_SECONDS = 1.0  # for what reads of the master cost where it lies


def plan(  # noqa: PLR0913 - a question has these parts; all but one have defaults
    master: FileMaster | str | os.PathLike[str],
    *,
    memory: int | str | None = None,
    rate: float | str | None = None,
    skew: float = 1.0,
    absent: float = 0.0,
    sample: Sample | str | os.PathLike[str] | None = None,
    stream_schema: pa.Schema | None = None,
    stream_row: int = 20,
    on: On | None = None,
    how: str = "inner",
    select: Sequence[str] | None = None,
    algorithms: Sequence[str] | None = None,
    profile: Profile | str | os.PathLike[str] | None = None,
    cluster: int | None = None,
    batch_rows: int | None = None,
    say: Say | None = None,
) -> Planning:
    """Predict what every algorithm does with a budget, or the least budget for a rate.

    Parameters
    ----------
    master
        The master table, or the folder of one, which is then read directly: so nothing is held
        outside of the budget, as predictions have it. A table in a database has no pages to plan.
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
        Only these; all that have a cost model if not given.
    profile
        Unit costs of a machine, or their file, taken as they are. Without it those of this machine,
        which are measured quickly, once, where they are not known; reads of this master are tried,
        which takes a second, in case it lies on another disk.
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
    _check_numbers(
        skew=skew,
        absent=absent,
        stream_row=stream_row,
        batch_rows=1 if batch_rows is None else batch_rows,
    )
    tell = say or no_one
    asked = Asked.of(memory, rate, batch_rows)
    opened = _opened(master)
    stream = stream_of(opened, skew, absent, sample, on or list(opened.key))
    size = stream.row_bytes or stream_row
    schema = stream_schema or stream_like(opened, size, stream.columns)
    keys = on if on and stream_schema else list(opened.key)
    spec = JoinSpec.resolve(opened, schema, keys, how, select, "")
    names, workers = _names(algorithms), None if cluster is None else check_workers(cluster)
    costs = _measured_here(spec, tell) if profile is None else _as_given(profile, spec)
    question = Question(spec, stream.demand, costs.profile.costs, names)
    answered, answers = _answers(question, asked, workers, tell)
    on_all = None
    if workers is not None and answers[0].prediction:
        on_all = cluster_of(question, workers, answers[0])
    machine, notes = int(costs.profile.machine["memory_bytes"]), (costs.note, stream.note)
    return Planning(answered, asked, answers, machine, notes, stream.facts, on_all)


def _check_numbers(**given: object) -> None:
    for what, value in given.items():
        if isinstance(value, bool) or not isinstance(value, Real):
            msg = f"{what}={value!r} is no number; give one, or leave {what} out"
            raise OptionError(msg)


def _opened(master: FileMaster | str | os.PathLike[str]) -> FileMaster:
    """Open a master that has pages; a table in a database is refused before it is asked."""
    if isinstance(master, DatabaseMaster) or is_url(master):
        msg = (
            "a table in a database is asked by keys; there are no pages to plan with. Join it with "
            "'adaptive', or bring its rows into a master of files with build_master, and plan that"
        )
        raise OptionError(msg)
    return cast("FileMaster", as_master(master, read="direct"))


def _measured_here(spec: JoinSpec, say: Say) -> Current:
    """Give this machine's unit costs, with what reads and rows of this master cost."""
    master = spec.files
    profile, note = current_profile(master.path.parent, say)
    say("reads of this master", 0, 2)
    costs = with_reads_of(profile.costs, master, _READ_SECONDS)
    note = f"{note} {_compared(profile.costs, costs, master)}"
    if why := unlike(spec):
        say("rows of this master", 1, 2)
        costs = with_rows_of(costs, spec)
        note = f"{note} So were its rows, for {why}; rates of such joins are less exact: --measure."
    return Current(replace(profile, costs=costs), note)


def _as_given(profile: Profile | str | os.PathLike[str], spec: JoinSpec) -> Current:
    """Take a profile as it is; say where it knows nothing of rows like these."""
    loaded, note = given(profile)
    if why := unlike(spec):
        note = (
            f"{note} They are of integer keys and columns of fixed width; here {why}, so that "
            "rates are predicted too high, by several times: leave the profile out, or --measure."
        )
    return Current(loaded, note)


def _compared(before: UnitCosts, now: UnitCosts, master: FileMaster) -> str:
    """Say whether reads of this master replaced those of the profile."""
    if now is before:
        return "Reads of this master, tried just now, are much like the profile's, which count."
    size = float(master.statistics.largest_part)
    times = now.c_io[master.read](size) / before.c_io[master.read](size)
    return (
        f"Reads of this master, tried just now, take {times:.2g} times as long as the profile's, "
        "and count in their place: it lies on another disk, or the disk had other work."
    )


def _names(given: Sequence[str] | None) -> tuple[str, ...]:
    known = known_algorithms()
    for name in () if given is None else listed("algorithms", given):
        if name not in known:
            raise OptionError.unknown("algorithm", name, known)
        check_model(name)
    return tuple(dict.fromkeys(given or (name for name in known if name in MODELS)))


def _answers(
    question: Question, asked: Asked, workers: int | None, say: Say
) -> tuple[Question, tuple[Answer, ...]]:
    """Answer for each algorithm; where a rate is for several workers, for the busiest of them."""
    if asked.memory is not None:
        return question, for_memory(question, asked.memory, say)
    rate = asked.rate or 0.0
    if workers is None:
        return question, for_rate(question, rate, say)
    load = by_page(question.demand, workers)
    busiest = question.of(load.demand)
    return busiest, for_rate(busiest, rate * load.share, say)
