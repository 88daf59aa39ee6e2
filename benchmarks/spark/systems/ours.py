"""Ours: `enrich` with any algorithm; and the least that Python can do, which bounds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.spark.constants import with_constants
from benchmarks.spark.data import KEY
from benchmarks.spark.systems.base import System
from semistream.algorithms import algorithms
from semistream.api import enrich

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from benchmarks.spark.systems.base import Setting

__all__ = [
    "BOUND",
    "ENRICH",
    "HASHED",
    "KEYS",
    "NONE",
    "OURS",
    "PUBLISHED",
    "ours_of",
]

ENRICH, KEYS = "enrich", "enrich-keys"
BOUND, HASHED, NONE = "bound", "hashed", "none"


def ours_of(algorithm: str) -> str:
    """Name the system that is `enrich` with an algorithm."""
    return f"enrich-{algorithm}"


def _enriched(**given: str) -> Callable[[DataFrame, Setting], DataFrame]:
    def join(df: DataFrame, at: Setting) -> DataFrame:
        options = {"name": "bench"} | given | at.options
        return enrich(df, at.master, on=KEY, how=at.how, memory=at.memory, **options)

    return join


def _hashed(df: DataFrame, at: Setting) -> DataFrame:
    """Route rows by Spark's own hash of the key, then join them where they are."""
    routed = df.repartition(at.options["tasks"], KEY)
    options = at.options | {"partition": "none"}
    return enrich(routed, at.master, on=KEY, how=at.how, memory=at.memory, **options)


def _bound(df: DataFrame, at: Setting) -> DataFrame:
    return with_constants(df, at.products)


def _unchanged(df: DataFrame, at: Setting) -> DataFrame:  # noqa: ARG001 - as the others
    return df


PUBLISHED = tuple(name for name in algorithms() if name != "adaptive")
"""The algorithms of the papers."""
OURS: dict[str, System] = {
    ENRICH: System("enrich", _enriched()),
    KEYS: System("enrich, keys through Python", _enriched(transfer="keys"), unique=True),
    **{ours_of(name): System(f"enrich, {name}", _enriched(algorithm=name)) for name in PUBLISHED},
    BOUND: System("constant columns by mapInArrow (bound)", _bound),
    HASHED: System("enrich behind Spark's hash", _hashed),
    NONE: System("no join", _unchanged),
}
