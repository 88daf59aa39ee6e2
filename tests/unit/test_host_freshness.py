"""Which of the rows that a host holds of a database count: told within the budget, and seldom."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.hotset import HostSizes
from semistream.hotset import rows as host_rows
from semistream.hotset.plan import Host
from semistream.hotset.rows import HostRows
from semistream.hotset.sizes import BORN
from semistream.kernels.counting import ABSENT, COUNTS, FOREVER, OLD, mark_fresh
from semistream.master.database.feeds.changes import Changes

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 1_000_000
START = 1_000
SCHEMA = pa.schema([("code", pa.int64()), ("n", pa.int32()), (BORN, pa.int64())])
PROPERTY = settings(max_examples=200, deadline=None, derandomize=True)


class Prices:
    """A table of a database that is not there, what a host holds of it, and a clock."""

    def __init__(self, root: Path, size: int = 8 << 20) -> None:
        self.now = float(START)
        self.master: Any = SimpleNamespace(
            identity="prices", snapshot="", changes_since=lambda _: iter(()), row_bytes=21.0,
            ttl=60, absent_ttl=20, keys=SimpleNamespace(exact=True, seed=0), changes=Changes(),
        )  # fmt: skip
        sizes = HostSizes.of(size, SCHEMA, 10**7, 20)
        self.host = Host(root, sizes, self.master, SCHEMA, once=False)

    def hold(self, codes: range, born: np.ndarray[Any, Any], step: int = 2_000) -> None:
        """Make a hot set of rows that were asked for at these times."""
        state = self.host.open()
        for start in range(0, len(codes), step):
            some = pa.array(codes[start : start + step], pa.int64())
            columns = [some, some.cast(pa.int32()), pa.array(born[start : start + step])]
            rows = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
            state.stage(rows, np.full(len(some), 9))
            with state._journal.alone() as alone:
                assert alone
                state._publish()
            state.rest()
        state.close()

    def rows(self) -> HostRows:
        return HostRows(self.host, self.master, 0, lambda: self.now)


@pytest.fixture
def prices(tmp_path: Path) -> Prices:
    return Prices(tmp_path / "root")


def found(rows: HostRows, codes: list[int]) -> tuple[list[int], list[int]]:
    """Give which codes are held, and which are known to be absent."""
    asked = np.array(codes)
    view, hit = rows.rows, np.zeros(len(codes), np.bool_)
    rows_, blocks, places = (np.empty(len(codes), kind) for kind in (np.int64, np.int32, np.int64))
    assert view is not None
    view.probe(asked, (0, -1), False, (rows_, blocks, places), hit)
    absent = rows.lacks(asked, lambda: asked)
    rows.rest()
    return asked[hit].tolist(), asked[absent].tolist()


def test_rows_and_absent_keys_count_for_their_time_until_they_change(prices: Prices) -> None:
    born = np.full(200, START * SECOND)
    born[100:] *= -1  # there are none of these
    prices.hold(range(200), born)
    rows = prices.rows()
    assert found(rows, [5, 150, 900]) == ([5], [150])
    prices.now += 18.7
    assert found(rows, [5, 150]) == ([5], [150])
    prices.now += 1.4
    assert found(rows, [5, 150]) == ([5], [])
    prices.master.changes.add(np.array([5]))
    rows.refresh()
    assert found(rows, [5, 6, 150]) == ([6], [])
    prices.now = START + 60.0
    assert found(rows, [5, 6, 150]) == ([], [])
    rows.close()


def test_a_task_needs_a_byte_a_row_and_that_is_planned(prices: Prices) -> None:
    """Counts are compared with what is taken: of each task, for each row that the host holds."""
    most = prices.host.freshness
    prices.hold(range(2 * most), START * SECOND - np.arange(2 * most) * 500)
    rows = prices.rows()
    assert found(rows, [7, 10**9]) == ([7], [])  # kernels are compiled now
    prices.now += 30  # many have grown old: it is to be told anew
    asked = np.arange(1_000)
    tracemalloc.start()
    view = rows.rows
    rows.lacks(asked, lambda: asked)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert view is not None
    assert 0.8 * most < len(view) <= most
    assert rows.memory_used["freshness"] == len(view)
    assert peak <= most + (1 << 15)
    rows.close()


def test_it_is_not_told_anew_for_each_row_that_ends(prices: Prices, monkeypatch) -> None:
    prices.hold(range(4_000), START * SECOND - np.arange(4_000) * 15_000)  # one each 15 ms
    times = []
    monkeypatch.setattr(host_rows, "mark_fresh", lambda *a: times.append(a) or mark_fresh(*a))
    rows = prices.rows()
    for _ in range(400):  # of 10 ms
        prices.now += 0.01
        held, _ = found(rows, list(range(4_000)))
        ages = prices.now - START + np.array(held) * 0.015
        assert (ages < 60).all()
        assert len(held) >= 4_000 * 15 / 16 - 4 / 0.015 - 2
    assert len(times) <= 3 * prices.host.sizes.shards
    rows.close()


LIVES = st.sampled_from([0, 1, 16, 100, FOREVER])
ROWS = st.lists(st.tuples(st.integers(-300, 300).filter(bool), st.integers(-9, 9)), max_size=30)


@PROPERTY
@given(rows=ROWS, lives=st.tuples(LIVES, LIVES), now=st.integers(0, 400), last=st.integers(-1, 200))
def test_marks_are_those_of_the_definition(rows, lives, now, last) -> None:
    born = np.array([at for at, _ in rows], np.int64)
    codes = np.array([code for _, code in rows], np.int64)
    changed = np.array([-1, 50, 250, 3])
    marks = np.empty(len(rows), np.uint8)
    end, count, absent = mark_fresh(born, codes, changed, last, now, lives, marks)
    ends, wanted = [FOREVER], []
    for at, code in rows:
        life = lives[at < 0]
        fresh = now < abs(at) + life - life // 16 and abs(at) > max(last, changed[code % 4])
        wanted.append((ABSENT if at < 0 else COUNTS) if fresh else OLD)
        ends += [abs(at) + life] if fresh else []
    assert marks.tolist() == wanted
    assert (count, absent) == (wanted.count(COUNTS), wanted.count(ABSENT))
    assert end == min(ends)
