"""Rows without a master row, parted by the writer: both tables exact, whatever dies in between."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import semistream as ss
from semistream.errors import SchemaError
from semistream.master.snapshots import pins
from semistream.pipeline import PipelineError, read_pipeline
from semistream.pipeline.checkpoint import batch_store
from semistream.pipeline.checkpoint.batch_log import BatchLog, MicroBatch
from semistream.pipeline.checkpoint.checkpoint import CheckpointError
from semistream.pipeline.run import batch_writer, runner
from semistream.pipeline.run.query import prepare, start
from semistream.spark import storage
from support.servers.connectors import require
from support.servers.databases import DATABASE, PASSWORD, USER

pytestmark = [pytest.mark.parts, pytest.mark.xdist_group("tables")]

MISSING = Path(__file__).parents[2] / "docs" / "missing.md"
ROWS = 2_000
PRODUCTS = {"key": [k for k in range(100) if k % 5], "vendor": [k % 7 for k in range(100) if k % 5]}
ALL_PRODUCTS = {"key": [*range(100)], "vendor": [k % 7 for k in range(100)]}
VENDORS = {"vendor": [0, 1, 2, 3, 4], "city": ["A", "B", None, "D", "E"]}
# What the first enrichment lacks is its alone, though the second lacks it too.
SPLIT = """
SELECT s.*, p.vendor, v.city,
    CASE WHEN p.key IS NULL THEN 'products' WHEN v.vendor IS NULL THEN 'vendors' END AS enrichment,
    CASE WHEN p.key IS NULL AND s.key IS NULL THEN 'null key'
         WHEN p.key IS NULL OR v.vendor IS NULL THEN 'absent' END AS reason
FROM '{folder}/sales/*.parquet' s
LEFT JOIN '{folder}/products.parquet' p USING (key)
LEFT JOIN '{folder}/vendors.parquet' v USING (vendor)
"""


def put_sales(folder, number):
    sales = range(number * ROWS, (number + 1) * ROWS)
    keys = [None if sale % 17 == 0 else sale * 7919 % 100 for sale in sales]
    table = pa.table({"sale": list(sales), "key": pa.array(keys, pa.int64())})
    (folder / "sales").mkdir(exist_ok=True)
    pq.write_table(table, folder / "sales" / f"{number}.parquet")


def put_master(folder, name, columns, key):
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    ss.build_master(pa.table(columns), folder / name, key=key)


@pytest.fixture
def folder(tmp_path):
    require("delta")
    put_sales(tmp_path, 0)
    put_sales(tmp_path, 1)
    put_master(tmp_path, "products", PRODUCTS, "key")
    put_master(tmp_path, "vendors", VENDORS, "vendor")
    return tmp_path


def pipeline(folder, sink="{kind: delta, path: out}", more="", second="quarantine"):
    path = folder / "pipeline.yaml"
    path.write_text(
        f"""\
source: {{kind: files, path: sales, files_per_batch: 1}}
enrich:
  - {{master: products, on: key, how: left, memory: 4MB, on_missing: quarantine}}
  - {{master: vendors, on: vendor, how: left, memory: 4MB, on_missing: {second}}}
