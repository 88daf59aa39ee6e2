"""Micro-batches in parts: to the sink, to the quarantine, and to a table of rows that wait.

A micro-batch takes its own rows and those that wait and are due, and joins all on its snapshot of
the master. Then it writes, each under its own number, and in this order:

1. rows that are complete, to the sink;
2. rows that are given up, to the quarantine;
3. what waits from now on, to the waiting table, in one transaction.

A batch that is replayed after a crash finds the waiting table as the batch before it has left it,
unless everything was written. It comes to the same rows, for its offsets, its snapshots and its
clock are the same, and what was written already is not written again. Only what holds for every
attempt decides where a row goes; what the driver remembers saves work and nothing else.

A master without snapshots, such as a live database, may answer otherwise when it is asked again:
there a batch's answers are stored first, and all else follows from that.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as sf

from semistream.missing import ABSENT, MATCHED
from semistream.names import RESERVED
from semistream.pipeline.checkpoint.batch_log import MicroBatch
from semistream.pipeline.checkpoint.batch_store import store_batch
from semistream.pipeline.io.delta import limit_log_tasks
from semistream.pipeline.late.waiting_table import AGAIN, CAME, EVERY
from semistream.spark.types import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from semistream.pipeline.checkpoint.batch_log import BatchPlan
    from semistream.pipeline.late.waiting_table import WaitingTable

    Write = Callable[[DataFrame, MicroBatch], None]
    Snapshots = tuple[str, ...] | None

__all__ = ["OUT", "QUARANTINE", "WAIT", "Chain", "Counts", "Rule", "SplitWriter", "Targets"]

log = logging.getLogger(__name__)

OUTCOME, BY = f"{RESERVED}_outcome", f"{RESERVED}_by"
OUT, QUARANTINE, WAIT = "out", "quarantine", "wait"


@dataclass(frozen=True)
class Rule:
    """What becomes of the rows that one enrichment finds missing."""

    status: str
    """Its status column."""
    then: str = QUARANTINE
    """Where a row goes that does not wait, or no longer: to the quarantine, or out with nulls."""
    grace: int = 0
    """Milliseconds for which a row waits, 0 where none does; nor does one with a null key."""

    def outcome(self, beat: int, otherwise: Column) -> Column:
        """Return where rows go and by which status column that is so.

        It is `otherwise` for rows that are not missing here, or go on with nulls.
        """
        status = sf.col(quote(self.status))
        outcome = sf.when(status == MATCHED, otherwise)
        if self.grace:
            patient = sf.unix_millis(CAME) > beat - self.grace
            outcome = outcome.when((status == ABSENT) & patient, _outcome(WAIT, self.status))
        given_up = _outcome(QUARANTINE, self.status)
        return outcome.otherwise(given_up if self.then == QUARANTINE else otherwise)


def _outcome(where: str, by: str = "") -> Column:
    return sf.struct(sf.lit(where).alias(OUTCOME), sf.lit(by).alias(BY))


class _Group(NamedTuple):
    rows: int
    oldest: int
    """Since when the first of them wait."""
    missing: int
    """How many lack a master row."""


@dataclass(frozen=True)
class Counts:
    """How many rows of a batch go where, and since when the oldest of them wait."""

    groups: Mapping[tuple[bool, str, str], _Group]
    """Whether they have waited before, where they go, and by which status column that is so."""

    @classmethod
    def of(cls, rows: DataFrame, missing: Column) -> Counts:
        """Count rows by where they go and why; among them those that lack a master row."""
        counts = sf.count(sf.lit(1)), sf.min(sf.unix_millis(CAME)), sf.count_if(missing)
        groups = rows.groupBy(AGAIN, OUTCOME, BY).agg(*counts).collect()
        return cls({(again, to, by): _Group(*group) for again, to, by, *group in groups})

    def count(self, where: str, again: bool | None = None, by: str | None = None) -> int:
        """Count the rows that go somewhere.

        With ``again``, only those that have waited before, or have not; with ``by``, only those
        that this status column has sent there.

        Examples
        --------
        >>> groups = {(True, "out", ""): _Group(5, 0, 2), (False, "wait", "a"): _Group(3, 0, 3)}
        >>> counts = Counts(groups | {(True, "wait", "b"): _Group(4, 0, 4)})
        >>> counts.count("wait"), counts.count("wait", again=True), counts.count("wait", by="a")
        (7, 4, 3)
        """
        return sum(
            group.rows
            for (waited, to, why), group in self.groups.items()
            if to == where and again in {None, waited} and by in {None, why}
        )

    def left(self, *ways: str) -> tuple[int, int]:
        """Count the rows that have waited and go there: those that are whole now, the others.

        Examples
        --------
        >>> groups = {(True, "out", ""): _Group(5, 0, 2), (True, "wait", "a"): _Group(3, 0, 3)}
        >>> Counts(groups | {(False, "out", ""): _Group(9, 0, 0)}).left("out", "quarantine")
        (3, 2)
        """
        groups = [group for (again, to, _), group in self.groups.items() if again and to in ways]
        missing = sum(group.missing for group in groups)
        return sum(group.rows for group in groups) - missing, missing

    def oldest(self, where: str) -> int:
        """Return since when the oldest row waits that goes somewhere."""
        times = [group.oldest for (_, to, _), group in self.groups.items() if to == where]
        return min(times, default=EVERY)

    def __str__(self) -> str:
        ways = sorted({(again, where) for again, where, _ in self.groups})
        return ", ".join(
            f"{self.count(where, again):,} {where}{' after waiting' if again else ''}"
            for again, where in ways
        )


@dataclass(frozen=True)
class Chain:
    """The enrichments of a stream, as rows go through them again."""

    again: Callable[[DataFrame, MicroBatch], DataFrame]
    """Enriches rows of the stream that come as a batch; their other columns stay."""
    rules: Sequence[Rule]
    """In the order of the enrichments: the first that misses a row has it."""
    snapshots: Callable[[MicroBatch], Snapshots]
    """Returns the snapshots that a micro-batch reads in every attempt; None if it has none."""


@dataclass(frozen=True)
class Targets:
    """Where the rows of a batch go; each is written once, however often a batch is repeated."""

    out: Write
    quarantine: Write
    store: str
    """A folder for the batch at hand and its answers, where masters have no snapshots."""


@dataclass(frozen=True)
class _Memory:
    """What the driver knows of the waiting table, so that it need not look in every batch."""

    rows: int
    oldest: int = 0
    """No row waits longer than since then."""
    tried: Snapshots = None
    """The snapshots on which all rows were tried."""


class SplitWriter:
    """Writes micro-batches; rows whose master row has not come wait for it.

    Parameters
    ----------
    chain
        The enrichments.
    targets
        Where rows go that do not wait.
    clock
        Returns when a batch was planned, and with which offsets: the same in every attempt.
    table
        The rows that wait; None if there is no rule by which any do.
    delay
        Milliseconds: how often rows are tried again on a master that has no snapshots, and how
        often those that have waited long enough are given up.
    report
        Callback: the batch, the counts of its rows, and how many rows wait when it is written.
    """

    def __init__(
        self,
        chain: Chain,
        targets: Targets,
        clock: Callable[[SparkSession, int], BatchPlan],
        table: WaitingTable | None = None,
        delay: int = 30_000,
        report: Callable[[MicroBatch, Counts, int], None] = lambda *_: None,
    ) -> None:
        self._chain, self._targets, self._clock = chain, targets, clock
        self._table, self._delay, self._report = table, delay, report
        self._memory: _Memory | None = None

    def write(self, rows: DataFrame, number: int) -> None:
        """Write a batch, and the rows that have waited for it; for ``foreachBatch``."""
        # An attempt that fails leaves nothing to rely on.
        known, self._memory = self._memory, None
        spark = rows.sparkSession
        limit_log_tasks(spark)
        batch = MicroBatch.of(rows, number, self._clock(spark, number))
        memory = known or _Memory(self._count(spark, EVERY))
        snapshots = self._chain.snapshots(batch)
        bound = self._due(spark, memory, snapshots, batch)
        before = self._count(spark, bound)
        with self._fixed(self._judge(rows, bound, batch), batch, snapshots) as judged:
            counts = Counts.of(judged, self._missing)
            left = before - counts.count(WAIT, again=True)
            self._write(judged, counts, bound if left else 0, batch)
        memory = _after(memory, counts, bound, left, snapshots)
        # The first batch may be one that was written already, and its rows wait already.
        waiting = memory.rows if known else self._count(spark, EVERY)
        self._memory = replace(memory, rows=waiting)
        self._report(batch, counts, waiting)
        if counts.groups:
            log.info("batch %d: %s; %d rows wait", number, counts, waiting)

    @property
    def _missing(self) -> Column:
        statuses = (sf.col(quote(rule.status)) for rule in self._chain.rules)
        return reduce(or_, (status != MATCHED for status in statuses), sf.lit(False))

    def _count(self, spark: SparkSession, bound: int) -> int:
        return self._table.count(spark, bound) if self._table and bound else 0

    def _due(
        self, spark: SparkSession, memory: _Memory, snapshots: Snapshots, batch: MicroBatch
    ) -> int:
        """Return since when rows may wait and are tried again; 0 if none are.

        Where there are no snapshots, no attempt may try rows that another has not tried: the times
        of this batch and of the one before decide.
        """
        if not memory.rows:
            return 0
        beat = self._beat(batch.millis)
        if snapshots is None:
            before = self._clock(spark, batch.number - 1).millis if batch.number else 0
            if self._beat(before) != beat:
                return EVERY
        elif memory.tried != snapshots:
            return EVERY
        bound = beat - min(rule.grace for rule in self._chain.rules if rule.grace)
        return bound if memory.oldest <= bound else 0

    def _beat(self, millis: int) -> int:
        """Return the time as of which rows are given up: many at once are rewritten once."""
        return millis // self._delay * self._delay

    def _judge(self, rows: DataFrame, bound: int, batch: MicroBatch) -> DataFrame:
        """Return the batch's rows and those that are due, and where each goes."""
        rows = rows.withColumn(CAME, sf.timestamp_millis(sf.lit(batch.millis)))
        rows = rows.withColumn(AGAIN, sf.lit(False))
        if self._table and bound:
            due = self._chain.again(self._table.read(rows.sparkSession, bound), batch)
            rows = rows.unionByName(due.withColumn(AGAIN, sf.lit(True)))
        outcome, beat = _outcome(OUT), self._beat(batch.millis)
        for rule in reversed(self._chain.rules):
            outcome = rule.outcome(beat, outcome)
        return rows.withColumns({name: outcome[name] for name in (OUTCOME, BY)})

    @contextmanager
    def _fixed(
        self, rows: DataFrame, batch: MicroBatch, snapshots: Snapshots
    ) -> Iterator[DataFrame]:
        """Keep answers: computed once, and where they might differ, the same in every attempt."""
        if snapshots is None:
            yield store_batch(rows, self._targets.store, f"{batch.number}-{batch.offsets}")
            return
        rows = rows.persist()
        try:
            yield rows
        finally:
            rows.unpersist()

    def _write(self, rows: DataFrame, counts: Counts, bound: int, batch: MicroBatch) -> None:
        """Write what goes, and then what waits: in the place of what has waited, or beside it."""

        def going(where: str) -> DataFrame:
            return rows.where(sf.col(OUTCOME) == where)

        if counts.count(OUT):
            self._targets.out(going(OUT), batch)
        if counts.count(QUARANTINE):
            self._targets.quarantine(going(QUARANTINE), batch)
        if self._table and bound:
            self._table.replace(going(WAIT), bound, batch)
        elif self._table and counts.count(WAIT, again=False):
            self._table.add(going(WAIT).where(~sf.col(AGAIN)), batch)


def _after(memory: _Memory, counts: Counts, bound: int, left: int, snapshots: Snapshots) -> _Memory:
    """Return what is known when a batch is written."""
    rows = memory.rows - left + counts.count(WAIT, again=False)
    untried = EVERY if bound == EVERY or not memory.rows else bound + 1 if bound else memory.oldest
    oldest = min(counts.oldest(WAIT), untried)
    # Rows that came now were tried now; where the others were not, the snapshots are the same.
    return _Memory(rows, oldest, snapshots)
