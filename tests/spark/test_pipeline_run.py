"""Pipelines on Spark: what reaches the sink, restarts, and the commands."""

import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import asdict
from types import SimpleNamespace

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from typer.testing import CliRunner

import semistream as ss
import semistream.metrics
from semistream.cli.commands import app
from semistream.errors import OptionError
from semistream.pipeline import PipelineError, read_pipeline
from semistream.pipeline.checkpoint import checkpoint
from semistream.pipeline.checkpoint.checkpoint import CheckpointError
from semistream.pipeline.checkpoint.write_once import LocalFiles, files_in
from semistream.pipeline.io.sales import Sales
from semistream.pipeline.run import runner
from semistream.pipeline.run.progress import Metrics, Reports
from semistream.pipeline.run.query import prepare, start
from semistream.pipeline.run.replay import ReplayResult
from semistream.spark.cluster.context_state import state_of
from semistream.spark.metrics.listener import note_written
from semistream.spark.metrics.report import BatchMetrics
from semistream.workloads import Stream, Zipf, master_table
from support import JVM

pytestmark = pytest.mark.xdist_group("spark")

KEYS, FILE_ROWS = 2_000, 3_000
SALES = Sales(Stream(Zipf(KEYS), seed=1, absent=0.1))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two files of sales, and the masters of products and of their vendors."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "sales").mkdir()
    for number in range(2):
        put_sales(folder / "sales", number)
    products = master_table(KEYS, row_bytes=32).read_all()
    pq.write_table(products, folder / "products.parquet")
    ss.build_master(products, folder / "products", key="key")
    vendors = pa.table(
        {
            "id": pa.array(range(0, 1000, 2), pa.int32()),
            "vendor_key": pa.array(range(500), pa.int64()),
            "price": [number / 7 for number in range(500)],
        }
    )
    pq.write_table(vendors, folder / "vendors.parquet")
    ss.build_master(vendors, folder / "vendors", key="id")
    return folder


def put_sales(folder, number):
    rows = SALES.rows(number * FILE_ROWS, (number + 1) * FILE_ROWS)
    pq.write_table(pa.Table.from_batches(rows), folder / f"{number}.parquet")


def pipeline(tmp_path, source, *rest):
    """Write a pipeline file; give its path."""
    path = tmp_path / "pipeline.yaml"
    path.write_text("\n".join([f"source: {source}", *rest]))
    return path


def run(path, spark, once=True):
    reports = []
    assert runner.run(read_pipeline(path), spark, once=once, seen=reports.append)
    return reports


def files_to_parquet(tmp_path, data, sales):
    return pipeline(
        tmp_path,
        f"{{kind: files, path: {sales}, files_per_batch: 1}}",
        "enrich:",
        f"  - {{master: {data}/products, on: key, how: left, memory: 8MB}}",
        f"  - {{master: {data}/vendors, on: {{vendor: id}}, how: left, prefix: v_, memory: 8MB}}",
        "columns:",
        "  replace: {key: surrogate}",
        "  drop: [category]",
        "  rename: {v_price: discount}",
        "sink: {kind: parquet, path: out}",
    )


EXPECTED = """
SELECT p.surrogate, s.sale, s.quantity, p.price, p.vendor, v.vendor_key AS v_vendor_key,
    v.price AS discount
FROM '{sales}/*.parquet' s
LEFT JOIN '{data}/products.parquet' p USING (key)
LEFT JOIN '{data}/vendors.parquet' v ON p.vendor = v.id
"""


def assert_same(spark, out, data, sales):
    # Spark reads its own log of a sink's files: what a crash left there does not count.
    found = spark.read.parquet(str(out)).toArrow()
    con = duckdb.connect()
    expected = con.sql(EXPECTED.format(sales=sales, data=data)).to_arrow_table()
    assert found.column_names == expected.column_names
    for one, other in (("found", "expected"), ("expected", "found")):
        left = con.sql(f"FROM {one} EXCEPT ALL FROM {other}")
        assert left.fetchall() == []


def test_chained_enrichments_restart_and_a_rebuilt_master(tmp_path, spark, data):
    sales = tmp_path / "sales"
    sales.mkdir()
    put_sales(sales, 0)
    path = files_to_parquet(tmp_path, data, sales)
    [report] = run(path, spark)
    assert (report["batch"], report["rows"]) == (0, FILE_ROWS)
    products, vendors = report["enrich"].values()
    assert products["matched"] + products["absent"] == vendors["rows"] == FILE_ROWS
    assert 0.85 < products["matched"] / FILE_ROWS < 0.95
    assert sum(products["memory"].values()) <= products["budget"] == 8 << 20

    put_sales(sales, 1)
    [report] = run(path, spark)
    assert (report["batch"], report["rows"]) == (1, FILE_ROWS)
    assert_same(spark, tmp_path / "out", data, sales)

    vendors = pq.read_table(data / "vendors.parquet")
    changed = vendors.set_column(2, "price", vendors["price"].cast(pa.string()))
    ss.build_master(changed, tmp_path / "vendors", key="id")
    path.write_text(path.read_text().replace(f"{data}/vendors", f"{tmp_path}/vendors"))
    with pytest.raises(CheckpointError, match="rebuilt with another schema since: column 'price'"):
        start(read_pipeline(path), spark)


