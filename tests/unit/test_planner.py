"""What the planner says, against what the models predict one by one."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.algorithms import _REGISTRY
from semistream.algorithms.published.hybridjoin import Hybridjoin
from semistream.cost.calibration.own_rows import unlike, with_rows_of
from semistream.cost.demand import Demand
from semistream.cost.example import example_profile
from semistream.cost.planning import current
from semistream.cost.planning.current import current_profile
from semistream.cost.planning.least import Least, least_memory
from semistream.cost.planning.loads import by_key, by_page
from semistream.cost.planning.measure import measure
from semistream.cost.planning.stream import stream_like
from semistream.cost.planning.synthetic import SyntheticStream, read_keys
from semistream.cost.predict import predict
from semistream.cost.profile import Profile, default_path
from semistream.cost.sampling.sample import sample_stream
from semistream.cost.unit_costs import Fit
from semistream.errors import BudgetError, OptionError
from semistream.master.database.master import DatabaseMaster
from semistream.spec import JoinSpec
from semistream.workloads import Stream, Zipf, master_table

KEYS, MEMORY = 60_000, 1 << 20
PROFILE = example_profile()
FEW = ("adaptive", "cachejoin", "hybridjoin", "inlj", "meshjoin")


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    path = tmp_path_factory.mktemp("planner") / "master"
    ss.build_master(master_table(KEYS), path, key="key", page_bytes="16KB", filter=False)
    return ss.open_master(path, read="direct")


@pytest.fixture(scope="module")
def planning(master):
    return ss.plan(master, memory=MEMORY, profile=PROFILE)


def plan(master, **asked):
    return ss.plan(master, profile=PROFILE, **asked)


def rate_of(planning, name, memory):
    question = planning.question
    return predict(name, question.spec, memory, question.demand, question.costs).rate


# -- a budget ---------------------------------------------------------------------------------


def test_the_winner_is_the_highest_prediction(planning):
    rates = {name: rate_of(planning, name, MEMORY) for name in ss.algorithms()}
    assert {answer.algorithm: answer.rate for answer in planning.answers} == rates
    assert planning.winner.algorithm == max(rates, key=rates.get)
    assert [a.rate for a in planning.answers] == sorted(rates.values(), reverse=True)


def test_half_and_twice_the_memory_are_predicted_too(planning):
    for answer in planning.answers:
        assert answer.half == rate_of(planning, answer.algorithm, MEMORY // 2)
        assert answer.twice == rate_of(planning, answer.algorithm, 2 * MEMORY)


def test_a_split_is_the_whole_budget(planning):
    for answer in planning.answers:
        parts = vars(answer.split)
        assert sum(parts.values()) == MEMORY, answer.algorithm
        assert min(parts.values()) >= 0, answer.algorithm
    assert planning.winner.split.disk_buffer > 0


def test_the_stream_is_that_of_the_synthetic_workloads(planning):
    given = Stream(Zipf(KEYS), row_bytes=20).schema
    assert planning.question.spec.stream.types == given.types
    by_schema = plan(planning.question.spec.master, memory=MEMORY, stream_schema=given, on="key")
    assert by_schema.winner.rate == planning.winner.rate


def test_an_algorithm_that_does_not_fit_is_listed_with_what_it_needs(master):
    found = plan(master, memory="64KB")
    short = [answer for answer in found.answers if answer.prediction is None]
    assert short
    assert found.winner.rate > 0
    for answer in short:
        assert found.question.predict(answer.algorithm, answer.least) is not None
        assert found.question.predict(answer.algorithm, answer.least - 2048) is None
        assert f"{answer.algorithm}" in str(found)
    with pytest.raises(
        BudgetError, match=r"memory=2,048 bytes \(2 KB\) is too small for every.*'\w"
    ):
        plan(master, memory="2KB")


def test_only_the_algorithms_that_are_named(master):
    found = plan(master, memory=MEMORY, algorithms=["moij", "meshjoin"])
    assert {answer.algorithm for answer in found.answers} == {"moij", "meshjoin"}


def test_an_algorithm_without_a_model_is_left_out_and_refused_by_name(master, monkeypatch):
    monkeypatch.setitem(_REGISTRY, "mine", type("Mine", (Hybridjoin,), {"name": "mine"}))
    found = plan(master, memory=MEMORY)
    assert "mine" in ss.algorithms()
    assert "mine" not in {answer.algorithm for answer in found.answers}
    with pytest.raises(OptionError, match="'mine' has no cost model"):
        plan(master, memory=MEMORY, algorithms=["moij", "mine"])


@pytest.mark.parametrize(
    "table", ["postgresql://shop@nowhere.example/shop", DatabaseMaster.__new__(DatabaseMaster)]
)
def test_a_table_in_a_database_has_no_pages_to_plan_with(table):
    with pytest.raises(OptionError, match=r"no pages to plan with.*with build_master"):
        plan(table, memory=MEMORY)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "exactly one"),
        ({"memory": 1, "rate": 1}, "exactly one"),
        ({"rate": "fast"}, "rate='fast' is not a rate"),
        ({"memory": "much"}, "memory='much' is not a size"),
        ({"memory": MEMORY, "algorithms": ["mioj"]}, "Did you mean 'moij'"),
        ({"memory": MEMORY, "cluster": 0}, "cluster=0 is not possible"),
        ({"memory": MEMORY, "batch_rows": 0}, "batch_rows=0 is not possible"),
        ({"memory": MEMORY, "stream_row": 4}, "stream_row=4 is too few bytes: the key key alone"),
        ({"memory": MEMORY, "absent": 1.5}, "absent=1.5"),
        ({"memory": MEMORY, "skew": -1.0}, "exponent=-1.0"),
    ],
)
def test_what_cannot_be_planned_is_refused(master, asked, said):
    with pytest.raises(OptionError, match=said):
        plan(master, **asked)


def test_a_master_without_rows_is_refused(tmp_path):
    empty = ss.build_master(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "m", key="id")
    with pytest.raises(OptionError, match="has no rows"):
        plan(empty, memory=MEMORY)


# -- a rate -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "names"), [(20_000, FEW), (300_000, tuple(ss.algorithms())), (1_000_000, FEW)]
)
def test_the_least_memory_suffices_and_less_does_not(master, rate, names):
    found = plan(master, rate=rate, algorithms=names)
    assert {answer.algorithm for answer in found.answers} == set(names)
    assert found.winner.memory == min(answer.memory for answer in found.answers)
    for answer in found.answers:
        name, least = answer.algorithm, answer.memory
        assert rate_of(found, name, least) == answer.rate >= rate
        assert found.question.rate(name, int(0.95 * least)) < rate


@pytest.mark.parametrize(
    ("dip", "least"),
    [
        ((0, 0), 50_000),
        ((55_000, 58_000), 58_000),
        ((50_100, 130_000), 130_000),
        ((70_000, 80_000), 50_000),
    ],
)
def test_a_little_more_than_the_least_memory_suffices_too(dip, least):
    """The rate is the memory, but for a dip: one within a fifth of the least is gone around."""
    stub = SimpleNamespace(
        rate=lambda _, memory: 0 if dip[0] <= memory < dip[1] else memory,
        least_budget=lambda _: 1000,
        whole=1_000_000,
    )
    assert least_memory(stub, "any", 50_000).memory == pytest.approx(least, rel=0.006)
    assert least_memory(stub, "any", 2_000_000) == Least(None, 1_000_000)


def test_a_rate_that_nothing_reaches_is_said_with_what_is(master):
    found = plan(master, rate="1G", algorithms=["moij", "inlj"])
    assert found.winner is None
    assert [answer.memory for answer in found.answers] == [0, 0]
    most = rate_of(found, "moij", found.question.whole)
    assert found.answers[0].most == pytest.approx(most, rel=0.2)
    assert "at most" in str(found)
    assert json.loads(json.dumps(found.as_dict()))["winner"] is None


# -- as text and for programs -----------------------------------------------------------------


def test_text_and_json_have_everything(planning):
    text = str(planning)
    assert all(name in text for name in ss.algorithms())
    assert "predicted" in text
    assert "Zipf's law with exponent 1" in text
    values = json.loads(json.dumps(planning.as_dict()))
    assert values["winner"] == planning.winner.algorithm
    assert [a["predicted_rate"] for a in values["algorithms"]] == [a.rate for a in planning.answers]
    assert sum(values["algorithms"][0]["split"].values()) == MEMORY
    assert values["asked"] == {"memory": MEMORY, "rate": None, "batch_rows": None}
    law = {"law": "zipf", "exponent": 1.0, "absent": 0.0, "matches": 1.0}
    assert values["stream"] == law | {"columns": 3, "row_bytes": 21}


def test_rows_unlike_those_whose_costs_are_known_are_said(planning, tmp_path):
    assert not any("by a hash" in note for note in planning.notes)
    books = pa.table({"isbn": ["a", "b"], "title": ["x", "y"], "price": [1, 2]})
    notes = plan(ss.build_master(books, tmp_path / "books", key="isbn"), memory=MEMORY).notes
    assert "here its key is found by a hash and 'title', 'isbn' vary in width" in notes[0]


def test_rows_of_texts_and_keys_that_are_hashed_are_measured(tmp_path):
    count = 20_000
    sku = [f"sku-{number:08}" for number in range(count)]
    names = [f"a product with number {number}" for number in range(count)]
    master = ss.build_master(pa.table({"sku": sku, "name": names}), tmp_path / "m", key="sku")
    stream = pa.schema([("sku", pa.string()), ("sale", pa.int64()), ("clerk", pa.string())])
    costs = with_rows_of(PROFILE.costs, JoinSpec.resolve(master, stream, "sku", "left", None, ""))
    assert costs.c_S(3, 30) > 0
    assert costs.c_O(6, 100) >= PROFILE.costs.c_O(6, 100)
    assert costs.c_A(3, 30) >= PROFILE.costs.c_A(3, 30)
    plain = JoinSpec.resolve(master, stream, "sku", "semi", None, "")
    assert unlike(plain) == "its key is found by a hash and 'sku' vary in width"


def test_a_curve_goes_through_the_plan(planning):
    points = dict(planning.curve("moij"))
    assert points[MEMORY] == rate_of(planning, "moij", MEMORY)
    assert list(points) == sorted(points)
    assert min(points) < MEMORY / 4 < 4 * MEMORY < max(points)


# -- advice -----------------------------------------------------------------------------------


def said(planning, what, machine=0):
    return any(what in text for text in replace(planning, machine_memory=machine).advice)


def test_without_reason_there_is_no_advice(planning):
    assert replace(planning, machine_memory=0).advice == []


def test_a_budget_that_holds_the_master(master, planning):
    assert said(plan(master, memory="64MB"), "hold the whole master")
    assert not said(planning, "hold the whole master")


def test_a_master_that_fits_many_times_over_is_broadcast(master, planning):
    size = master.statistics.bytes
    assert said(plan(master, memory=20 * size), "semistream is the wrong tool")
    assert not said(plan(master, memory=19 * size), "broadcast")
    assert said(planning, "broadcast it", machine=20 * size)
    assert not said(planning, "broadcast it", machine=19 * size)


def test_a_nightly_batch_is_for_a_batch_join(master):
    night = plan(master, memory="128KB", batch_rows=50_000_000)
    assert said(night, "wrong tool for such a batch")
    assert said(night, "50,000,000 rows that arrive together ask for 100% of the pages")
    few = plan(master, memory="128KB", batch_rows=100)
    assert said(few, "no reason for a batch join")
    assert not said(few, "wrong tool")


def test_a_low_rate_needs_the_least_memory(master):
    low = plan(master, rate=100, algorithms=FEW)
    assert said(low, "the least that works")
    assert low.winner.memory == low.question.least_budget(low.winner.algorithm)
    assert not said(plan(master, rate=500_000, algorithms=FEW), "the least that works")


def test_absent_keys_want_a_filter(master, tmp_path):
    assert said(plan(master, memory=MEMORY, absent=0.4), "40.0% of the stream's rows have no match")
    assert not said(plan(master, memory=MEMORY), "filter")
    other = ss.build_master(master_table(KEYS), tmp_path / "m", key="key", page_bytes="16KB")
    filtered = ss.open_master(other.path, read="direct")
    assert not said(plan(filtered, memory=MEMORY, absent=0.4), "filter")
    advised = plan(master, memory=MEMORY, absent=0.4, algorithms=["hybridjoin"]).advice[-1]
    real = plan(filtered, memory=MEMORY, absent=0.4, algorithms=["hybridjoin"])
    promised = float(advised.split("predicted to reach ")[1].split("k")[0]) * 1e3
    assert promised == pytest.approx(real.winner.rate, rel=0.05)


def test_mapped_pages_are_said_to_be_held_by_the_system(master, planning):
    mapped = plan(ss.open_master(master.path), memory=MEMORY)
    assert mapped.winner.algorithm == "adaptive"
    assert mapped.winner.as_dict()["needs_mapped_pages_held"]
    assert sum(vars(mapped.winner.split).values()) == MEMORY
    assert said(mapped, "looks rows up in mapped pages")
    assert "mapped pages" in str(mapped)
    assert not said(planning, "mapped")


# -- clusters ---------------------------------------------------------------------------------


def test_hot_keys_load_workers_unevenly_unless_their_pages_are_dealt_out():
    zipf, even = (Demand.zipf(1_000_000, exponent, 5000) for exponent in (1.0, 0.0))
    hottest = zipf.share[0]
    assert by_key(zipf, 16).skew > 16 * hottest
    assert 1 < by_page(zipf, 16).skew < by_key(zipf, 16).skew
    assert 1 < by_page(even, 16).skew < 1.2


@pytest.mark.parametrize("divide", [by_key, by_page])
@pytest.mark.parametrize("absent", [0.0, 0.3])
def test_a_workers_demand_is_a_demand(divide, absent):
    demand = replace(Demand.zipf(100_000, 1.0, 700, absent=absent), matches=2.5)
    load = divide(demand, 8)
    mine = load.demand
    assert 1 / 8 < load.share < 1
    assert float(mine.size @ mine.share) == pytest.approx(1)
    assert float(mine.page_shares().sum()) == pytest.approx(1)
    assert (np.diff(mine.share[: len(mine.page)]) <= 0).all()
    assert mine.page.max() < mine.pages <= 700
    assert mine.values == pytest.approx(100_000 / 8, rel=0.35)
    assert load.share * mine.absent == pytest.approx(absent / 8)
    assert mine.matches == 2.5


def test_one_worker_is_no_cluster(master, planning):
    one = plan(master, memory=MEMORY, cluster=1).cluster
    assert [way.rate for way in one.ways] == pytest.approx([planning.winner.rate] * 3, rel=1e-6)
    assert [way.skew for way in one.ways] == pytest.approx([1, 1, 1])
    assert [way.network_bytes for way in one.ways] == [0, 0, 0]


def test_routing_reads_less_and_moves_rows(master, planning):
    found = plan(master, memory=MEMORY, cluster=4, algorithms=["adaptive"])
    stay, routed, hashed = found.cluster.ways
    assert stay.rate == 4 * found.winner.rate
    assert routed.rate > hashed.rate
    assert (stay.network_bytes, routed.network_bytes) == (0, 3 * 1_000_000 * 21 // 4)
    assert "its tasks share" in found.cluster.note
    assert "4 workers with 1 MB each" in str(found)


def test_a_rate_is_divided_among_workers(master):
    alone = plan(master, rate="1M", algorithms=FEW)
    together = plan(master, rate="1M", algorithms=FEW, cluster=4)
    assert together.cluster.memory == together.winner.memory < alone.winner.memory
    routed = together.cluster.ways[1]
    assert routed.rate == pytest.approx(1e6, rel=0.02)


# -- streams like the planned one -------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int", "string", "pair"])
def test_a_synthetic_stream_asks_for_the_masters_keys_as_the_demand_says(kind, tmp_path):
    numbers = pa.array(np.arange(5000) * 3)
    keys = {
        "int": {"id": numbers.cast(pa.uint64())},
        "string": {"id": numbers.cast(pa.string())},
        "pair": {"id": numbers, "day": pa.array(np.arange(5000) % 7).cast(pa.int32())},
    }[kind]
    table = pa.table(keys | {"x": pa.array(np.zeros(5000))})
    master = ss.build_master(table, tmp_path, key=list(keys), page_bytes="4KB")
    found = ss.plan(master, memory="64KB", profile=PROFILE, stream_row=64)
    demand, spec = found.question.demand, found.question.spec
    batch = next(SyntheticStream(spec, demand, read_keys(master)).batches(50_000))
    codes = master.keys.encode([batch.column(name) for name in spec.stream_keys]).values
    seen, counts = np.unique(codes, return_counts=True)
    order = np.argsort(-counts)
    assert len(np.intersect1d(seen, codes_of(master))) == len(seen) > 3000
    assert counts[order[0]] / 50_000 == pytest.approx(demand.share[0], rel=0.1)
    assert master.page_of(seen[order[:1]])[0] == demand.page[0]


def codes_of(master):
    reader = master.reader()
    parts = range(master.statistics.parts)
    return np.concatenate([reader.load(part, 1)[0].column(0).to_numpy().copy() for part in parts])


def test_a_key_table_is_bounded(master):
    keys = read_keys(master, most=1000)
    assert 0 < keys.values.num_rows <= 1000
    assert len(keys.first) == master.pages + 1
    spec = JoinSpec.resolve(master, Stream(Zipf(KEYS)).schema, "key", "inner", None, "")
    demand = Demand.zipf(KEYS, 0.0, master.pages)
    batch = next(SyntheticStream(spec, demand, keys).batches(10_000))
    assert set(batch["key"].to_pylist()) <= set(keys.values["key"].to_pylist())


def test_what_is_measured_reads_pages_as_predicted(master):
    found = measure(plan(master, memory=MEMORY, absent=0.1, algorithms=["hybridjoin"]), 0.3)
    without = plan(master, memory=MEMORY, algorithms=["hybridjoin"])
    assert found.predicted == pytest.approx(without.winner.rate)
    assert found.measured_rows_a_page == pytest.approx(found.predicted_rows_a_page, rel=0.4)
    assert found.ratio == found.measured / found.predicted > 0
    assert "hybridjoin within 1 MB (without absent rows): predicted" in str(found)
    assert "hybridjoin within 1 MB: predicted" in str(replace(found, absent=0.0))
    with pytest.raises(OptionError, match="positive time"):
        measure(without, 0.0)


def test_what_is_measured_is_compared_with_a_join_as_young(master):
    """Rows enter a young cache more often, which is dear here."""
    costs = replace(PROFILE.costs, fits={"cachejoin direct": Fit(step=8e-5, judge=1e-3)})
    profile = replace(PROFILE, costs=costs)
    settled = ss.plan(master, memory=MEMORY, algorithms=["cachejoin"], profile=profile)
    assert measure(settled, 0.1).predicted < 0.98 * settled.winner.rate


def test_a_sample_takes_the_place_of_a_law(master):
    share = np.array([0.8, 0.1, 0.1 / (KEYS - 2)])
    size = np.array([1.0, 1.0, KEYS - 2.0])
    counted = Demand(size, share, np.array([3, 5], np.int32), master.pages)
    sample = SimpleNamespace(
        demand=lambda _: counted,
        row_bytes=99.6,
        columns=6,
        describe=lambda: "as seen",
        as_dict=lambda: {"law": "counted"},
    )
    found = plan(master, memory=MEMORY, sample=sample)
    assert found.question.demand is counted
    fillers = [
        kind for kind in found.question.spec.plain_stream.types if kind.id == pa.binary(1).id
    ]
    assert [kind.byte_width for kind in fillers] == [27, 26, 26]
    assert "as seen" in str(found)
    assert found.as_dict()["stream"] == {"law": "counted", "columns": 6, "row_bytes": 100}


@pytest.mark.parametrize(("size", "columns"), [(20, 3), (20, 2), (8, 1), (40, 9), (500, 40)])
def test_a_stream_has_the_bytes_and_the_columns_of_its_sample(master, size, columns):
    kinds = stream_like(master, size, columns).types
    assert len(kinds) == columns
    assert sum(kind.byte_width for kind in kinds) == size


def test_what_a_sample_tells_is_planned_with(tmp_path):
    """Hot keys have ten rows each, the others one."""
    ids = np.repeat(np.arange(5000), np.where(np.arange(5000) < 50, 10, 1))
    rows = pa.table({"id": ids, "x": np.zeros(len(ids))})
    built = ss.build_master(rows, tmp_path, key="id", page_bytes="4KB", filter=False)
    wide = {f"c{n}": pa.array(np.zeros(20_000)) for n in range(9)}
    draw = np.random.default_rng(1)
    keys = np.where(draw.random(20_000) < 0.8, draw.integers(0, 50, 20_000), 100_000)
    sample = sample_stream([pa.record_batch({"id": keys} | wide)], built, "id")
    found = plan(built, memory="16KB", sample=sample, algorithms=["hybridjoin"])
    assert found.winner.prediction.loop.output == pytest.approx(10)
    stream = json.loads(json.dumps(found.as_dict()))["stream"]
    assert (stream["law"], stream["columns"], stream["row_bytes"]) == ("counted", 10, 82)
    assert stream["absent"] == pytest.approx(0.2, abs=0.01)
    assert stream["misfit"] > stream["misfit_allowed"]


# -- whose unit costs -------------------------------------------------------------------------


@pytest.fixture
def calibrations(tmp_path, monkeypatch):
    """Count quick calibrations, which give the example."""
    done = []

    def calibrate(folder, *, quick, say):
        say("reads", 0, 1)
        assert folder is None or folder.is_dir()
        done.append(quick)
        return PROFILE

    monkeypatch.setitem(
        sys.modules, "semistream.cost.calibration.calibrate", SimpleNamespace(calibrate=calibrate)
    )
    monkeypatch.setenv("SEMISTREAM_PROFILE", str(tmp_path / "profile.json"))
    return done


def test_a_machine_is_calibrated_once(master, calibrations):
    first = ss.plan(master.path, memory=MEMORY, algorithms=["moij"])
    assert "there was no profile" in first.notes[0]
    second = ss.plan(master.path, memory=MEMORY, algorithms=["moij"])
    assert calibrations == [True]
    assert "measured quickly, 20" in second.notes[0]
    assert "Reads of this master, tried just now, " in second.notes[0]
    assert second.question.costs.c_S == first.question.costs.c_S == PROFILE.costs.c_S


def test_reads_of_another_disk_take_the_place_of_the_profiles(master, calibrations):
    slow = {way: curve * 1e4 for way, curve in PROFILE.costs.c_io.items()}
    replace(PROFILE, costs=PROFILE.costs.with_reads(slow)).save(default_path())
    found = ss.plan(master.path, memory=MEMORY, algorithms=["moij"])
    assert "times as long as the profile's, and count in their place" in found.notes[0]
    assert found.question.costs.c_io["direct"](16384) < slow["direct"](16384) / 2


@pytest.mark.parametrize(
    ("machine", "why"),
    [({"cpu": "another"}, "cpu was another"), ({"date": "2020-01-01T00:00:00+00:00"}, "days old")],
)
def test_a_foreign_or_old_profile_is_measured_again(machine, why, tmp_path, calibrations):
    stale = replace(PROFILE, machine=dict(PROFILE.machine) | machine)
    stale.save(default_path())
    assert why in current_profile(tmp_path).note
    assert calibrations == [True]
    assert Profile.load(default_path()).doubts() == []


def test_a_broken_profile_is_measured_again(tmp_path, calibrations):
    default_path().write_text("{")
    assert "is no profile" in current_profile(tmp_path).note
    assert calibrations == [True]


def test_a_profile_that_cannot_be_kept_is_used_all_the_same(tmp_path, calibrations, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SEMISTREAM_PROFILE", str(tmp_path / "file" / "profile.json"))
    found = current_profile(tmp_path)
    assert found.profile is PROFILE
    assert "not kept" in found.note


def test_a_profile_measured_on_a_busy_machine_is_used_and_measured_again_next_time(
    tmp_path, calibrations, monkeypatch
):
    loaded = replace(PROFILE, machine=dict(PROFILE.machine) | {"cores": 2, "busiest": 3.9})
    monkeypatch.setattr(current, "calibrated", lambda *_, **__: calibrations.append(True) or loaded)
    for _ in range(2):
        found = current_profile(tmp_path)
        assert found.profile is loaded
        assert "not kept, for the machine was busy: the next plan measures again" in found.note
    assert calibrations == [True, True]
    assert not default_path().exists()


def test_a_profile_that_is_given_is_used_whatever_its_machine(master, tmp_path, calibrations):
    other = replace(PROFILE, machine=dict(PROFILE.machine) | {"cores": 512})
    other.save(tmp_path / "other.json")
    found = ss.plan(master, memory=MEMORY, algorithms=["moij"], profile=tmp_path / "other.json")
    assert "cores was 512" in found.notes[0]
    assert not calibrations
