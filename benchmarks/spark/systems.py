"""What is compared on Spark: ways to join a stream with a table of products."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark.sql.functions as F  # noqa: N812 - as everyone has it
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from benchmarks.spark.data import KEY, Products, whole_folder
from benchmarks.spark.database import Store, store_of
from benchmarks.stores import ENGINES, ByKey, DuckDb, Engine, RocksDbAsync, built
from semistream.algorithms import algorithms
from semistream.api import enrich
from semistream.master import open_master
from semistream.spark.types import spark_field

_TASKS = 2  # tasks that run at once, each with its part of the memory
_CHUNK = 1_000_000  # stream rows at most that a store joins at once: here all of a partition
_OUT = 65_536  # rows of a batch that a store gives back
_LONGEST = 1 << 16  # rows of the bound's constant columns; Spark's batches have 10,000


@dataclass(frozen=True)
class Setting:
    """What a system joins with, and how."""

    products: Products
    how: str
    memory: int
    """Bytes for all tasks."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of `enrich`."""
    copy: str = ""
    """Another place of our master."""
    url: str = field(default="", repr=False)
    """A database that has the products as a table."""
    chunk: int = 5_000
    """Keys in one list of a JDBC query, the better one of 5,000 and 50,000 in ``live``."""

    @classmethod
    def of(cls, products: Products, how: str, share: float, url: str = "") -> Setting:
        """Return the setting with a budget that is a share of the master's bytes."""
        return cls(products, how, int(share * products.bytes), url=url)

    @property
    def master(self) -> str:
        """Where our master is."""
        return self.copy or str(self.products.master())

    @property
    def store(self) -> Store:
        """The products in the database."""
        several = f"x{self.products.duplicates}" if self.products.duplicates > 1 else ""
        return store_of(self.url, f"semistream_bench_{self.products.rows}{several}")

    @property
    def columns(self) -> pa.Schema:
        """The master's columns without its key."""
        return self.products.schema.remove(0)


Join = Callable[[DataFrame, Setting], DataFrame]


@dataclass(frozen=True)
class System:
    """A way to join."""

    label: str
    join: Join
    """Returns the stream's columns, then the master's without its key."""
    prepare: Callable[[Setting], object] = lambda _: None
    """Called once, in a process with a Spark session, before anything is timed."""
    missing: Callable[[Setting], str] = lambda _: ""
    """Returns why it cannot run, nothing if it can."""
    in_batches: bool = False
    """Whether it looks at a micro-batch before it joins: it runs in a foreachBatch."""
    unique: bool = False
    """Whether it needs one row a key."""
    alone: bool = False
    """Whether it has a process of its own, for it may run out of memory."""
    in_driver: Callable[[DataFrame, Setting], object] | None = None
    """Joins a micro-batch in the driver, in a foreachBatch; its rows do not come back to Spark."""

    def writer(self, df: DataFrame, at: Setting) -> DataStreamWriter:
        """Return the query, into no sink."""
        if not self.in_batches and self.in_driver is None:
            return self.join(df, at).writeStream.format("noop")

        def write(batch: DataFrame, number: int) -> None:  # noqa: ARG001 - as Spark calls it
            if self.in_driver is not None:
                self.in_driver(batch, at)
                return
            batch.persist()  # it is read twice
            self.join(batch, at).write.format("noop").mode("overwrite").save()
            batch.unpersist()

        return df.writeStream.foreachBatch(write)


