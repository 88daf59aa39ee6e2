"""The rest of the family: each algorithm makes its paper's decisions."""

import bisect
import gc
import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream import testing
from semistream.errors import BudgetError, JoinFailedError, OptionError, RowTooLargeError
from semistream.workloads import Stream, Zipf, master_table
from support.observer import Probe

KEYS = 20_000


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    source = master_table(KEYS, row_bytes=100)
    return ss.build_master(source, tmp_path_factory.mktemp("m"), key="key", page_bytes="8KB")


def start(master, algorithm, memory="256KB", **options):
    wanted = {"on": "key", "filter": False, "memory": memory, "observer": Probe()} | options
    return ss.Join(master, Stream(Zipf(KEYS)).schema, algorithm=algorithm, **wanted)


def feed(join, rows, exponent=1.0, scatter=True, seed=3):
    for batch in Stream(Zipf(KEYS, exponent, scatter), seed=seed).batches(rows, batch_rows=4096):
        for _ in join.offer(batch):
            pass
    return join


def rows_of(*keys):
    """A batch of these keys; each row's number is its sale."""
    keys = np.asarray(keys)
    columns = [keys, np.arange(len(keys)), keys.astype(np.int32)]
    return pa.record_batch(columns, schema=Stream(Zipf(KEYS)).schema)


def pages_of(master, keys):
    return master.page_of(np.asarray(keys, dtype=np.int64)).tolist()


def brought(join):
    """The page runs that the algorithm asks for from now on, in order."""
    join.observer.runs.clear()
    return join.observer.runs


# -- r-meshjoin -----------------------------------------------------------------------------------


def test_r_meshjoin_reads_the_whole_buffer_and_meets_it_in_segments(master):
    join = start(master, "r-meshjoin", buffer="64KB", l=4)
    assert join.plan.settings["buffer_pages"] == 8
    asked = brought(join)
    feed(join, 20_000)
    segments = [pages for pages in asked if pages.stop != master.pages]
    assert {len(pages) for pages in segments} == {2}
    assert join.metrics.reads == pytest.approx(len(asked) / 4, rel=0.05)
    assert join.metrics.bytes_read == pytest.approx(join.metrics.pages_read * 8192, rel=0.05)


def test_r_meshjoin_scans_every_page_in_turn(master):
    join = start(master, "r-meshjoin", buffer="64KB", l=4)
    asked = brought(join)
    feed(join, 20_000)
    pages = [page for part in asked for page in part]
    assert pages == [i % master.pages for i in range(len(pages))]
    assert len(pages) > 2 * master.pages


def test_r_meshjoin_with_one_segment_is_meshjoin(master):
    one = feed(start(master, "r-meshjoin", buffer="64KB", l=1), 20_000)
    mesh = feed(start(master, "meshjoin", buffer="64KB"), 20_000)
    assert one.metrics == mesh.metrics


def test_r_meshjoin_gives_the_window_what_no_segment_holds(master):
    plan = start(master, "r-meshjoin", buffer="56KB", l=4).plan
    assert plan.settings["l"] == plan.settings["buffer_pages"] == 4
    assert plan.components["pages"] < 5 * 8192


def test_r_meshjoins_buffer_does_not_depend_on_the_size_of_r(tmp_path, master):
    small = ss.build_master(master_table(4000, 100), tmp_path, key="key", page_bytes="8KB")
    plans = [start(each, "r-meshjoin").plan.settings for each in (master, small)]
    assert plans[0]["buffer_pages"] == plans[1]["buffer_pages"]


def test_r_meshjoin_goes_on_where_an_overdue_row_interrupted_the_scan(master):
    now = [0.0]
    join = start(master, "r-meshjoin", buffer="64KB", l=4, max_wait=1.0, clock=lambda: now[0])
    asked = brought(join)
    list(join.offer(rows_of(*range(0, KEYS, 40))))
    next_page = join.observer.engine.algorithm._next
    now[0] = 2.0
    list(join.tick())
    assert not join.waiting
    list(join.offer(rows_of(7)))
    assert join.observer.engine.algorithm.next_pages().start == next_page
    assert all(len(pages) == 1 for pages in asked)  # only what was overdue came


# -- ssbj -----------------------------------------------------------------------------------------


def test_ssbj_scans_in_order(master):
    join = start(master, "ssbj")
    asked = brought(join)
    feed(join, 60_000)
    pages = [page for part in asked for page in part]
    assert pages == [i % master.pages for i in range(len(pages))]


