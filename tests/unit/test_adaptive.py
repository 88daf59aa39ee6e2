"""ADAPTIVE: what it looks up, what it sweeps for, what it keeps, and what it promises."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.algorithms import adaptive
from semistream.algorithms.adaptive import Adaptive
from semistream.engine import lookup
from semistream.engine.sketch import Sketch
from semistream.errors import BudgetError, CorruptPageError, JoinFailedError, OptionError
from semistream.master.files.aio import Reads
from semistream.testing import Watched, reference_join, same_rows
from semistream.workloads import Stream, Zipf, master_table
from support.observer import Probe

KEYS = 8_000
ROW = 100
MEMORY = 256 * 1024
PROPERTY = settings(max_examples=150, deadline=None, derandomize=True)
WAYS = pytest.mark.parametrize("options", [{}, {"at_once": False}], ids=["at_once", "sweeping"])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("master")
    ss.build_master(master_table(KEYS, ROW), folder, key="key", page_bytes="4KB")
    return folder


@pytest.fixture
def mapped(path):
    return ss.open_master(path)


@pytest.fixture
def direct(path):
    return opened_direct(path)


def opened_direct(path):
    try:
        return ss.open_master(path, "direct")
    except ss.MasterError as error:
        pytest.skip(str(error))


def started(master, schema, **options):
    options = {"memory": MEMORY, "algorithm": "adaptive", "on": "key"} | options
    return Watched(ss.Join(master, schema, **({"observer": Probe()} | options)))


def algorithm_of(watched) -> Adaptive:
    return watched.join.observer.engine.algorithm


def rows_of(keys) -> pa.RecordBatch:
    return pa.record_batch({"key": np.asarray(keys), "sale": np.arange(len(keys))})


def expected(batches, how="inner", **table):
    master = master_table(**({"keys": KEYS, "row_bytes": ROW} | table)).read_all()
    return reference_join(pa.Table.from_batches(batches), master, on="key", how=how)


# -- looked up at once --------------------------------------------------------------------------


def test_matches_come_in_order_of_arrival_and_absent_rows_behind_them(mapped):
    rng = np.random.default_rng(1)
    stream = rows_of(rng.integers(-100, KEYS + 100, 9_000))
    watched = started(mapped, stream.schema, how="left")
    watched.offer(stream)
    assert watched.join.waiting == 0
    end = 0
    for batch in watched.out:
        matched = batch["price"].is_valid().to_numpy(zero_copy_only=False)
        sales = batch["sale"].to_numpy()
        assert (np.diff(matched.astype(int)) <= 0).all()
        assert (np.diff(sales[matched]) > 0).all()
        assert (np.diff(sales[~matched]) > 0).all()
        assert sorted(sales) == list(range(end, end + len(sales)))
        end += len(sales)
    same_rows(watched.finish(), expected([stream], "left"))
    assert watched.join.metrics.looked_up == 9_000


def addresses(array: pa.Array) -> list[range]:
    return [range(b.address, b.address + b.size) for b in array.buffers() if b is not None]


def test_rows_that_all_match_once_share_the_memory_of_the_batch(mapped):
    words = [f"word {i}" for i in range(5_000)]
    stream = rows_of(np.arange(5_000)[::-1]).append_column("words", pa.array(words))
    watched = started(mapped, stream.schema)
    watched.offer(stream)
    for name in ("key", "sale", "words"):
        given = addresses(stream[name])
        for batch in watched.out:
            assert addresses(batch[name]) == given
    same_rows(watched.finish(), expected([stream]))


@pytest.mark.parametrize("keys", ["int", "text"])
def test_output_never_shares_memory_with_the_window(keys, tmp_path):
    """The window's rows move; whatever the caller keeps must not."""
    table = master_table(KEYS, ROW).read_all()
    if keys == "text":
        table = table.set_column(0, "key", table["key"].cast(pa.string()))
    master = ss.build_master(table, tmp_path, key="key", page_bytes="4KB")
    rng = np.random.default_rng(2)
    sale = np.arange(30_000)
    drawn = pa.array(rng.integers(0, KEYS + 50, len(sale))).cast(table.schema.field("key").type)
    words = pa.array([f"{i}" * 5 for i in range(100)]).take(pa.array(sale % 100))
    columns = {"key": drawn, "sale": sale, "words": words, "flag": pa.array(sale % 3 == 0)}
    stream = pa.record_batch(columns | {"nothing": pa.nulls(len(sale))})
    watched = started(master, stream.schema, how="left", at_once=False)
    window = watched.join.observer.engine.window
    for start in range(0, len(sale), 3_000):
        for batch in watched.join.offer(stream.slice(start, 3_000)):
            watched.out.append(batch)
            held = [b for c in window.rows.columns for b in addresses(c)]
            own = [b for c in batch.columns for b in addresses(c)]
            assert not any(a.start < b.stop and b.start < a.stop for a in own for b in held)
    same_rows(
        watched.finish(),
        reference_join(pa.Table.from_batches([stream]), table, on="key", how="left"),
    )


