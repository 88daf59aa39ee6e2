"""What is warm on a host: shared by processes, outliving them, never wrong, within the budget."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import product
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.arrow.gather import OutputColumns
from semistream.errors import BudgetError, HostFolderError, JoinClosedError
from semistream.hotset import HostShare, HostSizes, default_root, journal, slot, sweep_folder
from semistream.hotset.merge import choose_rows, write
from semistream.hotset.plan import Host
from semistream.hotset.shards import Shards
from semistream.hotset.sizes import overhead
from semistream.hotset.slot import Slot
from semistream.system import shared_folder as folder
from semistream.testing import Watched, reference_join, same_rows
from semistream.workloads import Stream, Zipf, master_table
from support.matrix import ALL
from support.observer import Probe

KEYS, ROW, MEMORY = 40_000, 100, 1 << 20
PROPERTY = settings(max_examples=100, deadline=None, derandomize=True)


def opened(path):
    try:
        return ss.open_master(path, "direct")
    except ss.MasterError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    where = tmp_path_factory.mktemp("master")
    ss.build_master(master_table(KEYS, ROW), where, key="key", page_bytes="4KB")
    return where


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


def started(master, schema, root, tasks=2, **options):
    options = {"memory": MEMORY, "on": "key"} | options
    return Watched(
        ss.Join(master, schema, shared=HostShare(root, tasks), observer=Probe(), **options)
    )


def answered(watched, batch):
    """Join one micro-batch, as a task does."""
    watched.offer(batch)
    found = watched.finish()
    watched.join.close()
    return found


def state_of(watched):
    return watched.join.observer.engine.algorithm.host


def zipf(rows, each=2_000, exponent=1.0, seed=3, absent=0.0):
    return list(Stream(Zipf(KEYS, exponent), seed=seed, absent=absent).batches(rows, each))


def hit_rate(metrics):
    metrics = list(metrics)
    return sum(m.cache_hits for m in metrics) / sum(m.rows_in for m in metrics)


# -- rows are right -----------------------------------------------------------------------------


def table_of(kind):
    rng = np.random.default_rng(1)
    keys = np.concatenate([np.arange(3_000), rng.integers(0, 300, 600), np.full(300, 7)])
    numbers = np.arange(len(keys))
    columns = {"key": pa.array(keys), "n": numbers, "pad": pa.array([b"p" * 40] * len(keys))}
    if kind == "fixed":
        columns["pad"] = columns["pad"].cast(pa.binary(40))
    if kind in {"texts", "nested"}:
        words = [None if i % 7 == 0 else f"{i}" * (i % 9) for i in range(len(keys))]
        columns |= {"key": columns["key"].cast(pa.string()), "word": words}
        columns |= {
            "flag": pa.array([None if i % 5 == 0 else i % 3 == 0 for i in range(len(keys))])
        }
    if kind == "nested":
        items = [None if i % 11 == 0 else list(range(i % 4)) for i in range(len(keys))]
        columns |= {"items": pa.array(items, pa.list_(pa.int32())), "none": pa.nulls(len(keys))}
        columns |= {"pair": pa.array([{"a": i, "b": str(i)} for i in range(len(keys))])}
    return pa.table(columns)


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("kind", ["fixed", "texts", "nested"])
def test_rows_are_those_of_the_reference_while_generations_change(kind, how, tmp_path, root):
    """Values of several rows and hashed keys included; two joins are always at work."""
    table = table_of(kind)
    ss.build_master(table, tmp_path / "m", key="key", page_bytes="4KB")
    master = opened(tmp_path / "m")
    rng = np.random.default_rng(2)
    drawn = Zipf(3_200, 1.1, scatter=False).sample(24_000, rng)
    keys = pa.array(drawn).cast(table.schema.field("key").type)
    stream = pa.record_batch({"key": keys, "sale": np.arange(len(drawn))})
    joins, found, numbers, hits = [], [], set(), 0
    for start in range(0, stream.num_rows, 1_500):
        joins.append(started(master, stream.schema, root, how=how))
        for half, one in enumerate((joins[-1], joins[0])):  # the older moves on to what is new
            one.offer(stream.slice(start + 750 * half, 750))
            now = state_of(one)._now  # as it was last looked at
            numbers.add(max(each.number for _, each in now.held) if now else 0)
        if len(joins) == 3:
            found.append(joins[0].finish())
            hits += joins[0].join.metrics.cache_hits
            joins.pop(0).join.close()
    for watched in joins:
        found.append(watched.finish())
        watched.join.close()
    assert len(numbers) > 5
    assert hits > 3_000
    expected = reference_join(pa.Table.from_batches([stream]), table, on="key", how=how)
    same_rows(pa.concat_tables(found), expected)


def test_one_row_a_task_is_warm_in_the_end(path, root):
    """The first and last value of an output batch may be cut off, but not when they are whole."""
    master, stream = opened(path), zipf(400, each=1, exponent=1.5)
    found, joins = [], []
    for batch in stream:
        watched = started(master, batch.schema, root)
        found.append(answered(watched, batch))
        joins.append(watched.join.metrics)
    assert hit_rate(joins[200:]) > 0.4
    table = master_table(KEYS, ROW).read_all()
    same_rows(
        pa.concat_tables(found), reference_join(pa.Table.from_batches(stream), table, on="key")
    )


def test_rows_on_their_way_from_an_old_master_are_no_obstacle(tmp_path, root):
    """A worker that was killed left them in the log, then a build came."""
    batches = zipf(20_000)
    for seed in (0, 1):
        ss.build_master(master_table(KEYS, ROW, seed=seed), tmp_path / "m", key="key")
        killed = started(opened(tmp_path / "m"), batches[0].schema, root)
        for batch in batches:
            killed.offer(batch)
        assert killed.finish().num_rows == 20_000


def test_a_master_that_was_built_anew_is_never_answered_from_the_old(tmp_path, root):
    where, batches = tmp_path / "m", zipf(16_000)
    for price in (1, 2):
        keys = np.arange(KEYS)
        table = pa.table({"key": keys, "price": np.full(KEYS, price), "pad": ["p" * 60] * KEYS})
        ss.build_master(table, where, key="key", page_bytes="4KB")
        master = opened(where)
        joins = []
        for batch in batches:
            watched = started(master, batch.schema, root, select=["price"])
            assert set(answered(watched, batch)["price"].to_pylist()) == {price}
            joins.append(watched.join.metrics)
        assert hit_rate(joins[4:]) > 0.2
        assert joins[0].cache_hits < 500
    assert len(list(root.iterdir())) == 1


# -- processes ----------------------------------------------------------------------------------


def work(path, root, tasks, inbox, outbox):
    """Join each batch that comes, each with a join of its own."""
    master = ss.open_master(path, "direct")
    while (batch := inbox.get()) is not None:
        watched = started(master, batch.schema, root, tasks)
        found = answered(watched, batch)
        outbox.send((watched.join.metrics, found["sale"].to_pylist()))


class Executor:
    """Processes that take batches at random, as many as ``count``."""

    def __init__(self, path, root, count):
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["test_host"])
        self._work = partial(work, path, root, count)
        self._random = random.Random(1)  # noqa: S311
        self.workers = [self._start() for _ in range(count)]

    def _start(self):
        # With ways of its own: a worker that is killed may hold the lock of a shared one.
        inbox, (answers, outbox) = self._context.Queue(), self._context.Pipe(duplex=False)
        process = self._context.Process(target=self._work, args=(inbox, outbox))
        process.start()
        return process, inbox, answers

    def run(self, batches):
        """Let a trigger's batches be joined; give the metrics of each join, in order of end."""
        seen, sales, batches = [], [], list(batches)
        idle, expected = list(self.workers), [s for b in batches for s in b["sale"].to_pylist()]
        while batches or len(idle) < len(self.workers):
            if batches and idle:
                chosen = idle.pop(self._random.randrange(len(idle)))
                chosen[1].put(batches.pop(0))
                continue
            busy = {worker[2]: worker for worker in self.workers if worker not in idle}
            ready = wait(busy, timeout=120)
            assert ready
            metrics, rows = ready[0].recv()
            idle.append(busy[ready[0]])
            seen.append(metrics)
            sales += rows
        assert sorted(sales) == sorted(expected)
        return seen

    def kill(self):
        """End one worker at once, and start another."""
        process, *_ = self.workers.pop()
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        self.workers.append(self._start())

    def end(self):
        """End all workers, as when none was needed for a while."""
        for process, inbox, _ in self.workers:
            inbox.put(None)
            process.join()