columns: {{drop: [vendor], rename: {{city: place}}}}
sink: {sink}
{more}
"""
    )
    return path


def run(path, spark):
    reports = []
    assert runner.run(read_pipeline(path), spark, once=True, seen=reports.append)
    return reports


def wanted(folder, columns, where):
    query = f"SELECT {columns} FROM ({SPLIT.format(folder=folder)}) WHERE {where}"  # noqa: S608
    return sorted(duckdb.sql(query).fetchall(), key=repr)


def table(path, *columns):
    rows = DeltaTable(path).to_pyarrow_table().select(columns).to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


def assert_exact(folder):
    good = wanted(folder, "sale, key, city", "reason IS NULL")
    assert table(folder / "out", "sale", "key", "place") == good
    bad = wanted(folder, "sale, key, reason, enrichment", "reason IS NOT NULL")
    names = ("sale", "key", "_reason", "_enrichment")
    assert table(folder / "out.quarantine", *names) == bad


class CrashError(RuntimeError):
    pass


@pytest.fixture
def crashing(monkeypatch):
    """Have a write to the quarantine, or what comes behind it, fail once."""
    write = batch_writer.write_delta

    def set_up(behind):
        calls = []

        def failing(*arguments, **options):
            calls.append(arguments)
            if behind or len(calls) > 1:
                write(*arguments, **options)
            if len(calls) == 1:
                raise CrashError("in between")

        monkeypatch.setattr(batch_writer, "write_delta", failing)

    return set_up


def run_with_crashes(path, spark, crashing):
    """Run to the end; in the first batch it dies between the two writes, then behind both."""
    for behind in (False, True):
        crashing(behind)
        with pytest.raises(runner.QueryFailedError, match="in between"):
            run(path, spark)
    return run(path, spark)


def test_both_tables_are_exact_after_crashes(spark, folder, crashing):
    path = pipeline(folder)
    reports = run_with_crashes(path, spark, crashing)
    assert_exact(folder)
    rows = DeltaTable(folder / "out.quarantine").to_pyarrow_table()
    counted = [each["quarantined"] for told in reports for each in told["enrich"].values()]
    assert sum(counted) == len(rows)
    assert len(set(rows["_row"].to_pylist())) == len(rows)
    assert set(rows["_attempts"].to_pylist()) == {0}
    told = rows.group_by("_batch").aggregate([("_time", "count_distinct")])
    assert told["_time_count_distinct"].to_pylist() == [1, 1]

    for old, new, told in [
        (
            ", on_missing: quarantine}",
            "}",
            r"\[0\].on_missing.* was 'quarantine' and is None",
        ),
        ("sink:", "quarantine: {path: other}\nsink:", "quarantine.path.* was '.*out.quarantine'"),
        ("on_missing: quarantine", "on_missing: wait", "waiting.grace.* was None and is 3600.0"),
    ]:
        other = folder / "other.yaml"
        other.write_text(f"{path.read_text().replace(old, new)}checkpoint: out.checkpoint")
        with pytest.raises(CheckpointError, match=told):
            start(read_pipeline(other), spark)


def test_an_error_names_keys_and_nothing_is_written(spark, folder):
    told = r"MissingRowsError: enrichment 'vendors': .* keys are vendor=[56](, vendor=[56])?\. "
    with pytest.raises(runner.QueryFailedError, match=told):
        run(pipeline(folder, second="error"), spark)
    assert not DeltaTable.is_deltatable(str(folder / "out"))


def test_a_quarantined_row_is_no_error_of_the_next_enrichment_and_other_policies_fill(
    spark, folder
):
    path = pipeline(folder, second="{city: nowhere}", more="quarantine: {path: apart}")
    run(path, spark)
    city = "CASE WHEN enrichment = 'vendors' THEN 'nowhere' ELSE city END"
    good = wanted(folder, f"sale, key, {city}", "enrichment IS DISTINCT FROM 'products'")
    assert table(folder / "out", "sale", "key", "place") == good
    bad = wanted(folder, "sale, reason", "enrichment = 'products'")
    assert table(folder / "apart", "sale", "_reason") == bad


def test_postgresql_and_the_quarantine_agree_after_a_crash(spark, folder, crashing, postgresql):
    require("postgresql")
    where = f"url: 'postgresql://127.0.0.1:{postgresql.port}/{DATABASE}', table: sold"
    sink = f"{{kind: postgresql, {where}, user: {USER}, password: '{PASSWORD}'}}"
    path = pipeline(folder, sink=sink, more="quarantine: {path: out.quarantine}")
    run_with_crashes(path, spark, crashing)
    with closing(postgresql.connect()) as connection:
        got = connection.execute("SELECT sale, key, place FROM sold").fetchall()
    assert sorted(got, key=repr) == wanted(folder, "sale, key, city", "reason IS NULL")
    assert table(folder / "out.quarantine", "sale", "_reason") == wanted(
        folder, "sale, reason", "reason IS NOT NULL"
    )


def test_the_writer_of_the_docs_parts_rows(spark, folder):
    [code] = re.findall(r"```python\n(def write\(batch.*?)```", MISSING.read_text(), re.DOTALL)
    code = re.sub(r'(save\(|Location", )"(\w+)"', rf'\1"{folder}/\2-x"', code)
    code = code.replace('"products.master"', f'"{folder}/products"').replace("product_id", "key")
    code = code.replace(".start()", ".trigger(availableNow=True).start()")
    stream = spark.readStream.schema("sale long, key long").parquet(str(folder / "sales"))
    names = {"ss": ss, "stream": stream}
    exec(code.replace("sales.writeStream", "query = sales.writeStream"), names)  # noqa: S102
    query = names["query"]
    query.awaitTermination()
    there = "enrichment IS DISTINCT FROM 'products'"
    assert table(folder / "sales-x", "sale", "key", "vendor") == wanted(
        folder, "sale, key, vendor", there
    )
    got = table(folder / "quarantine-x", "sale", "_reason", "_enrichment")
    assert got == wanted(folder, "sale, reason, enrichment", f"NOT {there}")
    [observed] = [p.observedMetrics for p in query.recentProgress if p.numInputRows]
    [counts] = observed.values()
    assert (counts.rows, counts.quarantined) == (2 * ROWS, len(got))


def test_what_was_found_is_held_where_a_master_has_no_snapshots(
    spark, folder, crashing, monkeypatch
):
    """A master that can't be pinned answers a replay otherwise: what was found first counts."""
    monkeypatch.setattr(batch_writer, "pin_batch", lambda *_: None)
    path = pipeline(folder)
    crashing(behind=False)
    with pytest.raises(runner.QueryFailedError, match="in between"):
        run(path, spark)
    shutil.rmtree(folder / "products/.pins")
    ss.build_master(pa.table(ALL_PRODUCTS), folder / "products", key="key")
    run(path, spark)
    absent = [tuple(row) for row in table(folder / "out.quarantine", "_batch", "_enrichment")]
    assert (0, "products") in absent
    sales = table(folder / "out", "sale") + table(folder / "out.quarantine", "sale")
    assert sorted(sales) == [(sale,) for sale in range(2 * ROWS)]
    kept = [each.name for each in folder.glob("*/semistream-held/[!.]*")]
    assert [name.partition("-")[0] for name in kept] == ["1"]


