"""Rows without a master row, parted from the others: what a writer does with status columns."""

from __future__ import annotations

from contextlib import contextmanager
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import pyspark.sql.functions as F  # noqa: N812 - as everyone has it

from semistream.errors import OptionError, SchemaError
from semistream.missing import MATCHED, QUARANTINED
from semistream.names import RESERVED
from semistream.spark.lookup.outcome import Mark, marks_of
from semistream.spark.types import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame

__all__ = [
    "ATTEMPTS",
    "ENRICHMENT",
    "QUERY",
    "REASON",
    "ROW",
    "TIME",
    "arranged",
    "chosen_marks",
    "parted",
    "quarantined",
    "split_once",
    "timed",
]

REASON, ENRICHMENT, TIME, QUERY, BATCH, ATTEMPTS, ROW = QUARANTINED

_TIME = f"{RESERVED}_time"


def chosen_marks(frame: DataFrame, status: str | None) -> list[Mark]:
    """Give the status columns by which rows are parted: those that ask for it, or the one named."""
    marks = marks_of(frame.schema)
    if status is None:
        splitting = [mark for mark in marks if mark.splits] or marks
        if not splitting:
            msg = (
                "this DataFrame has no status column; have enrich(…, on_missing='quarantine') or "
                "status='_status' add one before, or name one of your own with status=…"
            )
            raise OptionError(msg)
        return splitting
    if status not in frame.columns:
        raise SchemaError.missing("batch", status, frame.columns)
    known = [mark for mark in marks if mark.column == status]
    return known or [Mark(status, "", "quarantine")]


def parted(rows: DataFrame, marks: list[Mark]) -> tuple[DataFrame, DataFrame]:
    """Give the rows that have all their master rows, and those that lack one.

    The latter have two columns more: the reason, and the enrichment that was the first to find
    it.
    """
    statuses = [mark.column for mark in marks]
    whole = reduce(and_, (_is_there(mark) for mark in marks))
    lacking = [~_is_there(mark) for mark in marks]
    reason = _first(lacking, [F.col(quoted(name)) for name in statuses])
    enrichment = _first(lacking, [F.lit(mark.enrichment) for mark in marks])
    missing = rows.where(~whole).withColumns({REASON: reason, ENRICHMENT: enrichment})
    return rows.where(whole).drop(*statuses), missing.drop(*statuses)


def _is_there(mark: Mark) -> Column:
    return F.col(quoted(mark.column)).eqNullSafe(MATCHED)


def _first(conditions: list[Column], values: list[Column]) -> Column:
    """Give the value of the first condition that holds."""
    pairs = list(zip(conditions, values, strict=True))
    return F.coalesce(*(F.when(condition, value) for condition, value in pairs))


def arranged(rows: DataFrame, columns: Sequence[tuple[str, str]]) -> DataFrame:
    """Give columns by their names, under new ones."""
    if [new for _, new in columns] == rows.columns:
        return rows
    return rows.select(*(F.col(quoted(old)).alias(new) for old, new in columns))


@contextmanager
def split_once(batch: DataFrame, status: str | None) -> Iterator[tuple[DataFrame, DataFrame]]:
    """Part a batch whose rows are computed once, whatever is done with the parts."""
    marks = chosen_marks(batch, status)
    for name in batch.columns:
        if name.lower() in {REASON, ENRICHMENT}:
            msg = (
                f"split adds a column {name!r}, which the batch has already; rename that one "
                "before: .withColumnRenamed(…)"
            )
            raise SchemaError(msg)
    held = batch.persist()
    try:
        yield parted(held, marks)
    finally:
        held.unpersist()


def timed(stream: DataFrame, millis: int | None = None) -> DataFrame:
    """Add the time of the micro-batch: Spark's own, which a replay has again."""
    told = F.current_timestamp() if millis is None else F.timestamp_millis(F.lit(millis))
    return stream.withColumn(_TIME, told)


def quarantined(missing: DataFrame, stream: list[str], query: str, number: int) -> DataFrame:
    """Give rows as the quarantine has them: the stream's columns as they came, and what happened.

    Parameters
    ----------
    missing
        Rows with `REASON` and `ENRICHMENT`, of a stream that was `timed`.
    stream
        The names of the columns that the stream came with.
    query, number
        What wrote them.
    """
    return missing.select(
        *map(quoted, stream),
        REASON,
        ENRICHMENT,
        F.col(_TIME).alias(TIME),
        F.lit(query).alias(QUERY),
        F.lit(number).cast("long").alias(BATCH),
        F.lit(0).alias(ATTEMPTS),
        F.expr("uuid()").alias(ROW),
    )