def faulty(monkeypatch):
    """Page faults as the test says: ``each`` more at every look."""
    state = SimpleNamespace(count=10**6, each=0)

    def page_faults():
        state.count += state.each
        return state.count

    monkeypatch.setattr(lookup, "page_faults", page_faults)
    monkeypatch.setattr(adaptive, "page_faults", page_faults)
    return state


@pytest.mark.parametrize("how", ["inner", "left"])
def test_page_faults_switch_to_sweeps_and_back(how, mapped, monkeypatch):
    faults = faulty(monkeypatch)
    batches = list(Stream(Zipf(KEYS, 0.5), absent=0.1).batches(60_000, 2_000))
    watched = started(mapped, batches[0].schema, how=how)
    seen = []
    for number, batch in enumerate(batches):
        faults.each = 1_000 if 5 <= number < 15 else 0
        before = watched.join.metrics
        watched.offer(batch)
        after = watched.join.metrics
        seen.append((after.looked_up > before.looked_up, after.iterations > before.iterations))
        assert after.rows_in - after.answered == watched.join.waiting
    assert seen[:5] == [(True, False)] * 5  # pages lie in memory
    assert seen[5][0]  # the first rows that have to wait for the disk …
    assert not any(looked_up for looked_up, _ in seen[7:15])  # … are the last
    assert any(swept for _, swept in seen[7:15])
    assert seen[-1] == (True, False)  # pages lie in memory again
    assert watched.join.waiting == 0
    table = master_table(KEYS, ROW).read_all()
    same_rows(
        watched.finish(), reference_join(pa.Table.from_batches(batches), table, on="key", how=how)
    )


def test_at_once_true_looks_up_whatever_it_costs(mapped, monkeypatch):
    faulty(monkeypatch).each = 10**6
    stream = rows_of(np.arange(KEYS))
    watched = started(mapped, stream.schema, at_once=True)
    for start in range(0, KEYS, 500):
        watched.offer(stream.slice(start, 500))
    assert watched.join.metrics.looked_up == KEYS
    same_rows(watched.finish(), expected([stream]))


@pytest.mark.parametrize("wrong", [0, 1, "yes", [], np.True_])
def test_impossible_at_once(wrong, mapped):
    with pytest.raises(OptionError, match="at_once"):
        started(mapped, rows_of([1]).schema, at_once=wrong)


@pytest.mark.parametrize("memory", ["64KB", "256KB"])
@pytest.mark.parametrize("how", ["semi", "left"])
def test_more_rows_than_the_window_holds_ask_for_a_value_of_several_parts(memory, how, tmp_path):
    """They cannot be looked up; their number must not be more than may wait."""
    keys = np.concatenate([np.arange(20_000), np.full(1_000, 500)])
    table = pa.table({"key": keys, "value": np.arange(len(keys))})
    master = ss.build_master(table, tmp_path, key="key", page_bytes="4KB")
    rows = 3_000 if how == "semi" else 60
    stream = rows_of(np.full(rows, 500)).append_column("text", pa.array(["x" * 300] * rows))
    watched = started(master, stream.schema, memory=memory, how=how)
    assert watched.join.observer.engine.lookup is not None
    watched.offer(stream)
    same_rows(
        watched.finish(), reference_join(pa.Table.from_batches([stream]), table, on="key", how=how)
    )


