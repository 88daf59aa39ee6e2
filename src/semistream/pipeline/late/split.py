"""Rows without a master row, split from the others by their status columns."""

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
from semistream.spark.types import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

__all__ = ["ATTEMPTS", "ENRICHMENT", "QUERY", "REASON", "ROW", "TIME", "add_batch_time"]
__all__ += ["quarantine_rows", "select_columns", "split_once", "split_rows", "splitting_marks"]

REASON, ENRICHMENT, TIME, QUERY, BATCH, ATTEMPTS, ROW = QUARANTINED

_TIME = f"{RESERVED}_time"


def splitting_marks(frame: DataFrame, status: str | None) -> list[Mark]:
    """Return the status columns that split rows: those that ask for it, or the one named."""
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


def split_rows(rows: DataFrame, marks: list[Mark]) -> tuple[DataFrame, DataFrame]:
    """Return the rows that have all their master rows, and those that lack one.

    The latter have two columns more: the reason, and the first enrichment that lacked one.
    """
    has_match = {mark: F.col(quote(mark.column)).eqNullSafe(MATCHED) for mark in marks}
    whole = reduce(and_, has_match.values())
    missing = {
        REASON: F.coalesce(*(F.when(~has, F.col(quote(m.column))) for m, has in has_match.items())),
        ENRICHMENT: F.coalesce(*(F.when(~has, m.enrichment) for m, has in has_match.items())),
    }
    statuses = [mark.column for mark in marks]
    return rows.where(whole).drop(*statuses), rows.where(~whole).withColumns(missing).drop(
        *statuses
    )


def select_columns(rows: DataFrame, columns: Sequence[tuple[str, str]]) -> DataFrame:
    """Return columns by their names, under new ones."""
    if [new for _, new in columns] == rows.columns:
        return rows
    return rows.select(*(F.col(quote(old)).alias(new) for old, new in columns))


@contextmanager
def split_once(batch: DataFrame, status: str | None) -> Iterator[tuple[DataFrame, DataFrame]]:
    """Split a batch whose rows are computed once, whatever is done with the parts."""
    marks = splitting_marks(batch, status)
    for name in batch.columns:
        if name.lower() in {REASON, ENRICHMENT}:
            msg = (
                f"split adds a column {name!r}, which the batch has already; rename that one "
                "before: .withColumnRenamed(…)"
            )
            raise SchemaError(msg)
    cached = batch.persist()
    try:
        yield split_rows(cached, marks)
    finally:
        cached.unpersist()


def add_batch_time(stream: DataFrame, millis: int | None = None) -> DataFrame:
    """Add the time of the micro-batch: Spark's own, which a replay has again."""
    time = F.current_timestamp() if millis is None else F.timestamp_millis(F.lit(millis))
    return stream.withColumn(_TIME, time)


def quarantine_rows(missing: DataFrame, stream: list[str], query: str, number: int) -> DataFrame:
    """Return rows as the quarantine has them: the stream's columns as they came, and what happened.

    ``missing`` has `REASON` and `ENRICHMENT`, and the time that `add_batch_time` added; ``stream``
    names the columns that the stream came with.
    """
    return missing.select(
        *map(quote, stream),
        REASON,
        ENRICHMENT,
        F.col(_TIME).alias(TIME),
        F.lit(query).alias(QUERY),
        F.lit(number).cast("long").alias(BATCH),
        F.lit(0).alias(ATTEMPTS),
        F.expr("uuid()").alias(ROW),
    )
