"""What the driver remembers belongs to a Spark context, and goes when that one stops."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import semistream as ss
from semistream.master.snapshots import pins
from semistream.spark.cluster.context_state import _STATES, state_of

pytestmark = pytest.mark.xdist_group("spark")

TWO_CONTEXTS = """
import sys
from pathlib import Path
import semistream as ss
from semistream.master.snapshots import pins
from semistream.spark.cluster.context_state import _STATES, state_of
from semistream.spark.cluster.session import session

def start():
    return session("two contexts", master="local[1]", config={"spark.driver.memory": "512m"})

def enriched(spark):
    return ss.enrich(spark.range(10).toDF("key"), sys.argv[1], on="key", transfer="none")

first = start()
ss.watch(first, print)
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
"""


class Context:
    """As much of a SparkContext as a state is tied to."""

    _jsc: object | None = object()


def fake() -> SimpleNamespace:
    return SimpleNamespace(sparkContext=Context())


def test_two_contexts_of_a_process_share_nothing(tmp_path):
    ss.build_master(pa.table({"key": [1, 2, 3, 9], "x": [1, 2, 3, 4]}), tmp_path / "m", key="key")
    script = tmp_path / "two.py"
    script.write_text(TWO_CONTEXTS)
    command = [sys.executable, str(script), str(tmp_path / "m")]
    subprocess.run(command, check=True, timeout=300)  # noqa: S603 - our own
    assert not pins.all_pins(Path(tmp_path / "m"))


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
