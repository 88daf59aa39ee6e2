"""Small versions of the benchmarks: what they measure is right, whatever the figures are."""

import itertools
import json
import re
import time
from dataclasses import asdict, replace
from types import SimpleNamespace

import pyarrow as pa
import pytest

from benchmarks.engine.matrix import Cell, MatrixGrid, cell_of
from benchmarks.engine.stores import Contest, StoreGrid, engine_at
from benchmarks.engine.workload import WORKLOADS, Bound, Feed, Workload
from benchmarks.harness.claims import candidate, versus
from benchmarks.harness.record import read_record, write_record
from benchmarks.harness.rounds import Pace, take_rounds, watch_in_turn
from benchmarks.harness.run import _LONGEST_FILL, Run
from benchmarks.harness.samples import ratio, spread
from benchmarks.harness.table import between_marks, markdown
from benchmarks.stores import ENGINES, ByKey
from benchmarks.stores.key_value import RowFormat
from semistream import Join, open_master
from semistream.algorithms import algorithms
from semistream.engine.plan import Components, MemoryUse, Plan, Settings
from semistream.errors import OptionError, SemistreamError
from semistream.metrics import Metrics
from semistream.workloads import master_rows
from support.cli import bench, sheets

ROWS = 20_000
FEW = ["--algorithm", "cachejoin", "--algorithm", "hybridjoin"]
SMALL = ["--rows", ROWS, "--seconds", 0.01, "--rounds", 2, "--page-bytes", "4KB", *FEW]
SMALL_WORKLOADS = [workload.of_rows(ROWS) for workload in WORKLOADS]


def in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([("sale", "ascending"), ("surrogate", "ascending")])


