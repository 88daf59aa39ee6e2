"""`semistream.plan`: what a budget buys, or what a rate costs, before anything runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from numbers import Real
from typing import TYPE_CHECKING, Any

from semistream.algorithms import algorithms as known_algorithms
from semistream.algorithms import choose
from semistream.engine.plan import Task
from semistream.errors import BudgetError, OptionError
from semistream.master import FileMaster
from semistream.master.database.address import is_url
from semistream.master.open import as_master
from semistream.planning.curve import Asked, Point, draw_curve
from semistream.planning.demand import Demand, stream_like
from semistream.planning.machine import Machine
from semistream.planning.result import Planning
from semistream.planning.simulate import Trial, count_work
from semistream.planning.view import take_view
from semistream.spec import JoinSpec
from semistream.system.machine import free_memory
from semistream.units import parse_bytes, parse_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from semistream.engine.plan import Plan
    from semistream.master import Master
    from semistream.planning.view import View
    from semistream.spec import On

    MachineLike = Machine | Mapping[str, Any] | str | os.PathLike[str]

__all__ = ["JoinPredictor", "Problem", "plan", "pose"]

BATCH_ROWS = 65_536
"""Rows of a batch that a `Join` is offered, where it is not said."""
MICRO_BATCH_ROWS = 1_000_000


@dataclass(frozen=True, eq=False)
class Problem:
    """A join, the stream that it meets, and the machine that it runs on."""

    spec: JoinSpec
    master: FileMaster
    view: View
    demand: Demand
    machine: Machine
    in_memory: bool
    """Whether the operating system holds the master's pages."""
    algorithm: str = "adaptive"
    options: Mapping[str, Any] = field(default_factory=dict)
    stream: str = ""
    """What the stream is taken to be, for people."""
    seed: int = 0


@dataclass(frozen=True, eq=False)
class JoinPredictor:
    """Predicts a `Join` in one thread, without Spark."""

    problem: Problem
    batch_rows: int = BATCH_ROWS
    name: str = "Join"

    @cached_property
    def least(self) -> int:
        """The least bytes that the join accepts."""
        return least_budget(self.problem)

    @cached_property
    def whole(self) -> int:
        """Bytes that hold the whole master."""
        return int(1.5 * Task.of(self.problem.spec, 1 << 20, None).resident_bytes)

    def predict(self, memory: int) -> Point:
        """Predict what a budget buys; raise `BudgetError` if it is too small."""
        p = self.problem
        kind, task, plan = choose(p.algorithm, p.spec, memory, None, p.options)
        trial = Trial(kind, task, plan, p.view, p.demand, self.batch_rows, seed=p.seed)
        work = count_work(trial)
        seconds = p.machine.seconds(work, depth=depth_of(plan, p.in_memory))
        way = "whole" if plan.settings.resident else "mapped" if work.looked_up else "pages"
        return Point(
            memory,
            rate=1 / seconds,
            from_memory=work.from_memory,
            pages=work.pages / seconds,
            bytes=0.0 if p.in_memory else work.bytes / seconds,
            components=dict(plan.components),
            way=_WAYS[way],
        )


_WAYS = {
    "whole": "the budget holds the whole master",
    "mapped": "rows are looked up in mapped pages that lie in memory",
    "pages": "a cache answers hot keys, the others wait for their pages",
}


def least_budget(problem: Problem) -> int:
    """Return the least bytes with which a `Join` starts: what its own plan says."""
    try:
        choose(problem.algorithm, problem.spec, 1, None, problem.options)
    except BudgetError as error:
        return error.least
    return 1


def depth_of(plan: Plan, in_memory: bool) -> int:
    """Return how many reads a plan has buffers for, 0 where pages lie in memory."""
    if in_memory:
        return 0
    if not plan.components.blocks:
        return 1
    return plan.settings.buffer_pages or 1


