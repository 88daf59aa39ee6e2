"""Each algorithm makes its paper's decisions."""

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.algorithms.published.meshjoin import tuned_buffer
from semistream.algorithms.published.tuned_x_hybridjoin import best_non_swappable
from semistream.workloads import Stream, Zipf, master_table
from support.observer import Probe

KEYS = 20_000


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    source = master_table(KEYS, row_bytes=100)
    return ss.build_master(source, tmp_path_factory.mktemp("m"), key="key", page_bytes="8KB")


def run(master, algorithm, rows, exponent=1.0, scatter=True, memory="256KB", **options):
    stream = Stream(Zipf(KEYS, exponent, scatter), seed=3)
    join = ss.Join(
        master,
        stream.schema,
        on="key",
        memory=memory,
        algorithm=algorithm,
        filter=False,
        observer=Probe(),
        **options,
    )
    for batch in stream.batches(rows, batch_rows=4096):
        for _ in join.offer(batch):
            pass
    return join


def test_inlj_reads_a_page_for_every_row(master):
    join = run(master, "inlj", 3000)
    assert join.metrics.pages_read == join.metrics.answered == 3000 - join.waiting


def test_meshjoin_scans_in_order_and_round(master):
    join = run(master, "meshjoin", 20)
    algorithm, b = join.observer.engine.algorithm, join.plan.settings["buffer_pages"]
    seen = [algorithm.next_pages() for _ in range(2 * -(-master.pages // b))]
    pages = [page for part in seen for page in part]
    assert pages == [*range(master.pages), *range(master.pages)]
    assert all(len(part) == b for part in seen if part.stop != master.pages)


def test_meshjoin_keeps_answered_rows_until_they_have_met_all_of_r(master):
    join = run(master, "meshjoin", 8000)
    window = join.observer.engine.window
    assert len(window) - window.gone > 1.5 * window.waiting


def test_meshjoin_lets_chunks_of_any_size_go_when_they_have_met_all_of_r(master):
    join = run(master, "meshjoin", 0, how="anti")
    sizes = [1, 700, 64, 700, 3, 2000, 64, 10, 700, 1, 1500]
    for size in sizes * 3:
        keys = np.arange(size) + KEYS  # absent: they leave by expiry alone
        batch = pa.record_batch([keys, keys, keys.astype(np.int32)], schema=join.schema)
        for _ in join.offer(batch):
            pass
        assert all(met < master.pages for _, met in join.observer.engine.algorithm._chunks)
    for _ in join.drain():
        pass
    assert join.metrics.rows_out == sum(sizes) * 3


def test_meshjoin_buffer_default_is_the_papers(master):
    plan = run(master, "meshjoin", 0, memory="1500KB", buffer="default").plan
    assert plan.settings["buffer_pages"] == round(0.93 * 2**20 / master.statistics.largest_part)


@pytest.mark.parametrize(("budget", "printed"), [(20, 0.93), (40, 1.35), (80, 1.91), (160, 2.63)])
def test_meshjoin_tuned_buffer_is_near_the_printed_optimum(budget, printed):
    assert tuned_buffer(budget * 2**20) / 2**20 == pytest.approx(printed, rel=0.04)


def test_hybridjoin_brings_the_page_of_the_oldest_row(master):
    join = run(master, "hybridjoin", 0)
    batch = next(Stream(Zipf(KEYS)).batches(50))
    list(join.offer(batch))
    page = master.page_of(batch.column("key").to_numpy()[:1])[0]
    assert join.observer.engine.algorithm.next_pages() == range(page, page + 1)
    answered = pa.Table.from_batches(list(join.tick()))
    assert set(master.page_of(answered["key"].to_numpy())) == {page}


def test_x_hybridjoin_pins_the_page_that_is_asked_for_most(master):
    join = run(master, "x-hybridjoin", 20_000)
    hot = int(master.page_of(Zipf(KEYS).key_of(np.array([1])))[0])
    assert [page.number for page in join.observer.engine.algorithm.pinned()] == [hot]
    assert join.metrics.pinned_hits > 0


def test_x_hybridjoin_pins_the_first_page_where_key_order_is_rank_order(master):
    first = run(master, "x-hybridjoin", 20_000, scatter=False, pinned="first")
    counted = run(master, "x-hybridjoin", 20_000, scatter=False)
    for join in (first, counted):
        assert [page.number for page in join.observer.engine.algorithm.pinned()] == [0]
    assert first.plan.components["counters"] == 0


def test_tuned_x_hybridjoin_takes_k_and_l(master):
    join = run(master, "tuned-x-hybridjoin", 20_000, k=3, l=4)
    algorithm = join.observer.engine.algorithm
    assert len(list(algorithm.pinned())) == 4
    pages = algorithm.next_pages()
    assert len(pages) == 3
    assert pages.start % 3 == 0


def test_tuned_x_hybridjoin_pins_more_the_more_skew_there_is(master):
    pinned = [
        run(
            master, "tuned-x-hybridjoin", 40_000, exponent, scatter=False
        ).observer.engine.algorithm.l
        for exponent in (0.0, 1.2)
    ]
    assert pinned[0] < pinned[1]


def test_tuning_pins_nothing_more_where_all_pages_are_alike():
    alike, skewed = np.full(500, 100, np.uint32), (1e6 / np.arange(1, 501) ** 2).astype(np.uint32)
    sizes = {"memory": 1 << 20, "page_bytes": 8192, "row_bytes": 60, "least": 4096}
    assert best_non_swappable(alike, **sizes) == 1
    assert best_non_swappable(skewed, **sizes) > 10


def test_cachejoin_caches_the_most_frequent_keys(master):
    join = run(master, "cachejoin", 100_000)
    hot = Zipf(KEYS).key_of(np.arange(1, 21))
    assert np.isin(hot, join.observer.engine.algorithm.cache.codes).all()
    assert join.metrics.cache_hits > 40_000


def test_cachejoin_raises_its_threshold_when_many_rows_are_evicted(master):
    join = run(master, "cachejoin", 100_000, memory="96KB", cache=0.2)
    assert join.observer.engine.algorithm.threshold > 2
    assert join.metrics.evicted > 0


def test_cachejoin_lowers_its_threshold_when_the_cache_does_not_fill(master):
    join = run(master, "cachejoin", 0)
    for keys in np.random.default_rng(0).permutation(KEYS).reshape(-1, 4000):
        batch = pa.record_batch(
            [keys, keys, keys.astype(np.int32)], schema=Stream(Zipf(KEYS)).schema
        )
        for _ in join.offer(batch):
            pass
    # No key came twice: only a threshold of 1 lets rows into the cache.
    assert len(join.observer.engine.algorithm.cache) > 0


def test_moij_gives_the_cache_nothing_at_skew_0_and_much_at_skew_1(master):
    share = {}
    for exponent in (0.0, 1.0):
        join = run(master, "moij", 100_000, exponent)
        share[exponent] = join.memory_used["cache"] / join.plan.memory
    assert share[0.0] < 0.04
    assert share[1.0] > 0.12


def test_moij_moves_memory_between_cache_and_window(master):
    join = run(master, "moij", 100_000)
    window, cache = join.observer.engine.window, join.observer.engine.algorithm.cache
    assert window.capacity == int(join.plan.components["window"] - cache.claimed)


def test_moij_counts_duplicates_against_a_value(tmp_path):
    keys = np.repeat(np.arange(4000), np.where(np.arange(4000) % 2, 12, 1))
    table = pa.table({"key": keys, "filler": pa.array([b"x" * 80] * len(keys), pa.binary(80))})
    master = ss.build_master(table, tmp_path / "m", key="key", page_bytes="8KB")
    stream = Stream(Zipf(4000, 0.8), seed=3)
    join = ss.Join(
        master,
        stream.schema,
        on="key",
        memory="256KB",
        algorithm="moij",
        filter=False,
        observer=Probe(),
    )
    for batch in stream.batches(100_000, batch_rows=4096):
        for _ in join.offer(batch):
            pass
    cached = np.unique(join.observer.engine.algorithm.cache.codes)
    assert len(cached) > 50
    assert (cached % 2 == 0).mean() > 0.8  # few of those with twelve rows are worth their bytes


@pytest.mark.parametrize("algorithm", ["cachejoin", "moij"])
def test_the_cache_follows_a_stream_that_drifts(master, algorithm):
    stream = Stream(Zipf(KEYS, 1.2), seed=3, drift_at=100_000)
    join = ss.Join(
        master, stream.schema, on="key", memory="256KB", algorithm=algorithm, filter=False
    )
    hits = []
    for batch in stream.batches(200_000, batch_rows=5000):
        before = join.metrics.cache_hits
        for _ in join.offer(batch):
            pass
        hits.append((join.metrics.cache_hits - before) / 5000)
    before, after = np.mean(hits[15:20]), np.mean(hits[35:40])
    assert after > 0.9 * before