def _mapped(
    df: DataFrame,
    at: Setting,
    join: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> DataFrame:
    """Append the master's columns in Python workers."""
    added = [spark_field(f, f.name, nullable=True) for f in at.columns]
    return df.mapInArrow(join, StructType([*df.schema, *added]))


def _beside(batch: pa.RecordBatch, columns: list[pa.Array], names: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [*batch.columns, *columns], names=[*batch.schema.names, *names]
    )


# -- ours, and the least that a way through Python does, which bounds it ----------------------


def _enriched(**given: str) -> Join:
    def join(df: DataFrame, at: Setting) -> DataFrame:
        options = {"name": "bench"} | given | at.options
        return enrich(df, at.master, on=KEY, how=at.how, memory=at.memory, **options)

    return join


def _hashed(df: DataFrame, at: Setting) -> DataFrame:
    """Route rows by Spark's own hash of the key, then join them where they are."""
    routed = df.repartition(at.options["tasks"], KEY)
    options = at.options | {"partition": "none"}
    return enrich(routed, at.master, on=KEY, how=at.how, memory=at.memory, **options)


def _constants(df: DataFrame, at: Setting) -> DataFrame:
    """Append constant columns of the types that the join would append; look nothing up."""
    row = Products(1, Path()).batches().read_next_batch().drop_columns([KEY])
    first, names = row.columns, row.schema.names

    def append(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns = [pa.repeat(column[0], _LONGEST) for column in first]
        for batch in batches:
            yield _beside(batch, [column.slice(0, batch.num_rows) for column in columns], names)

    return _mapped(df, at, append)


# -- Spark's own joins of a stream with a static table ----------------------------------------


def _spark_join(hint: str | None) -> Join:
    def join(df: DataFrame, at: Setting) -> DataFrame:
        products = df.sparkSession.read.parquet(str(at.products.parquet()))
        return df.join(products.hint(hint) if hint else products, KEY, at.how)

    return join


def _bucketed(df: DataFrame, at: Setting) -> DataFrame:
    """Join by sorting the stream: the table lies in buckets by key, sorted, a file each."""
    spark, path = df.sparkSession, at.products.path("buckets")
    # Else Spark does not believe that a bucket of one file is in order.
    spark.conf.set("spark.sql.legacy.bucketedTableScan.outputOrdering", "true")
    name = path.name.replace("-", "_").replace(".", "_")
    if not spark.catalog.tableExists(name):
        types = {"int64": "bigint", "int32": "int", "double": "double", "string": "string"}
        columns = ", ".join(f"{f.name} {types[str(f.type)]}" for f in at.products.schema)
        buckets = f"CLUSTERED BY ({KEY}) SORTED BY ({KEY}) INTO {_TASKS} BUCKETS"
        place = f"LOCATION '{path / 'rows'}'"
        spark.sql(f"CREATE TABLE {name} ({columns}) USING parquet {buckets} {place}")
    return df.join(spark.table(name).hint("merge"), KEY, at.how)


def _write_buckets(at: Setting) -> None:
    """Write the table, once; Spark names a bucket's files itself, so that it finds them again."""
    spark, path = SparkSession.active(), at.products.path("buckets")
    if path.exists():
        return
    rows = spark.read.parquet(str(at.products.parquet()))
    with whole_folder(path) as new:
        writer = rows.repartition(_TASKS, KEY).write.bucketBy(_TASKS, KEY).sortBy(KEY)
        writer.option("path", str(new / "rows")).saveAsTable("semistream_unfinished")
        spark.sql("DROP TABLE semistream_unfinished")


# -- by keys: a foreachBatch that collects them and reads only their rows ---------------------


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
    from deltalake import write_deltalake

    path = at.products.path("delta")
    if not path.exists():
        with whole_folder(path) as new:
            write_deltalake(str(new), at.products.batches())


def _delta_missing(at: Setting) -> str:  # noqa: ARG001 - as others
    if importlib.util.find_spec("deltalake") is None:
        return "deltalake is not installed: pip install 'semistream[lakehouse]'"
    return ""


def _enriched_from_database(df: DataFrame, at: Setting) -> DataFrame:
    """Join by `semistream.enrich`, from the database."""
    master = open_master(at.store.url, table=at.store.table, key=KEY, ttl=3600)
    return enrich(df, master, on=KEY, how=at.how, memory=at.memory, name="live")


def _by_one_list(batch: DataFrame, at: Setting) -> DataFrame:
    """Join a batch as it is mostly written: collect its keys, read their rows, join."""
    rows = _by_jdbc(batch, at, [_keys(batch)])
    return batch.join(rows, KEY, at.how).select(*batch.columns, *at.columns.names)


def _by_key_lists(batch: DataFrame, at: Setting) -> DataFrame:
    """Join a batch as it is best written.

    Keys are given in lists of ``chunk``, each read by a task of its own; what comes back is marked
    to be broadcast, for else Spark sorts both sides.
    """
    keys = _keys(batch)
    lists = [keys[i : i + at.chunk] for i in range(0, len(keys), at.chunk)]
    joined = batch.join(F.broadcast(_by_jdbc(batch, at, lists)), KEY, at.how)
    return joined.select(*batch.columns, *at.columns.names)


def _keys(batch: DataFrame) -> list[str]:
    return [str(row[0]) for row in batch.select(KEY).distinct().collect() if row[0] is not None]


def _by_jdbc(batch: DataFrame, at: Setting, lists: list[list[str]]) -> DataFrame:
    """Read the rows of some keys by Spark's JDBC source, a partition a list."""
    address, properties = at.store.jdbc
    predicates = [f"{KEY} IN ({','.join(keys or ['-1'])})" for keys in lists or [[]]]
    return batch.sparkSession.read.jdbc(
        address, at.store.table, predicates=predicates, properties=properties
    )


def _row_by_row(df: DataFrame, at: Setting) -> DataFrame:
    """Ask the database for every row by itself, over a connection that stays open in the worker."""
    store, columns = at.store, at.columns

    def join(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cursor, query = _cursor(store), store.lookup(columns.names)
        for batch in batches:
            rows = []
            for key in batch.column(KEY).to_pylist():
                cursor.execute(query, (key,))
                rows.append(cursor.fetchone() or (None,) * len(columns))
            values = zip(*rows, strict=True) if rows else [()] * len(columns)
            arrays = [pa.array(v, f.type) for v, f in zip(values, columns, strict=True)]
            yield _beside(batch, arrays, columns.names)

    return _mapped(df, at, join)


_cursors: dict[Store, Any] = {}


def _cursor(store: Store) -> Any:
    """Return this worker's cursor, of a connection that is kept."""
    if store not in _cursors:
        _cursors[store] = store.connect().cursor()
    return _cursors[store]


def _load(at: Setting) -> None:
    at.store.load(at.products)


def _no_database(at: Setting) -> str:
    return "" if at.url else "no database was given: --url, or make bench-peers, which starts one"


# -- a store in the Python worker, asked for a whole partition, or row by row -----------------


def _in_worker(kind: type[Engine], *, rows: bool = False) -> System:
    """Return the join with an engine; every task of a worker has the same one, kept open."""

    def join(df: DataFrame, at: Setting) -> DataFrame:
        path, schema, how = at.products.path(kind.store()), at.products.schema, at.how
        memory = max(at.memory // _TASKS, kind.least)

        def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            engine = _opened(kind, path, schema, memory)
            call = engine.join_rows if rows and isinstance(engine, ByKey) else engine.join
            for chunk in _chunks(batches):
                yield from call(chunk, how).to_batches(_OUT)

        return _mapped(df, at, joined)

    def prepare(at: Setting) -> None:
        path = at.products.path(kind.store())
        built(kind, path, at.products.schema, at.memory, at.products.batches)

    way = "row by row" if rows else "a partition at once"
    label = f"{kind.name} in the worker, {way}"
    return System(label, join, prepare, lambda _: kind.missing(), unique=kind.unique)


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put Spark's small batches together: the more rows at once, the fewer keys to ask for."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= _CHUNK:
            yield pa.concat_batches(held)
            held = []
    if held:
        yield pa.concat_batches(held)


_open: dict[tuple[object, ...], Engine] = {}


def _opened(kind: type[Engine], path: Path, schema: pa.Schema, memory: int) -> Engine:
    """Return this worker's engine; of another query it keeps none, which might hold all of R."""
    about = (kind, path, memory)
    if about not in _open:
        while _open:
            _open.popitem()[1].close()
        _open[about] = kind(path, schema, memory)
        _open[about].open()
    return _open[about]


class _DuckDbOfDriver(DuckDb):
    """DuckDB with as many threads as Spark has tasks."""

    threads = _TASKS


def _by_duckdb(batch: DataFrame, at: Setting) -> pa.Table:
    """Join a micro-batch in the driver, as Arrow: Spark only reads the stream."""
    path, memory = at.products.path(DuckDb.name), max(at.memory, DuckDb.least)
    engine = _opened(_DuckDbOfDriver, path, at.products.schema, memory)
    return engine.join(batch.toArrow().combine_chunks().to_batches()[0], at.how)


def _from_driver(batch: DataFrame, at: Setting) -> DataFrame:
    """Bring the rows back to Spark, where they are compared."""
    return batch.sparkSession.createDataFrame(_by_duckdb(batch, at))


def _parquet(at: Setting) -> None:
    at.products.parquet()


PUBLISHED = tuple(f"enrich-{name}" for name in algorithms() if name != "adaptive")
"""`enrich` with the algorithms of the papers."""
SYSTEMS: dict[str, System] = {
    "enrich": System("enrich", _enriched()),
    "enrich-keys": System("enrich, keys through Python", _enriched(transfer="keys"), unique=True),
    **{
        name: System(f"enrich, {algorithm}", _enriched(algorithm=algorithm))
        for name in PUBLISHED
        for algorithm in [name.removeprefix("enrich-")]
    },
    "bound": System("constant columns by mapInArrow (bound)", _constants),
    "hashed": System("enrich behind Spark's hash", _hashed),
    "none": System("no join", lambda df, _: df),
    "default": System("Spark's join", _spark_join(None), _parquet),
    "shuffle-hash": System("Spark's join, shuffle-hash", _spark_join("shuffle_hash"), _parquet),
    "sort-merge": System("Spark's join, sort-merge on buckets", _bucketed, _write_buckets),
    "broadcast": System("Spark's join, broadcast", _spark_join("broadcast"), _parquet, alone=True),
    "enrich-database": System(
        "enrich from PostgreSQL", _enriched_from_database, _load, _no_database
    ),
    "delta": System(
        "foreachBatch, Delta by its keys",
        _from_delta,
        _write_delta,
        _delta_missing,
        in_batches=True,
    ),
    "jdbc": System(
        "foreachBatch, PostgreSQL by JDBC key lists",
        _by_key_lists,
        _load,
        _no_database,
        in_batches=True,
        unique=True,
    ),
    "jdbc-one-list": System(
        "foreachBatch, JDBC by one key list",
        _by_one_list,
        _load,
        _no_database,
        in_batches=True,
        unique=True,
    ),
    "database-rows": System(
        "row by row in mapInArrow", _row_by_row, _load, _no_database, unique=True
    ),
    **{name: _in_worker(kind) for name, kind in ENGINES.items()},
    "rocksdb-async": _in_worker(RocksDbAsync),
    "duckdb-batch": replace(
        _in_worker(DuckDb),
        label="foreachBatch, duckdb in the driver",
        join=_from_driver,
        in_driver=_by_duckdb,
    ),
    **{
        f"{name}-rows": _in_worker(kind, rows=True)
        for name, kind in ENGINES.items()
        if issubclass(kind, ByKey)
    },
}