@pytest.fixture
def cut_off(spark, folder, crashing):
    """A pipeline whose first batch is in the sink and not in the quarantine."""
    path = pipeline(folder)
    crashing(behind=False)
    with pytest.raises(runner.QueryFailedError, match="in between"):
        run(path, spark)
    return path


def give_pins_up(folder):
    """Remove the pins of all queries, as after seven days; then all products come."""
    for query in (folder / "products/.pins").glob("*-*"):
        if not query.name.startswith("held-"):
            shutil.rmtree(query)
    ss.build_master(pa.table(ALL_PRODUCTS), folder / "products", key="key")


def test_a_replay_whose_snapshot_is_gone_is_refused_until_its_note_is_removed(
    spark, folder, cut_off
):
    give_pins_up(folder)
    told = r"micro-batch 0 of .* snapshot \w+-\w+ of the master .*products, and that snapshot is go"
    for _ in range(2):
        with pytest.raises(CheckpointError, match=told) as raised:
            run(cut_off, spark)
    sales = table(folder / "out", "sale")
    note = re.search(r"remove (\S+)", str(raised.value))[1]
    Path(note).unlink()
    run(cut_off, spark)
    assert {*sales} < {*table(folder / "out", "sale")}


def test_a_replay_pins_its_snapshot_again_if_it_is_still_there(spark, folder, cut_off):
    pins.hold(folder / "products", "someone")
    give_pins_up(folder)
    run(cut_off, spark)
    names = ("_batch", "_enrichment", "_reason")
    found = {row for row in table(folder / "out.quarantine", *names) if row[1] == "products"}
    assert (0, "products", "absent") in found
    assert (1, "products", "absent") not in found
    sales = table(folder / "out", "sale") + table(folder / "out.quarantine", "sale")
    assert sorted(sales) == [(sale,) for sale in range(2 * ROWS)]


def test_a_replay_that_finds_another_pin_is_refused(spark, folder, cut_off):
    pins.hold(folder / "products", "someone")
    give_pins_up(folder)
    [note] = folder.glob("*/semistream-batches/0")
    pins.pin(folder / "products", json.loads(note.read_text())["query"], "0")
    with pytest.raises(CheckpointError, match=r"and now snapshot .* is pinned"):
        run(cut_off, spark)


def test_a_batch_that_is_planned_anew_is_refused(spark, folder, cut_off):
    """The sink has its number: with more rows in it, Delta would skip those in silence."""
    [log] = folder.glob("out.checkpoint/offsets/0")
    log.with_name(".0.crc").unlink(missing_ok=True)
    log.write_text(re.sub(r'("batchTimestampMs":\d+)', r"\g<1>1", log.read_text()))
    with pytest.raises(runner.QueryFailedError, match=r"micro-batch 0 .*with other offsets"):
        run(cut_off, spark)


def test_a_pin_that_is_lost_while_a_batch_is_tried_again_is_told(spark, folder, cut_off):
    """Behind the start of a query nothing pins again: the batch itself compares."""
    writer = batch_writer.BatchWriter(read_pipeline(cut_off), None, None, "")
    [note] = folder.glob("*/semistream-batches/0")
    told = json.loads(note.read_text())
    once = MicroBatch(told["query"], 0, offsets=told["offsets"])
    decisions = writer.batch_log(spark)
    before = tuple(each["files"] for each in told["snapshots"])
    assert decisions.begin(once, lambda: before) == before
    give_pins_up(folder)
    with pytest.raises(CheckpointError, match=r"snapshot .* of the master .*products"):
        decisions.begin(once, lambda: writer._pin(once))