def test_dictionaries_are_decoded_a_few_rows_at_a_time(mapped):
    """A batch of some kilobytes may hide a gigabyte; see `test_budget` for the process."""
    index = pa.array(np.zeros(5_000, dtype=np.int8))
    word = pa.DictionaryArray.from_arrays(index, pa.array(["w" * 1_000]))
    stream = rows_of(np.arange(5_000)).append_column("word", word)
    probe = Probe()
    watched, largest = started(mapped, stream.schema, observer=probe), []
    probe.on_chunk = lambda _, chunk: largest.append(chunk.rows.nbytes)
    watched.read(watched.join.offer(stream), most=20)
    assert watched.join.observer.engine.lookup is not None
    assert max(largest) < MEMORY


# -- sweeps -------------------------------------------------------------------------------------


def swept(watched):
    """Count, for each row by its sale, the sweeps that it has waited for; and keep the choices."""
    of, window = algorithm_of(watched), watched.join.observer.engine.window
    waited, choices = Counter(), []

    def counted(_, runs):
        waiting = window.rows["sale"].to_numpy()[window.state == 0]
        waited.update(waiting.tolist())
        counts = np.bincount(window.pages[window.state == 0], minlength=len(of._counts))
        choices.append((counts, runs))

    watched.join.observer.on_pages = counted
    return waited, choices