def test_ssbj_gives_the_cache_nothing_at_skew_0_and_much_at_skew_1(master):
    share = {}
    for exponent in (0.0, 1.0):
        join = feed(start(master, "ssbj"), 100_000, exponent)
        share[exponent] = join.memory_used["cache"] / join.plan.memory
    assert share[0.0] < 0.04
    assert share[1.0] > max(0.07, 4 * share[0.0])


def test_ssbj_caches_the_most_frequent_values_and_paces_the_window_that_is_left(master):
    join = feed(start(master, "ssbj"), 100_000)
    algorithm, window, task = (
        join.observer.engine.algorithm,
        join.observer.engine.window,
        join.observer.engine.task,
    )
    hot = Zipf(KEYS).key_of(np.arange(1, 21))
    assert np.isin(hot, algorithm.cache.codes).all()
    assert window.capacity < join.plan.components["window"]
    assert algorithm._window_rows == task.cost.rows(window.capacity, task.stream_row)


def test_ssbj_reads_fewer_pages_than_meshjoin_for_a_skewed_stream(master):
    pages = {name: feed(start(master, name), 100_000).metrics for name in ("ssbj", "meshjoin")}
    read = {name: m.pages_read / m.answered for name, m in pages.items()}
    assert read["ssbj"] < 0.8 * read["meshjoin"]


# -- optimised-x-hybridjoin -----------------------------------------------------------------------


def test_optimised_x_hybridjoin_pins_the_pages_that_are_asked_for_most(master):
    join = feed(start(master, "optimised-x-hybridjoin", l=3), 60_000, scatter=False)
    algorithm = join.observer.engine.algorithm
    assert algorithm.held == {0, 1, 2}  # key order is rank order
    assert set(pages_of(master, algorithm.cache.codes)) == {0, 1, 2}
    sizes = np.diff(master.index.page_code[:4])  # keys are 0, 1, 2, …
    assert len(algorithm.cache) == sizes.sum()


def test_optimised_x_hybridjoin_answers_rows_of_pinned_pages_before_the_window(master):
    join = feed(start(master, "optimised-x-hybridjoin", l=3), 60_000, scatter=False)
    before, waiting = join.metrics, join.waiting
    out = pa.Table.from_batches(list(join.offer(rows_of(0, 1, 2, 0))))
    assert out["key"].to_pylist() == [0, 1, 2, 0]
    assert join.metrics.cache_hits == before.cache_hits + 4
    assert (join.metrics.pages_read, join.waiting) == (before.pages_read, waiting)
    assert list(join.observer.engine.algorithm.pinned()) == []  # no round meets them again


def test_optimised_x_hybridjoin_brings_the_page_of_the_oldest_row(master):
    join = start(master, "optimised-x-hybridjoin")
    list(join.offer(rows_of(15_000, 3, 9000)))
    assert join.observer.engine.algorithm.next_pages().start == pages_of(master, [15_000])[0]


def test_optimised_x_hybridjoin_keeps_pages_that_only_the_cache_is_asked_for(master):
    join = feed(start(master, "optimised-x-hybridjoin", l=1), 60_000, scatter=False)
    # Page 0 answers before the window, so it is not counted there; it must stay all the same.
    assert join.observer.engine.algorithm.held == {0}
    feed(join, 60_000, scatter=False, seed=4)
    assert join.observer.engine.algorithm.held == {0}


def test_optimised_x_hybridjoin_reads_less_than_x_hybridjoin_with_as_many_pages(master):
    read = {}
    for name, options in (("x-hybridjoin", {}), ("optimised-x-hybridjoin", {"l": 1})):
        metrics = feed(start(master, name, **options), 100_000, scatter=False).metrics
        read[name] = metrics.pages_read / metrics.answered
    assert read["optimised-x-hybridjoin"] < read["x-hybridjoin"]


# -- ssij -----------------------------------------------------------------------------------------


def test_ssij_brings_the_pages_of_a_batch_in_order(master):
    join = start(master, "ssij")
    keys = np.random.default_rng(1).permutation(KEYS)[:60]
    list(join.offer(rows_of(*keys)))
    asked = brought(join)
    list(join.drain())
    starts = [pages.start for pages in asked]
    assert starts == sorted(starts)
    came = {page for pages in asked for page in pages}
    assert set(pages_of(master, keys)) <= came


