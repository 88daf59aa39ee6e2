"""Rows of a database that joins on a host hold together: fresh, counted, and right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.hotset import HostShare

if TYPE_CHECKING:
    from pathlib import Path

    from semistream.metrics import Metrics
    from support.servers.databases import PostgreSQL

pytestmark = [pytest.mark.parts, pytest.mark.xdist_group("databases")]

KEYS = 2000
BUDGET = 3 << 20


class Shop:
    """A table of prices, what it should have, and joins of one stream after the other with it."""

    def __init__(self, server: PostgreSQL, folder: Path, text: bool) -> None:
        self.server, self._folder, self.text = server, folder, text
        self.prices = {self.key(2 * i): float(i) for i in range(KEYS)}
        rows = {"id": list(self.prices), "price": list(self.prices.values())}
        server.load("prices", pa.table(rows), key="id")
        self.time = 1000.0
        self.freshness = 0
        self.master: Any = ss.open_master(
            server.url(), table="prices", key="id", ttl=60, absent_ttl=20
        )

    def key(self, number: int) -> Any:
        return f"key {number}" if self.text else number

    def set(self, number: int, price: float) -> None:
        key = f"'{self.key(number)}'" if self.text else number
        self.server.execute(
            f"INSERT INTO prices VALUES ({key}, {price}) "  # noqa: S608
            f"ON CONFLICT (id) DO UPDATE SET price = {price}"
        )
        self.prices[self.key(number)] = price

    def join(self, numbers: list[int]) -> tuple[list[tuple[Any, Any]], Metrics]:
        """Join keys, as a task of two on a host; give keys with prices, and what it took."""
        keys = pa.array([self.key(n) for n in numbers])
        batch = pa.record_batch({"id": keys})
        share = HostShare(self._folder, tasks=2)
        with ss.Join(
            self.master, batch.schema, on="id", how="left", memory=BUDGET, shared=share,
            clock=lambda: self.time,
        ) as join:  # fmt: skip
            out = list(join.offer(batch)) + list(join.drain())
            used, planned = join.memory_used, join.plan.components
            assert used.total <= join.plan.memory
            assert all(used[name] <= planned[name] for name in ("cache", "freshness"))
            self.freshness = used["freshness"]
            found = [(r["id"], r["price"]) for b in out for r in b.to_pylist()]
        assert len(found) == len(numbers)
        return found, join.metrics

    def wanted(self, numbers: list[int]) -> set[tuple[Any, Any]]:
        return {(self.key(n), self.prices.get(self.key(n))) for n in numbers}


@pytest.fixture(params=[False, True], ids=["integers", "texts"])
def shop(request: pytest.FixtureRequest, postgresql: PostgreSQL, tmp_path: Path) -> Shop:
    return Shop(postgresql, tmp_path / "host", request.param)


HOT = [n for n in range(60) for _ in range(20)]  # odd ones are absent


def test_rows_outlive_a_join_and_grow_old(shop: Shop) -> None:
    for _ in range(3):
        found, metrics = shop.join(HOT)
        assert set(found) == shop.wanted(HOT)
    assert shop.freshness >= 30  # a byte for each row of the hot set
    assert metrics.fetched == 0
    assert metrics.cache_hits == len(HOT) // 2
    before = shop.wanted(HOT)
    shop.set(4, -1.0)
    shop.set(5, -2.0)
    shop.time += 30  # absent keys are asked for again, rows are not
    found, metrics = shop.join(HOT)
    assert dict(found)[shop.key(5)] == -2.0
    assert dict(found)[shop.key(4)] == dict(before)[shop.key(4)]
    shop.time += 31
    found, metrics = shop.join(HOT)
    assert set(found) == shop.wanted(HOT)
    assert metrics.fetched >= 30
    shop.join(HOT)
    found, metrics = shop.join(HOT)  # they have taken the place of the old ones
    assert (set(found), metrics.fetched) == (shop.wanted(HOT), 0)


def test_what_has_changed_is_asked_for_and_the_rest_is_warm(shop: Shop) -> None:
    for _ in range(3):
        shop.join(HOT)
    shop.set(4, -1.0)
    shop.set(5, -2.0)
    shop.time += 1
    shop.master.invalidate(pa.array([shop.key(4), shop.key(5)]))
    found, metrics = shop.join(HOT)
    assert set(found) == shop.wanted(HOT)
    assert metrics.fetched <= 4
    shop.time += 1
    shop.set(6, -3.0)
    shop.master.invalidate(None)
    found, metrics = shop.join(HOT)
    assert set(found) == shop.wanted(HOT)
    assert metrics.fetched == 31


def test_random_streams_and_changes_agree_with_the_table(shop: Shop) -> None:
    rng = np.random.default_rng(5)
    for _ in range(12):
        numbers = np.minimum(rng.zipf(1.2, 3000), 2 * KEYS + 99).tolist()
        found, _ = shop.join(numbers)
        assert set(found) == shop.wanted(numbers)
        changed = [int(n) for n in rng.choice(numbers, 3)]
        for n in changed:
            shop.set(n, float(rng.random()))
        shop.time += 1
        shop.master.invalidate(pa.array([shop.key(n) for n in changed]))
