"""By keys: a foreachBatch that collects them and reads only their rows; ours from a database."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pyspark.sql.functions as F  # noqa: N812 - as everyone has it

from benchmarks.spark.data import KEY, whole_folder
from benchmarks.spark.live.systems import LiveSetting, by_key_lists, enriched
from benchmarks.spark.systems.base import System

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from benchmarks.spark.systems.base import Setting

__all__ = ["BY_KEYS"]

_IN_LIST = 5_000  # keys: of 5,000 and 50,000 the better one in ``make bench-live``


def _from_delta(batch: DataFrame, at: Setting) -> DataFrame:
    """Read the rows of the keys from Delta.

    Not by a list of literals, which takes Spark minutes to plan: the keys are broadcast. To ask for
    the range between the least and the greatest would save nothing, for hot keys lie all over.
    """
    keys = batch.select(KEY).distinct()
    rows = batch.sparkSession.read.format("delta").load(str(at.products.path("delta")))
    rows = rows.join(F.broadcast(keys), KEY, "left_semi")
    return batch.join(F.broadcast(rows), KEY, at.how)


def _write_delta(at: Setting) -> None:
    from deltalake import write_deltalake  # noqa: PLC0415 - an extra

    path = at.products.path("delta")
    if not path.exists():
        with whole_folder(path) as new:
            write_deltalake(str(new), at.products.batches())


def _delta_missing(at: Setting) -> str:  # noqa: ARG001 - as others
    if importlib.util.find_spec("deltalake") is None:
        return "deltalake is not installed: pip install 'semistream[lakehouse]'"
    return ""


def _from_database(batch: DataFrame, at: Setting) -> DataFrame:
    """Read the rows of the keys by JDBC, in lists."""
    joined = by_key_lists(batch, _live(at))
    return joined if at.how == "left" else joined.where(F.col("surrogate").isNotNull())


def _live(at: Setting) -> LiveSetting:
    return LiveSetting(at.store, at.products.schema.remove(0), at.memory, _IN_LIST, at.how)


def _enriched(df: DataFrame, at: Setting) -> DataFrame:
    """Ours, from the database."""
    return enriched(df, _live(at))


def _load(at: Setting) -> None:
    at.store.load(at.products)


def _no_database(at: Setting) -> str:
    return "" if at.url else "no database was given: --url, or make bench-peers, which starts one"


BY_KEYS: dict[str, System] = {
    "enrich-database": System("enrich from PostgreSQL", _enriched, _load, _no_database),
    "delta": System(
        "foreachBatch, Delta by its keys",
        _from_delta,
        _write_delta,
        _delta_missing,
        in_batches=True,
    ),
    "jdbc": System(
        "foreachBatch, PostgreSQL by JDBC key lists",
        _from_database,
        _load,
        _no_database,
        in_batches=True,
        unique=True,
    ),
}
