# ruff: noqa: S608 - names are quoted
"""Surrogate keys for members of a dimension that are not there yet.

The dimension is a Delta table from which the master is built. A key that a micro-batch does not
find in the master is looked up there; one that is not there either becomes an *inferred member*: a
row with the key, a new surrogate and nothing else. Its surrogate is the greatest so far and the
key's rank among the new ones. It is read and written in one transaction, in which no other writer
can come between; a batch that is replayed finds the keys there. When the real row comes,
`complete_members` fills the member and keeps its surrogate.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql import functions as sf

from semistream.errors import OptionError, SchemaError, SemistreamError
from semistream.missing import ABSENT
from semistream.names import RESERVED, reserved, unused
from semistream.pipeline.io.delta import properties_of, sql_name
from semistream.spark.types import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["INFERRED", "INFERRED_AT", "Dimension", "Members", "MembersError", "complete_members"]

log = logging.getLogger(__name__)

INFERRED, INFERRED_AT = "inferred", "inferred_at"
"""The dimension's columns that tell inferred members, and since when they are."""

_SURROGATE, _THERE, _TOP, _VIEW = (
    f"{RESERVED}_{name}" for name in ("surrogate", "there", "top", "rows")
)
_OWN = {INFERRED: "boolean", INFERRED_AT: "timestamp"}
_ISOLATION = "delta.isolationLevel"
_ATTEMPTS = 10  # with a back-off of 0.1 s that doubles: 51 s in all


class MembersError(SemistreamError, RuntimeError):
    """A dimension gives no surrogate: others write to it all the time, or a member has none."""


@dataclass(frozen=True)
class Dimension:
    """A Delta table with a row a member."""

    path: str
    key: tuple[str, ...]
    surrogate: str

    @property
    def name(self) -> str:
        """The table's name in SQL."""
        return sql_name(self.path)

    def read(self, spark: SparkSession) -> DataFrame:
        """Return its rows."""
        return spark.read.format("delta").load(self.path)

    def check(self, spark: SparkSession) -> Mapping[str, str]:
        """Return its properties; raise if it is not there, or lacks a column."""
        properties = properties_of(spark, self.path)
        if properties is None:
            msg = (
                f"dimension: there is no Delta table at {self.path}; new surrogate keys follow "
                "from those in the dimension from which the master is built: write it first"
            )
            raise OptionError(msg)
        schema = self.read(spark).schema
        for name in (*self.key, self.surrogate):
            if name not in schema.names:
                raise SchemaError.missing(f"dimension {self.path}", name, schema.names)
        self._check_own(schema)
        return properties

    def _check_own(self, schema: StructType) -> None:
        """Raise for columns whose names are for what is added here."""
        for name in reserved(schema.names):
            msg = (
                f"the dimension {self.path} has a column {name!r}: names that begin with "
                f"{RESERVED!r} are for columns that are added; rename it"
            )
            raise SchemaError(msg)
        for field in schema:
            kind = _OWN.get(field.name.lower(), "")
            if kind and field.dataType.simpleString() != kind:
                msg = (
                    f"the dimension {self.path} has a column {field.name!r} of type "
                    f"{field.dataType.simpleString()}; a column of this name and of type {kind} "
                    "tells inferred members: rename the one that is there"
                )
                raise SchemaError(msg)

    def open(self, spark: SparkSession) -> None:
        """Check that it has what is needed, and add what can be added.

        New surrogates follow from the greatest one, so no row may come in unseen meanwhile: the
        table's isolation level becomes Serializable.
        """
        properties, columns = self.check(spark), self.read(spark).columns
        if new := [f"{name} {kind}" for name, kind in _OWN.items() if name not in columns]:
            spark.sql(f"ALTER TABLE {self.name} ADD COLUMNS ({', '.join(new)})")
        if properties.get(_ISOLATION) != "Serializable":
            spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('{_ISOLATION}'='Serializable')")


