"""What becomes of rows in the JVM when the join has answered: counted, filled, left out, marked."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import pyspark.sql.functions as F  # noqa: N812 - as everyone has it

from semistream.missing import ABSENT, MATCHED, NULL_KEY, SPLITTING
from semistream.spark.types import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

    from semistream.spark.lookup.job import Job

__all__ = ["COUNTED", "MARKED", "WAITED", "Found", "Mark", "handled", "marks_of", "settled"]

MARKED = "semistream"
"""The metadata of a status column: the enrichment's name, and what its rows are for."""

_COUNTS = {"drop": "dropped", "quarantine": "quarantined", "wait": "waiting"}
COUNTED = tuple(_COUNTS.values())
"""What observed metrics say of rows without a master row, beside how many there are."""
WAITED = ("came_out", "given_up", "wait_now")
"""What is told of rows that have waited: two that have left, and all that are there."""


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
    """Give the status columns of a DataFrame, in the order of its enrichments."""
    return [Mark(f.name, **f.metadata[MARKED]) for f in schema if MARKED in (f.metadata or {})]


@dataclass(frozen=True)
class Found:
    """What a join answered."""

    stream: Sequence[str]
    """The stream's columns."""
    matched: Column
    columns: Mapping[StructField, Column]
    """The master's."""
    more: Mapping[str, Column] = field(default_factory=dict)
    """What the master's columns are taken from, computed once rows are counted."""


def settled(rows: DataFrame, job: Job, found: Found) -> DataFrame:
    """Give the rows as the enrichment gives them, and have them counted."""
    null = reduce(or_, (F.col(quoted(name)).isNull() for name in job.on))
    told = F.when(found.matched, MATCHED).when(null, NULL_KEY).otherwise(ABSENT)
    rows = rows.observe(f"semistream.{job.name}", *_counts(job, found.matched, null))
    if job.how != "left":
        rows = rows.where(~found.matched if job.how == "anti" else found.matched)
    elif job.missing.kind == "drop":
        rows = rows.where(found.matched | handled(job))
    columns = [_filled(job, field, found) for field in found.columns]
    if found.more:  # Spark Connect refuses none
        rows = rows.withColumns(dict(found.more))
    status = [told.alias(job.status, metadata=_metadata(job))] if job.status else []
    return rows.select(*map(quoted, found.stream), *columns, *status)


def handled(job: Job) -> Column:
    """Tell the rows that an enrichment before this one has found to be missing."""
    missing = (F.col(quoted(name)) != MATCHED for name in job.earlier)
    return reduce(or_, missing, F.lit(False))


def _counts(job: Job, matched: Column, null: Column) -> list[Column]:
    counts = {"matched": matched, "absent": ~matched & ~null, "null_keys": ~matched & null}
    if kind := _COUNTS.get(job.missing.kind):
        lacking = ~matched & ~handled(job)
        counts[kind] = lacking & ~null if job.missing.kind == "wait" else lacking
    told = [F.count_if(condition).alias(name) for name, condition in counts.items()]
    return [F.count(F.lit(1)).alias("rows"), *told]


def _filled(job: Job, field: StructField, found: Found) -> Column:
    """Give a column of the master; a row that has a match keeps what it has, be it null."""
    value = job.missing.defaults.get(field.name.removeprefix(job.prefix))
    column = found.columns[field]
    if value is not None:
        column = F.when(found.matched, column).otherwise(_literal(value).cast(field.dataType))
    return column.alias(field.name)


def _literal(value: Any) -> Column:  # noqa: ANN401 - any value that `default_value` gives
    # As text, for Spark would read a time without zone as one of the driver's.
    return F.lit(str(value) if isinstance(value, (dt.date, dt.time, Decimal)) else value)


def _metadata(job: Job) -> dict[str, Any]:
    return {MARKED: {"enrichment": job.called, "on_missing": job.missing.kind}}
