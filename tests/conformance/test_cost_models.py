"""The models count what the joins do: pages, hits and reads, without a clock."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream import build_master
from semistream.algorithms import algorithms, choose
from semistream.algorithms.published.cachejoin import Cachejoin
from semistream.cost.demand import Demand
from semistream.cost.example import example_profile
from semistream.cost.models import MODELS, Setting, loop_of
from semistream.cost.predict import predict
from semistream.cost.queue import fullest_first, grouped, in_batches, oldest_first
from semistream.cost.run import Run
from semistream.cost.scan import Scan, filled
from semistream.cost.unit_costs import Fit
from semistream.join import Join
from semistream.master import open_master
from semistream.spec import JoinSpec
from semistream.workloads import Stream, Zipf, master_table

ROWS, PAGE, BATCH = 60_000, "16KB", 8192


@pytest.fixture(scope="module")
def masters(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masters")
    made = {}
    for name, duplicates, filtered in (("1:1", 1, False), ("m:n", 3, False), ("filter", 1, True)):
        rows = master_table(ROWS // duplicates, duplicates=duplicates, stride=2)
        build_master(rows, folder / name, key="key", page_bytes=PAGE, filter=filtered)
        made[name] = open_master(folder / name)
    return made


def run(master, name, exponent, share, absent=0.0, **options):
    """Give what a join did for rows of some windows, and what its model says of that."""
    keys = master.statistics.values
    stream = Stream(Zipf(keys, exponent), seed=3, stride=2, absent=absent)
    batches = tuple(stream.batches(150_000, BATCH))
    memory = int(share * master.statistics.bytes)
    if name == "adaptive":
        options = {"at_once": False, **options}
    join = Join(master, stream.schema, on="key", memory=memory, algorithm=name, **options)
    runner = Run(join, itertools.cycle(batches))
    slow = name in {"inlj", "derakhshan"}
    _until(runner, 4_000 if slow else 4 * runner.window_rows + 24_000)
    before = join.metrics
    _until(runner, 8_000 if slow else 4 * runner.window_rows + 16_000)
    after = join.metrics
    answered = after.answered - before.answered
    spec = JoinSpec.resolve(master, stream.schema, "key", "inner", None, "")
    _, task, plan = choose(name, spec, memory, None, options)
    demand = Demand.zipf(keys, exponent, master.pages, absent=absent)
    pages = after.pages_read - before.pages_read
    hits = (after.cache_hits - before.cache_hits) / answered
    setting = Setting(task, plan, demand, Fit(), age=after.rows_in, batch=BATCH)
    return answered / max(1, pages), hits, setting


def _until(runner, rows):
    end = runner.join.metrics.answered + rows
    while runner.join.metrics.answered < end:
        runner.step()


EXACT = {
    "inlj": 0.001,
    "hybridjoin": 0.05,
    "x-hybridjoin": 0.05,
    "tuned-x-hybridjoin": 0.06,
    "optimised-x-hybridjoin": 0.06,
    "ssij": 0.06,
    "partition-join": 0.08,
    "moij": 0.2,
    "adaptive": 0.15,
    "meshjoin": 0.04,
    "r-meshjoin": 0.04,
    "cachejoin": 0.3,
    "pcsrj": 0.3,
    "ssbj": 0.2,
    "derakhshan": 0.35,
}
"""How far the models are from what runs count, without any factor measured."""


def test_every_algorithm_has_a_model():
    assert set(MODELS) == set(algorithms()) == set(EXACT)


@pytest.mark.parametrize("name", EXACT)
def test_a_page_answers_as_many_rows_as_the_model_says(masters, name):
    for exponent in (0.0, 1.0):
        if name == "inlj" and exponent:
            continue
        seen, _, setting = run(masters["1:1"], name, exponent, 0.08)
        assert 1 / loop_of(setting).pages_a_row == pytest.approx(seen, rel=EXACT[name])


@pytest.mark.parametrize("name", ["cachejoin", "moij", "adaptive", "optimised-x-hybridjoin"])
def test_the_cache_answers_the_share_that_the_model_says(masters, name):
    _, hits, setting = run(masters["1:1"], name, 1.0, 0.1)
    assert loop_of(setting).hit_rate == pytest.approx(hits, abs=0.1)


@pytest.mark.parametrize("name", ["hybridjoin", "meshjoin", "moij"])
def test_duplicates_take_room_and_come_out(masters, name):
    seen, _, setting = run(masters["m:n"], name, 0.5, 0.08)
    loop = loop_of(setting)
    assert loop.output == pytest.approx(3)
    assert 1 / loop.pages_a_row == pytest.approx(seen, rel=EXACT[name])


@pytest.mark.parametrize("kind", ["1:1", "filter"])
def test_absent_rows_wait_unless_the_filter_knows_them(masters, kind):
    seen, _, setting = run(masters[kind], "hybridjoin", 0.5, 0.08, absent=0.3)
    loop = loop_of(setting)
    assert 1 / loop.pages_a_row == pytest.approx(seen, rel=0.08)
    assert loop.w_F / loop.w == pytest.approx(0.26 if kind == "filter" else 0.0, abs=0.01)


@pytest.mark.parametrize("name", EXACT)
def test_what_waits_in_vain_is_not_given_out(masters, name):
    master, costs = masters["1:1"], example_profile().costs
    demand = Demand.zipf(ROWS, 0.8, master.pages, absent=0.3)
    found = {}
    for how in ("inner", "left"):
        spec = JoinSpec.resolve(master, Stream(Zipf(10)).schema, "key", how, None, "")
        options = {"at_once": False} if name == "adaptive" else {}
        _, task, plan = choose(name, spec, 1 << 20, None, options)
        setting = Setting(task, plan, demand, Fit())
        loop = loop_of(setting)
        found[how] = loop, costs.rows_seconds(loop, setting.shape).matching
    inner, left = (found[how][0] for how in ("inner", "left"))
    assert inner.silent / inner.w == pytest.approx(0.3)
    assert left.silent == 0
    gone = inner.silent / inner.w_S
    assert found["inner"][1] == pytest.approx((1 - gone) * found["left"][1], rel=1e-6)


def test_a_row_has_the_matches_that_were_sampled(masters):
    master = masters["m:n"]
    spec = JoinSpec.resolve(master, Stream(Zipf(10)).schema, "key", "inner", None, "")
    _, task, plan = choose("moij", spec, 1 << 20, None, {})
    mean = Setting(task, plan, Demand.zipf(ROWS // 3, 1.0, master.pages), Fit())
    more = replace(mean, demand=replace(mean.demand, matches=6.0))
    assert (loop_of(mean).output, loop_of(more).output) == (3, 6)
    assert more.cached_value == 2 * mean.cached_value


@pytest.mark.parametrize(
    ("name", "kind"),
    [("partition-join", "1:1"), ("optimised-x-hybridjoin", "1:1"), ("ssij", "filter")],
)
def test_half_of_a_stream_without_a_match(masters, name, kind):
    seen, hits, setting = run(masters[kind], name, 0.8, 0.08, absent=0.5)
    loop = loop_of(setting)
    assert 1 / loop.pages_a_row == pytest.approx(seen, rel=0.15)
    assert loop.hit_rate == pytest.approx(hits, abs=0.01)


def test_absent_keys_are_fetched_in_vain(masters):
    seen, _, setting = run(masters["1:1"], "derakhshan", 0.8, 0.1, absent=0.5)
    assert 1 / loop_of(setting).pages_a_row == pytest.approx(seen, rel=0.1)


def test_skew_zero_leaves_nothing_for_moijs_cache(masters):
    _, _, setting = run(masters["1:1"], "moij", 0.0, 0.08)
    assert loop_of(setting).hit_rate < 0.01


@pytest.mark.parametrize("name", ["moij", "ssbj"])
def test_the_more_a_page_answers_the_likelier_a_value_of_it_enters_the_cache(name, masters):
    few, many = (loop_of(run(masters["1:1"], name, 0.5, share)[2]) for share in (0.02, 0.2))
    assert 0 <= few.judged / few.pages < many.judged / many.pages <= 1


@pytest.mark.parametrize(("exponent", "until"), [(1.0, (80_000, 160_000)), (0.0, (60_000, 90_000))])
def test_rows_enter_cachejoins_cache_as_seldom_as_its_threshold_says(
    exponent, until, masters, monkeypatch
):
    entered = []
    stage = Cachejoin._stage

    def counted(self, *args):
        entered.append(self.engine.metrics.pages_read)
        stage(self, *args)

    monkeypatch.setattr(Cachejoin, "_stage", counted)
    master, seen = masters["1:1"], []
    stream = Stream(Zipf(ROWS, exponent), seed=3, stride=2)
    memory = int(0.2 * master.statistics.bytes)
    join = Join(master, stream.schema, on="key", memory=memory, algorithm="cachejoin")
    runner = Run(join, itertools.cycle(tuple(stream.batches(400_000))))
    for rows in until:
        _until(runner, rows - join.metrics.answered)
        seen.append((len(entered), join.metrics.pages_read))
    (before, first), (after, last) = seen
    spec = JoinSpec.resolve(master, stream.schema, "key", "inner", None, "")
    _, task, plan = choose("cachejoin", spec, memory, None, {})
    demand = Demand.zipf(ROWS, exponent, master.pages)
    setting = Setting(task, plan, demand, Fit(fill=0.95, cached=0.72), age=sum(until) / 2)
    assert loop_of(setting).judged == pytest.approx((after - before) / (last - first), abs=0.12)


@pytest.mark.parametrize("name", ["cachejoin", "pcsrj"])
def test_the_longer_cachejoin_runs_the_fewer_rows_enter_its_cache(name, masters):
    master = masters["1:1"]
    spec = JoinSpec.resolve(master, Stream(Zipf(10)).schema, "key", "inner", None, "")
    _, task, plan = choose(name, spec, int(0.2 * master.statistics.bytes), None, {})
    setting = Setting(task, plan, Demand.zipf(ROWS, 1.0, master.pages), Fit())
    judged = [loop_of(replace(setting, age=age)).judged for age in (1e4, 1e5, 1e6, 1e8)]
    assert judged == sorted(judged, reverse=True)
    assert judged[0] > 0.9
    assert judged[-1] < 0.02


def test_no_value_enters_a_cache_that_has_all_the_stream_asks_for(masters):
    sizes, shares = np.array([1.0, 1.0, ROWS - 2.0]), np.array([0.5, 0.5, 0.0])
    demand = Demand(sizes, shares, np.array([0, 1], dtype=np.int32), masters["1:1"].pages)
    _, _, setting = run(masters["1:1"], "moij", 1.0, 0.2)
    loop = loop_of(replace(setting, demand=demand))
    assert loop.judged == pytest.approx(0, abs=1e-3)
    assert loop.hit_rate > 0.99


@pytest.mark.parametrize("cache", [1e-9, 0.05])
def test_few_values_of_many_rows_in_a_cache_are_counted_to_an_end(tmp_path, cache):
    """Their threshold rises into the hundreds, and nothing enters a cache without room."""
    table = master_table(100, 100, duplicates=600)
    master = build_master(table, tmp_path, key="key", page_bytes="64KB")
    spec = JoinSpec.resolve(master, Stream(Zipf(100)).schema, "key", "inner", None, "")
    demand = Demand.zipf(master.statistics.values, 1.0, master.pages)
    costs = example_profile().costs
    found = predict("cachejoin", spec, 3 << 20, demand, costs, options={"cache": cache})
    assert 0 <= found.loop.judged <= found.loop.pages
    assert found.rate > 0


def test_a_master_that_fits_is_never_read(masters):
    master = masters["1:1"]
    spec = JoinSpec.resolve(master, Stream(Zipf(10)).schema, "key", "inner", None, "")
    _, task, plan = choose("meshjoin", spec, 4 * master.statistics.bytes, None, {})
    loop = loop_of(Setting(task, plan, Demand.zipf(ROWS, 1.0, master.pages), Fit()))
    assert (loop.pages, loop.hit_rate) == (0, 1)


def test_more_fill_is_more_rows_a_page_and_a_better_cache_more_hits(masters):
    _, _, setting = run(masters["1:1"], "cachejoin", 1.0, 0.08)
    half = loop_of(replace(setting, fit=Fit(fill=0.5, cached=0.5)))
    whole = loop_of(setting)
    assert half.w < whole.w
    assert half.hit_rate < whole.hit_rate


# -- the formulas, against simulations ------------------------------------------------------


def simulated_sweeps(shares, rows, sweeps=60):
    """Give the rows a page answers when sweeps bring the fullest pages until a quarter is gone."""
    draw = np.random.default_rng(0)
    waiting = np.zeros(len(shares), dtype=np.int64)
    pages = answered = 0
    for sweep in range(sweeps):
        new = rows - waiting.sum()
        waiting += draw.multinomial(new, shares)
        order = np.argsort(-waiting, kind="stable")
        until = int(np.searchsorted(np.cumsum(waiting[order]), rows / 4)) + 1
        if sweep >= sweeps // 2:
            pages += until
            answered += int(waiting[order[:until]].sum())
        waiting[order[:until]] = 0
    return answered / pages


@pytest.mark.parametrize("batch", [1_000, 8_192, 65_536, 1_000_000])
@pytest.mark.parametrize("missed", [1.0, 0.3])
def test_a_scan_keeps_its_window_three_quarters_full_or_more(masters, batch, missed):
    spec = JoinSpec.resolve(masters["1:1"], Stream(Zipf(10)).schema, "key", "inner", None, "")
    _, task, _ = choose("meshjoin", spec, 1 << 20, None, {})
    for size in (1 << 14, 1 << 18, 1 << 22, 1 << 29):
        scan = Scan(100, size, task.cost, task.stream_row, batch, missed)
        assert 0.7 < filled(scan) <= 1 + 1e-6


@pytest.mark.parametrize(("exponent", "rows"), [(0.0, 20_000), (0.0, 8_000), (0.8, 20_000)])
def test_sweeps_for_the_fullest_pages_as_a_simulation_counts_them(exponent, rows):
    shares = Zipf(500, exponent).probability(np.arange(1, 501))
    found = fullest_first(grouped(shares), rows, rows / 4).reads
    assert 1 / found == pytest.approx(simulated_sweeps(shares, rows), rel=0.1)


@settings(max_examples=30, deadline=None)
@given(
    pages=st.integers(1, 3000),
    exponent=st.floats(0, 1.5),
    rows=st.integers(1, 10**7),
)
def test_no_formula_reads_more_than_a_page_a_row_nor_less_with_less_room(pages, exponent, rows):
    groups = grouped(Zipf(pages, exponent).probability(np.arange(1, pages + 1)))
    for formula in (oldest_first, in_batches, lambda g, h: fullest_first(g, h, h / 4)):
        few, many = formula(groups, rows).reads, formula(groups, 2 * rows).reads
        assert 0 < many <= few * (1 + 1e-6)
        assert few <= 1 + 1e-6


@settings(max_examples=30, deadline=None)
@given(values=st.integers(2, 10**7), exponent=st.floats(0, 2), pages=st.integers(1, 5000))
def test_a_demand_adds_up(values, exponent, pages):
    demand = Demand.zipf(values, exponent, pages)
    assert demand.values == pytest.approx(values)
    assert demand.hit(values) == pytest.approx(1)
    some = values / 3
    assert demand.page_shares(some).sum() + demand.hit(some) == pytest.approx(1, abs=2e-3)
    size, share = demand.classes
    assert (size * share).sum() == pytest.approx(1)
    assert (np.diff(demand.share) <= 1e-12).all()
