"""Batches in parts: rows whose master row has not come wait in a Delta table, and are tried again.

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
there a batch's answers are written down first, and all else follows from that.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from semistream.missing import ABSENT, MATCHED
from semistream.names import RESERVED
from semistream.pipeline.checkpoint.held import held
from semistream.pipeline.checkpoint.micro_batch import Once
from semistream.pipeline.late.waiting_table import AGAIN, CAME, EVERY, Found
from semistream.spark.types import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from semistream.pipeline.checkpoint.micro_batch import Planned
    from semistream.pipeline.late.waiting_table import WaitingTable

    Write = Callable[[DataFrame, Once], None]
    Snapshots = tuple[str, ...] | None

__all__ = ["OUT", "OUTCOME", "QUARANTINE", "WAIT", "Chain", "Rule", "WaitingWriter", "Ways"]

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
        status = sf.col(quoted(self.status))
        told = sf.when(status == MATCHED, otherwise)
        if self.grace:
            patient = sf.unix_millis(CAME) > beat - self.grace
            told = told.when((status == ABSENT) & patient, _outcome(WAIT, self.status))
        given_up = _outcome(QUARANTINE, self.status)
        return told.otherwise(given_up if self.then == QUARANTINE else otherwise)


def _outcome(where: str, by: str = "") -> Column:
    return sf.struct(sf.lit(where).alias(OUTCOME), sf.lit(by).alias(BY))


@dataclass(frozen=True)
class Chain:
    """The enrichments of a stream, as rows go through them again."""

    again: Callable[[DataFrame, Once], DataFrame]
    """Enriches rows of the stream that come as a batch; their other columns stay."""
    rules: Sequence[Rule]
    """In the order of the enrichments: the first that misses a row has it."""
    snapshots: Callable[[Once], Snapshots]
    """Returns the snapshots that a micro-batch reads in every attempt; None if it has none."""


@dataclass(frozen=True)
class Ways:
    """Where the rows of a batch go; each way writes a batch once, however often it is told."""

    out: Write
    quarantine: Write
    held: str
    """A folder for the batch at hand and its answers, where masters have no snapshots."""


@dataclass(frozen=True)
class _Memory:
    """What the driver knows of the waiting table, so that it need not look in every batch."""

    rows: int
    oldest: int = 0
    """No row waits longer than since then."""
    tried: Snapshots = None
    """The snapshots on which all rows were tried."""


class WaitingWriter:
    """Writes micro-batches; rows whose master row has not come wait for it.

    Parameters
    ----------
    chain
        The enrichments.
    ways
        Where rows go that do not wait.
    clock
        Returns when a batch was planned, and with which offsets: the same in every attempt.
    table
        The rows that wait; None if there is no rule by which any do.
    delay
        Milliseconds: how often rows are tried again on a master that has no snapshots, and how
        often those that have waited long enough are given up.
    tell
        Takes what became of rows, and how many wait now, when a batch is written.
    """

    def __init__(
        self,
        chain: Chain,
        ways: Ways,
        clock: Callable[[SparkSession, int], Planned],
        table: WaitingTable | None = None,
        delay: int = 30_000,
        tell: Callable[[Once, Found, int], None] = lambda *_: None,
    ) -> None:
        self._chain, self._ways, self._clock = chain, ways, clock
        self._table, self._delay, self._tell = table, delay, tell
        self._memory: _Memory | None = None

    def write(self, batch: DataFrame, number: int) -> None:
        """Write a batch, and the rows that have waited for it; for ``foreachBatch``."""
        # An attempt that fails leaves nothing to rely on.
        known, self._memory = self._memory, None
        spark = batch.sparkSession
        once = Once.of(batch, number, self._clock(spark, number))
        memory = known or _Memory(self._count(spark, EVERY))
        snapshots = self._chain.snapshots(once)
        bound = self._due(memory, snapshots, (self._before(spark, number), once.millis))
        before = self._count(spark, bound)
        with self._fixed(self._judged(batch, bound, once), once, snapshots) as rows:
            found = Found.of(rows, OUTCOME, BY, self._missing)
            left = before - found.count(WAIT, again=True)
            self._write(rows, found, bound if left else 0, once)
        memory = _after(memory, found, bound, left, snapshots)
        # The first batch may be one that was written already, and its rows wait already.
        waiting = memory.rows if known else self._count(spark, EVERY)
        self._memory = replace(memory, rows=waiting)
        self._tell(once, found, waiting)
        if found.total:
            log.info("batch %d: %s; %d rows wait", number, found, waiting)

    @property
    def _missing(self) -> Column:
        statuses = (sf.col(quoted(rule.status)) for rule in self._chain.rules)
        return reduce(or_, (status != MATCHED for status in statuses), sf.lit(False))

    def _count(self, spark: SparkSession, bound: int) -> int:
        return self._table.count(spark, bound) if self._table and bound else 0

    def _before(self, spark: SparkSession, number: int) -> int:
        return self._clock(spark, number - 1).millis if number else 0

    def _due(self, memory: _Memory, snapshots: Snapshots, times: tuple[int, int]) -> int:
        """Give since when rows may wait and are tried again; 0 if none are.

        Where there are no snapshots, no attempt may try rows that another has not tried: the times
        of this batch and of the one before decide.
        """
        before, beat = map(self._beat, times)
        if not memory.rows:
            return 0
        if before != beat if snapshots is None else memory.tried != snapshots:
            return EVERY
        bound = beat - min(rule.grace for rule in self._chain.rules if rule.grace)
        return bound if memory.oldest <= bound else 0

    def _beat(self, now: int) -> int:
        """Give the time as of which rows are given up: many at once are rewritten once."""
        return now // self._delay * self._delay

    def _judged(self, batch: DataFrame, bound: int, once: Once) -> DataFrame:
        """Give the batch's rows and those that are due, and where each goes."""
        rows = batch.withColumn(CAME, sf.timestamp_millis(sf.lit(once.millis)))
        rows = rows.withColumn(AGAIN, sf.lit(False))
        if self._table and bound:
            tried = self._chain.again(self._table.read(batch.sparkSession, bound), once)
            rows = rows.unionByName(tried.withColumn(AGAIN, sf.lit(True)))
        outcome, beat = _outcome(OUT), self._beat(once.millis)
        for rule in reversed(self._chain.rules):
            outcome = rule.outcome(beat, outcome)
        return rows.withColumns({name: outcome[name] for name in (OUTCOME, BY)})

    @contextmanager
    def _fixed(self, rows: DataFrame, once: Once, snapshots: Snapshots) -> Iterator[DataFrame]:
        """Keep answers: computed once, and where they might differ, the same in every attempt."""
        if snapshots is None:
            yield held(rows, self._ways.held, f"{once.number}-{once.offsets}")
            return
        rows = rows.persist()
        try:
            yield rows
        finally:
            rows.unpersist()

    def _write(self, rows: DataFrame, found: Found, bound: int, once: Once) -> None:
        """Write what goes, and then what waits: in the place of what has waited, or beside it."""

        def going(where: str) -> DataFrame:
            return rows.where(sf.col(OUTCOME) == where)

        if found.count(OUT):
            self._ways.out(going(OUT), once)
        if found.count(QUARANTINE):
            self._ways.quarantine(going(QUARANTINE), once)
        if self._table and bound:
            self._table.replace(going(WAIT), bound, once)
        elif self._table and found.count(WAIT, again=False):
            self._table.add(going(WAIT).where(~sf.col(AGAIN)), once)


def _after(memory: _Memory, found: Found, bound: int, left: int, snapshots: Snapshots) -> _Memory:
    """Give what is known when a batch is written."""
    rows = memory.rows - left + found.count(WAIT, again=False)
    untried = EVERY if bound == EVERY or not memory.rows else bound + 1 if bound else memory.oldest
    oldest = min(found.oldest(WAIT), untried)
    # Rows that came now were tried now; where the others were not, the snapshots are the same.
    return _Memory(rows, oldest, snapshots)