def plan(  # noqa: PLR0913 - a question has these parts; all but one have defaults
    master: Master | str | os.PathLike[str],
    *,
    memory: int | str | None = None,
    rate: float | str | None = None,
    skew: float = 1.0,
    absent: float = 0.0,
    sample: str | os.PathLike[str] | None = None,
    stream_schema: pa.Schema | None = None,
    stream_row: int = 20,
    on: On | None = None,
    how: str = "inner",
    select: Sequence[str] | None = None,
    algorithm: str = "adaptive",
    read: str = "mapped",
    machine: MachineLike | None = None,
    executors: int = 1,
    tasks: int | None = None,
    batch_rows: int = MICRO_BATCH_ROWS,
    host_memory: int | str | None = None,
    measure_again: bool = False,
    seed: int = 0,
    **options: Any,  # noqa: ANN401 - those of the algorithm
) -> Planning:
    """Predict which memory `enrich`, or a `Join`, needs, and what each budget buys.

    The real join runs on every n-th page of the master, with stream and memory scaled alike; its
    counted work becomes time with the unit costs of a machine.

    Parameters
    ----------
    master
        The master table, or its folder. A table in a database has no pages to plan.
    memory, rate
        A budget such as ``"64MB"``, or stream rows a second such as ``"200k"``, whose least memory
        is found. Without either, the least memory with nine tenths of the highest rate.
    skew, absent
        The stream's Zipf exponent, and the share of its rows that have no match.
    sample
        Files of the stream, or ``"kafka://host:port/topic"``, instead of these.
    stream_schema, stream_row
        The stream's columns; or the bytes of a row, of which the key is a part.
    on, how, select, algorithm, **options
        As for `Join`; ``on`` is the master's key where it is not given.
    read
        How a master that is given by its folder is read: ``"mapped"`` or ``"direct"``.
    machine
        A `semistream.planning.machine.Machine`; or some of its unit costs, by name or in a JSON or
        TOML file, in place of this machine's own, which are measured in seconds and kept.
    executors, tasks, batch_rows
        Of Spark: how many executors, how many tasks each runs at once (this machine's processors
        if not given), how many rows a micro-batch has.
    host_memory
        Bytes that a host has for the master's mapped pages; what is free here if not given.
    measure_again
        Whether to measure this machine again, also where its unit costs are kept.
    seed
        Of the simulated stream: the same seed and machine give the same answer.

    Examples
    --------
    >>> import tempfile, semistream as ss
    >>> from semistream.planning.machine import Machine
    >>> from semistream.workloads import master_table
    >>> master = ss.build_master(master_table(20_000), tempfile.mkdtemp(), key="key")
    >>> planning = ss.plan(master, memory="1MB", machine=Machine())
    >>> planning.join.chosen.rate > 100_000
    True
    """
    _check(executors=executors, batch_rows=batch_rows)
    asked = _asked(memory, rate)
    problem = pose(
        master, skew=skew, absent=absent, sample=sample, stream_schema=stream_schema,
        stream_row=stream_row, on=on, how=how, select=select, algorithm=algorithm, read=read,
        machine=machine, host_memory=host_memory, measure_again=measure_again, seed=seed,
        options=options,
    )  # fmt: skip
    join = draw_curve(JoinPredictor(problem), asked)
    if find_spec("pyspark") is None:
        return Planning(problem, asked, join, None, "pyspark is not installed")
    from semistream.planning.enrich import EnrichPredictor  # noqa: PLC0415 - an extra

    enrich = EnrichPredictor(problem, executors, tasks or os.cpu_count() or 1, batch_rows)
    try:
        return Planning(problem, asked, join, draw_curve(enrich, asked), enrich.where)
    except BudgetError as error:  # which a `Join` accepts, and `enrich` does not
        return Planning(problem, asked, join, None, str(error))


