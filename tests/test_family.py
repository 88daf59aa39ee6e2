"""The rest of the family: each algorithm makes its paper's decisions."""

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import OptionError
from semistream.workloads import Stream, Zipf, master_table

KEYS = 20_000


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    source = master_table(KEYS, row_bytes=100)
    return ss.build_master(source, tmp_path_factory.mktemp("m"), key="key", page_bytes="8KB")


def start(master, algorithm, memory="256KB", **options):
    wanted = {"on": "key", "filter": False, "memory": memory} | options
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
    """Note the pages that the algorithm asks for, in order."""
    engine, asked = join._operator, []
    bring = engine._bring

    def noted(pages):
        asked.append(pages)
        return bring(pages)

    engine._bring = noted
    return asked


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
    next_page = join._operator.algorithm._next
    now[0] = 2.0
    list(join.tick())
    assert not join.waiting
    list(join.offer(rows_of(7)))
    assert join._operator.algorithm.next_pages().start == next_page
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
        join._operator.algorithm,
        join._operator.window,
        join._operator.task,
    )
    hot = Zipf(KEYS).key_of(np.arange(1, 21))
    assert np.isin(hot, algorithm.cache.codes).all()
    assert window.capacity < join.plan.components["window"]
    assert algorithm._window_rows == task.cost.rows(window.capacity, task.stream_row)


def test_ssbj_reads_fewer_pages_than_meshjoin_for_a_skewed_stream(master):
    pages = {name: feed(start(master, name), 100_000).metrics for name in ("ssbj", "meshjoin")}
    read = {name: m.pages_read / m.answered for name, m in pages.items()}
    assert read["ssbj"] < 0.8 * read["meshjoin"]


def test_options_that_make_no_sense_are_refused(master):
    with pytest.raises(OptionError, match="l=0"):
        start(master, "r-meshjoin", l=0)