def test_notes_of_earlier_batches_are_removed(spark, folder):
    decisions = BatchLog(spark, str(folder / "checkpoint"), ("products",))
    for number in range(10):
        assert decisions.begin(MicroBatch("query", number, offsets="x"), lambda: ("a",)) == ("a",)
    kept = sorted(path.name for path in (folder / "checkpoint/semistream-batches").iterdir())
    assert kept == ["7", "8", "9"]


def test_a_driver_that_was_thought_dead_does_not_change_what_is_held(spark, tmp_path, monkeypatch):
    """It has found nothing written down; while it computes, another driver writes the batch."""
    folder, kinds = str(tmp_path / "held"), "sale long, goes string"
    first = spark.createDataFrame([(30, "out"), (31, "quarantine")], kinds)
    later = spark.createDataFrame([(30, "out"), (31, "out")], kinds)
    write, known = batch_store._write, []

    def beaten(batch, place):
        monkeypatch.undo()
        known.append(batch_store.store_batch(first, place, "7-x"))
        return write(batch, place)

    monkeypatch.setattr(batch_store, "_write", beaten)
    again = batch_store.store_batch(later, folder, "7-x")
    for rows in (*known, again):
        assert [row.sale for row in rows.where("goes = 'out'").collect()] == [30]
        assert [row.sale for row in rows.where("goes = 'quarantine'").collect()] == [31]
    batch_store.store_batch(later, folder, "8-y")
    assert [path.name for path in (tmp_path / "held").glob("[!.]*")] == ["8-y"]
    with pytest.raises(storage.StorageError, match=r"gone on to a batch behind 7-x"):
        batch_store.store_batch(later, folder, "7-x")


@pytest.mark.parametrize("damage", ["cut", "gone", "note"])
def test_a_held_batch_that_a_power_cut_took_is_told(spark, tmp_path, damage):
    folder = tmp_path / "held"
    rows = spark.range(10).repartition(2)
    batch_store.store_batch(rows, str(folder), "7-x")
    part, *_ = sorted(folder.glob(".data/*/part-*.parquet"))
    if damage == "cut":
        part.write_bytes(b"")
        part.with_name(f".{part.name}.crc").unlink(missing_ok=True)
    elif damage == "gone":
        part.unlink()
    else:
        (folder / "7-x").write_text("{")
    with pytest.raises(storage.StorageError, match=r"are gone or damaged.* remove .*held/7-x"):
        batch_store.store_batch(rows, str(folder), "7-x")


@pytest.mark.parametrize("whole", [True, False], ids=["renamed at once", "file by file"])
def test_a_folder_of_a_batch_that_is_there_stays(spark, tmp_path, whole, monkeypatch):
    if not whole:  # as in an object store
        monkeypatch.setattr(storage, "_RENAME_WHOLE", set())
    rows, batch = spark.createDataFrame([(1,)], "id long"), tmp_path / "batch"

    def put() -> set[str]:
        rows.write.mode("overwrite").parquet(str(tmp_path / "draft"))
        storage.publish_folder(spark, str(tmp_path / "draft"), str(batch))
        return {path.name for path in batch.glob("part-*")}

    first = put()
    assert put() == first
    if not whole:
        (batch / storage._WHOLE).unlink()  # a part of one: it is replaced
        assert put().isdisjoint(first)


def test_the_driver_pins_before_any_task_does(spark, folder, monkeypatch):
    """Executors may lack the right to pin: they read the pin, though the master is built anew."""
    pin = batch_writer.pin_batch

    def late(master, of):
        found = pin(master, of)
        if master.endswith("products"):
            ss.build_master(pa.table(ALL_PRODUCTS), master, key="key")
        return found

    monkeypatch.setattr(batch_writer, "pin_batch", late)
    run(pipeline(folder), spark)
    names = ("_batch", "_enrichment", "_reason")
    found = {row for row in table(folder / "out.quarantine", *names) if row[1] == "products"}
    lacking = {(0, "products", "absent"), (0, "products", "null key"), (1, "products", "null key")}
    assert found == lacking


def test_the_enrichment_is_named_that_took_the_row_and_not_one_that_let_it_through(spark, folder):
    path = pipeline(folder, more='waiting: {then: "null"}')
    path.write_text(path.read_text().replace("on_missing: quarantine", "on_missing: wait", 1))
    run(path, spark)
    found = {*table(folder / "out.quarantine", "_enrichment", "_reason")}
    assert found == {("vendors", "absent"), ("vendors", "null key")}