@dataclass(frozen=True)
class Members:
    """Fills in the surrogates of rows without a master row; infers members that are new."""

    dimension: Dimension
    on: Mapping[str, str]
    """Stream column → key column of the dimension."""
    column: str
    """The column of surrogates: the master's, where a row has a match."""
    status: str
    """The status column of the enrichment."""

    def fill(self, rows: DataFrame, now: int) -> DataFrame:
        """Return rows with surrogates; new members are in the dimension when this returns.

        ``rows`` were joined, and do not change when they are computed again; ``now`` is the time of
        their batch, in milliseconds since 1970.
        """
        keys = self._keys(rows.where(sf.col(quote(self.status)) == ABSENT))
        # The least and the greatest key spare Delta most of its files.
        first = sf.col(quote(self.dimension.key[0]))
        [span] = keys.agg(sf.min(first), sf.max(first)).collect()
        if span[0] is None:
            return rows
        if self._lacks(keys, self._known(keys, span)):
            _infer(keys, self.dimension, now)
        return self._with_surrogates(rows, self._known(keys, span))

    def _keys(self, rows: DataFrame) -> DataFrame:
        """Return the keys of rows in the dimension's types, without those that do not fit."""
        kinds = self.dimension.read(rows.sparkSession).schema
        typed = []
        for ours, theirs in self.on.items():
            column = sf.col(quote(ours))
            fitting = column.try_cast(kinds[theirs].dataType)
            # Not ==: Spark infers more from such an equation without end, if columns are aliases.
            rows = rows.where(fitting.between(column, column))
            typed.append(fitting.alias(theirs))
        return rows.select(*typed).distinct()

    def _lacks(self, keys: DataFrame, known: DataFrame) -> bool:
        """Return whether keys have no member yet; raise for a member without a surrogate."""
        joined = keys.join(known.withColumn(_THERE, sf.lit(True)), [*self.dimension.key], "left")
        bare = sf.col(_THERE) & sf.col(_SURROGATE).isNull()
        one = sf.max(sf.when(bare, sf.struct(*map(quote, self.dimension.key))))
        [(new, wrong)] = joined.agg(sf.count_if(sf.col(_THERE).isNull()), one).collect()
        if wrong is not None:
            msg = (
                f"the dimension {self.dimension.path} has a member {wrong.asDict()} without a "
                f"surrogate: {self.dimension.surrogate} is null; give it one that is greater than "
                "all others, and start again"
            )
            raise MembersError(msg)
        return bool(new)

    def _known(self, keys: DataFrame, span: Sequence[object]) -> DataFrame:
        """Return key and surrogate of the members that are there."""
        first, *_ = self.dimension.key
        members = self.dimension.read(keys.sparkSession)
        members = members.where(sf.col(quote(first)).between(*map(sf.lit, span)))
        members = members.join(keys, [*self.dimension.key], "semi")
        surrogate = sf.max(quote(self.dimension.surrogate)).alias(_SURROGATE)
        return members.groupBy(*map(quote, self.dimension.key)).agg(surrogate)

    def _with_surrogates(self, rows: DataFrame, known: DataFrame) -> DataFrame:
        pairs = [(ours, f"{RESERVED}_key_{i}") for i, ours in enumerate(self.on)]
        known = known.toDF(*(theirs for _, theirs in pairs), _SURROGATE)
        condition = [sf.col(quote(ours)) == sf.col(quote(theirs)) for ours, theirs in pairs]
        missing = sf.col(quote(self.status)) == ABSENT
        joined = rows.join(known, [missing, *condition], "left")
        kind = rows.schema[self.column].dataType
        filled = sf.when(missing, sf.col(_SURROGATE).cast(kind)).otherwise(
            sf.col(quote(self.column))
        )
        columns = [
            filled.alias(name) if name == self.column else sf.col(quote(name))
            for name in rows.columns
        ]
        return joined.select(*columns)


def _infer(keys: DataFrame, dimension: Dimension, now: int) -> None:
    """Add members for those keys that are not there, in one transaction."""
    listed, new = _listed(dimension.key), [dimension.surrogate, INFERRED, INFERRED_AT]
    statement = f"""
        MERGE INTO {dimension.name} AS t USING (
            SELECT k.*, top.{_TOP} + row_number() OVER (
                ORDER BY {_listed(dimension.key, "k")}) AS {_SURROGATE}
            FROM (SELECT * FROM {_VIEW} AS k WHERE NOT EXISTS
                (SELECT 1 FROM {dimension.name} AS d WHERE {_equal("d", "k", dimension.key)})) AS k
            CROSS JOIN ({_top(dimension)}) AS top
        ) AS s ON {_equal("t", "s", dimension.key)}
        WHEN NOT MATCHED THEN INSERT ({listed}, {_listed(new)})
        VALUES ({_listed(dimension.key, "s")}, s.{_SURROGATE}, true, timestamp_millis({now}))"""
    _merge(keys, statement, dimension)


