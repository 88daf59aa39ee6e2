from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support import matrix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from support.servers.cluster import Cluster
    from support.servers.databases import MariaDB, PostgreSQL, Server
    from support.servers.kafka import Broker

# Imported where they are used: most tests need neither Spark nor Kafka, nor the time they take.
# ruff: noqa: PLC0415


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all",
        action="store_true",
        help="every combination instead of every pair, tests that take long, many more examples",
    )


def pytest_configure(config: pytest.Config) -> None:
    matrix.ALL = config.getoption("--all")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked ``long``, unless all is to be run."""
    if not config.getoption("--all"):
        config.hook.pytest_deselected(items=[i for i in items if i.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.fixture(scope="module", autouse=True)
def one_seed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give all masters one seed: the same rows have the same codes, in every run of the tests."""
    from semistream.master.build import target

    if request.module.__name__ == "test_seeds":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target.secrets, "randbits", lambda bits: (1 << bits) // 3)
        yield


@pytest.fixture(scope="session", autouse=True)
def host_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What tests leave on the host goes with them."""
    os.environ["SEMISTREAM_HOST_DIR"] = str(tmp_path_factory.mktemp("host"))


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have masters built without waiting for the disk, unless all is run: no test cuts the power.

    Builds sync some ten thousand files and folders otherwise.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not request.config.getoption("--all"):
            patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def spark(host_folder: None) -> Iterator[SparkSession]:
    """One JVM for all tests of a process.

    Mark them ``xdist_group("spark")`` to share it, or ``"tables"`` if they write Delta tables: two
    groups are done side by side.
    """
    from semistream.spark.cluster.session import session
    from support import SMALL
    from support.servers import connectors

    config = {**connectors.config(), **SMALL, "spark.driver.memory": "1g"}
    config["spark.executorEnv.PYTHONPATH"] = str(Path(__file__).parent.parent)  # benchmarks/
    started = session("semistream-tests", master="local[2]", config=config)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka broker of one process."""
    from support.servers.kafka import Broker

    started = Broker(tmp_path_factory.mktemp("kafka"))
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A standalone cluster of a master and two workers with a core each."""
    from support.servers.cluster import Cluster

    started = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A PostgreSQL server with a database of its own."""
    from support.servers.databases import PostgreSQL

    yield from _running(PostgreSQL())


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """A MariaDB server with a database of its own."""
    from support.servers.databases import MariaDB

    yield from _running(MariaDB())


def _running(server: Server) -> Iterator[Any]:
    try:
        server.start()
        yield server
    finally:
        server.remove()