def test_a_row_that_would_be_parted_several_times_is_refused(spark, folder):
    path = pipeline(folder, second="{city: Z}")
    text = path.read_text().replace("on: vendor,", "on: vendor, transfer: rows,")
    path.write_text(text.replace("files_per_batch: 1", "files_per_batch: 2"))
    prepared = prepare(read_pipeline(path), spark)
    put_master(folder, "vendors", {"vendor": [1, 1], "city": ["A", "B"]}, "vendor")
    with pytest.raises(Exception, match="up to 2 rows a key, and in its pipeline"):
        start(prepared, spark, once=True).awaitTermination()


def crash(*_: object, **__: object) -> None:
    raise CrashError("cut off")


def test_split_takes_a_column_of_any_origin_and_refuses_none(spark):
    rows = spark.createDataFrame([(1, "matched"), (2, "late"), (3, None)], "id int, state string")
    with ss.split(rows, status="state") as (good, missing):
        assert [tuple(row) for row in good.collect()] == [(1,)]
        got = {tuple(row) for row in missing.collect()}
    assert got == {(2, "late", ""), (3, None, "")}
    with pytest.raises(ss.SemistreamError, match="no status column; have enrich"), ss.split(rows):
        pass
    with pytest.raises(ss.SemistreamError, match="Did you mean 'state'"):
        ss.split(rows, status="stat").__enter__()


def test_split_does_not_overwrite_a_column_of_the_batch(spark):
    rows = spark.createDataFrame([(1, "matched", "ours")], "id int, state string, _Reason string")
    with pytest.raises(SchemaError, match=r"adds a column '_Reason', .*; rename that"):
        ss.split(rows, status="state").__enter__()


MISTAKES = {
    "on_missing: quarantin": r"3:\d+: enrich\[0\].on_missing 'quarantin' is not known.*'quar",
    "on_missing: {vendr: 1}": r"3:\d+: enrich\[0\].on_missing.vendr: .*no column 'vendr'.*'vendor'",
    "on_missing: {vendor: x}": r"3:\d+: enrich\[0\].on_missing.vendor: 'x' is no default value",
    "on_missing: drop, how: inner": r"enrich\[0\].on_missing is for how: left",
    "status: key": r"enrich\[0\].status 'key' is a column already",
    "status: s, on_missing: wait": r"enrich\[0\].status has no use with on_missing: wait",
}


@pytest.mark.parametrize("given", MISTAKES)
def test_mistakes_in_a_file_have_their_line(spark, folder, given):
    how = "" if "how:" in given else "how: left, "
    path = folder / "pipeline.yaml"
    path.write_text(
        f"source: {{kind: files, path: sales}}\nenrich:\n  - {{master: products, on: key, {how}"
        f"{given}}}\nsink: {{kind: noop}}\n"
    )
    with pytest.raises(PipelineError) as raised:
        prepare(read_pipeline(path), spark)
    [line] = str(raised.value).splitlines()
    assert re.search(MISTAKES[given], line), line


def test_what_does_not_go_with_parting_is_told(spark, folder):
    put_master(folder, "colours", {"key": [1, 1], "colour": ["r", "g"]}, "key")
    path = folder / "pipeline.yaml"
    path.write_text(
        """\
source: {kind: files, path: sales}
enrich:
  - {master: products, on: key, how: left, on_missing: quarantine}
  - {master: vendors, on: vendor}
  - {master: colours, on: key, how: left}
sink: {kind: delta, path: out}
quarantine: {path: s/../out/}
checkpoint: q
"""
    )
    with pytest.raises(PipelineError) as raised:
        prepare(read_pipeline(path), spark)
    told = str(raised.value).splitlines()
    for line, pattern in zip(
        told,
        [
            r":4:\d+: enrich\[1\].how inner would lose rows .* how: left with on_missing: drop",
            r":5:\d+: enrich\[2\].master has several rows a key",
            r":7:\d+: quarantine.path is the same as sink.path",
        ],
        strict=True,
    ):
        assert re.search(pattern, line), line
    path.write_text("source: {kind: rate}\nsink: {kind: noop}\nquarantine: {path: q}\n")
    with pytest.raises(PipelineError, match=":3:1: quarantine has no use"):
        read_pipeline(path)
    products = ss.enrich(
        spark.read.parquet(str(folder / "sales")),
        folder / "products",
        on="key",
        how="left",
        on_missing="quarantine",
    )
    with pytest.raises(ss.SemistreamError, match="how='inner' would lose rows"):
        ss.enrich(products, folder / "vendors", on="vendor")
