"""Rows that wait for their master row: all come out, once, whatever fails in between."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf

from semistream import build_master
from semistream.api import enrich, watch
from semistream.errors import OptionError
from semistream.master.snapshots.pins import pin
from semistream.pipeline import PipelineError, read_pipeline
from semistream.pipeline.checkpoint.batch_log import BatchLog, BatchPlan, MicroBatch, read_plan
from semistream.pipeline.file.check import check
from semistream.pipeline.io.delta import write_delta
from semistream.pipeline.io.heartbeat import add_heartbeat
from semistream.pipeline.late import waiting_table
from semistream.pipeline.late.split_writer import Chain, Rule, SplitWriter, Targets
from semistream.pipeline.late.waiting_table import CAME, WaitingTable
from semistream.pipeline.run import batch_writer, runner
from semistream.pipeline.run.query import start
from support import wait_for
from support.matrix import ALL
from support.servers.connectors import require
from support.servers.databases import DATABASE, PASSWORD, USER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from semistream.spark.metrics.report import BatchMetrics
    from support.servers.databases import PostgreSQL

pytestmark = [pytest.mark.parts, pytest.mark.xdist_group("tables")]

KEYS, ROWS = 1_000, 2_000
STATUS = "__semistream_status_0"
HOUR = 3_600_000
MARK = "mapreduce.fileoutputcommitter.marksuccessfuljobs"


def products(late: int) -> pa.Table:
    """Every hundredth product comes late; of these the first ones have come."""
    come = [key for key in range(KEYS) if key % 100 or key // 100 < late]
    return pa.table({"key": come, "name": [f"product {key}" for key in come]})


@dataclass
class Case:
    """A stream of files into a fact table, started again and again, and failing when told."""

    spark: SparkSession
    folder: Path
    rule: Rule = Rule(STATUS, "quarantine", HOUR)  # noqa: RUF009 - frozen
    fails: bool = False
    live: bool = False
    """Whether the master has no snapshots, and answers otherwise in every attempt."""
    heals: bool = False
    """Whether it has snapshots from the first failure on."""
    late: int = 0
    now: int = 0
    """The time of batches that are planned from now on, if not Spark's."""
    times: dict[int, int] = field(default_factory=dict)
    failed: set[tuple[int, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        (self.folder / "sales").mkdir()

    def put(self, number: int) -> None:
        rng = np.random.default_rng(number)
        first = number * ROWS
        rows = {"sale": np.arange(first, first + ROWS), "key": rng.integers(0, KEYS, ROWS)}
        pq.write_table(pa.table(rows), self.folder / "sales" / f"{number}.parquet")

    def bring(self, late: int) -> None:
        self.late = late
        if self.live:
            pq.write_table(products(late), self.folder / "products.parquet")
        else:
            build_master(products(late), self.folder / "products", key="key")

    def run(self) -> None:
        """Start the query until it has ended well."""
        for _ in range(20):
            try:
                return self._attempt()
            except StreamingQueryException:
                if not self.fails:
                    raise
        raise AssertionError(self.failed)

    def _attempt(self) -> None:
        files = self.spark.readStream.schema("sale long, key long").option("maxFilesPerTrigger", 1)
        stream = files.parquet(str(self.folder / "sales"))
        table = Flaky(self, str(self.folder / "waiting"), stream.schema, "owner")
        table.open(self.spark)
        chain = Chain(lambda rows, _: self._enriched(rows, check=False), [self.rule], self._pins)
        ways = Targets(self._way("facts"), self._way("quarantine"), str(self.folder / "batch"))
        writer = SplitWriter(chain, ways, self._clock, table, 1_000)
        query = (
            self._enriched(add_heartbeat(stream, 3_600))  # a run has a batch, though none is due
            .writeStream.foreachBatch(writer.write)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _enriched(self, rows: DataFrame, check: bool = True) -> DataFrame:
        if self.live:
            known = self.spark.read.parquet(str(self.folder / "products.parquet"))
            joined = rows.join(known, "key", "left")
            return joined.withColumn(STATUS, sf.expr("if(name IS NULL, 'absent', 'matched')"))
        how = {"on": "key", "how": "left", "memory": "4MB", "status": STATUS, "check": check}
        return enrich(rows, self.folder / "products", **how)

    def _pins(self, once) -> tuple[str, ...] | None:
        decisions = BatchLog(self.spark, str(self.folder / "checkpoint"), ("products",))
        return decisions.begin(once, lambda: None if self.live else self._pinned(once))

    def _pinned(self, once) -> tuple[str, ...]:
        return (pin(self.folder / "products", once.query, str(once.number)).files,)

    def _clock(self, spark, number: int) -> BatchPlan:
        if not self.now:
            return read_plan(spark, str(self.folder / "checkpoint"), number)
        return BatchPlan(self.times.setdefault(number, self.now))

    def _way(self, name: str):
        def way(rows, once) -> None:
            columns = rows.select("sale", "key", "name")
            write_delta(columns, str(self.folder / name), "test", once.number)
            self.fail(once.number, name)

        return way

    def fail(self, number: int, place: str) -> None:
        """Fail after a write, once."""
        if self.fails and (number, place) not in self.failed:
            self.failed.add((number, place))
            self.live = self.live and not self.heals
            if self.live or self.heals:
                self.bring(self.late + 1)
            raise RuntimeError(f"after {place}")

    def content(self, name: str) -> pa.Table:
        path = self.folder / name
        if not path.exists():
            return pa.table({"sale": pa.array([], pa.int64())})
        return DeltaTable(path).to_pyarrow_table()  # sooner than a job of Spark

    def expected(self, late: int) -> pa.Table:
        """Every sale with its product as of the end."""
        with duckdb.connect() as con:
            con.register("stream", pq.read_table(self.folder / "sales"))
            con.register("known", products(late))
            joined = "SELECT sale, s.key, name FROM stream s LEFT JOIN known p ON s.key = p.key"
            return con.sql(joined).to_arrow_table()


class Flaky(WaitingTable):
    """A waiting table that has its batch fail when it was written."""

    def __init__(self, case: Case, *args: object) -> None:
        super().__init__(*args)
        self._case = case

    def add(self, rows, once) -> None:
        super().add(rows, once)
        self._case.fail(once.number, "waiting")

    def replace(self, rows, bound, once) -> None:
        super().replace(rows, bound, once)
        self._case.fail(once.number, "waiting")


def same(one: pa.Table, other: pa.Table) -> bool:
    less = duckdb.sql("FROM one EXCEPT ALL FROM other").fetchall()
    more = duckdb.sql("FROM other EXCEPT ALL FROM one").fetchall()
    return not less and not more


@pytest.fixture
def case(spark: SparkSession, tmp_path: Path) -> Case:
    require("delta")
    return Case(spark, tmp_path)


def test_rows_that_come_too_early_come_out_once_though_every_write_is_followed_by_a_crash(
    case: Case,
) -> None:
    case.fails = True
    case.bring(late=0)
    case.put(0)
    case.run()
    early = len(case.content("waiting"))
    assert 5 < early < 60
    assert len(case.content("facts")) == ROWS - early
    if ALL:  # some have come, and more rows wait
        case.bring(late=5)
        case.put(1)
        case.run()
        assert 0 < len(case.content("waiting")) < 2 * early
    case.bring(late=10)  # and no row comes any more
    case.run()
    assert len(case.content("waiting")) == 0
    assert same(case.content("facts"), case.expected(10))
    assert {place for _, place in case.failed} == {"facts", "waiting"}
    assert len(case.failed) == (6 if ALL else 4)
    assert len(case.content("quarantine")) == 0


@pytest.mark.long
def test_a_master_without_snapshots_may_answer_otherwise_in_every_attempt(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_table, "_AGE", -60_000)  # what is not used goes at once
    case.fails = case.live = True
    case.bring(late=0)
    case.put(0)
    case.put(1)
    case.run()
    case.bring(late=10)
    case.run()
    assert {place for _, place in case.failed} == {"facts", "waiting"}
    assert len(case.content("waiting")) == 0
    assert same(case.content("facts"), case.expected(10))
    assert len(list((case.folder / "waiting").glob("*.parquet"))) <= 2


@pytest.mark.long
def test_what_was_written_down_counts_though_snapshots_can_be_pinned_meanwhile(case: Case) -> None:
    case.fails = case.live = case.heals = True
    case.spark.conf.set(MARK, "false")  # of all writers but ours
    case.bring(late=0)
    case.put(0)
    try:
        case.run()
    finally:
        case.spark.conf.unset(MARK)
    assert case.late >= 2
    case.bring(late=10)
    case.run()
    assert len(case.content("waiting")) == 0
    assert same(case.content("facts"), case.expected(10))


def test_the_table_takes_columns_that_the_stream_comes_to_have_and_tells_another_type(
    case: Case,
) -> None:
    spark, path = case.spark, str(case.folder / "waiting")

    def opened(columns: str) -> WaitingTable:
        table = WaitingTable(path, spark.createDataFrame([], columns).schema, "owner")
        table.open(spark)
        return table

    rows = spark.range(2).selectExpr("id AS sale", f"timestamp_millis(id) AS {CAME}")
    opened("sale long").add(rows, MicroBatch("query", 0))
    kinds = "sale long, `a-price` double, parts struct<`a-part`: long>"
    none = "CAST(null AS struct<`a-part`: long>) AS parts"
    more = rows.selectExpr("sale + 2 AS sale", "1.5D AS `a-price`", none, CAME)
    opened(kinds).add(more, MicroBatch("query", 1))
    got = opened(kinds).read(spark).drop(CAME)
    assert sorted(map(tuple, got.collect())) == [
        *((sale, None, None) for sale in range(2)),
        *((sale, 1.5, None) for sale in range(2, 4)),
    ]
    assert opened("sale long").read(spark).columns == ["sale", CAME]
    with pytest.raises(OptionError, match=r"column 'sale' of the stream is string, .* is bigint"):
        opened("sale string")


@pytest.mark.parametrize("then", [pytest.param("quarantine", marks=pytest.mark.long), "null"])
def test_grace_gives_rows_up_once_and_no_row_before(case: Case, then: str) -> None:
    case.fails, case.rule = ALL, Rule(STATUS, then, 10_000)
    case.bring(late=0)
    for number in range(3):
        case.put(number)
        case.now = 1_000_000 + 5_000 * number
        case.run()
    waiting = case.content("waiting")
    given_up = case.content("facts" if then == "null" else "quarantine")
    first = {row["sale"] for row in case.expected(0).to_pylist() if row["name"] is None}
    assert {*waiting["sale"].to_pylist()} == {sale for sale in first if sale >= ROWS}
    case.now = 1_030_000
    case.run()  # nothing comes but the time
    assert len(case.content("waiting")) == 0
    out, missing = case.content("facts"), case.content("quarantine")
    assert same(pa.concat_tables([out, missing]) if then != "null" else out, case.expected(0))
    assert len(missing) == (len(first) if then == "quarantine" else 0)
    assert len(given_up) > 0


PIPELINE = """\
source: {kind: files, path: sales, files_per_batch: 1}
enrich:
  - {master: products, on: key, how: left, memory: 4MB, on_missing: wait}
  - master: stores
    on: {place: id}
    how: left
    memory: 4MB
    prefix: store_
    surrogate: sk
    dimension: dimension
waiting: {path: held, delay: 1s, grace: 1h}
columns: {replace: {place: store_sk}}
sink: {kind: delta, path: facts}
"""


def test_a_pipeline_waits_infers_members_and_goes_on_while_nothing_comes(
    case: Case, spark: SparkSession, tmp_path: Path
) -> None:
    stores = pa.table({"id": [1, 2], "sk": [10, 20], "name": ["one", "two"]})
    build_master(stores, tmp_path / "stores", key="id")
    write_deltalake(tmp_path / "dimension", stores)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    case.bring(late=0)
    for number in range(2):
        case.put(number)
    sales = pq.read_table(tmp_path / "sales")
    for number in range(2):  # places 0 to 4, of which the dimension has two
        part = sales.slice(number * ROWS, ROWS)
        place = pa.array(part["sale"].to_numpy() % 5)
        pq.write_table(part.append_column("place", place), tmp_path / f"sales/{number}.parquet")
    pipeline = read_pipeline(tmp_path / "pipeline.yaml")
    reports: list[dict] = []
    assert runner.run(pipeline, spark, once=True, seen=reports.append)
    assert [report["rows"] for report in reports if report["rows"]] == [ROWS, ROWS]
    early = len(case.content("held"))
    assert len(case.content("facts")) == 2 * ROWS - early
    # Under the file's own name, though others of this process were called the same.
    told = [report["enrich"]["products"] for report in reports if report["rows"]]
    assert told[-1]["wait_now"] == sum(each["waiting"] for each in told) == early
    seen: list[BatchMetrics] = []
    watch(spark, seen.append)
    query = start(pipeline, spark)
    try:
        case.bring(late=10)
        wait_for("the rows", lambda: len(case.content("facts")) == 2 * ROWS, 300)
        wait_for("their count", lambda: sum(m.missing.get("came_out", 0) for m in seen) == early)
    finally:
        query.stop()
    assert len(case.content("held")) == 0
    members = case.content("dimension")
    assert sorted(members["sk"].to_pylist()) == [10, 20, 21, 22, 23]
    with duckdb.connect() as con:
        con.register("members", members)
        con.register("known", products(10))
        expected = con.sql(
            f"SELECT sale, s.key, sk AS store_sk, p.name FROM '{tmp_path}/sales/*.parquet' s"  # noqa: S608
            " JOIN members m ON place = id JOIN known p ON s.key = p.key"
        ).to_arrow_table()
    facts = case.content("facts").select(expected.column_names)
    assert same(facts, expected)


COUNTED = """\
source: {kind: files, path: sales, files_per_batch: 1}
enrich:
  - {master: products, on: key, how: left, memory: 4MB, on_missing: wait, transfer: none}
  - {master: stores, on: {place: id}, how: left, memory: 4MB, prefix: store_,
     on_missing: quarantine}
waiting: {path: waiting, delay: 1s, grace: 1h, then: THEN}
quarantine: {path: quarantine}
sink: {kind: delta, path: facts}
"""


@pytest.mark.parametrize("then", ["quarantine", pytest.param("null", marks=pytest.mark.long)])
def test_every_row_that_leaves_the_waiting_table_or_is_quarantined_is_reported(
    case: Case, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    times: dict[int, int] = {}
    now = [1_000_000]
    monkeypatch.setattr(
        batch_writer, "read_plan", lambda *of: BatchPlan(times.setdefault(of[-1], now[0]))
    )
    case.bring(late=0)
    build_master(pa.table({"id": [0, 1, 2]}), case.folder / "stores", key="id")
    sales = range(ROWS)
    keys = [None if sale % 7 == 0 else sale * 7 % KEYS for sale in sales]
    rows = {"sale": sales, "key": keys, "place": [sale // 100 % 4 for sale in sales]}
    pq.write_table(pa.table(rows), case.folder / "sales" / "0.parquet")
    path = case.folder / "pipeline.yaml"
    path.write_text(COUNTED.replace("THEN", then))

    def run() -> dict[str, dict[str, int]]:
        reports: list[dict[str, Any]] = []
        assert runner.run(read_pipeline(path), case.spark, once=True, seen=reports.append)
        names = ("waiting", "quarantined", "came_out", "given_up")
        return {
            step: {n: sum(r["enrich"].get(step, {}).get(n, 0) for r in reports) for n in names}
            | {"rows": sum(r["rows"] for r in reports)}
            for step in ("products", "stores")
        }

    absent = {sale for sale in sales if sale % 7 and sale % 100 == 0}
    null = {sale for sale in sales if sale % 7 == 0}
    placeless = {sale for sale in sales if sale // 100 % 4 == 3}
    first = run()
    apart = {*case.content("quarantine")["sale"].to_pylist()}
    assert {*case.content("waiting")["sale"].to_pylist()} == absent
    if then == "quarantine":
        assert apart == null | placeless - absent
        taken = len(null), len(placeless - null - absent)
    else:  # a null key goes on with nulls, and the other enrichment has it
        assert apart == placeless - absent
        taken = 0, len(apart)
    assert (first["products"]["quarantined"], first["stores"]["quarantined"]) == taken
    assert (first["products"]["waiting"], first["products"]["came_out"]) == (len(absent), 0)

    case.bring(late=5)
    now[0] += 2 * HOUR  # and no row comes any more
    second = run()
    assert second["products"]["rows"] == 0
    late = {sale for sale in absent if sale * 7 % KEYS // 100 >= 5}
    lost = late | absent & placeless
    assert second["products"]["given_up"] == len(lost)
    assert second["products"]["came_out"] == len(absent - lost)
    assert len(case.content("waiting")) == second["products"]["waiting"] == 0
    counted = [each["quarantined"] for told in (first, second) for each in told.values()]
    assert sum(counted) == len(case.content("quarantine"))
    assert len(case.content("facts")) + len(case.content("quarantine")) == ROWS


def test_mistakes_are_told_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        PIPELINE.replace("delay: 1s", "delay: soon").replace("dimension: dimension", "status: x")
    )
    with pytest.raises(PipelineError) as error:
        read_pipeline(path)
    assert f"{path}:9:16: enrich[1].surrogate needs the Delta table" in str(error.value)
    assert f"{path}:11:30: waiting.delay must be a time, such as" in str(error.value)
    path.write_text(PIPELINE.replace("on_missing: wait", "on_missing: drop"))
    with pytest.raises(PipelineError, match="waiting has no use"):
        read_pipeline(path)
    path.write_text(
        "source: {kind: files, path: sales}\nsink: {kind: delta, path: facts}\n"
        "enrich: {master: products, on: key, how: left, on_missing: wait}\n"
    )
    build_master(pa.table({"key": [1], "Waiting_since": ["x"]}), tmp_path / "products", key="key")
    with pytest.raises(PipelineError, match="adds a column 'waiting_since', which there is"):
        check(read_pipeline(path), pa.schema({"key": pa.int64()}))


LIVE = """\
source: {{kind: files, path: sales, files_per_batch: 1}}
enrich:
  - {{master: "{url}", table: products, key: key, password_env: SHOP_PASSWORD, on: key, how: left,
      memory: 4MB, on_missing: wait}}
waiting: {{path: waiting, delay: 1s}}
sink: {{kind: postgresql, url: "{sink}", table: facts,
  user: {user}, password: "${{SHOP_PASSWORD}}"}}
checkpoint: checkpoint
"""


def test_a_live_database_may_answer_otherwise_in_every_attempt(
    case: Case, postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("postgresql")
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    address = f"postgresql://127.0.0.1:{postgresql.port}/{DATABASE}"
    places = {"url": postgresql.url(password=False), "sink": address, "user": USER}
    path = case.folder / "pipeline.yaml"
    path.write_text(LIVE.format(**places))
    postgresql.load("products", products(0), key="key")
    case.put(0)

    def failing(write: Callable[..., None], place: str) -> Callable[..., None]:
        def written(*arguments: Any, **options: Any) -> None:
            write(*arguments, **options)
            if place not in places:
                places[place] = "failed"
                postgresql.load("products", products(len(places)), key="key")
                raise RuntimeError(place)

        return written

    monkeypatch.setattr(batch_writer, "write_batch", failing(batch_writer.write_batch, "sink's"))
    monkeypatch.setattr(WaitingTable, "add", failing(WaitingTable.add, "added"))
    monkeypatch.setattr(WaitingTable, "replace", failing(WaitingTable.replace, "replaced"))
    for _ in range(8):
        with suppress(runner.QueryFailedError):
            runner.run(read_pipeline(path), case.spark, once=True)
            if not len(case.content("waiting")):
                break
            postgresql.load("products", products(10), key="key")
    assert {"sink's", "added", "replaced"} <= {*places}
    facts = postgresql.rows('SELECT sale, key, name FROM "facts"')
    assert sorted(facts) == sorted(map(tuple, (r.values() for r in case.expected(10).to_pylist())))
