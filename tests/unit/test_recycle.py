"""Output memory that comes back."""

from __future__ import annotations

import ctypes

import pyarrow as pa
import pytest

import semistream as ss
from semistream.arrow.recycle import BufferPool
from semistream.engine import lookup
from semistream.testing import reference_join, same_rows
from semistream.workloads import Stream, Zipf, master_table

KEYS = 20_000


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    path = tmp_path_factory.mktemp("recycled") / "master"
    ss.build_master(master_table(KEYS, 120, stride=2), path, key="key", page_bytes="16KB")
    return ss.open_master(path, read="mapped")


def test_one_piece_a_column_is_kept():
    memory = BufferPool(2)
    taken = [memory.take(column, 1000) for column in (0, 1, 0)]
    assert memory.nbytes == 0
    memory.give_out()
    taken.clear()
    assert memory.nbytes == 2000


def test_nothing_is_kept_while_a_batch_is_made():
    memory = BufferPool(1)
    first = memory.take(0, 1000)
    memory.give_out()
    second = memory.take(0, 1000)
    del first
    assert memory.nbytes == 0
    memory.give_out()
    del second
    assert memory.nbytes == 1000


@pytest.mark.parametrize("size", [499, 1001])
def test_what_does_not_fit_is_given_back(size):
    memory = BufferPool(1)
    first = memory.take(0, 1000)
    memory.give_out()
    del first
    assert memory.take(0, size).size == size
    assert memory.nbytes == 0


def test_nothing_is_kept_where_output_is_made_elsewhere():
    memory = BufferPool(1)
    first, second = memory.take(0, 1000), memory.take(0, 1000)
    memory.give_out()
    del first
    memory.rest()
    assert memory.nbytes == 0
    memory.give_out()
    del second
    assert memory.nbytes == 0
    third = memory.take(0, 1000)
    memory.give_out()
    del third
    assert memory.nbytes == 1000


def test_memory_outlives_its_lender():
    memory = BufferPool(1)
    buffer = memory.take(0, 80)
    ctypes.memset(buffer.address, 1, 80)
    del memory
    assert (
        pa.Array.from_buffers(pa.int64(), 10, [None, buffer]).to_pylist()
        == [0x0101010101010101] * 10
    )


def test_pages_that_leave_memory_leave_the_budget_kept(master, monkeypatch):
    """What look-up has kept is not held beside what the window's output takes."""
    faults = iter(range(0, 10**9, 10**4))
    batches = list(Stream(Zipf(KEYS, 0.5), stride=2).batches(60_000, 7_000))
    join = ss.Join(master, batches[0].schema, on="key", how="left", memory="400KB")
    for number, batch in enumerate(batches):
        if number == 3:
            monkeypatch.setattr(lookup, "page_faults", lambda: next(faults))
        for out in join.offer(batch):
            del out
            assert join.memory_used["output"] <= join.plan.components["output"]
    assert join.metrics.looked_up > 0
    assert join.metrics.iterations > 0


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("held", [0, 1, 2, 1000])
def test_batches_that_are_held_do_not_change(master, how, held):
    batches = list(Stream(Zipf(KEYS, 0.5), absent=0.1, stride=2).batches(60_000, 7_000))
    join = ss.Join(master, batches[0].schema, on="key", how=how, memory="400KB")
    if held < 1000:
        for batch in batches[:4]:
            some = []
            for out in join.offer(batch):
                # A part of each, and what was in it: it must stay, whatever is made meanwhile.
                some = [*some, (out.slice(1), out.slice(1).to_pylist())][-held:] if held else []
                del out
                assert join.memory_used.total <= join.plan.memory
                assert join.memory_used["output"] <= join.plan.components["output"]
            assert all(part.to_pylist() == rows for part, rows in some)
    found = [out for batch in batches for out in join.offer(batch)]
    found += list(join.drain())
    assert join.metrics.looked_up > 0
    table = master_table(KEYS, 120, stride=2).read_all()
    wanted = reference_join(pa.Table.from_batches(batches), table, on="key", how=how)
    same_rows(pa.Table.from_batches(found, schema=join.schema), wanted)
