"""Predict `enrich` on Spark: by the way that it would choose, on so many executors and tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from semistream.engine.plan import Task
from semistream.errors import BudgetError
from semistream.planning.curve import Point
from semistream.planning.simulate import Trial, Work, count_work
from semistream.spark.enrich.choice import (
    Choice,
    Setting,
    affordable,
    choose_partition,
    choose_transfer,
    fit_budget,
)
from semistream.spark.enrich.probe import Hosts
from semistream.spark.jvm.description import directory_bytes
from semistream.spark.jvm.lookup import unfit
from semistream.spark.lookup.job import Job

if TYPE_CHECKING:
    from semistream.planning.planner import Problem

__all__ = ["EnrichPredictor"]

_ARROW_ROWS = 10_000  # of a batch that Spark gives to Python, unless it is told otherwise
_WAYS = {
    "none": "Spark's JVM looks rows up in mapped pages that lie in memory",
    "keys": "keys pass through Python",
    "rows": "rows pass through Python",
}


@dataclass(frozen=True, eq=False)
class EnrichPredictor:
    """Predicts an enrichment; a budget is that of an executor."""

    problem: Problem
    executors: int
    tasks: int
    batch_rows: int
    name: str = "enrich"

    @property
    def where(self) -> str:
        """What it runs on, for people."""
        executors = f"{self.executors} executor{'s' * (self.executors > 1)}"
        return (
            f"{executors} of {self.tasks} task{'s' * (self.tasks > 1)}, micro-batches of "
            f"{self.batch_rows:,} rows"
        )

    @cached_property
    def least(self) -> int:
        """The least bytes that `enrich` accepts."""
        try:
            self._choose(1)
        except BudgetError as error:
            return error.least
        return 1

    @cached_property
    def whole(self) -> int:
        """Bytes beyond which memory buys nothing: all of the master, or any where Java reads it."""
        if self._choose(self.least)[0].value != "rows" and self.problem.in_memory:
            return self.least
        held = Task.of(self.problem.spec, 1 << 20, None).resident_bytes
        return int(4 * held / self.executors)  # a quarter is for rows, the rest for the window

    def predict(self, memory: int) -> Point:
        """Predict what a budget buys; raise `BudgetError` if it is too small."""
        problem, cores = self.problem, self.executors * self.tasks
        transfer, partition, job = self._choose(memory)
        routed = partition.value == "key"
        if transfer.value == "none":
            work, parts, depth = Work(rows=1, looked_up=1), self._java_parts(job), 0
            joined = 0.0  # what Java takes is in Spark's cost of such a row
        else:
            work, parts, depth = self._simulate(job, transfer.value, routed)
            joined = problem.machine.seconds(work, cores=cores, disks=self.executors, depth=depth)
        machine = problem.machine
        row = getattr(machine, f"spark_{_COSTS[transfer.value]}")
        row = (row + (machine.spark_route if routed else 0.0)) / cores + joined
        rate = self.batch_rows / (machine.spark_batch + self.batch_rows * row)
        return Point(
            memory,
            rate=rate,
            from_memory=work.from_memory,
            pages=work.pages * rate,
            bytes=work.bytes * rate if depth else 0.0,
            components=parts,
            way=f"{_WAYS[transfer.value]} ({transfer.why})",
        )

    def _choose(self, memory: int) -> tuple[Choice, Choice, Job]:
        """Choose as `enrich` does: what passes through Python, and whether rows are routed."""
        problem, spec = self.problem, self.problem.spec
        on = dict(zip(spec.stream_keys, problem.master.key, strict=True))
        job = Job(
            name="plan",
            path=str(problem.master.path),
            read=problem.master.read,
            stream=spec.stream,
            on=on,
            how=spec.how,
            memory=memory,
            tasks=self.tasks,
            algorithm=problem.algorithm,
            options=dict(problem.options),
        )
        job = job.resolved(problem.master, on, spec.payload or None)
        free = problem.master.manifest.pages_bytes if problem.in_memory else 0
        setting = Setting(
            problem.master,
            spec.how,
            problem.algorithm,
            self.executors * self.tasks,
            Hosts(free, 0.0),
            lambda: unfit(job, problem.master),
            lambda way: _shortage(job, problem, way),
        )
        ways = affordable("auto", setting)
        return (
            fit_budget(choose_transfer("auto", setting), ways),
            choose_partition("auto", setting),
            job,
        )

    def _java_parts(self, job: Job) -> dict[str, int]:
        return {"page directory": directory_bytes(self.problem.master, job.select)}

    def _simulate(self, job: Job, way: str, routed: bool) -> tuple[Work, dict[str, int], int]:
        """Count the work of all tasks: with routing each has its own pages, else all have all."""
        from semistream.planning.planner import depth_of  # noqa: PLC0415 - it imports this module

        problem, cores = self.problem, self.executors * self.tasks
        job = job.keys_only() if way == "keys" else job
        kind, task, plan = job.choose_join(problem.master)
        rows = self.batch_rows if routed else max(1, self.batch_rows // cores)
        if job.scalar:  # all that wait are answered when those out of order have no room left
            room = job.room_for_answers / 2 / (8 + problem.master.row_bytes)
            rows = min(rows, max(_ARROW_ROWS, int(room)))
        trial = Trial(
            kind, task, plan, problem.view, problem.demand, rows, micro=True, seed=problem.seed
        )
        if routed:
            trial = replace(trial, copies=cores, hosts=self.executors)
        work = count_work(trial)
        if not routed:  # every task has the chunks of its own rows only
            work = replace(work, chunks=work.chunks / cores)
        parts = {name: size * self.tasks for name, size in plan.components.items()}
        if job.scalar:
            parts["answers"] = job.room_for_answers * self.tasks
        return work, {**parts, **plan.host}, depth_of(plan, problem.in_memory)


_COSTS = {"none": "java", "keys": "keys", "rows": "rows"}


def _shortage(job: Job, problem: Problem, way: str) -> BudgetError | None:
    """Return why a job's memory is too small for a way through Python."""
    try:
        (job.keys_only() if way == "keys" else job).choose_join(problem.master)
    except BudgetError as error:
        return error
    return None
