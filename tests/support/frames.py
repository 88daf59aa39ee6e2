"""Rows of Spark's DataFrames."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.functions import lit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

Case = TypeVar("Case")
_NUMBER = "__case"


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Collect the rows, in an order that compares."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def rows_of_each(frames: Mapping[Case, DataFrame]) -> dict[Case, list[tuple[Any, ...]]]:
    """Collect the rows of several frames in one job, for a job costs more than few rows do."""
    numbered = [frame.withColumn(_NUMBER, lit(n)) for n, frame in enumerate(frames.values())]
    union = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), numbered)
    cases, rows = list(frames), {case: [] for case in frames}
    for row in union.collect():
        case = cases[row[_NUMBER]]
        rows[case].append(tuple(row[name] for name in frames[case].columns))
    return {case: sorted(each, key=repr) for case, each in rows.items()}