def test_ssij_joins_pages_whose_gap_costs_less_than_a_seek(master):
    join = start(master, "ssij", memory="1MB")
    starts = master.index.page_code
    keys = [starts[3], starts[5], starts[60]]  # a gap of one page, and one of 54
    list(join.offer(rows_of(*keys)))
    asked = brought(join)
    list(join.drain())
    assert asked == [range(3, 6), range(60, 61)]


def test_ssij_lets_nothing_in_before_the_batch_is_done(master):
    join = start(master, "ssij")
    list(join.offer(rows_of(*range(0, KEYS, 200))))
    algorithm = join.observer.engine.algorithm
    assert algorithm.ready(1)  # pending
    list(join.tick())
    assert join.waiting
    assert not algorithm.ready(1)  # joining
    while join.waiting:
        list(join.tick())
    assert algorithm.ready(1)


def test_ssij_caches_the_pages_that_answer_most(master):
    join = feed(start(master, "ssij"), 60_000, scatter=False)
    algorithm = join.observer.engine.algorithm
    assert len(algorithm._pages) == join.plan.settings["cached_pages"] > 3
    assert {0, 1, 2} <= set(algorithm._pages)
    assert algorithm._priority[0] == max(algorithm._priority.values())
    assert join.metrics.pinned_hits > 10_000
    page = next(iter(algorithm.pinned()))
    assert set(pages_of(master, page.batch.column(0).to_numpy())) == {page.number}


def test_ssij_answers_a_batch_from_cached_pages_first(master):
    join = feed(start(master, "ssij"), 60_000, scatter=False)
    list(join.drain())
    asked = brought(join)
    list(join.offer(rows_of(0, 1, KEYS - 1)))
    before = join.metrics.pinned_hits
    list(join.tick())
    assert join.metrics.pinned_hits == before + 2
    assert asked == [range(master.pages - 1, master.pages)]


# -- partition-join -------------------------------------------------------------------------------


def test_partition_join_brings_a_partition_over_its_threshold_before_more_rows_enter(master):
    join = start(master, "partition-join", threshold=5)
    asked = brought(join)
    list(join.offer(rows_of(10_000, 15_000, *[3] * 5)))
    assert not asked
    list(join.offer(rows_of(19_000)))
    assert asked == [range(1)]
    assert join.waiting == 3  # the others were below it