def test_the_generator_makes_the_same_rows_again(tmp_path, spark):
    path = pipeline(
        tmp_path,
        f"{{kind: generator, keys: {KEYS}, seed: 1, absent: 0.1, rows: 7000, "
        "rows_per_batch: 3000}",
        "sink: {kind: parquet, path: out}",
    )
    assert [report["rows"] for report in run(path, spark)] == [3000, 3000, 1000]

    # A crash in the last batch: it is planned, not committed, and its files are not in the log.
    for gone in (tmp_path / "out.checkpoint/commits/2", tmp_path / "out/_spark_metadata/2"):
        gone.unlink()
        gone.with_name(f".{gone.name}.crc").unlink(missing_ok=True)
    note = tmp_path / "out.checkpoint/semistream.json"  # as earlier versions wrote it
    told = json.loads(note.read_text())
    assert told.pop("ways") == {}
    note.write_text(json.dumps(told))
    path.write_text(path.read_text().replace("7000", "8500"))
    assert [report["rows"] for report in run(path, spark)] == [1000, 1500]

    found = spark.read.parquet(str(tmp_path / "out")).toArrow().sort_by("sale")
    assert found.combine_chunks().equals(pa.Table.from_batches(SALES.rows(0, 8500)))

    other = path.read_text().replace("seed: 1", "seed: 2").replace("path: out", "path: other")
    path.write_text(f"{other}\ncheckpoint: out.checkpoint")
    changes = "source's seed was 1 and is 2 now; its sink's path was '.*out' and is '.*other' now"
    with pytest.raises(CheckpointError, match=changes):
        start(read_pipeline(path), spark)


def test_json_files_with_a_schema(tmp_path, spark):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1, "name": "x"}\n{"id": 2}\n')
    path = pipeline(
        tmp_path,
        "{kind: files, path: in, format: json, schema: {id: long, name: string}}",
        "columns: {keep: [name, id]}",
        "sink: {kind: parquet, path: out}",
    )
    run(path, spark)
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("id").collect()
    assert [tuple(row) for row in rows] == [("x", 1), (None, 2)]