def private_rate(path, batches):
    """Give the hit rate of one operator with all of the memory, when it is warm."""
    join = ss.Join(ss.open_master(path, "direct"), batches[0].schema, on="key", memory=MEMORY)
    rates = []
    for batch in batches:
        before = join.metrics
        for _ in join.offer(batch):
            pass
        rates.append((join.metrics.cache_hits - before.cache_hits) / batch.num_rows)
    return float(np.mean(rates[len(rates) // 2 :]))


def test_processes_hold_together_what_one_operator_would(path, root):
    opened(path)
    batches = zipf(120_000)
    private = private_rate(path, batches)
    first = Executor(path, root, 2)
    first.run(batches[:30])
    assert hit_rate(first.run(batches[30:40])) > private - 0.05
    first.kill()
    assert hit_rate(first.run(batches[40:50])) > private - 0.05
    first.end()
    second = Executor(path, root, 2)
    rate = hit_rate(second.run(batches[50:60]))
    second.end()
    assert rate > private - 0.05


@pytest.mark.long
def test_eight_processes(path, root):
    opened(path)
    batches = zipf(90_000)
    executor = Executor(path, root, 8)
    executor.run(batches[:35])
    rate = hit_rate(executor.run(batches[35:]))
    executor.end()
    assert rate > private_rate(path, batches) - 0.05


def our_path():
    """The environment in which a process finds what this one does."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}


DIES = """
import os, signal, sys
import semistream as ss
from support.matrix import ALL
from semistream.hotset import merge, state
from test_host import answered, started, zipf

path, root, where = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if where == "column":
    column = merge._Writer._column
    merge._Writer._column = lambda self, i: column(self, i) if i < 2 else die()
elif where == "header":
    state.Slot.finish = die
else:
    state.Journal.clear = die
master = ss.open_master(path, "direct")
for batch in zipf(30_000, seed=4):
    answered(started(master, batch.schema, root), batch)
"""


PLACES = ["column", "header", "log"]
SOME = [(False, "column"), (True, "header"), (True, "log")]


@pytest.mark.parametrize(("warm", "where"), list(product([False, True], PLACES)) if ALL else SOME)
def test_killed_while_publishing(warm, where, path, root):
    master, batches = opened(path), zipf(30_000)
    for batch in batches if warm else ():
        answered(started(master, batch.schema, root), batch)
    argv = [sys.executable, "-c", DIES, str(path), str(root), where]
    ended = subprocess.run(argv, env=our_path(), check=False)  # noqa: S603
    assert ended.returncode == -signal.SIGKILL
    rates, found = [], []
    for batch in batches:
        watched = started(master, batch.schema, root)
        found.append(answered(watched, batch))
        rates.append(watched.join.metrics)
    assert hit_rate(rates[:1] if warm else rates[-4:]) > 0.25
    table = master_table(KEYS, ROW).read_all()
    same_rows(
        pa.concat_tables(found), reference_join(pa.Table.from_batches(batches), table, on="key")
    )


def test_a_slot_in_use_is_not_written_to(path, root):
    """However often others want to publish; afterwards they can."""
    master, batches = opened(path), zipf(40_000)
    for batch in batches[:4]:
        answered(started(master, batch.schema, root), batch)
    reader = started(master, batches[0].schema, root)
    old = state_of(reader).newest()
    rows = [generation.batch.to_pylist() for _, generation in old.held]
    others = [started(master, batch.schema, root) for batch in batches[4:]]
    for other, batch in zip(others, batches[4:], strict=True):
        answered(other, batch)
    assert [generation.batch.to_pylist() for _, generation in old.held] == rows
    number = max(generation.number for _, generation in old.held)
    assert max(s.number for s in state_of(reader)._slots) > number
    reader.offer(batches[1])
    assert max(generation.number for _, generation in state_of(reader).newest().held) > number
    reader.join.close()


def test_no_shard_is_left_out_for_ever_where_someone_reads_all_the_time(path, root):
    """A publisher finds one free slot then; the next one goes on with the next shard."""
    master, schema = opened(path), zipf(1)[0].schema
    host = started(master, schema, root, memory="16MB").join.observer.engine.task.host
    writer, reader = host.open(), host.open()

    def stage(first):
        nulls = [pa.nulls(500, kind) for kind in host.schema.types[1:]]
        codes = pa.array(range(first, first + 500))
        rows = pa.RecordBatch.from_arrays([codes, *nulls], schema=host.schema)
        writer.stage(rows, np.full(500, 5))

    stage(0)
    with writer._journal.alone():
        writer._publish()
    writer.rest()
    assert len(writer.newest()) == 500
    assert len(writer._generations) == host.sizes.shards > 1
    numbers = [generation.number for generation in writer._generations]
    stage(1_000)
    for _ in range(2 * host.sizes.shards):
        reader.newest()
        with writer._journal.alone():
            writer._publish()
        writer.rest()
        reader.rest()
    writer.newest()
    assert all(g.number > n for g, n in zip(writer._generations, numbers, strict=True))
    assert len(writer.newest()) == 1_000
    assert not writer._journal.staged_bytes(writer._snapshot)
    writer.close()
    reader.close()


def test_shards_without_a_staged_row_stay_as_they_are(path, root):
    watched = started(opened(path), zipf(1)[0].schema, root, memory="16MB")
    host = watched.join.observer.engine.task.host
    state, nulls = host.open(), [pa.nulls(1, kind) for kind in host.schema.types[1:]]
    for code in range(3):
        rows = pa.RecordBatch.from_arrays([pa.array([code]), *nulls], schema=host.schema)
        state.stage(rows, np.ones(1, dtype=np.int64))
    with state._journal.alone():
        state._publish()
    state.rest()
    found = state.newest()
    assert len(found) == 3
    assert 1 <= len(found.held) < host.sizes.shards
    assert sorted(np.concatenate([each.codes for _, each in found.held]).tolist()) == [0, 1, 2]
    state.close()


def test_a_small_master_has_a_hot_set_within_any_budget(path, root):
    sizes = [
        HostSizes.of(size << 20, opened(path).page_schema, 1_000, 120) for size in (1, 16, 256)
    ]
    assert all(sizes)
    assert {each.slot * each.shards >= 1_000 * 137 for each in sizes} == {True}


def test_what_a_task_stages_has_room_in_the_log(path, root):
    """However large its memory is, and however few rows the hot set can have."""
    master, batches = opened(path), zipf(24_000)
    plan = started(master, batches[0].schema, root, memory="256MB").join.plan
    assert plan.components.cache <= plan.host["host staged"] / 2
    metrics = []
    for batch in batches:
        watched = started(master, batch.schema, root, memory="256MB")
        answered(watched, batch)
        metrics.append(watched.join.metrics)
    assert hit_rate(metrics[-2:]) > 0.5


def test_many_tasks_keep_windows_and_reads_of_their_own(tmp_path, root):
    ss.build_master(master_table(100_000, 120), tmp_path / "m", key="key", page_bytes="128KB")
    master = opened(tmp_path / "m")
    plans = {
        tasks: started(master, zipf(1)[0].schema, root, memory="16MB", tasks=tasks).join.plan
        for tasks in (2, 8)
    }
    assert sum(plans[2].host.values()) > 4 << 20
    assert sum(plans[8].host.values()) <= 4 << 20
    assert plans[8].settings.buffer_pages > 1


def test_a_forked_child_leaves_locks_alone(path, root):
    master, batches = opened(path), zipf(8_000)
    for batch in batches:
        answered(started(master, batch.schema, root), batch)
    reader = started(master, batches[0].schema, root)
    _, used = state_of(reader).newest().held[0]
    number = state_of(reader)._slots.index(used.slot)
    other = Slot(next(root.iterdir()) / f"slot-{number}")
    child = os.fork()
    if not child:
        fine = state_of(reader).newest() is None
        state_of(reader).count(1 << 40)
        reader.join.close()
        gc.collect()
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert folder.Handle(next(root.iterdir()) / "common").lock(alone=True)
    assert not other.file.lock(alone=True)
    reader.join.close()
    assert other.file.lock(alone=True)


# -- bytes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [1, 2, 8])
def test_all_tasks_and_the_host_are_within_the_budget(tasks, path, root):
    master, batches = opened(path), zipf(60_000)
    join = started(master, batches[0].schema, root, tasks).join
    plan = join.plan
    assert tasks * sum(plan.components.values()) + sum(plan.host.values()) <= MEMORY
    assert plan.tasks == tasks
    assert "host cache" in str(plan)
    join.close()
    for batch in batches:
        watched = started(master, batch.schema, root, tasks)
        watched.offer(batch)
        used = watched.join.memory_used
        assert used.private <= sum(plan.components.values())
        assert all(used[name] <= plan.host[name] for name in plan.host if name in used)
        files = [file.stat().st_size for file in root.rglob("*") if file.is_file()]
        assert sum(files) <= used.host + 8192 <= sum(plan.host.values())
        watched.finish()
        watched.join.close()
    assert used["host cache"] > 0.6 * plan.host["host cache"]


GROWTH = """
import gc, json, sys
import semistream as ss
from benchmarks.harness.memory import PeakMemory, anonymous_bytes
from semistream.hotset import HostShare
from semistream.workloads import Stream, Zipf

path, root = sys.argv[1:]
master = ss.open_master(path, "direct")
stream = Stream(Zipf(master.rows), seed=1)

def run(memory, rows):
    shared = HostShare(root, 2)
    with ss.Join(master, stream.schema, on="key", memory=memory, shared=shared) as join:
        for batch in stream.batches(rows, 8192):
            for _ in join.offer(batch):
                pass
        return sum(join.plan.components.values()) + join.plan.host["host merge"]

run(16 << 20, 60_000)
gc.collect()
with PeakMemory() as peak:
    planned = run(24 << 20, 400_000)
before = anonymous_bytes()
run(24 << 20, 100_000)
print(json.dumps([peak.grown, planned, anonymous_bytes() - before]))
"""


def test_the_process_grows_by_its_own_part_only_and_gives_it_back(tmp_path, root):
    where = tmp_path / "m"
    ss.build_master(master_table(400_000, 120), where, key="key", page_bytes="32KB")
    opened(where)
    argv = [sys.executable, "-c", GROWTH, str(where), str(root)]
    ended = subprocess.run(  # noqa: S603
        argv, env=our_path(), check=True, capture_output=True, text=True
    )
    grown, planned, left = json.loads(ended.stdout)
    assert grown <= planned + (6 << 20)
    assert left < 1 << 20


def test_sizes_and_budgets_that_are_too_small(path, root):
    master, schema = opened(path), zipf(1)[0].schema
    assert HostSizes.of(48 * 1024, master.page_schema, KEYS, ROW) is None
    small = started(master, schema, root, memory="60KB", tasks=2)
    assert not small.join.plan.host
    assert 2 * sum(small.join.plan.components.values()) <= 60 * 1024
    with pytest.raises(BudgetError) as refusal:
        started(master, schema, root, memory=1_000, tasks=8)
    least = int(str(refusal.value).split("least that works is ")[1].split(" ")[0].replace(",", ""))
    started(master, schema, root, memory=least, tasks=8)
    with pytest.raises(BudgetError):
        started(master, schema, root, memory=least - 8, tasks=8)


def test_a_few_pages_are_held_by_each_task(tmp_path, root):
    table = pa.table({"key": np.arange(100), "n": np.arange(100)})
    master = ss.build_master(table, tmp_path / "m", key="key")
    batch = pa.record_batch({"key": [3, 5, 500]})
    watched = started(master, batch.schema, root)
    assert watched.join.plan.settings["resident"]
    assert answered(watched, batch)["n"].to_pylist() == [3, 5]
    assert not root.exists()


def test_rows_that_are_looked_up_need_no_hot_set(path, root):
    batch = zipf(2_000)[0]
    watched = started(ss.open_master(path), batch.schema, root, memory="4MB", at_once=None)
    watched.offer(batch)
    if watched.join.metrics.looked_up == batch.num_rows:
        assert not [f for f in root.iterdir() if not f.name.startswith("pages-")]


# -- ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["adaptive", "meshjoin", "derakhshan", "pcsrj"])
def test_a_closed_join_has_its_counters_and_nothing_else(algorithm, path):
    batch = zipf(2_000)[0]
    with ss.Join(ss.open_master(path), batch.schema, on="key", algorithm=algorithm) as join:
        rows = sum(out.num_rows for out in join.offer(batch))
        half = join.drain()
        rows += sum(out.num_rows for out in half)
        join.close()
    join.close()
    assert rows == join.metrics.rows_out == 2_000
    assert (join.memory_used.total, join.waiting) == (0, 0)
    for call in (join.drain, join.tick, lambda: join.offer(batch)):
        with pytest.raises(JoinClosedError, match="make a new one"):
            call()


def test_closed_amid_a_result(path, root):
    master, batch = opened(path), zipf(20_000, each=20_000)[0]
    watched = started(master, batch.schema, root)
    results = watched.join.offer(batch)
    next(results)
    watched.join.close()
    with pytest.raises(JoinClosedError):
        next(results)


# -- folders ------------------------------------------------------------------------------------


def test_state_that_no_one_uses_is_swept(path, root):
    master, batch = opened(path), zipf(2_000)[0]
    answered(started(master, batch.schema, root), batch)
    idle = started(master, batch.schema, root)
    used = started(master, batch.schema, root, memory=2 * MEMORY)
    for watched in (idle, used):
        watched.offer(batch)
    idle.join.close()
    assert sweep_folder(root) == 0
    for state in root.iterdir():
        os.utime(state, (0, time.time() - 2 * 86_400))
    (root / "a file").touch()
    (root / "of another kind").mkdir()
    (root / "of another kind" / "pages").touch()
    os.utime(root / "of another kind", (0, 0))
    assert sweep_folder(root, days=3) == 0
    assert sweep_folder(root) == 1
    used.join.close()
    assert sweep_folder(root) == 0  # it was in use until now, however long ago it was opened
    [left] = [state for state in root.iterdir() if (state / "common").exists()]
    os.utime(left, (0, time.time() - 2 * 86_400))
    assert sweep_folder(root) == 1
    assert sorted(file.name for file in root.iterdir()) == ["a file", "of another kind"]


def test_folders_that_others_can_enter_are_refused(path, root):
    master, batch = opened(path), zipf(2_000)[0]
    root.mkdir(mode=0o755)
    with pytest.raises(HostFolderError, match="HostShare"):
        started(master, batch.schema, root).offer(batch)
    with pytest.raises(HostFolderError):
        sweep_folder(root)
    link = root.with_name("link")
    link.symlink_to(root)
    with pytest.raises(HostFolderError):
        started(master, batch.schema, link).offer(batch)
    assert default_root().name.endswith(str(os.getuid()))


def test_a_folder_that_another_user_took_is_no_obstacle(tmp_path, monkeypatch, caplog):
    monkeypatch.delenv("SEMISTREAM_HOST_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(folder, "_MEMORY", tmp_path)
    me = os.getuid()
    mine = tmp_path / f"semistream-host-{me}"
    assert default_root() == mine
    mine.mkdir(mode=0o755)
    assert default_root() == mine  # ours, but others can enter it: refused when it is opened
    monkeypatch.setattr(folder.os, "getuid", lambda: me + 1)
    (tmp_path / f"semistream-host-{me + 1}").mkdir()
    instead = default_root()
    assert instead.is_relative_to(tmp_path / "cache" / "semistream")
    assert "belongs to another user" in caplog.text
    (tmp_path / f"semistream-host-{me + 1}").rmdir()
    (tmp_path / f"semistream-host-{me + 1}").symlink_to(mine)
    assert default_root() == instead


def test_a_file_system_without_room(path, root, monkeypatch, caplog):
    master, batches = opened(path), zipf(16_000)
    reserve = folder.Handle.reserve
    monkeypatch.setattr(
        folder.Handle, "reserve", lambda self, size: size < 74_000 and reserve(self, size)
    )
    for batch in batches:
        watched = started(master, batch.schema, root)
        state = state_of(watched)
        assert answered(watched, batch).num_rows == batch.num_rows
        # What found no room is not tried again, chunk after chunk.
        assert state._journal.staged_bytes(state._snapshot) < state._enough()
    assert [told.args for told in caplog.records if "no room" in told.msg] == [(root,)]
    monkeypatch.setattr(folder.Handle, "reserve", lambda *_: False)
    with pytest.raises(HostFolderError, match="no room"):
        started(master, batch.schema, root, memory=2 * MEMORY).offer(batch)


def test_what_was_written_before_the_system_ended_is_not_read(path, root, monkeypatch):
    master, batches = opened(path), zipf(16_000)
    for batch in batches:
        answered(started(master, batch.schema, root), batch)
    for module in (journal, slot):
        monkeypatch.setattr(module, "boot", lambda: 77)
    watched = started(master, batch.schema, root)
    watched.offer(batch.slice(0, 100))
    assert watched.join.metrics.cache_hits == 0
    assert watched.finish().num_rows == 100


# -- a generation -------------------------------------------------------------------------------

VALUES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 3), st.integers(0, 9)), max_size=25,
    unique_by=lambda value: value[0],
)  # fmt: skip


def source(values, number):
    """Give rows of join values, each with its code, as many rows as it has, and its hits."""
    codes = [code for code, count, _ in values for _ in range(count)]
    names = [None if i % 5 == 0 else f"{number}.{i}" * (i % 4) for i in range(len(codes))]
    schema = pa.schema([("code", pa.int64()), ("name", pa.string()), ("flag", pa.bool_())])
    flags = [i % 2 == 0 for i in range(len(codes))]
    rows = pa.RecordBatch.from_arrays([pa.array(codes, pa.int64()), names, flags], schema=schema)
    hits = [n if first == 0 else 0 for _, count, n in values for first in range(count)]
    return rows, np.array(hits, dtype=np.uint32)


@PROPERTY
@given(values=st.lists(VALUES, min_size=1, max_size=4), room=st.integers(0, 3_000))
def test_a_generation_has_the_most_frequent_values_whole(values, room, tmp_path_factory):
    made = [source(some, number) for number, some in enumerate(values)]
    sources, hits = [rows for rows, _ in made], [h for _, h in made]
    chosen = choose_rows(sources, hits, room, 1.0)
    assert chosen.bytes <= room
    first = {}
    for rows, some in zip(sources, values, strict=True):
        held = rows.to_pylist()
        for code, _, count in some:
            first.setdefault(code, (count, [row for row in held if row["code"] == code]))
    if not len(chosen.block):
        return
    a_slot = Slot(tmp_path_factory.mktemp("slot") / "a")
    a_slot.file.lock(alone=True)
    place = write(a_slot, sources, chosen)
    assert a_slot.read(sources[0].schema, 1) is None
    a_slot.finish(1, 5, *place)
    assert a_slot.read(sources[0].schema, 2) is None
    found = a_slot.read(sources[0].schema, 1)
    found.batch.validate(full=True)
    held = found.batch.to_pylist()
    for code in set(found.codes.tolist()):
        assert [row for row in held if row["code"] == code] == first[code][1]
    check_probe(found, first)
    gone = [count / 3 for code, (count, _) in first.items() if code not in found.codes]
    assert not gone or chosen.lost <= max(gone)
    assert a_slot.nbytes <= max(chosen.bytes, 1) + overhead(3)


def check_probe(found, first):
    """Every value that is held is found, with all its rows; its hits grow."""
    codes = np.arange(-1, 42)
    rows, blocks, positions = np.empty(500, np.int64), np.empty(500, np.int32), np.empty(500, int)
    hit, before = np.zeros(len(codes), np.bool_), found.hits.copy()
    shards = Shards([found], found.batch.schema)
    count, *_ = shards.probe(codes, (0, -1), False, (rows, blocks, positions), hit)
    first_rows = shards.find(codes)
    assert (first_rows >= 0).tolist() == hit.tolist()
    assert (found.codes[first_rows[hit]] == codes[hit]).all()
    gathered = OutputColumns(found.batch.schema.types[1:], count)
    pairs = rows[:count], blocks[:count], positions[:count]
    shards.gather(found.batch.schema.names[1:], gathered, pairs)
    names = [batch.to_pylist() for batch in gathered.arrays()]
    assert names == [c.take(pa.array(pairs[2])).to_pylist() for c in found.batch.columns[1:]]
    assert set(codes[hit].tolist()) == set(found.codes.tolist())
    assert (found.codes[positions[:count]] == codes[rows[:count]]).all()
    assert count == len(found)
    assert found.hits.sum() == before.sum() + np.count_nonzero(hit)
    assert all(first[code] for code in codes[hit].tolist())


def test_a_damaged_header_is_ignored(tmp_path):
    rows, hits = source([(1, 2, 3), (4, 1, 9)], 0)
    a_slot = Slot(tmp_path / "a")
    place = write(a_slot, [rows], choose_rows([rows], [hits], 4_000, 1.0))
    a_slot.finish(1, 1, *place)
    assert len(a_slot.read(rows.schema, 1)) == 3
    a_slot._words[4] += 1
    assert a_slot.read(rows.schema, 1) is None
    a_slot._words[4] = 1 << 40  # behind the end of the file
    assert a_slot.read(rows.schema, 1) is None


def test_a_damaged_description_is_ignored(tmp_path):
    rows, hits = source([(1, 2, 3), (4, 1, 9)], 0)
    a_slot = Slot(tmp_path / "a")
    start, length = write(a_slot, [rows], choose_rows([rows], [hits], 4_000, 1.0))
    a_slot.finish(1, 1, start, length)
    content = bytearray((tmp_path / "a").read_bytes())
    described = content[start : start + length].replace(b'"rows": 3', b'"rows": 9')
    assert described != content[start : start + length]
    with (tmp_path / "a").open("r+b") as file:
        file.seek(start)
        file.write(described)
    assert a_slot.read(rows.schema, 1) is None


def test_host_of_a_plan(path, root):
    spec = started(opened(path), zipf(1)[0].schema, root).join._spec
    host = Host.of(spec, HostShare(root, 2), MEMORY)
    assert host.name != Host.of(spec, HostShare(root, 2), 2 * MEMORY).name
