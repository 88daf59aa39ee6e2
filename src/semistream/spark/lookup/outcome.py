"""What becomes of rows in the JVM when the join has answered: counted, filled, dropped, marked."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import pyspark.sql.functions as F  # noqa: N812 - as everyone has it

from semistream.missing import ABSENT, MATCHED, NULL_KEY, SPLITTING
from semistream.spark.types import quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

    from semistream.spark.lookup.job import Job

__all__ = ["COUNTED", "MARKED", "WAITED", "Answer", "Mark", "apply_outcome", "marks_of"]
__all__ += ["missing_before"]

MARKED = "semistream"
"""The metadata of a status column: the enrichment's name, and what its rows are for."""

_COUNTS = {"drop": "dropped", "quarantine": "quarantined", "wait": "waiting"}
COUNTED = tuple(_COUNTS.values())
"""What observed metrics say of rows without a master row, beside how many there are."""
WAITED = ("came_out", "given_up", "wait_now")
"""What metrics say of rows that have waited: two that have left, and all that are there."""


@dataclass(frozen=True)
class Mark:
    """A status column, and what it is for."""

    column: str
    enrichment: str
    on_missing: str

    @property
    def splits(self) -> bool:
        """Whether the rows that are missing go elsewhere."""
        return self.on_missing in SPLITTING


def marks_of(schema: StructType) -> list[Mark]:
    """Return the status columns of a DataFrame, in the order of its enrichments."""
    return [Mark(f.name, **f.metadata[MARKED]) for f in schema if MARKED in (f.metadata or {})]


@dataclass(frozen=True)
class Answer:
    """What a join answered."""

    stream: Sequence[str]
    """The stream's columns."""
    matched: Column
    columns: Mapping[StructField, Column]
    """The master's."""
    more: Mapping[str, Column] = field(default_factory=dict)
    """What the master's columns are taken from, computed once rows are counted."""


def apply_outcome(rows: DataFrame, job: Job, answer: Answer) -> DataFrame:
    """Return the rows as the enrichment's output has them, and have Spark count them."""
    null = reduce(or_, (F.col(quote(name)).isNull() for name in job.on))
    rows = rows.observe(f"semistream.{job.name}", *_counts(job, answer.matched, null))
    if job.how != "left":
        rows = rows.where(~answer.matched if job.how == "anti" else answer.matched)
    elif job.missing.kind == "drop":
        rows = rows.where(answer.matched | missing_before(job))
    columns = [_with_default(job, field, answer) for field in answer.columns]
    if answer.more:  # Spark Connect refuses none
        rows = rows.withColumns(dict(answer.more))
    if job.status:
        status = F.when(answer.matched, MATCHED).when(null, NULL_KEY).otherwise(ABSENT)
        about = {MARKED: {"enrichment": job.called, "on_missing": job.missing.kind}}
        columns.append(status.alias(job.status, metadata=about))
    return rows.select(*map(quote, answer.stream), *columns)


def missing_before(job: Job) -> Column:
    """Return whether an enrichment before this one has found a row to be missing."""
    missing = (F.col(quote(name)) != MATCHED for name in job.earlier)
    return reduce(or_, missing, F.lit(False))


def _counts(job: Job, matched: Column, null: Column) -> list[Column]:
    counts = {"matched": matched, "absent": ~matched & ~null, "null_keys": ~matched & null}
    if kind := _COUNTS.get(job.missing.kind):
        lacking = ~matched & ~missing_before(job)
        counts[kind] = lacking & ~null if job.missing.kind == "wait" else lacking
    columns = [F.count_if(condition).alias(name) for name, condition in counts.items()]
    return [F.count(F.lit(1)).alias("rows"), *columns]


def _with_default(job: Job, field: StructField, answer: Answer) -> Column:
    """Return a column of the master; a row that has a match keeps its value, be it null."""
    value = job.missing.defaults.get(field.name.removeprefix(job.prefix))
    column = answer.columns[field]
    if value is not None:
        # As text, for Spark would read a time without zone as one of the driver's.
        text = str(value) if isinstance(value, (dt.date, dt.time, Decimal)) else value
        column = F.when(answer.matched, column).otherwise(F.lit(text).cast(field.dataType))
    return column.alias(field.name)