SOURCES = {
    "{kind: files, path: nothing}": "source.path: .*give the columns",
    "{kind: files, path: nothing, schema: 'a long'}": "source.path: ",
    "{kind: files, path: ., schema: 'a lnog'}": "pipeline.yaml:1:40: source.schema: ",
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_that_is_not_there(tmp_path, spark, source):
    path = pipeline(tmp_path, source, "sink: {kind: noop}")
    with pytest.raises(PipelineError, match=SOURCES[source]):
        prepare(read_pipeline(path), spark)


def test_a_checkpoint_of_another_program(tmp_path, spark):
    (tmp_path / "pipeline.checkpoint" / "offsets").mkdir(parents=True)
    path = pipeline(tmp_path, "{kind: rate}", "sink: {kind: noop}")
    with pytest.raises(CheckpointError, match="begun by another program"):
        start(read_pipeline(path), spark)


@pytest.fixture
def mounted(tmp_path, spark):
    """Have paths without a scheme lie in another file system than this machine's, as in HDFS."""
    folder, settings = tmp_path / "mounted", spark._jsc.hadoopConfiguration()
    folder.mkdir()
    before = settings.get("fs.defaultFS")
    settings.set("fs.viewfs.mounttable.cluster.link./data", folder.as_uri())
    settings.set("fs.defaultFS", "viewfs://cluster")
    yield folder
    settings.set("fs.defaultFS", before)


def test_notes_of_a_checkpoint_are_where_spark_has_its_offsets(spark, mounted):
    notes = files_in("/data/sales", spark)
    assert (notes.read("a"), notes.names()) == (None, [])
    assert notes.write_first("a", "whole") == "whole"
    assert notes.write_first("a", "another") == "whole"
    assert [path.name for path in (mounted / "sales").glob("[!.]*")] == ["a"]
    assert (mounted / "sales" / "a").read_text() == "whole"
    here = files_in((mounted / "sales").as_uri(), spark)
    assert isinstance(here, LocalFiles)
    assert (here.read("a"), here.names()) == ("whole", ["a"])
    assert here.write_first("a", "another") == "whole"
    notes.remove("a")
    assert notes.names() == here.names() == []


def test_two_starts_at_once_have_one_id(tmp_path, spark, monkeypatch):
    """Both find a new checkpoint; the second writes its note just before the first does."""
    told = prepare(read_pipeline(pipeline(tmp_path, "{kind: rate}", "sink: {kind: noop}")), spark)
    first, ids = LocalFiles.write_first, []

    def beaten(notes, name, text):
        monkeypatch.undo()
        ids.append(checkpoint.claim(told.pipeline, told.flow, spark))
        return first(notes, name, text)

    monkeypatch.setattr(LocalFiles, "write_first", beaten)
    ids.append(checkpoint.claim(told.pipeline, told.flow, spark))
    assert ids[0] == ids[1] == checkpoint.query_of(told.pipeline, spark)


@pytest.mark.parametrize("text", ["", "[1]", '{"id": "x"}', "\0\0"])
def test_a_damaged_note_of_a_checkpoint_is_told(tmp_path, spark, text):
    path = pipeline(tmp_path, "{kind: rate}", "sink: {kind: noop}")
    (tmp_path / "pipeline.checkpoint").mkdir()
    (tmp_path / "pipeline.checkpoint" / checkpoint.NOTE).write_text(text)
    with pytest.raises(CheckpointError, match=r"semistream\.json is damaged.*from a backup"):
        start(read_pipeline(path), spark)


def test_the_note_of_a_checkpoint_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """A power cut behind the rename must not leave an empty note."""
    calls, real, link = [], os.fsync, os.link
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append("sync"), real(handle))[1])
    monkeypatch.setattr(os, "link", lambda *a, **b: (calls.append("name"), link(*a, **b))[1])
    LocalFiles(tmp_path / "new" / "folder").write_first("note", "text")
    new_folders = 2
    assert calls == ["sync"] * new_folders + ["sync", "name", "sync"]


def test_an_error_while_it_runs(tmp_path, spark, data):
    ss.build_master(pq.read_table(data / "products.parquet"), tmp_path / "gone", key="key")
    path = pipeline(
        tmp_path,
        f"{{kind: files, path: {data}/sales}}",
        "enrich: {master: gone, on: key, memory: 8MB}",
        "sink: {kind: noop}",
    )
    ready = prepare(read_pipeline(path), spark)
    for file in (tmp_path / "gone").rglob("*"):
        if file.is_file():
            file.unlink()
    with pytest.raises(runner.QueryFailedError, match="gone"):
        runner.follow(start(ready, spark, once=True), lambda _: None, runner.Ending())


def test_a_query_is_stopped_if_what_takes_its_reports_fails():
    told = {"batchId": 0, "id": "q", "durationMs": {"addBatch": 1}, "numInputRows": 0}
    told |= {"timestamp": "now", "sources": [{}]}
    query = SimpleNamespace(isActive=True, awaitTermination=lambda _: False)
    query.recentProgress = [SimpleNamespace(json=json.dumps(told))]
    query.stop = lambda: vars(query).update(isActive=False)
    with pytest.raises(ZeroDivisionError):
        runner.follow(query, lambda _: 1 / 0, runner.Ending())
    assert not query.isActive


def test_a_run_takes_the_metrics_of_its_own_query_and_none_when_it_has_ended(spark):
    metrics, tell = Metrics(spark, 1), state_of(spark).listeners[spark]
    counters = asdict(semistream.metrics.Metrics(rows_in=5))
    for query, batch in (("other", 7), ("mine", 0), ("mine", 1)):
        for reader in tell.readers[1:]:
            reader(BatchMetrics(query, batch, "products", 1.0, counters, {}, 0))
    assert metrics.of("mine", 1)["products"]["rows"] == 5
    assert [(m.query, m.batch) for m in metrics._taken] == [("mine", 1)]
    assert metrics._reader in tell.readers
    metrics.close()
    assert metrics._reader not in tell.readers


def test_a_batch_without_rows_is_reported_with_what_left_the_waiting_table(spark):
    told = {"id": "mine", "batchId": 4, "durationMs": {"addBatch": 1}, "numInputRows": 0}
    told |= {"timestamp": "now", "sources": [{}]}
    query = SimpleNamespace(recentProgress=[SimpleNamespace(json=json.dumps(told))])
    metrics, seen = Metrics(spark, 2), []
    reports = Reports(query, seen.append, metrics)
    reports.look()
    assert not seen  # Spark has told the query of the batch's end, but not yet its listeners
    note_written(spark, "mine", 4, {"products": {"came_out": 105, "given_up": 60}})
    progress = SimpleNamespace(id="mine", batchId=4, observedMetrics={}, durationMs={})
    state_of(spark).listeners[spark].onQueryProgress(SimpleNamespace(progress=progress))
    reports.look()
    metrics.close()
    [report] = seen
    assert report["enrich"]["products"]["came_out"] == 105
    assert report["enrich"]["products"]["given_up"] == 60