def test_partition_join_brings_the_largest_partition_when_its_buffer_is_full(master):
    join = start(master, "partition-join", threshold=10**6)
    asked = brought(join)
    rows = join.plan.settings["window_rows"]
    keys = np.random.default_rng(2).integers(5000, KEYS, rows // 2)
    for _ in range(2):
        list(join.offer(rows_of(*keys, *[77] * 200)))
    assert asked[0].start == pages_of(master, [77])[0]
    assert join.observer.engine.algorithm._waiting.sum() == join.waiting


def test_partition_join_reads_all_pages_of_a_partition_at_once(master):
    join = start(master, "partition-join", pages=4)
    asked = brought(join)
    list(join.offer(rows_of(15_000)))
    list(join.drain())
    first = pages_of(master, [15_000])[0] // 4 * 4
    assert asked == [range(first, first + 4)]
    assert join.metrics.reads == 1


def test_partition_join_holds_whole_pages_that_answer_most(master):
    join = feed(start(master, "partition-join"), 100_000, scatter=False)
    cache = join.observer.engine.algorithm.cache
    held, _ = cache.asked()
    assert {0, 1, 2} <= set(held.tolist())
    keys = np.arange(KEYS)
    assert set(cache.codes) == set(keys[np.isin(master.page_of(keys), held)])
    before = join.metrics.pages_read
    out = pa.Table.from_batches(list(join.offer(rows_of(1, 0, 5))))
    assert out["key"].to_pylist() == [1, 0, 5]
    assert join.metrics.pages_read == before


def test_partition_join_counts_overdue_rows_out(master):
    now = [0.0]
    join = start(master, "partition-join", max_wait=1.0, clock=lambda: now[0], threshold=50)
    list(join.offer(rows_of(*range(0, KEYS, 500))))
    assert join.observer.engine.algorithm._waiting.sum() == join.waiting == 40
    now[0] = 2.0
    list(join.tick())
    assert join.observer.engine.algorithm._waiting.sum() == join.waiting == 0


# -- pcsrj ----------------------------------------------------------------------------------------


def test_pcsrj_divides_the_pages_among_nodes(master):
    join = start(master, "pcsrj", nodes=3)
    feed(join, 40_000)
    for number, node in enumerate(join.observer.engines):
        pages = join.observer.runs_of[node]
        assert len(pages) > 50
        assert all(part.start % 3 == number and len(part) == 1 for part in pages)


def test_pcsrj_gives_each_node_its_share_and_counts_all_of_them(master):
    join = feed(start(master, "pcsrj", nodes=2), 40_000)
    nodes = join.observer.engines
    parts = join.plan.components
    assert sum(parts.values()) == join.plan.memory
    assert [node.plan.memory for node in nodes] == [(join.plan.memory * 15 // 16) // 2] * 2
    for name in ("window", "cache", "pages"):
        assert join.memory_used[name] == sum(node.memory_used[name] for node in nodes)
        assert parts[name] == sum(node.plan.components[name] for node in nodes)
    assert join.metrics.rows_in == 40_000 == sum(node.metrics.rows_in for node in nodes)
    assert join.metrics.cache_hits == sum(node.metrics.cache_hits for node in nodes) > 1000
    assert join.waiting == sum(node.waiting for node in nodes) == 40_000 - join.metrics.answered


def test_pcsrjs_nodes_work_at_the_same_time(master):
    together = threading.Barrier(2)
    join = start(master, "pcsrj", nodes=2, observer=Probe(lambda *_: together.wait(timeout=30)))
    list(join.offer(rows_of(0, 1000)))
    assert {node.waiting for node in join.observer.engines} == {1}
    assert sum(out.num_rows for out in join.drain()) == 2  # else the barrier breaks: an error


def test_pcsrj_gives_a_batch_of_each_node_in_turn(master):
    join = start(master, "pcsrj", nodes=2)
    list(join.offer(rows_of(*range(0, KEYS, 50))))
    order = [set(np.array(pages_of(master, out["key"].to_numpy())) % 2) for out in join.drain()]
    assert order[:2] == [{0}, {1}]


def test_an_error_in_a_node_of_pcsrj_ends_the_join(master):
    def broken(engine, parts):
        if engine is join.observer.engines[1]:
            msg = "this disk is gone"
            raise OSError(msg)

    join = start(master, "pcsrj", nodes=2, observer=Probe(broken))
    with pytest.raises(OSError, match="this disk is gone"):
        feed(join, 40_000)
    with pytest.raises(JoinFailedError, match="this disk is gone"):
        list(join.drain())


def test_pcsrjs_threads_end_with_the_join(master):
    before = node_threads()
    join = feed(start(master, "pcsrj", nodes=3), 10_000)
    unread = join.offer(rows_of(*range(100)))
    next(unread, None)
    assert len(node_threads() - before) == 3
    del join, unread
    gc.collect()
    for thread in node_threads() - before:
        thread.join(timeout=30)
    assert not node_threads() - before


def node_threads():
    return {t for t in threading.enumerate() if t.name.startswith("semistream-node")}


def test_pcsrj_has_one_node_where_the_budget_is_too_small_for_two(master):
    assert start(master, "pcsrj").plan.settings["nodes"] == 2
    least = [least_memory(master, nodes) for nodes in (1, 2)]
    assert start(master, "pcsrj", memory=least[1]).plan.settings["nodes"] == 2
    assert start(master, "pcsrj", memory=least[1] - 1).plan.settings["nodes"] == 1
    assert start(master, "pcsrj", memory=least[0]).plan.settings["nodes"] == 1


def least_memory(master, nodes):
    with pytest.raises(BudgetError) as refused:
        start(master, "pcsrj", memory=1, nodes=nodes)
    return int(str(refused.value).split("works is ")[1].split(" bytes")[0].replace(",", ""))


def test_pcsrj_names_the_share_of_a_node_when_a_row_is_too_large(tmp_path):
    case = testing.case("variable_width")
    watched = testing.start("pcsrj", replace(case, memory=160_000, resident=None), "left", tmp_path)
    row = case.stream[0].slice(0, 1).to_pylist()
    row[0]["c"] = "x" * 100_000
    with pytest.raises(RowTooLargeError, match=r"row 0.*node's memory.*2"):
        watched.join.offer(pa.RecordBatch.from_pylist(row, schema=case.stream_schema))


# -- derakhshan -----------------------------------------------------------------------------------


def test_derakhshan_answers_a_hit_at_once_unless_a_row_before_it_waits(master):
    join = start(master, "derakhshan")
    list(join.offer(rows_of(5)))
    assert join.waiting == 1
    list(join.drain())
    out = pa.Table.from_batches(list(join.offer(rows_of(5, 5, 9000, 5))))
    assert out["key"].to_pylist() == [5, 5]
    assert join.waiting == 2  # a miss, and the hit behind it
    out = pa.Table.from_batches(list(join.drain()))
    assert out["key"].to_pylist() == [9000, 5]
    assert join.metrics.cache_hits == 3  # what was fetched for a row is no hit


def test_derakhshan_fetches_misses_together_each_page_once_and_in_order(master):
    loaded = []
    probe = Probe(lambda _, parts: loaded.append(parts[0]))
    join = start(master, "derakhshan", observer=probe)
    keys = np.random.default_rng(5).integers(0, KEYS, 100).tolist()
    list(join.offer(rows_of(*keys, *keys)))
    assert not loaded
    list(join.drain())
    assert loaded == sorted(set(pages_of(master, keys)))


def test_derakhshan_counts_a_rows_number_when_it_judges_its_size(tmp_path):
    case = testing.case("variable_width")
    row = case.stream[0].slice(0, 1).to_pylist()[0]

    def join():
        case_ = replace(case, resident=None)
        return testing.start("derakhshan", case_, "left", tmp_path, observer=Probe()).join

    def refused(check, size):
        batch = pa.RecordBatch.from_pylist([row | {"c": "x" * size}], schema=case.stream_schema)
        try:
            check(batch)
        except RowTooLargeError:
            return True
        return False

    ordered, engine = lambda batch: join().offer(batch), join().observer.engine.check
    least, inner = (
        bisect.bisect(range(case.memory), False, key=lambda size, c=check: refused(c, size))
        for check in (ordered, engine)
    )
    assert least == inner - 9


def test_derakhshan_drops_what_was_used_longest_ago(master):
    join = start(master, "derakhshan", memory="192KB")
    rng = np.random.default_rng(6)
    list(join.offer(rows_of(1, 2, 3)))
    list(join.drain())
    while not join.metrics.evicted or join.metrics.rows_in < 20_000:
        list(join.offer(rows_of(1, *rng.integers(1000, KEYS, 100))))
    cached = set(join.observer.engine.algorithm.cache.codes.tolist())
    assert 1 in cached
    assert not {2, 3} & cached


def test_options_that_make_no_sense_are_refused(master):
    with pytest.raises(OptionError, match="l=0"):
        start(master, "r-meshjoin", l=0)
    with pytest.raises(OptionError, match="l=-1"):
        start(master, "optimised-x-hybridjoin", l=-1)
    with pytest.raises(OptionError, match=r"cache=1\.5"):
        start(master, "ssij", cache=1.5)
    with pytest.raises(OptionError, match="threshold=0"):
        start(master, "partition-join", threshold=0)
    with pytest.raises(OptionError, match="nodes=0"):
        start(master, "pcsrj", nodes=0)


@pytest.mark.parametrize("read", ["mapped", "direct"])
def test_r_meshjoin_leaves_pages_of_several_parts_out_of_its_runs(read, tmp_path):
    """Its disk buffer goes on behind them with the parts of the pages that it was asked for."""
    keys = np.repeat(np.arange(4_000), np.where(np.arange(4_000) % 400 == 200, 600, 1))
    pads = pa.array([b"x" * 40] * len(keys))
    rows = pa.table({"key": keys, "v": np.arange(len(keys)), "pad": pads})
    ss.build_master(rows, tmp_path, key="key", page_bytes="8KB")
    master = ss.open_master(tmp_path, read)
    assert master.statistics.parts > master.pages
    stream = pa.record_batch({"key": np.random.default_rng(1).integers(0, 4_200, 3_000)})
    join = ss.Join(master, stream.schema, on="key", memory="300KB", algorithm="r-meshjoin", l=1)
    assert join.plan.settings.segment_pages > 3
    found = pa.Table.from_batches([*join.offer(stream), *join.drain()])
    expected = testing.reference_join(pa.Table.from_batches([stream]), rows, on="key")
    testing.same_rows(found, expected)