@pytest.mark.parametrize("workload", SMALL_WORKLOADS, ids=lambda workload: workload.name)
def test_the_bound_gathers_the_rows_that_the_join_gives(workload, tmp_path):
    feed = Feed.of(workload.stream(1.0), 5_000, 1_024)
    bound = Bound(workload)
    gathered = [
        bound.gather(batch, *bound.places(numbers))
        for batch, numbers in zip(feed.batches, feed.numbers, strict=True)
    ]
    master = open_master(workload.prepare(tmp_path, "16KB"))
    join = Join(master, feed.schema, on="key", memory=workload.bytes // 5)
    joined = [out for batch in feed.batches for out in join.offer(batch)]
    joined += join.drain()
    assert in_order(pa.Table.from_batches(gathered)).equals(in_order(pa.Table.from_batches(joined)))
    assert bound.sample(feed, 0.001) > 0
    assert (master.manifest.filter_words > 0) == (workload.name == "absent")


def test_workloads_are_as_large_in_bytes_as_each_other():
    assert [w.name for w in WORKLOADS] == ["1:1", "m:n", "absent", "wide", "strings", "variable"]
    for workload in WORKLOADS:
        assert workload.bytes == pytest.approx(240e6, rel=0.001)
    assert WORKLOADS[3].row_bytes == 1024


def test_a_feed_goes_round():
    feed = Feed.of(SMALL_WORKLOADS[0].stream(1.0), 300, 100)
    batches = feed.forever()
    assert [next(batches)["sale"][0].as_py() for _ in range(5)] == [0, 100, 200, 0, 100]


def test_the_grid_has_every_cell_that_is_asked_for():
    grid = MatrixGrid()
    cells = grid.cells
    assert len(cells) == len(set(cells)) == 3 * 4 * 4 * 2 + 3 * 2 * 2
    assert {cell.exponent for cell in cells if cell.workload == "wide"} == {1.0}
    assert "inlj" in grid.algorithms_of(Cell("1:1", 1.0, "direct", 0.2))
    assert "inlj" not in grid.algorithms_of(Cell("1:1", 0.5, "direct", 0.2))
    assert "moij" in grid.algorithms_of(Cell("m:n", 0.5, "direct", 0.2))


@pytest.mark.parametrize("read", ["mapped", "direct"])
@pytest.mark.parametrize("name", algorithms())
def test_a_run_is_warm_and_counts_what_it_answers(name, read, tmp_path):
    workload = SMALL_WORKLOADS[0]
    feed = Feed.of(workload.stream(1.0), 2 * ROWS, 4_096)
    master = open_master(workload.prepare(tmp_path, "4KB"), read)
    join = Join(master, feed.schema, on="key", memory=workload.bytes // 10, algorithm=name)
    run = Run(join, feed.forever())
    start = time.perf_counter()
    run.warm_up(0.0)
    answered, rate = join.metrics.answered, run.sample(0.02)
    assert join.metrics.answered > answered >= 0
    assert 0 < rate <= join.metrics.answered / 0.02
    facts = run.facts()
    assert facts["pages_read"] or facts["looked_up"]
    assert time.perf_counter() - start < _LONGEST_FILL  # filling did not run into its limit


def test_rounds_begin_with_another_algorithm_each():
    order = []

    def sample(name, value):
        order.append(name)
        return value

    takers = {"a": lambda: sample("a", 12345.6), "b": lambda: sample("b", 2)}
    bounds, samples = take_rounds(3, lambda: sample("bound", 9), takers)
    assert order == ["bound", "a", "b", "bound", "b", "a", "bound", "a", "b"]
    assert (bounds, samples) == ([9] * 3, {"a": [12350] * 3, "b": [2] * 3})


def test_the_ratio_is_taken_round_by_round_to_the_best_other():
    rates = {"adaptive": [10, 30, 20], "x": [20, 10, 10], "y": [8, 30, 11], "slow": [1, 1, 90]}
    cell = {"rates": {name: {"samples": samples} for name, samples in rates.items()}}
    assert candidate(rates) == "adaptive"
    assert candidate(["x", "cachejoin"]) == "cachejoin"
    found = versus(cell["rates"], "adaptive")
    assert found.rival == "y"  # its median is 11, that of x 10
    assert found.ratio == ratio([10, 30, 20], [8, 30, 11]) == (1.25, 1.0, 20 / 11)
    assert not found.lost
    assert versus(cell["rates"], "x").lost
    assert versus(cell["rates"], "unknown") is None
    assert spread([1, 2]).middle == 1.5


def test_bench_measures_stores_and_resumes(tmp_path):
    record = tmp_path / "bench.json"
    small = [*SMALL, "--output", record, "--data", tmp_path, "--skew", 1, "--workload", "1:1"]
    shown = bench("matrix", *small, "--share", 0.1)
    assert shown.exit_code == 0, shown.output
    first = read_record(record)
    assert [cell_of(cell)[2:] for cell in first["cells"]] == [("mapped", 0.1), ("direct", 0.1)]
    for cell in first["cells"]:
        assert cell["memory"] == ROWS * 120 // 10
        assert len(cell["bound"]) == 2
        assert set(cell["rates"]) == {"cachejoin", "hybridjoin"}
        for rate in cell["rates"].values():
            assert len(rate["samples"]) == 2
            assert 0 < rate["memory_used"] <= cell["memory"]
            assert sum(rate["plan"].values()) <= cell["memory"]
            assert rate["answered"] > rate["pages_read"] > 0
            assert rate["cpus"] > 0
    assert first["cells"][0]["resident"] == first["cells"][0]["pages_bytes"]
    again = bench("matrix", *small, "--share", 0.1, "--share", 0.2, "--resume", "--json")
    assert again.exit_code == 0, again.output
    second = read_record(record)
    assert second["cells"][:2] == first["cells"]
    assert len(second["cells"]) == 4
    assert len(second["resumed"]) == 1
    assert json.loads(again.stdout) == second


class Turning:
    """A join that takes ten rows in in one step, and reads a page in each of the next three."""

    memory_used = MemoryUse()
    plan = Plan("turning", 0, Components())
    steps = 0

    @property
    def metrics(self):
        turns = -(-self.steps // 4)
        return Metrics(rows_in=10 * turns, pages_read=self.steps - turns)

    def offer(self, batch):
        for _ in range(4):
            self.steps += 1
            yield batch


def test_a_run_is_watched_for_whole_turns():
    run = Run(Turning(), itertools.repeat(pa.record_batch({"key": [1]})))
    for _ in range(3):
        assert run.watch(0.002) >= 0.002
        assert run.join.steps % 4 == 1


def test_a_run_is_watched_by_the_clock_where_all_is_in_memory():
    run = Run(Turning(), itertools.repeat(pa.record_batch({"key": [1]})))
    run.join.plan = Plan("turning", 0, Components(), Settings(resident=True))
    ends = set()
    for _ in range(40):
        run.watch(0.0005)
        ends.add(run.join.steps % 4)
    assert len(ends) > 1


def test_where_turns_are_long_there_are_fewer_slices():
    class Slow:
        join = Turning()

        def watch(self, seconds):
            return 4 * seconds

    pace = Pace(seconds=0.1, rounds=12, warm=0.0)
    assert len(watch_in_turn({"slow": Slow()}, pace)["slow"]) == 5


def test_slices_that_differ_much_are_all_taken():
    class Uneven:
        join = SimpleNamespace(metrics=Metrics())
        rows = itertools.cycle([10, 1_000])

        def watch(self, seconds):
            before = self.join.metrics
            self.join.metrics = replace(before, answered=before.answered + next(self.rows))
            return 4 * seconds

    pace = Pace(seconds=0.1, rounds=12, warm=0.0)
    assert len(watch_in_turn({"uneven": Uneven()}, pace)["uneven"]) == 12


def test_an_interrupted_run_leaves_its_cells(tmp_path, monkeypatch):
    from benchmarks.engine import matrix  # noqa: PLC0415 - to break it off

    measure_cell, record = matrix.measure_cell, tmp_path / "bench.json"

    def broken(grid, cell, *rest):
        if cell.read == "direct":
            raise KeyboardInterrupt
        return measure_cell(grid, cell, *rest)

    monkeypatch.setattr(matrix, "measure_cell", broken)
    small = [*SMALL, "--output", record, "--data", tmp_path, "--quick", "--workload", "1:1"]
    assert bench("matrix", *small).exit_code != 0
    assert [cell["read"] for cell in read_record(record)["cells"]] == ["mapped", "mapped"]


def test_resume_refuses_what_would_not_compare(tmp_path):
    record = tmp_path / "bench.json"
    one = ["--skew", 1, "--workload", "1:1", "--share", 0.2, "--read", "mapped"]
    small = [*SMALL, *one, "--output", record, "--data", tmp_path]
    assert bench("matrix", *small).exit_code == 0
    longer = bench("matrix", *small, "--seconds", 0.02, "--resume")
    assert "was measured with seconds=0.01" in longer.output
    changed = read_record(record)
    changed["machine"]["source"] = "other"
    write_record(changed, record)
    assert "the code has changed" in bench("matrix", *small, "--resume").output
    record.write_text("{}")
    assert "not a record of results" in bench("matrix", *small, "--resume").output


def test_an_unknown_workload_is_named(tmp_path):
    shown = bench("matrix", "--workload", "wid", "--data", tmp_path)
    assert shown.exit_code == 1
    assert "Did you mean 'wide'" in shown.output


@pytest.mark.parametrize("kind", ENGINES.values(), ids=lambda kind: kind.name)
def test_an_engine_gives_the_rows_of_the_join(kind, tmp_path):
    if kind.missing():
        pytest.skip(kind.missing())
    grid = StoreGrid(rows=5_000, chunks=(3_000,), page_bytes="4KB", memory=64 << 20)
    engine = engine_at(kind, grid, tmp_path)
    engine.open()
    lost = Workload("absent", rows=5_000, absent=0.2)
    chunk = Feed.of(lost.stream(1.0), 3_000).batches[0]
    found = engine.join(chunk).sort_by("sale")
    master = open_master(lost.prepare(tmp_path, "4KB"))
    join = Join(master, chunk.schema, on="key", memory="1MB")
    right = pa.Table.from_batches([*join.offer(chunk), *join.drain()]).sort_by("sale")
    assert right.num_rows < 3_000
    assert found.cast(right.schema).equals(right)
    outer = Join(master, chunk.schema, on="key", how="left", memory="1MB")
    left = pa.Table.from_batches([*outer.offer(chunk), *outer.drain()]).sort_by("sale")
    assert left.num_rows == 3_000
    for join_rows in [engine.join, *([engine.join_rows] if isinstance(engine, ByKey) else [])]:
        assert join_rows(chunk, "left").sort_by("sale").cast(left.schema).equals(left)
        assert join_rows(chunk, "inner").sort_by("sale").cast(right.schema).equals(right)
    nothing = engine.join(chunk.filter(pa.array(chunk["key"].to_numpy() % 2 == 1)))
    assert (nothing.num_rows, nothing.column_names) == (0, right.column_names)
    contest = Contest(engine, grid.feed(3_000))
    with pytest.raises(SemistreamError, match="rows are not those of the join"):
        contest.check(right)
    engine.close()
    assert engine_at(kind, grid, tmp_path).path.exists()


def test_rows_are_packed_and_unpacked():
    rows = master_rows([1, 5, 9]).drop_columns(["key"])
    layout = RowFormat(rows.schema)
    packed = layout.pack(rows)
    assert [len(row) for row in packed] == [112] * 3
    assert layout.unpack(packed).equals(rows)
    assert layout.pack(rows.slice(1)) == packed[1:]


@pytest.mark.parametrize("texts", [["pear", "plum", "figs"], ["fig", "", "plűm"], []])
def test_rows_with_a_text_are_packed_and_unpacked(texts):
    schema = pa.schema({"price": pa.float64(), "brand": pa.int32(), "name": pa.string()})
    numbers = range(len(texts))
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(list(numbers), pa.float64()),
            pa.array(list(numbers), pa.int32()),
            pa.array(texts, pa.string()),
        ],
        schema=schema,
    )
    layout = RowFormat(schema)
    packed = layout.pack(rows)
    assert layout.unpack(packed).equals(rows)
    assert [layout.row(row) for row in packed] == [(float(n), n, texts[n]) for n in numbers]


def test_stores_are_measured_beside_ours(tmp_path):
    record = tmp_path / "stores.json"
    small = ["--rows", 30_000, "--large", 0, "--memory", "1MB", "--seconds", 0.01, "--rounds", 2]
    shown = bench("stores", *small, "--engine", "sqlite", "--data", tmp_path, "--output", record)
    assert shown.exit_code == 0, shown.output
    (setting,) = read_record(record)["settings"]
    mine, theirs = setting["algorithm"], "sqlite, chunks of 30,000"
    assert set(setting["rates"]) == {mine, theirs}
    for rate in setting["rates"].values():
        assert len(rate["samples"]) == 2
        assert rate["grown_bytes"] > 0
        assert rate["files_held"] > 30_000 * 120
    assert setting["rates"][mine]["counted_bytes"] <= setting["memory"] == 1 << 20
    (sheet,) = sheets(read_record(record))
    assert [row[0] for row in sheet.rows] == [mine, theirs]
    assert sheet.rows[0][2] == "1.00× (1.00–1.00)"
    assert "Did you mean 'sqlite'" in bench("stores", "--engine", "sqlit").output


@pytest.fixture
def matrix_record():
    """A record of two algorithms, as the matrix writes it."""
    grid = MatrixGrid(
        algorithms=("adaptive", "moij"),
        workloads=tuple(SMALL_WORKLOADS),
        exponents=(1.0,),
        shares=(0.05, 0.1),
    )
    cells = []
    for number, cell in enumerate(grid.cells):
        rates = {"adaptive": [2_000_000, 2_400_000], "moij": [1_000_000, 2_500_000]}
        if not number:
            rates["adaptive"] = [500_000, 500_000]
        facts = {name: {"samples": samples} for name, samples in rates.items()}
        size = {"memory": 10, "resident": 5, "pages_bytes": 10, "bound": [4_000_000, 8_000_000]}
        cells.append(cell._asdict() | size | {"rates": facts})
    return {"kind": "matrix", "grid": asdict(grid), "cells": cells}


def test_tables_say_what_the_record_says(matrix_record):
    found = {sheet.title: sheet for sheet in sheets(matrix_record)}
    rates = found["1:1, direct reads, Zipf 1, R = 20,000 × 120 B, one thread"]
    assert rates.heads == ("algorithm", "5% of R", "10% of R")
    assert rates.rows[0] == ("adaptive", *["2,200 (2,000–2,400) 40.0%"] * 2)
    assert rates.rows[-1] == ("in memory (bound)", *["6,000 (4,000–8,000)"] * 2)
    against = found["adaptive against the best other, mapped reads"]
    assert len(against.rows) == 6
    assert against.rows[0][:3] == ("1:1", "1", "✗ 0.35 (0.20–0.50) moij")
    assert against.rows[1][2] == "1.48 (0.96–2.00) moij"
    assert against.note.endswith("below 0.97: 1 of 12")
    assert "held 50% or more of the pages" in next(iter(found.values())).note


def test_tables_go_between_the_marks_of_a_file(matrix_record, tmp_path):
    record, page = tmp_path / "bench.json", tmp_path / "page.md"
    write_record(matrix_record, record)
    page.write_text("# Rates\n<!-- matrix -->\nold\n<!-- /matrix -->\nend\n")
    shown = bench("show", record, "--markdown", page)
    assert shown.exit_code == 0, shown.output
    text = page.read_text()
    assert "old" not in text
    assert text.startswith("# Rates\n<!-- matrix -->\n**1:1, mapped")
    assert text.endswith("<!-- /matrix -->\nend\n")
    assert markdown(sheets(matrix_record)) in text
    assert re.search(r"^\| moij \| 1,750 .* \|$", text, re.MULTILINE)
    with pytest.raises(OptionError, match="no marks <!-- peers -->"):
        between_marks(text, "peers", "")
    assert "adaptive against" in bench("show", record).output
    write_record(matrix_record | {"kind": "matrices"}, record)
    assert "Did you mean 'matrix'" in bench("show", record).output


def test_a_record_is_small_and_whole(matrix_record, tmp_path):
    path = tmp_path / "folder" / "bench.json"
    write_record(matrix_record, path)
    assert read_record(path) == json.loads(json.dumps(matrix_record))
    assert len(path.read_text().splitlines()) == 6 + len(matrix_record["cells"])
    assert [file.name for file in path.parent.iterdir()] == ["bench.json"]


def test_bench_build_reports_its_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = bench("build", "--rows", 50_000, "--memory", "8MB", "--output", "build.json")
    assert shown.exit_code == 0, shown.output
    assert json.loads((tmp_path / "build.json").read_text())["rows"] == 50_000
    assert list(tmp_path.iterdir()) == [tmp_path / "build.json"]
