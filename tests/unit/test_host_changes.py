"""What is warm on a host when the master changes: kept where it is right, never where it is not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.hotset import HostShare
from semistream.hotset import state as host_state
from semistream.hotset.plan import Host
from semistream.hotset.sizes import HostSizes
from semistream.master.snapshots import pins
from semistream.workloads import Stream, Zipf
from support.matrix import ALL

KEYS, PAGE, MEMORY = 20_000, 4096, 1 << 20


class Products:
    """A master whose every row says in which version it was last changed."""

    def __init__(self, path, keys=KEYS):
        self.path = path
        self.version = np.zeros(keys, dtype=np.int64)
        self.seen = [(self._build(), self.version)]

    def _table(self, keys):
        pad = pa.array([b"p" * 40] * len(keys))
        return pa.table({"key": keys, "version": self.version[keys], "pad": pad})

    def _build(self):
        present = np.flatnonzero(self.version >= 0)
        ss.build_master(self._table(present), self.path, key="key", page_bytes=PAGE)
        return self._opened()

    def _opened(self):
        pins.hold(self.path, "a test")
        try:
            return ss.open_master(self.path, "direct")
        except ss.MasterError as error:
            pytest.skip(str(error))

    def change(self, keys, by_changes=True, gone=()):
        """Change these rows, remove others; give the number of the snapshot."""
        self.version = self.version.copy()
        self.version[list(keys)] = len(self.seen)
        self.version[list(gone)] = -1
        if by_changes:
            ss.sync_master(self.path, upserts=self._table(np.array(keys)), deletes=list(gone))
        self.seen.append((self._opened() if by_changes else self._build(), self.version))
        return len(self.seen) - 1


def task(products, number, batch, root):
    """Join a batch with a snapshot, as a task does; every row must be that snapshot's."""
    master, version = products.seen[number]
    join = ss.Join(
        master, batch.schema, on="key", memory=MEMORY, how="left", shared=HostShare(root, 2)
    )
    found = pa.Table.from_batches([*join.offer(batch), *join.drain()])
    join.close()
    assert found.num_rows == batch.num_rows
    told = found["version"].fill_null(-1).to_numpy()
    assert (told == version[found["key"].to_numpy()]).all()
    return join.metrics


def batches(rows, each=2_000, seed=1, keys=KEYS):
    return list(Stream(Zipf(keys, 1.1), seed=seed).batches(rows, each))


def rate(metrics):
    return sum(m.cache_hits for m in metrics) / sum(m.rows_in for m in metrics)


def test_hits_stay_high_after_a_sync_of_one_key_in_a_hundred(tmp_path):
    products, root, rng = Products(tmp_path / "m"), tmp_path / "root", np.random.default_rng(1)
    stream = batches(60_000)
    before = rate([task(products, 0, batch, root) for batch in stream][-5:])
    assert before > 0.5
    for _ in range(3):
        number = products.change(rng.choice(KEYS, KEYS // 100, replace=False))
        assert rate([task(products, number, stream[0], root)]) > 0.9 * before
    for _ in range(3):  # the next batch comes three snapshots later
        number = products.change(rng.choice(KEYS, KEYS // 100, replace=False))
    assert rate([task(products, number, stream[1], root)]) > 0.75 * before
    number = products.change(range(0, KEYS, 100), by_changes=False)
    assert rate([task(products, number, stream[2], root)]) < 0.3


def test_nothing_is_carried_over_where_most_has_changed(tmp_path):
    products, root = Products(tmp_path / "m"), tmp_path / "root"
    for batch in batches(30_000):
        task(products, 0, batch, root)
    number = products.change(range(KEYS))
    assert rate([task(products, number, batches(2_000)[0], root)]) < 0.3


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.integers(0, 2**31), st.sampled_from([1, 20, 300])),
        st.tuples(st.just("task"), st.integers(0, 2), st.integers(0, 2**31)),
        st.tuples(st.just("task"), st.just(0), st.integers(0, 2**31)),
    ),
    min_size=8,
    max_size=24,
)


@settings(max_examples=400 if ALL else 10, deadline=None, derandomize=not ALL)
@given(steps=STEPS)
def test_no_stale_row_comes_out_whatever_the_order(steps, tmp_path_factory):
    """Tasks of the newest and of older snapshots in any order; rows change, come and go."""
    folder = tmp_path_factory.mktemp("case")
    products, root, keys = Products(folder / "m", 5_000), folder / "root", 5_000
    for batch in batches(6_000, keys=keys):
        task(products, 0, batch, root)
    assert task(products, 0, batch, root).cache_hits > 500
    for kind, one, other in steps:
        rng = np.random.default_rng(one if kind == "change" else other)
        if kind == "change":
            some = rng.choice(keys, other, replace=False)
            gone = some[: other // 10]
            products.change(some[other // 10 :], by_changes=one % 8 > 0, gone=gone)
        else:
            [batch] = batches(1_500, each=1_500, seed=other % 1000, keys=keys)
            task(products, max(0, len(products.seen) - 1 - one), batch, root)


def test_tasks_of_two_snapshots_side_by_side(tmp_path):
    """A speculative task of the old one is in the middle of its rows while the new one begins."""
    products, root = Products(tmp_path / "m"), tmp_path / "root"
    stream = batches(40_000)
    for batch in stream[:10]:
        task(products, 0, batch, root)
    master, old = products.seen[0]
    twin = ss.Join(master, stream[0].schema, on="key", memory=MEMORY, shared=HostShare(root, 2))
    found = []
    for batch in stream[10:15]:
        found += twin.offer(batch)
        number = products.change(range(0, KEYS, 50))
        task(products, number, batch, root)
    found += twin.drain()
    twin.close()
    table = pa.Table.from_batches(found)
    assert (table["version"].to_numpy() == old[table["key"].to_numpy()]).all()


def test_no_one_stages_while_a_new_snapshot_publishes(tmp_path, monkeypatch):
    """Nor where it could not inherit, because a task of the old one still reads that slot."""
    products = Products(tmp_path / "m")
    products.change([5])
    schema = products.seen[0][0].page_schema
    sizes = HostSizes.of(2 << 20, schema, KEYS, 64)

    def opened(number):
        return Host(tmp_path / "root", sizes, products.seen[number][0], schema, False).open()

    def stage(state, first):
        codes, pads = pa.array(range(first, first + 1_000)), pa.array([b"p" * 40] * 1_000)
        rows = pa.RecordBatch.from_arrays([codes, codes, pads], schema=schema)
        state.stage(rows, np.full(1_000, 50))

    old, beside, new = opened(0), opened(0), opened(1)
    for first in (1_000, 2_000):
        stage(old, first)
        old.publish()
    assert min(old._slots, key=lambda slot: slot.number).file.lock()
    choose = host_state.choose_rows

    def choose_slowly(*given):
        stage(beside, 0)
        return choose(*given)

    monkeypatch.setattr(host_state, "choose_rows", choose_slowly)
    stage(new, 6_000)
    new.publish()
    codes = np.concatenate([generation.codes for _, generation in new.newest().held])
    assert (np.sort(codes) == np.arange(6_000, 7_000)).all()
    for state in (old, beside, new):
        state.close()