@pytest.mark.parametrize(("command", "code"), [("run", 3), ("check", 1), ("replay", 1)])
def test_what_spark_complains_of_is_told_in_a_line(tmp_path, spark, monkeypatch, command, code):
    def fail(*_, **__):
        raise AnalysisException("the table is gone\n\tat org.apache.spark")

    for name in ("runner.prepare", "query.prepare", "replay.replay"):
        monkeypatch.setattr(f"semistream.pipeline.run.{name}", fail)
    path = pipeline(tmp_path, "{kind: rate}", "sink: {kind: noop}")
    done = CliRunner().invoke(app, [command, str(path)])
    assert done.exit_code == code
    assert done.stderr.splitlines()[0] == "error: the table is gone"


@pytest.mark.parametrize("option", ["--spark-master", "--master"])
def test_where_spark_runs_is_said_by_either_name(option, tmp_path, monkeypatch):
    asked = []

    def session(_, master):
        asked.append(master)
        raise OptionError("that is all")

    monkeypatch.setattr("semistream.cli.pipeline._session", session)
    path = pipeline(tmp_path, "{kind: rate}", "sink: {kind: noop}")
    for command in ("run", "check", "replay"):
        assert CliRunner().invoke(app, [command, str(path), option, "local[7]"]).exit_code == 1
    assert asked == ["local[7]"] * 3


def test_the_limit_of_a_replay_is_a_count(tmp_path, monkeypatch):
    asked = []

    def replay(*_, limit, **__):
        asked.append(limit)
        return ReplayResult()

    monkeypatch.setattr("semistream.cli.pipeline._session", lambda *_: nullcontext())
    monkeypatch.setattr("semistream.pipeline.run.replay.replay", replay)
    path = pipeline(tmp_path, "{kind: rate}", "sink: {kind: noop}")
    for limit in ([], ["--limit", "2k"], ["--limit", "500"]):
        assert CliRunner().invoke(app, ["replay", str(path), *limit]).exit_code == 0
    assert asked == [None, 2000, 500]
    wrong = CliRunner().invoke(app, ["replay", str(path), "--limit", "0"])
    assert wrong.exit_code == 1
    assert "limit=0 is not a count" in wrong.stderr


def test_check_prints_the_plan_as_json(tmp_path, spark, data):
    path = files_to_parquet(tmp_path, data, data / "sales")
    done = CliRunner().invoke(app, ["check", str(path), "--json"])
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    assert plan["sink"]["columns"]["surrogate"] == "int64"
    assert [step["name"] for step in plan["enrich"]] == ["products", "vendors"]
    assert plan["enrich"][0]["plan"]["tasks"] == 2
    assert plan["begun"] is False
    assert not (tmp_path / "out.checkpoint").exists()
    path.write_text(path.read_text().replace("on: key", "on: kye").replace("parquet", "parqet"))
    wrong = CliRunner().invoke(app, ["run", str(path)])
    assert wrong.exit_code == 1
    assert f"{path}:9:14: sink.kind 'parqet' is not known" in wrong.stderr
    path.write_text(path.read_text().replace("parqet", "parquet"))
    wrong = CliRunner().invoke(app, ["check", str(path), "--json"])
    [problem] = json.loads(wrong.stdout)["problems"]
    assert (wrong.exit_code, problem["line"]) == (1, 3)
    assert "enrich[0].on: the stream has no column 'kye'" in problem["message"]


def test_ctrl_c_ends_cleanly_and_running_again_goes_on(tmp_path):
    path = pipeline(
        tmp_path,
        "{kind: generator, keys: 100, rows_per_batch: 1000}",
        "sink: {kind: parquet, path: out}",
        "spark: {spark.master: 'local[1]', spark.driver.memory: 512m,",
        f"  spark.driver.extraJavaOptions: '{JVM}'}}",
    )
    code = "from semistream.cli import main; main()"
    process = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-c", code, "run", str(path), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        first = json.loads(process.stdout.readline())
        assert (first["batch"], first["rows"]) == (0, 1000)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, told
    assert "stopped by SIGINT" in told
    assert "Running it again continues where it stopped" in told
    assert "Traceback" not in told
    sales = pq.read_table(tmp_path / "out", columns=["sale"])["sale"].to_pylist()
    assert len(set(sales)) == len(sales) >= 1000
