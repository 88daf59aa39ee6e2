"""The real parts that tests start: connector jars, a Kafka broker, a standalone cluster."""

from __future__ import annotations

import os
import socket
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from semistream.spark.cluster.maven import JarsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What a short-lived JVM needs: no second compiler, no parallel collector. Without the second
# compiler Java has 48 MB for compiled code, which Spark fills: it would drop and compile it anew.
# And it collects the whole heap whenever there are some 20 MB more of classes, up to the size here.
JVM = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=300m"
)
# Delta reads its log in 50 tasks, and shuffles in 200, unless it is told that it is small.
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Most queries are like ones before: their generated code is compiled once, though there are
    # more than the hundred that Spark keeps, and though a stage has another number.
    "spark.sql.codegen.cache.maxEntries": "5000",
    "spark.sql.codegen.useIdInClassName": "false",
    "spark.driver.extraJavaOptions": JVM,
    "spark.executor.extraJavaOptions": JVM,
}
CACHE = Path.home() / ".cache" / "semistream-tests"


@contextmanager
def downloads() -> Iterator[None]:
    """Skip where the network is not there; on CI nothing is skipped."""
    try:
        yield
    except JarsError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"a part cannot be downloaded: {error}")


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_for(what: str, ready: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until something holds; one that never does is an error with its name."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.05)
