"""What the driver remembers belongs to a Spark context, and goes when that one stops."""

from __future__ import annotations

import gc
import subprocess
import sys
from types import SimpleNamespace

import pyarrow as pa
import pytest

import semistream as ss
from semistream.master.snapshots import pins
from semistream.spark.cluster.context_state import _STATES, state_of
from support import JVM

pytestmark = pytest.mark.xdist_group("spark")

# One process for both tests below: a JVM takes longer to start than all that they ask of it.
TWO_CONTEXTS = """
import logging, sys
from pathlib import Path
from pyspark import SparkContext
import semistream as ss
from semistream.master.snapshots import pins
from semistream.spark.cluster.context_state import _STATES, state_of
from semistream.spark.cluster.session import session

logging.basicConfig(level="WARNING", stream=sys.stdout, format="%(message)s")

def start(**config):
    return session("two contexts", master="local[1]", config=config)

def enriched(spark):
    return ss.enrich(spark.range(10).toDF("key"), sys.argv[1], on="key", transfer="none")

first = start(**{
    "spark.hadoop.fs.s3a.secret.key": "hush-1",
    "spark.hadoop.fs.azure.account.key.shop.dfs.core.windows.net": "hush-2",
    "spark.sql.catalog.shop.url": "jdbc:postgresql://reader:hush-3@db/shop",
    "spark.driver.extraJavaOptions": sys.argv[2] + " -Djavax.net.ssl.trustStorePassword=known",
    "spark.driver.memory": "512m",
})
print(Path(f"/proc/{SparkContext._gateway.proc.pid}/cmdline").read_bytes().replace(bytes(1), b" "))
hadoop = first._jsc.hadoopConfiguration()
print("in Hadoop:", hadoop.get("fs.s3a.secret.key").upper())
print("in Hadoop:", hadoop.get("fs.azure.account.key.shop.dfs.core.windows.net").upper())
print("in Spark:", first.conf.get("spark.sql.catalog.shop.url").upper())
print("rows:", first.range(3).count(), first.sparkContext.appName, first.sparkContext.master)

ss.watch(first, lambda _: None)
assert enriched(first).count() == 4
before = state_of(first)
assert enriched(first).count() == 4
assert before.has_classes and before.listeners and before.unique_name("m", None) == "m_3"
assert len(pins.all_pins(Path(sys.argv[1]))) == 1
first.stop()
second = start()
state = state_of(second)
assert state is not before and len(_STATES) == 1
assert not state.has_classes and not state.listeners and not state.enrichments
assert state.channel is None and state.holder != before.holder
assert not pins.all_pins(Path(sys.argv[1])), "the stopped context holds a snapshot"
assert enriched(second).count() == 4
assert state.unique_name("m", None) == "m_2"
second.stop()
print("two contexts share nothing")
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    path = tmp_path_factory.mktemp("contexts") / "m"
    ss.build_master(pa.table({"key": [1, 2, 3, 9], "x": [1, 2, 3, 4]}), path, key="key")
    return path


@pytest.fixture(scope="module")
def told(master):
    """Give the lines of a process that has one context after the other."""
    command = [sys.executable, "-c", TWO_CONTEXTS, str(master), JVM]
    run = subprocess.run(  # noqa: S603 - our own
        command, capture_output=True, text=True, check=False, timeout=300
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_secrets_are_on_no_command_line_and_reach_spark(told):
    warned, command, *reached = told[:6]
    assert "spark.driver.extraJavaOptions holds a secret" in warned
    assert "-Xmx512m" in command
    assert "hush" not in command
    assert reached == [
        "in Hadoop: HUSH-1",
        "in Hadoop: HUSH-2",
        "in Spark: JDBC:POSTGRESQL://READER:HUSH-3@DB/SHOP",
        "rows: 3 two contexts local[1]",
    ]


def test_two_contexts_of_a_process_share_nothing(told, master):
    assert told[-1] == "two contexts share nothing"
    assert not pins.all_pins(master)


class Context:
    """As much of a SparkContext as a state is tied to."""

    _jsc: object | None = object()


def fake() -> SimpleNamespace:
    return SimpleNamespace(sparkContext=Context())


def test_a_stopped_context_is_dropped_and_its_holds_are_released(tmp_path):
    ss.build_master(pa.table({"key": [1]}), tmp_path, key="key")
    first = fake()
    state = state_of(first)
    assert state_of(first) is state
    pins.hold(tmp_path, state.holder)
    state.masters.add(tmp_path)
    first.sparkContext._jsc = None
    second = fake()
    assert state_of(second) is not state
    assert first.sparkContext not in _STATES
    assert not pins.all_pins(tmp_path)


def test_a_context_that_no_one_has_leaves_no_state(tmp_path):
    ss.build_master(pa.table({"key": [1]}), tmp_path, key="key")
    spark = fake()
    state_of(spark).masters.add(tmp_path)
    pins.hold(tmp_path, state_of(spark).holder)
    count = len(_STATES)
    del spark
    gc.collect()
    assert len(_STATES) == count - 1
    assert not pins.all_pins(tmp_path)


def test_names_are_counted_anew_in_every_attempt_at_a_batch():
    state = state_of(fake())
    assert [state.unique_name("a", None) for _ in range(2)] == ["a", "a_2"]
    for attempt in (("query", "0", "run"), ("query", "1", "run"), ("query", "1", "another run")):
        assert [state.unique_name("a", attempt) for _ in range(2)] == ["a", "a_2"]
