"""What a plan predicts, against what joins of full size count."""

import json
import tempfile
from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.algorithms import choose
from semistream.errors import BudgetError, OptionError
from semistream.planning import curve, measure, view
from semistream.planning.demand import Demand
from semistream.planning.enrich import EnrichPredictor
from semistream.planning.machine import Machine
from semistream.planning.planner import JoinPredictor, pose
from semistream.planning.sample import read_sample, read_stream
from semistream.planning.simulate import Trial, Work, count_work
from semistream.planning.tune import knobs_of, tune, tune_pages
from semistream.planning.view import take_view
from semistream.workloads import Stream, Zipf, master_table
from support.simulations import short_simulations

KEYS = 60_000
MACHINE = Machine()
RATE = 0.10  # pages and hits of the small copy may differ so much from those of the whole


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    path = tmp_path_factory.mktemp("planning") / "master"
    table = master_table(KEYS, stride=2)
    ss.build_master(table, path, key="key", page_bytes="16KB")
    return ss.open_master(path, "direct")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Views of an eighth of the master, and curves of few points."""
    monkeypatch.setattr(view, "_MOST_VALUES", KEYS // 8)
    monkeypatch.setattr(curve, "_POINTS", 2)


@pytest.fixture
def short():
    """For tests that do not ask how near a prediction comes."""
    with short_simulations():
        yield


SHORT = pytest.mark.usefixtures("short")


def counted(master, memory, skew, rows, **options):
    """Run a real join at full size; return pages and rows from memory for a stream row, settled."""
    stream = Stream(Zipf(KEYS, skew), stride=2, absent=options.pop("absent", 0.0))
    join = ss.Join(master, stream.schema, on="key", memory=memory, **options)
    batches = stream.batches(None)
    before = join.metrics
    while join.metrics.rows_in < 2 * rows:
        if join.metrics.rows_in < rows:
            before = join.metrics
        for _ in join.offer(next(batches)):
            pass
    m = join.metrics
    done = m.rows_in - before.rows_in
    hits = m.cache_hits + m.filtered - before.cache_hits - before.filtered
    return (m.pages_read - before.pages_read) / done, hits / done


def predicted(master, memory, skew, **options):
    posed = {name: options.pop(name) for name in ("absent", "machine", "seed") if name in options}
    problem = pose(master, skew=skew, **{"machine": MACHINE, **posed}, **options)
    return JoinPredictor(problem).predict(memory)


# -- the simulation ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "skew", "share"),
    [
        ("adaptive", 0.0, 0.1),
        ("adaptive", 1.0, 0.2),
        ("hybridjoin", 0.0, 0.2),
        ("cachejoin", 1.0, 0.2),
    ],
)
def test_pages_and_hits_are_those_of_the_whole(master, algorithm, skew, share):
    memory = int(share * KEYS * 120)
    pages, hits = counted(master, memory, skew, 300_000, algorithm=algorithm)
    point = predicted(master, memory, skew, algorithm=algorithm)
    assert point.pages / point.rate == pytest.approx(pages, rel=RATE)
    assert point.from_memory == pytest.approx(hits, abs=0.05)


def test_rows_without_a_match_are_known_by_the_filter(tmp_path):
    path = tmp_path / "master"
    ss.build_master(master_table(KEYS, stride=2), path, key="key", page_bytes="16KB", filter=True)
    master, memory = ss.open_master(path, "direct"), 750_000
    _, known = counted(master, memory, 0.0, 200_000, absent=0.3)
    assert predicted(master, memory, 0.0, absent=0.3).from_memory == pytest.approx(known, abs=0.03)


def test_a_plan_is_the_same_whenever_it_is_made(master):
    with short_simulations():
        first, again, other = (
            ss.plan(master, memory="1MB", machine=MACHINE, tasks=2, seed=seed) for seed in (0, 0, 1)
        )
    assert first.as_dict() == again.as_dict()
    assert first.join.chosen != other.join.chosen
    rates = [predicted(master, 1 << 20, 1.0, seed=seed).rate for seed in (0, 1)]
    assert rates[0] == pytest.approx(rates[1], rel=0.05)


def test_a_hot_tenth_has_its_share_however_few_keys_stand_for_all():
    whole = Demand.zipf(1_000_000, 1.0).shares(1_000_000)
    few = Demand.zipf(1_000_000, 1.0).shares(1_000)
    assert whole.sum() == pytest.approx(1)
    assert whole[:2] == pytest.approx(Zipf(1_000_000, 1.0).probability([1, 2]), rel=0.001)
    assert few[:100].sum() == pytest.approx(whole[:100_000].sum(), rel=0.001)
    assert Demand.zipf(500, 0.0).shares(5).tolist() == pytest.approx([0.2] * 5)


def test_a_view_has_every_nth_page_and_reads_as_the_master_does(master):
    small = take_view(master, with_absent=True)
    assert small.stride == 8
    assert small.pages == -(-master.pages // 8)
    keys = pa.array(small.present["key"])
    assert len(set(keys.to_pylist())) == small.statistics.values
    assert not set(keys.to_pylist()) & set(small.absent["key"].to_pylist())
    mine, whole = small.reader(), master.reader()  # whose memory the pages lie in
    for page in (0, small.pages - 1):
        assert mine.load(page, 1) == whole.load(8 * page, 1)
    codes = np.array([0, 1, 2 * KEYS - 2])
    assert small.covers(codes).tolist() == [True, True, bool((master.pages - 1) % 8 == 0)]


# -- the machine ---------------------------------------------------------------------------


def test_work_costs_what_the_machine_says():
    machine = Machine(read=0.01, bandwidth=1e6, in_flight=2, run=0.002, submit=0.0)
    work = Work(rows=1, pages=4, reads=2, bytes=20_000)
    assert machine.read_seconds(10_000) == pytest.approx(0.02)
    assert machine.read_seconds(10_000, 8) == pytest.approx(0.01)
    alone = machine.seconds(work, depth=1)
    assert alone == pytest.approx(machine.intake + 0.004 + 0.04)
    assert machine.seconds(work, depth=0) == pytest.approx(machine.intake + 0.004)
    assert machine.seconds(work, depth=8) == pytest.approx(machine.intake + 0.02)


@SHORT
def test_a_machine_is_given_by_hand(tmp_path, master):
    slow = predicted(master, 1 << 20, 0.0, machine=replace(MACHINE, read=0.01, in_flight=1))
    fast = predicted(master, 1 << 20, 0.0)
    assert slow.rate < fast.rate / 5
    assert slow.from_memory == fast.from_memory
    (tmp_path / "disk.toml").write_text("read = 0.004\nbandwidth = 150e6\n")
    (tmp_path / "disk.json").write_text(json.dumps({"read": 0.004, "bandwidth": 150e6}))
    toml, as_json = (Machine.load(tmp_path / f"disk.{kind}") for kind in ("toml", "json"))
    assert toml == as_json == Machine(read=0.004, bandwidth=150e6)
    (tmp_path / "all.json").write_text(MACHINE.dump())
    assert Machine.load(tmp_path / "all.json") == MACHINE


def test_costs_that_are_none_are_refused(tmp_path):
    with pytest.raises(OptionError, match="Did you mean 'bandwidth'"):
        Machine.of({"bandwith": 1})
    with pytest.raises(OptionError, match="read=-1 is no unit cost"):
        Machine(read=-1)
    with pytest.raises(OptionError, match="read='fast' is no unit cost"):
        Machine.of({"read": "fast"})
    with pytest.raises(OptionError, match="above 0"):
        Machine(bandwidth=0)
    (tmp_path / "x.json").write_text("[")
    with pytest.raises(OptionError, match="no JSON or TOML file"):
        Machine.load(tmp_path / "x.json")
    with pytest.raises(OptionError, match="cannot be read"):
        Machine.load(tmp_path / "none.json")


def test_this_machine_is_measured_once_and_kept(master, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, less in (("_DISK_SECONDS", 0.02), ("_BATCHES", 2), ("_TIMES", 1)):
        monkeypatch.setattr(measure, name, less)
    problem = pose(master)
    machine = problem.machine
    assert "just now" in machine.source
    for cost in ("run", "match", "output", "append", "upkeep", "chunk", "submit"):
        assert 0 <= getattr(machine, cost) < 0.1, cost  # so short a run may find nothing of some
    for cost in ("read", "intake", "lookup"):
        assert 0 < getattr(machine, cost) < 0.1, cost
    again = pose(master).machine
    assert again == machine
    assert "earlier" in again.source
    other = pose(master, machine={"read": 0.5}).machine
    assert (other.read, other.match) == (0.5, machine.match)


# -- the answer ----------------------------------------------------------------------------


@SHORT
def test_the_memory_to_give_is_the_first_line_and_is_accepted(master):
    planning = ss.plan(master, machine=MACHINE, tasks=2, batch_rows=500_000)
    first, *_ = str(planning).splitlines()
    assert first.startswith("memory='")
    assert "for enrich (1 executor of 2 tasks, micro-batches of 500,000 rows" in first
    join, schema = planning.join, Stream(Zipf(KEYS), stride=2).schema
    with pytest.raises(BudgetError) as refused:
        ss.Join(master, schema, on="key", memory=1000)
    assert join.least - 1024 < refused.value.least <= join.least
    for point in join.points:
        assert ss.Join(master, schema, on="key", memory=point.memory).plan.memory <= point.memory
        assert sum(point.components.values()) <= point.memory
    rates = [point.rate for point in join.points]
    assert join.chosen.rate >= 0.9 * max(rates)
    assert planning.memory == planning.enrich.chosen.memory >= planning.enrich.least


def test_the_least_memory_for_a_rate_gives_it(master):
    join = JoinPredictor(pose(master, machine=MACHINE))
    high = join.predict(4 << 20).rate
    found = curve.draw_curve(join, curve.Asked(rate=high / 2)).chosen
    assert found.rate >= high / 2
    assert join.predict(int(found.memory / 1.2)).rate < high / 2


@SHORT
def test_no_memory_gives_a_rate_that_is_too_high(master):
    never = ss.plan(master, rate="900M", machine=MACHINE)
    assert never.memory is None
    assert "no memory gives enrich 900M rows/s" in str(never)


def test_a_budget_that_holds_the_master_needs_no_pages(master):
    point = JoinPredictor(pose(master, machine=MACHINE)).predict(64 << 20)
    assert point.from_memory == 1
    assert point.pages == 0
    assert "whole master" in point.way


@SHORT
def test_mapped_pages_in_memory_are_looked_up_by_java_or_python(master):
    planning = ss.plan(master.path, machine=MACHINE, select=["surrogate", "price"], tasks=2)
    assert "Spark's JVM looks rows up" in planning.enrich.chosen.way
    assert planning.memory == planning.enrich.least
    python = ss.plan(master.path, machine=MACHINE, memory="4MB", tasks=2)
    assert "keys pass through Python" in python.enrich.chosen.way  # a column that Java cannot read
    assert python.join.chosen.way.startswith("rows are looked up in mapped pages")
    crowded = ss.plan(master.path, machine=MACHINE, memory="1MB", tasks=2, host_memory="1MB")
    assert "rows pass through Python" in crowded.enrich.chosen.way
    assert crowded.enrich.chosen.bytes > 0


def test_more_executors_give_more(master):
    problem = pose(master, machine=MACHINE)
    one, four, small = (
        EnrichPredictor(problem, executors, 2, batch_rows).predict(2 << 20)
        for executors, batch_rows in ((1, 1_000_000), (4, 1_000_000), (1, 10_000))
    )
    assert one.rate < four.rate < 5 * one.rate
    assert four.from_memory > one.from_memory  # each has a quarter of the pages
    assert small.rate < one.rate  # a micro-batch costs something by itself


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": "1MB", "rate": 5}, "give one of them"),
        ({"memory": "many"}, "not a size"),
        ({"rate": "fast"}, "not a count"),
        ({"skew": "steep"}, "skew='steep' is no number"),
        ({"skew": -1}, "from 0"),
        ({"absent": 1.5}, "absent=1.5"),
        ({"executors": 0}, "at least 1"),
        ({"algorithm": "meshjion"}, "Did you mean 'meshjoin'"),
        ({"algorithm": "pcsrj"}, "plan 'cachejoin'"),
        ({"stream_row": 4}, "too few bytes"),
        ({"cache": 0.5}, "not an option of adaptive"),
        ({"machine": {"reed": 1}}, "Did you mean 'read'"),
    ],
)
def test_questions_that_make_no_sense(master, monkeypatch, options, message):
    monkeypatch.setattr(measure, "machine_at_hand", lambda *_, **__: MACHINE)
    with pytest.raises(OptionError, match=message):
        ss.plan(master, **{"machine": MACHINE, **options})


def test_masters_that_cannot_be_planned(tmp_path, master):
    with pytest.raises(OptionError, match="asked by keys"):
        ss.plan("postgresql://somewhere/shop", machine=MACHINE)
    empty = ss.build_master(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "e", key="id")
    with pytest.raises(OptionError, match="no rows"):
        ss.plan(empty, machine=MACHINE)
    with pytest.raises(BudgetError, match="the least that works"):
        ss.plan(master, memory="10KB", machine=MACHINE)


# -- samples -------------------------------------------------------------------------------


@pytest.mark.parametrize(("skew", "absent"), [(0.0, 0.0), (1.0, 0.2), (0.5, 0.0)])
def test_a_sample_says_what_its_law_says(master, skew, absent):
    stream = Stream(Zipf(KEYS, skew), seed=3, absent=absent, stride=2)
    rows = pa.Table.from_batches(islice(stream.batches(None), 5))
    small = take_view(master, with_absent=True)
    demand = sampled(rows, small).demand
    law = Demand.zipf(KEYS, skew)
    assert demand.absent == pytest.approx(absent, abs=0.03)
    for share in (0.02, 0.1, 0.5):
        ours, theirs = (each.shares(1000)[: int(1000 * share)].sum() for each in (demand, law))
        assert ours == pytest.approx(theirs, abs=0.05)
    trial = JoinPredictor(pose(master, skew=skew, absent=absent, machine=MACHINE))
    wanted = trial.predict(1 << 20)
    found = JoinPredictor(replace(trial.problem, demand=demand)).predict(1 << 20)
    assert found.from_memory == pytest.approx(wanted.from_memory, abs=0.06)


def sampled(rows, small):
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(rows, f"{folder}/sales.parquet")
        return read_sample(folder, small, "key")


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "arrow"])
def test_files_of_every_kind_are_read(tmp_path, kind):
    table = pa.table({"id": ["007", "008"], "n": [1, 2]})
    path = tmp_path / f"sales.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "csv":
        pa.csv.write_csv(table, path)
    elif kind == "json":
        path.write_text("\n".join(json.dumps(row) for row in table.to_pylist()))
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    found = pa.Table.from_batches(read_stream(path, {"id": pa.string()}))
    assert found.to_pylist() == table.to_pylist()
    assert pa.Table.from_batches(read_stream(tmp_path, {"id": pa.string()})).num_rows == 2


def test_samples_that_say_nothing(master, tmp_path):
    with pytest.raises(OptionError, match="cannot be sampled"):
        ss.plan(master, sample=tmp_path / "sales.xlsx", machine=MACHINE)
    pq.write_table(pa.table({"key": pa.array([], pa.int64())}), tmp_path / "none.parquet")
    with pytest.raises(OptionError, match="has no rows"):
        ss.plan(master, sample=tmp_path / "none.parquet", machine=MACHINE)
    pq.write_table(pa.table({"key": pa.array(np.arange(1, 9999, 2))}), tmp_path / "odd.parquet")
    with pytest.raises(OptionError, match="has a match"):
        ss.plan(master, sample=tmp_path / "odd.parquet", machine=MACHINE)
    with pytest.raises(OptionError, match="is no topic"):
        ss.plan(master, sample="kafka://sales", machine=MACHINE)


# -- tuning --------------------------------------------------------------------------------


def test_the_best_setting_comes_first_and_beats_what_is_far_off(master):
    problem = pose(master, skew=1.0, algorithm="cachejoin", machine=MACHINE)
    found = tune(problem, 1 << 20, points=4)
    rates = [setting.point.rate for setting in found]
    assert rates == sorted(rates, reverse=True)
    assert {setting.options["cache"] for setting in found} == {0.02, 0.333, 0.647, 0.96}
    assert found[0].options["cache"] in {0.333, 0.647}
    assert str(found[0]) in {"cache=33.3%", "cache=64.7%"}


@SHORT
@pytest.mark.parametrize("algorithm", ["meshjoin", "tuned-x-hybridjoin", "ssij"])
def test_every_kind_of_knob_is_tuned(master, algorithm):
    problem = pose(master, skew=0.5, algorithm=algorithm, machine=MACHINE)
    found = tune(problem, 1 << 20, points=2)
    assert set(found[0].options) == set(knobs_of(algorithm))
    best = dict(found[0].options)
    ss.Join(master, problem.spec.stream, on="key", memory="1MB", algorithm=algorithm, **best)


@SHORT
def test_a_slow_disk_wants_large_pages_and_a_fast_one_small(master, monkeypatch):
    disk = replace(MACHINE, read=0.01, bandwidth=1e9, in_flight=1)
    slow = tune_pages(pose(master, skew=0.0, machine=disk), 2 << 20)
    instant = replace(MACHINE, read=0.0, bandwidth=1e8, run=0.0, submit=0.0)
    fast = tune_pages(pose(master, skew=0.0, machine=instant), 2 << 20)
    assert slow[0].options["page_bytes"] > fast[0].options["page_bytes"]


@SHORT
def test_what_cannot_be_tuned(master):
    with pytest.raises(OptionError, match="nothing to tune"):
        knobs_of("adaptive")
    with pytest.raises(OptionError, match="Did you mean 'ssij'"):
        knobs_of("ssij2")
    with pytest.raises(BudgetError):
        tune(pose(master, algorithm="cachejoin", machine=MACHINE), 10_000)


def test_a_trial_counts_a_row_at_a_time_for_any_batch(master):
    problem = pose(master, skew=0.0, machine=MACHINE)
    chosen = choose("adaptive", problem.spec, 2 << 20, None, {})
    trial = Trial(*chosen, problem.view, problem.demand, 65_536)
    work, micro = count_work(trial), count_work(replace(trial, batch_rows=20_000, micro=True))
    assert work.rows == micro.rows == 1
    assert work.out == pytest.approx(1, abs=0.05)  # some rows of a slice come out in the next
    assert micro.out == pytest.approx(1)  # a micro-batch is answered to its end