def pose(  # noqa: PLR0913 - as `plan`
    master: Master | str | os.PathLike[str],
    *,
    skew: float = 1.0,
    absent: float = 0.0,
    sample: str | os.PathLike[str] | None = None,
    stream_schema: pa.Schema | None = None,
    stream_row: int = 20,
    on: On | None = None,
    how: str = "inner",
    select: Sequence[str] | None = None,
    algorithm: str = "adaptive",
    read: str = "mapped",
    machine: MachineLike | None = None,
    host_memory: int | str | None = None,
    measure_again: bool = False,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> Problem:
    """Open the master, read a view and a sample, measure the machine: all that a plan needs."""
    _check(skew=skew, absent=absent, stream_row=stream_row)
    _check_kinds(sample, machine)
    opened = None if is_url(master) else as_master(master, read=read)
    if not isinstance(opened, FileMaster):
        msg = (
            "a table in a database is asked by keys; there are no pages to plan with. Build a "
            "master of files with build_master, and plan that"
        )
        raise OptionError(msg)
    if str(algorithm) not in known_algorithms():
        raise OptionError.unknown("algorithm", algorithm, known_algorithms(), default="adaptive")
    if algorithm == "pcsrj":
        msg = "'pcsrj' runs 'cachejoin' on several nodes, which is not simulated: plan 'cachejoin'"
        raise OptionError(msg)
    view = take_view(opened, with_absent=sample is not None or absent > 0)
    demand = Demand.zipf(opened.statistics.values, skew, absent)
    law = f"Zipf's law with exponent {skew:g}, {absent:.1%} of rows without a match"
    keys: On = on or list(opened.key)
    if sample is not None:
        from semistream.planning.sample import read_sample  # noqa: PLC0415 - seldom wanted

        seen = read_sample(sample, view, keys, seed)
        demand, law, stream_schema = seen.demand, seen.describe(), seen.schema
    schema = stream_schema or stream_like(opened, stream_row)
    spec = JoinSpec.resolve(
        opened, schema, keys if stream_schema else list(opened.key), how, select, ""
    )
    room = free_memory() if host_memory is None else parse_bytes(host_memory, "host_memory")
    in_memory = opened.read == "mapped" and opened.manifest.pages_bytes <= room
    if not in_memory:  # pages come from the disk, whichever way they are read
        opened = replace(opened, read="direct")
        spec = replace(spec, master=opened)
    priced = _machine(machine, spec, view, measure_again)
    return Problem(
        spec, opened, view, demand, priced, in_memory, algorithm, options or {}, law, seed
    )


def _machine(given: MachineLike | None, spec: JoinSpec, view: View, again: bool) -> Machine:
    if isinstance(given, Machine):
        return given
    from semistream.planning.measure import machine_at_hand  # noqa: PLC0415 - unless it is given

    here = machine_at_hand(spec, view, again=again)
    if given is None:
        return here
    if isinstance(given, str | os.PathLike):
        return Machine.load(given, here)
    return Machine.of({"source": f"{here.source}, some given", **given}, here)


def _asked(memory: int | str | None, rate: float | str | None) -> Asked:
    if memory is not None and rate is not None:
        msg = f"memory={memory!r} and rate={rate!r}: give one of them, or neither"
        raise OptionError(msg)
    if rate is not None and not isinstance(rate, str):
        _check(rate=rate)
        rate = round(rate)
    return Asked(
        None if memory is None else parse_bytes(memory),
        None if rate is None else float(parse_count(rate, "rate")),
    )


def _check(**numbers: object) -> None:
    for what, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, Real):
            msg = f"{what}={value!r} is no number; give one, or leave {what} out"
            raise OptionError(msg)
        if what in {"executors", "batch_rows", "stream_row"} and value < 1:
            msg = f"{what}={value!r} is not possible; give at least 1"
            raise OptionError(msg)


def _check_kinds(sample: object, machine: object) -> None:
    if sample is not None and not isinstance(sample, str | os.PathLike):
        msg = (
            f"sample={sample!r} is no sample; give files of the stream, or kafka://host:port/topic"
        )
        raise OptionError(msg)
    if machine is not None and not isinstance(machine, Machine | Mapping | str | os.PathLike):
        msg = (
            f"machine={machine!r} is no machine; give a Machine, a mapping of unit costs, or the "
            "path of their file"
        )
        raise OptionError(msg)
