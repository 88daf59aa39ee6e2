from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One JVM for all tests of a process; mark them ``xdist_group("spark")`` to share it."""
    from semistream.spark.session import session

    started = session("semistream-tests", master="local[2]", config=TEST_CONFIG)
    yield started
    started.stop()


TEST_CONFIG = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
}