def complete_members(
    rows: DataFrame, dimension: str, *, key: str | Sequence[str], surrogate: str
) -> None:
    """Bring real rows into a dimension: members that were inferred are completed in place.

    A member that is there, inferred or not, gets the columns of its row and keeps its surrogate; a
    new one gets the next surrogate. To do it twice changes nothing the second time. Afterwards
    `sync_master` brings the rows to the master's pages.

    Parameters
    ----------
    rows
        The real rows, each key once; their columns are those of the dimension, not the surrogate.
    dimension
        The path of the Delta table.
    key
        The columns of its natural key.
    surrogate
        The column of its surrogate key.

    Examples
    --------
    ::

        complete_members(
            products, "warehouse/products", key="product_id", surrogate="product_sk"
        )
    """
    spark = rows.sparkSession
    table = Dimension(dimension, (key,) if isinstance(key, str) else tuple(key), surrogate)
    table.open(spark)
    _check(rows, table)
    columns = [name for name in rows.columns if name not in table.key]
    differs = [f"NOT (t.{quote(name)} <=> s.{quote(name)})" for name in columns]
    updates = [f"t.{quote(name)} = s.{quote(name)}" for name in columns]
    statement = f"""
        MERGE INTO {table.name} AS t USING (
            SELECT r.*, top.{_TOP} + row_number() OVER (
                PARTITION BY known.{_THERE} ORDER BY {_listed(table.key, "r")}) AS {_SURROGATE}
            FROM {_VIEW} AS r
            LEFT JOIN (SELECT DISTINCT {_listed(table.key)}, true AS {_THERE}
                FROM {table.name}) known ON {_equal("r", "known", table.key)}
            CROSS JOIN ({_top(table)}) AS top
        ) AS s ON {_equal("t", "s", table.key)}
        WHEN MATCHED AND ({" OR ".join([f"t.{INFERRED}", *differs])})
        THEN UPDATE SET {", ".join([*updates, f"t.{INFERRED} = false"])}
        WHEN NOT MATCHED THEN INSERT
        ({_listed([*table.key, *columns, surrogate, INFERRED])})
        VALUES ({_listed([*table.key, *columns, _SURROGATE], "s")}, false)"""
    _merge(rows, statement, table)


def _check(rows: DataFrame, table: Dimension) -> None:
    known = table.read(rows.sparkSession).columns
    for name in table.key:
        if name not in rows.columns:
            raise SchemaError.missing("rows", name, rows.columns)
    for name in rows.columns:
        if name in {table.surrogate, INFERRED, INFERRED_AT}:
            msg = f"column {name!r} is the dimension's own; leave it out of the rows"
            raise SchemaError(msg)
        if name not in known:
            raise SchemaError.missing(f"dimension {table.path}", name, known)
    null = " OR ".join(f"{quote(name)} IS NULL" for name in table.key)
    count = unused("count", table.key)
    counts = rows.groupBy(*map(quote, table.key)).agg(sf.count(sf.lit(1)).alias(count))
    wrong = counts.where(f"{count} > 1 OR {null}").first()
    if wrong is not None:
        key = {name: wrong[name] for name in table.key}
        way = (
            "a null is no member's key: leave them out"
            if None in key.values()
            else "a member has one: choose it"
        )
        msg = f"the rows have {wrong[count]} with the key {key}; {way}"
        raise OptionError(msg)


def _top(dimension: Dimension) -> str:
    surrogate = quote(dimension.surrogate)
    return f"SELECT greatest(coalesce(max({surrogate}), 0), 0) AS {_TOP} FROM {dimension.name}"


def _listed(names: Iterable[str], table: str = "") -> str:
    prefix = f"{table}." if table else ""
    return ", ".join(prefix + quote(name) for name in names)


def _equal(one: str, other: str, names: Iterable[str]) -> str:
    return " AND ".join(f"{one}.{quote(name)} = {other}.{quote(name)}" for name in names)


def _merge(rows: DataFrame, statement: str, dimension: Dimension) -> None:
    """Run a statement in which `_VIEW` stands for the rows."""
    view, spark = f"semistream_{uuid4().hex}", rows.sparkSession
    rows.createOrReplaceTempView(view)
    try:
        _retry_conflicts(lambda: spark.sql(statement.replace(_VIEW, view)), dimension)
    finally:
        spark.catalog.dropTempView(view)


def _retry_conflicts(
    action: Callable[[], object], dimension: Dimension, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Repeat an action when another writer came between; it then sees what that one wrote."""
    for attempt in range(_ATTEMPTS):
        try:
            action()
        except Exception as error:
            if not _is_conflict(error):
                raise
            log.info("%s was written by another; attempt %d", dimension.path, attempt + 1)
            cause = error
            if attempt + 1 < _ATTEMPTS:
                sleep(0.1 * 2**attempt)
        else:
            return
    msg = (
        f"the dimension {dimension.path} was written by others in each of {_ATTEMPTS} attempts to "
        "add members; let its other writers come less often, or one after the other"
    )
    raise MembersError(msg) from cause


def _is_conflict(error: Exception) -> bool:
    """Recognise Delta's conflicts by their codes: some are Java's exceptions, some Spark's."""
    return any(code in str(error) for code in ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED"))
