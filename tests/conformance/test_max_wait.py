"""max_wait: no row waits longer while others keep coming, and ticks serve a quiet stream."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import OptionError
from semistream.testing import Watched, case, reference_join, same_rows
from support.matrix import matrix
from support.observer import Probe
from support.variants import VARIANTS, each_variant, each_waiting_variant

MAX_WAIT = 10.0
CASES = ["zipf_0.0", "zipf_1.5", "giant_key", "giant_string_key", "string_and_date"]


@dataclass
class Clock:
    """A clock that is set by hand."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(scope="module")
def masters(tmp_path_factory):
    return tmp_path_factory.mktemp("masters")


def stamped(batch: pa.RecordBatch, time: float) -> pa.RecordBatch:
    return batch.append_column("arrived", pa.array(np.full(batch.num_rows, time)))


def started(name, masters, algorithm, clock, how="left", **options):
    """A watched join of a case whose rows carry the time of their arrival; and small batches."""
    of = case(name)
    rows = pa.Table.from_batches(of.stream).combine_chunks().to_batches(max_chunksize=40)
    schema = stamped(rows[0], 0.0).schema
    join = ss.Join(
        of.open(masters), schema, on=of.on, how=how, memory=of.memory, algorithm=algorithm,
        clock=clock, **options,
    )  # fmt: skip
    return Watched(join), rows


def unanswered(watched: Watched, offered: list[pa.RecordBatch]) -> dict[int, float]:
    """The rows that have not come out, with their arrivals; right for left joins only."""
    out = {sale for batch in watched.out for sale in batch["sale"].to_pylist()}
    pairs = (zip(*(b[c].to_pylist() for c in ("sale", "arrived")), strict=True) for b in offered)
    return {sale: arrived for each in pairs for sale, arrived in each if sale not in out}


def check_expected(watched, offered, name, how="left"):
    stream = pa.Table.from_batches(offered)
    same_rows(
        watched.finish(), reference_join(stream, case(name).master, on=case(name).on, how=how)
    )


@matrix(variant=VARIANTS, name=CASES, gap=[1.0, 3.0, 25.0])
def test_no_row_waits_longer_while_others_come(variant, name, gap, masters):
    (algorithm, options), clock = variant, Clock()
    watched, rows = started(name, masters, algorithm, clock, max_wait=MAX_WAIT, **options)
    offered = []
    for batch in rows:
        offered.append(stamped(batch, clock.now))
        known = len(watched.out)
        watched.offer(offered[-1])
        waits = [clock.now - out["arrived"].to_numpy().min() for out in watched.out[known:]]
        assert max(waits, default=0) < MAX_WAIT + gap
        assert all(
            arrived > clock.now - MAX_WAIT for arrived in unanswered(watched, offered).values()
        )
        clock.now += gap
    check_expected(watched, offered, name)


@each_waiting_variant
def test_no_row_waits_longer_when_reads_are_slow(algorithm, options, masters):
    clock = Clock()
    slow = Probe(lambda *_: clock.advance(5.0))
    options = options | {"max_wait": MAX_WAIT, "observer": slow}
    watched, rows = started("zipf_0.0", masters, algorithm, clock, **options)
    offered = []
    for batch in rows:
        offered.append(stamped(batch, clock.now))
        watched.offer(offered[-1])
        assert all(
            arrived > clock.now - MAX_WAIT for arrived in unanswered(watched, offered).values()
        )
    assert clock.now > 100 + 2 * MAX_WAIT
    check_expected(watched, offered, "zipf_0.0")


@each_waiting_variant
@pytest.mark.parametrize("name", CASES)
def test_rows_wait_at_all(algorithm, options, name, masters):
    """Else the test above would say nothing."""
    clock = Clock()
    watched, rows = started(name, masters, algorithm, clock, max_wait=MAX_WAIT, **options)
    watched.offer(stamped(rows[0].slice(0, 10), clock.now))
    assert watched.join.waiting


@pytest.mark.parametrize("name", CASES)
@each_waiting_variant
def test_tick_serves_a_quiet_stream(algorithm, options, name, masters):
    clock = Clock()
    options = {**options, "max_wait": timedelta(seconds=MAX_WAIT)}
    watched, rows = started(name, masters, algorithm, clock, **options)
    rows = [batch.slice(0, 10) for batch in rows]  # few: none leaves for want of room
    offered = [stamped(batch, clock.now) for batch in rows[:2]]
    for batch in offered:
        watched.offer(batch)
    clock.now += MAX_WAIT / 2
    offered.append(stamped(rows[2], clock.now))
    watched.offer(offered[-1])
    waiting = watched.join.waiting
    clock.now += MAX_WAIT / 2 - 0.01
    watched.read(watched.join.tick())
    assert watched.join.waiting == waiting
    clock.now += 0.01
    watched.read(watched.join.tick())
    assert watched.join.waiting < waiting
    assert watched.join.waiting <= rows[2].num_rows
    clock.now += MAX_WAIT / 2
    watched.read(watched.join.tick())
    assert not watched.join.waiting
    check_expected(watched, offered, name)


@each_waiting_variant
def test_repeated_ticks_answer_everything_without_max_wait(algorithm, options, masters):
    clock = Clock()
    watched, rows = started("giant_string_key", masters, algorithm, clock, **options)
    offered = [stamped(batch, clock.now) for batch in rows]
    for batch in offered:
        watched.offer(batch)
    ticks = 0
    while watched.join.waiting:
        before = watched.join.metrics.iterations
        watched.read(watched.join.tick())
        assert watched.join.metrics.iterations == before + 1
        ticks += 1
    assert ticks
    watched.read(watched.join.tick())
    assert watched.join.metrics.iterations == before + 1
    check_expected(watched, offered, "giant_string_key")


@each_variant
def test_max_wait_of_a_resident_master(algorithm, options, masters):
    of = case("resident")
    clock = Clock()
    join = ss.Join(
        of.open(masters), of.stream_schema, on="key", memory=of.memory, algorithm=algorithm,
        max_wait=1, clock=clock, **options,
    )  # fmt: skip
    watched = Watched(join)
    for batch in of.stream:
        watched.offer(batch)
        assert not join.waiting
    same_rows(watched.finish(), of.expected("inner"))


@pytest.mark.parametrize("wrong", [0, -1, "soon", timedelta(0)])
def test_impossible_max_wait(wrong, masters):
    of = case("resident")
    with pytest.raises(OptionError, match="max_wait"):
        ss.Join(of.open(masters), of.stream_schema, on="key", max_wait=wrong)