def adversarial(rows):
    """Keys of the first third, at random, and every 100th of a page behind, another each time."""
    keys = np.random.default_rng(3).integers(0, KEYS // 3, rows)
    cold = np.arange(0, rows, 100)
    keys[cold] = KEYS // 3 + (cold // 100 * 41) % (KEYS * 2 // 3)
    return keys


@pytest.mark.parametrize("batch", [100, 7_000])
@pytest.mark.parametrize("read", ["mapped", "direct"])
def test_no_row_waits_for_more_than_16_sweeps(read, batch, path):
    master = ss.open_master(path) if read == "mapped" else opened_direct(path)
    stream = rows_of(adversarial(60_000))
    watched = started(master, stream.schema, at_once=False)
    waited, choices = swept(watched)
    for start in range(0, stream.num_rows, batch):
        watched.offer(stream.slice(start, batch))
    assert len(choices) > 40
    assert max(waited.values()) == 16  # some rows wait until then: the stream is adversarial
    same_rows(watched.finish(), expected([stream]))


def test_a_sweep_brings_the_fullest_pages_and_frees_a_quarter(mapped):
    stream = rows_of(Zipf(KEYS, 0.7).sample(20_000, np.random.default_rng(4)))
    watched = started(mapped, stream.schema, at_once=False)
    window, (_, choices) = watched.join.observer.engine.window, swept(watched)
    observer, starts, sizes = watched.join.observer, [], []
    count = observer.on_pages

    def counted(engine, runs):
        starts.append(window.gone)
        count(engine, runs)

    observer.on_pages = counted
    observer.on_round = lambda _: sizes.append((len(window), window.gone))
    watched.offer(stream)
    for before, (held, gone) in zip(starts, sizes, strict=True):
        assert gone >= min(held, max(1, held // 4 - before))
    some = 0
    for counts, runs in choices[:15]:  # no row is old enough to be brought for its age
        chosen = [page for run in runs for page in run]
        assert chosen == sorted(set(chosen))
        rest = np.delete(counts, chosen)
        assert counts[chosen].min() >= rest.max(initial=0)
        some += len(rest[rest > 0]) > 0
    assert some


@PROPERTY
@given(
    counts=st.lists(st.integers(0, 12) | st.integers(0, 3), min_size=1, max_size=60),
    rows=st.lists(st.integers(1, 80), min_size=1, max_size=4),
)
def test_the_fullest_pages(counts, rows):
    of = object.__new__(Adaptive)
    of._counts, of._hand = np.array(counts, dtype=np.int32), 0
    for wanted in rows:
        if not any(counts):
            break
        chosen = of._fullest(wanted)
        assert chosen.tolist() == sorted(set(chosen.tolist()))
        inside, outside = of._counts[chosen], np.delete(of._counts, chosen)
        assert inside.min() > 0
        assert inside.sum() >= min(wanted, sum(counts))
        assert inside.min() >= outside.max(initial=0)
        assert inside.sum() - inside.min() < wanted  # and no more than it takes


def test_of_pages_equally_full_none_is_passed_over():
    of = object.__new__(Adaptive)
    of._counts, of._hand = np.full(10, 2, dtype=np.int32), 0
    chosen = [of._fullest(6).tolist() for _ in range(4)]
    assert chosen == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 1, 9]]


@PROPERTY
@given(pages=st.sets(st.integers(0, 60)), most=st.integers(1, 5))
def test_runs_are_neighbours(pages, most):
    of = object.__new__(Adaptive)
    of.engine = SimpleNamespace(plan=SimpleNamespace(settings=SimpleNamespace(run_pages=most)))
    runs = of._runs(np.array(sorted(pages), dtype=np.int64))
    assert [page for run in runs for page in run] == sorted(pages)
    assert all(1 <= len(run) <= most for run in runs)
    for a, b in pairwise(runs):
        assert a.stop < b.start or len(a) == most


# -- direct reads -------------------------------------------------------------------------------


def damage(path, page):
    master = ss.open_master(path)
    with master.pages_file.path.open("r+b") as file:
        file.seek(int(master.index.offset[page]) + 700)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("way", ["direct", "mapped", "at_once"])
def test_a_damaged_page_ends_the_join(way, tmp_path):
    ss.build_master(master_table(KEYS, ROW), tmp_path, key="key", page_bytes="4KB")
    damage(tmp_path, 90)
    master = opened_direct(tmp_path) if way == "direct" else ss.open_master(tmp_path)
    stream = rows_of(np.random.default_rng(5).permutation(KEYS))
    watched = started(master, stream.schema, at_once=way == "at_once")

    def run():
        for start in range(0, KEYS, 1_000):
            watched.offer(stream.slice(start, 1_000))
        watched.finish()

    with pytest.raises(CorruptPageError, match="page 90"):
        run()
    for call in (watched.join.drain, watched.join.tick, lambda: watched.join.offer(stream)):
        with pytest.raises(JoinFailedError, match="page 90"):
            call()


def test_an_iteration_broken_off_amid_a_sweep_loses_nothing(direct):
    stream = rows_of(np.random.default_rng(6).integers(0, KEYS, 12_000))
    watched = started(direct, stream.schema)
    broken = 0
    for start in range(0, stream.num_rows, 2_000):
        results = watched.join.offer(stream.slice(start, 2_000))
        watched.read(results, most=1)
        reads = watched.join.metrics.reads
        del results
        gc.collect()
        watched.read(watched.join.tick())
        broken += reads > 0 and watched.join.metrics.reads > reads
    assert broken
    same_rows(watched.finish(), expected([stream]))


def reads_in_flight():
    gc.collect()
    return [thing for thing in gc.get_objects() if isinstance(thing, Reads)]


@pytest.mark.parametrize("broken_off", [False, True])
def test_reads_in_flight_end_with_their_join(broken_off, direct):
    before = len(reads_in_flight())
    stream = rows_of(np.random.default_rng(7).integers(0, KEYS // 4, 4_000))
    for _ in range(50):
        watched = started(direct, stream.schema)
        watched.read(watched.join.offer(stream), most=1)
        if not broken_off:
            watched.finish()
    assert len(reads_in_flight()) > before
    del watched
    assert len(reads_in_flight()) == before


LEFT = """\
import sys
import numpy as np, pyarrow as pa
import semistream as ss
keys = np.random.default_rng(6).integers(0, 8_000, 12_000)
stream = pa.record_batch({"key": keys, "sale": np.arange(12_000)})
join = ss.Join(ss.open_master(sys.argv[1], "direct"), stream.schema, on="key", memory=262_144)
results = join.offer(stream)
while join.metrics.reads < 3:
    next(results)
print(join.metrics.reads)
"""


def test_a_process_ends_that_was_left_amid_a_sweep(direct, path):
    command = [sys.executable, "-c", LEFT, str(path)]
    # It ends in seconds, or never.
    done = subprocess.run(command, check=True, capture_output=True, timeout=300)  # noqa: S603
    assert int(done.stdout) >= 3


@pytest.mark.parametrize("fault", ["none", "not taken", "short"])
def test_reads_that_fail_in_flight_are_done_again(fault, direct, monkeypatch):
    if fault == "none":  # a system without asynchronous reads
        monkeypatch.setattr(Reads, "open", lambda *_: None)
    if fault == "not taken":
        monkeypatch.setattr(Reads, "start", lambda *_: None)
    if fault == "short":
        wait = Reads.wait
        monkeypatch.setattr(Reads, "wait", lambda self, group: wait(self, group) and False)
    stream = rows_of(np.random.default_rng(11).integers(0, KEYS, 8_000))
    watched = started(direct, stream.schema)
    watched.offer(stream)
    same_rows(watched.finish(), expected([stream]))


@pytest.mark.parametrize("read", ["mapped", "direct"])
def test_two_joins_on_one_master_in_turn(read, path):
    master = ss.open_master(path) if read == "mapped" else opened_direct(path)
    streams = [rows_of(np.random.default_rng(s).integers(0, KEYS, 8_000)) for s in (8, 9)]
    joins = [
        started(master, s.schema, at_once=a) for s, a in zip(streams, (None, False), strict=True)
    ]
    results = [None, None]
    for start in range(0, 8_000, 2_000):
        for i, (watched, stream) in enumerate(zip(joins, streams, strict=True)):
            results[i] = watched.join.offer(stream.slice(start, 2_000))
        while any(r is not None for r in results):
            for i, watched in enumerate(joins):
                batch = next(results[i], None) if results[i] is not None else None
                if batch is None:
                    results[i] = None
                else:
                    watched.out.append(batch)
    for watched, stream in zip(joins, streams, strict=True):
        same_rows(watched.finish(), expected([stream]))


@pytest.mark.parametrize("read", ["mapped", "direct"])
def test_joins_on_one_master_in_several_threads(read, path):
    master = ss.open_master(path) if read == "mapped" else opened_direct(path)
    streams = [rows_of(np.random.default_rng(s).integers(0, KEYS, 8_000)) for s in range(4)]
    found = {}

    def run(number):
        watched = started(master, streams[number].schema, at_once=None if number % 2 else False)
        for start in range(0, 8_000, 2_000):
            watched.offer(streams[number].slice(start, 2_000))
        found[number] = watched.finish()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, stream in enumerate(streams):
        same_rows(found[number], expected([stream]))


# -- the cache ----------------------------------------------------------------------------------

PERIOD = 10 * 1_024  # stream rows after which counts are halved, for a cache as small as here


def run_zipf(master, exponent, rows, drift_at=None):
    """Join a stream; give, for each period, what the cache held and how many rows it answered."""
    stream = Stream(Zipf(KEYS, exponent), seed=3, drift_at=drift_at)
    watched = started(master, stream.schema, at_once=False)
    of, window, hits = algorithm_of(watched), watched.join.observer.engine.window, 0
    seen = []
    for number, batch in enumerate(stream.batches(rows, 2_048), 1):
        watched.offer(batch)
        watched.out.clear()
        check_division(of, window)
        if number % (PERIOD // 2_048) == 0:
            answered = watched.join.metrics.cache_hits - hits
            hits += answered
            seen.append((set(of.cache.codes.tolist()), answered / PERIOD))
    return watched, seen


def check_division(of, window):
    """Cache and window together hold no more than what they divide."""
    assert window.cost(len(window), window._bytes) + of.cache.claimed <= of._divided + of._staging
    assert window.nbytes + of.cache.nbytes <= of._divided + of._staging
    assert window.capacity >= of.engine.least_capacity
    assert of._least_cache <= of._target <= of._largest_cache


def test_the_cache_holds_the_hot_keys_and_follows_a_drift(mapped):
    """Within 2 periods, at the start and after a drift; nearly all of the old is gone after 8."""
    zipf, ranks = Zipf(KEYS, 1.0), np.arange(1, 31)
    hot = set(zipf.key_of(ranks).tolist())
    hot_later = set(zipf.key_of(ranks + KEYS // 2).tolist())
    _, seen = run_zipf(mapped, 1.0, 16 * PERIOD, drift_at=8 * PERIOD)
    for held, answered in seen[2:8]:
        assert hot <= held
        assert answered > 0.5
    assert seen[8][1] < 0.5
    for held, answered in seen[10:]:
        assert hot_later <= held
        assert answered > 0.5
    assert len(hot & seen[15][0]) < 5


def test_without_skew_all_memory_is_the_windows(mapped):
    watched, seen = run_zipf(mapped, 0.0, 10 * PERIOD)
    of, window = algorithm_of(watched), watched.join.observer.engine.window
    assert window.capacity == of._divided
    assert seen[-1] == (set(), 0)


@pytest.mark.parametrize(
    ("exponents", "batch"),
    [
        ((0.0, 0.7), 2_048),
        ((1.0, 0.0, 1.0), 40_000),
        pytest.param((0.0, 0.7), 40_000, marks=pytest.mark.long),
        pytest.param((0.0, 1.0), 2_048, marks=pytest.mark.long),
        pytest.param((0.0, 1.0), 40_000, marks=pytest.mark.long),
        pytest.param((1.0, 0.0, 1.0), 2_048, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_a_cache_that_was_given_up_comes_back_when_skew_does(exponents, batch, mapped):
    watched, sent = None, []
    for number, exponent in enumerate(exponents):
        stream = Stream(Zipf(KEYS, exponent), seed=number)
        watched = watched or started(mapped, stream.schema, at_once=False)
        for rows in stream.batches((16 + 20 * (number == len(exponents) - 1)) * PERIOD, batch):
            watched.offer(rows)
            sent.append(rows)
        held = set(algorithm_of(watched).cache.codes.tolist())
        hot = Zipf(KEYS, exponent).key_of(np.arange(1, 11)).tolist() if exponent else []
        assert set(hot) <= held if exponent else not held
    same_rows(watched.finish(), expected(sent))


def test_it_comes_back_for_few_keys_that_are_asked_for_alike(mapped):
    rng, watched, hits = np.random.default_rng(7), None, []
    for keys, periods in ((KEYS, 16), (200, 40)):
        for _ in range(periods * PERIOD // 2_048):
            batch = rows_of(rng.integers(0, keys, 2_048))
            watched = watched or started(mapped, batch.schema, at_once=False)
            watched.offer(batch)
            watched.out.clear()
        hits.append(watched.join.metrics.cache_hits)
    assert hits[0] < 0.05 * 16 * PERIOD
    assert hits[1] - hits[0] > 0.3 * 40 * PERIOD


def test_with_several_rows_a_key_it_comes_back_too(tmp_path):
    keys = KEYS // 4
    table = master_table(keys, ROW, duplicates=4)
    master = ss.build_master(table, tmp_path, key="key", page_bytes="4KB")
    watched, hits = None, []
    for exponent, periods in ((0.0, 12), (1.0, 30)):
        stream = Stream(Zipf(keys, exponent), seed=3)
        watched = watched or started(master, stream.schema, at_once=False)
        for batch in stream.batches(periods * PERIOD, 4_096):
            watched.offer(batch)
            watched.out.clear()
        hits.append(watched.join.metrics.cache_hits)
    assert hits[1] - hits[0] > 0.15 * 30 * PERIOD
    assert hits[0] < 0.05 * 12 * PERIOD


@pytest.mark.parametrize("absent", [0.0, 0.7])
def test_a_cache_does_not_come_and_go(absent, path):
    """One key far ahead of even ones is not worth a cache here, whatever page comes first."""
    rng = np.random.default_rng(5)
    watched, changes, before = None, 0, True
    for _ in range(60):
        drawn = rng.integers(0, KEYS, 8_192)
        drawn[rng.random(8_192) < 0.03] = 4_321
        drawn[rng.random(8_192) < absent] += KEYS
        batch = rows_of(drawn)
        watched = watched or started(ss.open_master(path), batch.schema, at_once=False)
        watched.offer(batch)
        watched.out.clear()
        changes += algorithm_of(watched)._pays != before
        before = algorithm_of(watched)._pays
    assert changes <= 3


@pytest.mark.parametrize("rows", [1, 5])
def test_a_key_that_fills_whole_output_batches_is_cached(rows, tmp_path):
    """Of its rows those at the ends may be cut off from their pairs, but not those between."""
    keys = np.append(np.arange(KEYS), np.full(rows - 1, 8))
    table = pa.table({"key": keys, "n": np.arange(len(keys)), "pad": ["p" * 60] * len(keys)})
    master = ss.build_master(table, tmp_path, key="key", page_bytes="4KB")
    stream = rows_of(np.where(np.arange(12_000) % 50, 8, np.arange(12_000) % KEYS))
    watched = started(master, stream.schema, at_once=False)
    held = []
    for start in range(0, 12_000, 1_000):
        watched.offer(stream.slice(start, 1_000))
        held.append(int(np.sum(algorithm_of(watched).cache.codes == 8)))
    assert held[-1] == rows
    assert watched.join.metrics.cache_hits > 6_000
    same_rows(watched.finish(), reference_join(pa.Table.from_batches([stream]), table, on="key"))


def test_with_much_skew_the_cache_answers_nearly_all(mapped):
    _, seen = run_zipf(mapped, 1.5, 6 * PERIOD)
    assert all(answered > 0.85 for _, answered in seen[2:])


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
@pytest.mark.parametrize("how", ["inner", "semi"])
def test_whole_join_values_are_cached_but_none_larger_than_a_page(how, kind, tmp_path):
    rng = np.random.default_rng(10)
    keys = np.concatenate([rng.integers(0, 2_000, 6_000), np.full(600, 7), np.full(8, 8)])
    table = pa.table({"key": pa.array(keys).cast(kind), "n": np.arange(len(keys))})
    table = table.append_column("pad", pa.array([b"p" * 60] * len(keys), pa.binary(60)))
    master = ss.build_master(table, tmp_path, key="key", page_bytes="4KB")
    drawn = Zipf(2_000, 1.1, scatter=False).sample(12_000, rng) + 6
    drawn[drawn == 7] = np.where(np.arange(np.sum(drawn == 7)) % 400 == 0, 7, 8)
    stream = rows_of(drawn)
    stream = stream.set_column(0, "key", stream["key"].cast(kind))
    watched = started(master, stream.schema, how=how, at_once=False, memory=128 * 1024)
    of, held = algorithm_of(watched), set()
    code_of = dict(
        zip(
            keys.tolist(),
            master.keys.encode([table["key"].combine_chunks()]).values.tolist(),
            strict=True,
        )
    )
    rows = Counter(code_of[key] for key in keys.tolist())
    for start in range(0, stream.num_rows, 1_000):
        watched.offer(stream.slice(start, 1_000))
        cached = Counter(of.cache.codes.tolist())
        once = how == "semi" and kind == pa.int64()  # then one row tells all
        assert all(count == (1 if once else rows[code]) for code, count in cached.items())
        held |= cached.keys()
    assert code_of[8] in held
    assert code_of[7] not in held
    assert watched.join.metrics.cache_hits > 3_000
    same_rows(
        watched.finish(), reference_join(pa.Table.from_batches([stream]), table, on="key", how=how)
    )


@pytest.mark.parametrize("read", ["mapped", "direct"])
@WAYS
def test_tiny_budgets(options, read, path):
    """From the least on: all rows come, within the budget, whatever it has no room for."""
    master = ss.open_master(path) if read == "mapped" else opened_direct(path)
    stream = rows_of(Zipf(KEYS + 99, 0.8).sample(900, np.random.default_rng(11)))
    with pytest.raises(BudgetError) as refusal:
        started(master, stream.schema, memory=1, **options)
    least = int(str(refusal.value).split("least that works is ")[1].split(" ")[0].replace(",", ""))
    plans = []
    for memory in [least, *range(least + 1_000, 8 * least, least)]:
        watched = started(master, stream.schema, how="left", memory=memory, **options)
        plans.append(watched.join.observer.engine.lookup is not None)
        for start in range(0, 900, 300):
            watched.offer(stream.slice(start, 300))
        same_rows(watched.finish(), expected([stream], "left"))
    assert not plans[0]
    assert plans[-1] == (read == "mapped" and not options)


# -- the sketch ---------------------------------------------------------------------------------

CODES = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 20)


def as_codes(codes):
    return np.array(codes, dtype=np.int64)


@PROPERTY
@given(
    codes=st.lists(CODES, max_size=300),
    others=st.lists(CODES, max_size=20),
    size=st.sampled_from([1, 8, 9, 100, 4_096]),
)
def test_a_sketch_never_counts_too_little(codes, others, size):
    sketch, true = Sketch(size), Counter(codes)
    for start in range(0, len(codes), 70):
        sketch.add(as_codes(codes[start : start + 70]))
    asked = [*true, *others]
    estimates = sketch.estimate(as_codes(asked)).tolist()
    for code, estimate in zip(asked, estimates, strict=True):
        assert min(true[code], 255) <= estimate <= min(len(codes), 255)
    sketch.age()
    assert sketch.estimate(as_codes(asked)).tolist() == [e // 2 for e in estimates]
    assert 8 <= sketch.nbytes <= max(8, size)


def test_a_sketch_counts_to_255_and_stays_there():
    sketch = Sketch(1 << 12)
    for _ in range(30):
        sketch.add(as_codes([5] * 10))
    sketch.add(as_codes([6]))
    assert sketch.estimate(as_codes([5, 6, 7])).tolist() == [255, 1, 0]
    sketch.age()
    sketch.add(as_codes([5]))
    assert sketch.estimate(as_codes([5])).tolist() == [128]


def test_a_sketch_is_nearly_right():
    """2,000 keys in 64 KB: few of their counters are shared by all four."""
    rng = np.random.default_rng(12)
    codes = rng.integers(-(2**62), 2**62, 2_000)
    times = rng.integers(1, 40, len(codes))
    sketch = Sketch(1 << 16)
    sketch.add(rng.permutation(np.repeat(codes, times)))
    assert np.mean(sketch.estimate(codes) == times) > 0.999
    assert np.mean(sketch.estimate(rng.integers(2**62, 2**63, 10_000)) == 0) > 0.999


# -- the window's memory of arrivals ------------------------------------------------------------


def test_arrived_by_names_all_rows_that_came_by_then(mapped):
    """And some that came later, for of neighbouring arrivals only the earlier is remembered."""
    stream = rows_of(np.random.default_rng(13).integers(0, KEYS, 1_500))
    watched = started(mapped, stream.schema, at_once=False)
    window = watched.join.observer.engine.window
    for start in range(0, 1_500, 10):
        watched.offer(stream.slice(start, 10))
        sales = window.rows["sale"].to_numpy()
        assert window.arrived_by(0) == 0
        for count in (10, start // 20 * 10, start, start + 10):
            named = window.arrived_by(count)
            assert np.sum(sales < count) <= named <= len(window)
            assert np.sum(sales < count + 10 * 64) >= named
        assert window.arrived_by(start + 10) == len(window)
