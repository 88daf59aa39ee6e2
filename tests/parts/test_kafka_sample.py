"""A sample of a topic."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from semistream import build_master
from semistream.errors import OptionError
from semistream.planning.sample import read_sample
from semistream.planning.view import take_view

if TYPE_CHECKING:
    from pathlib import Path

    from semistream.master import Master
    from support.servers.kafka import Broker


def sales(rows: int) -> pa.Table:
    numbers = np.arange(rows)
    keys = [None if n % 10 == 0 else f"{n % 30:03}" for n in numbers]
    return pa.table({"product": pa.array(keys, pa.string()), "sale": numbers})


@pytest.fixture
def products(tmp_path: Path) -> Master:
    """Keys that look like numbers, 000 to 019."""
    table = pa.table({"id": [f"{number:03}" for number in range(20)]})
    return build_master(table, tmp_path / "master", key="id")


@pytest.mark.parts
@pytest.mark.xdist_group("tables")
def test_a_topic_is_read_to_its_end(broker: Broker, products: Master) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415 - most tests do not need it

    broker.create("sampled-sales")
    producer = Producer({"bootstrap.servers": broker.address})
    for row in sales(3_000).to_pylist():
        producer.produce("sampled-sales", json.dumps(row).encode(), str(row["sale"]).encode())
    producer.produce("sampled-sales", None, b"gone")
    assert producer.flush(60) == 0
    source = f"kafka://{broker.address}/sampled-sales"
    view = take_view(products)
    sample = read_sample(source, view, {"product": "id"})
    assert sample.rows == 3_000
    assert sorted(sample.demand.counts.tolist())[-18:] == [100] * 18
    with pytest.raises(OptionError, match=r"topic 'sampled' is not known; .* mean 'sampled-sales'"):
        read_sample(f"kafka://{broker.address}/sampled", view, {"product": "id"})
