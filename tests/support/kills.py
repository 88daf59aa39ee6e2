"""Kills Python workers, executors and the driver in the middle of a run, and counts every row.

``make kills`` does it twenty times, into files and into Delta; and some more while rows wait for
their master rows.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from semistream.master.snapshots.pins import all_pins
from support import SMALL, wait_for
from support.data import Data, LateData
from support.driver import FILES_A_BATCH, Job
from support.processes import busy_worker, descendants
from support.servers.cluster import Cluster
from support.servers.connectors import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semistream.master.snapshots.pins import Pinned

DRIVER = Path(__file__).with_name("driver.py")


@dataclass
class Run:
    """One stream into one table, while something is killed again and again."""

    data: Data
    folder: Path
    sink: str
    spark: str = "local[2,100]"
    config: dict[str, str] = field(default_factory=dict)
    cluster: Cluster | None = None
    done: Counter[str] = field(default_factory=Counter)
    _driver: subprocess.Popen[bytes] | None = None
    _transfer: str = "auto"

    @property
    def _batches(self) -> int:
        return self.data.files // FILES_A_BATCH

    @property
    def result(self) -> Path:
        return self.folder / "result.parquet"

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    def execute(self, kills: list[str]) -> None:
        """Kill at times spread over the run, then let it end.

        Keys pass through Python where a worker is to be killed; else Java looks them up.
        """
        self._transfer = "keys" if "worker" in kills else "auto"
        if not self.folder.exists():
            self._job().save(self.folder / "job.json")
        rng = random.Random(len(kills))  # noqa: S311
        try:
            for number, kind in enumerate(kills):
                self._reach((number + 1) * self._batches // (len(kills) + 1))
                time.sleep(rng.random() / 2)
                self._kill(kind)
            self._reach(self._batches)
            wait_for("the result", lambda: self.result.exists() or not self._alive())
        finally:
            self._end()
        if not self.result.exists():
            raise RuntimeError(f"the driver failed:\n{self.log.read_text()[-5000:]}")

    def kill_in_a_batch(self) -> tuple[int, str]:
        """Kill the driver when a batch is pinned and not committed; give both."""
        while True:
            wait_for("a pinned batch", lambda: self._begun() is not None, 600)
            self._end()
            begun = self._begun()
            if begun is not None:
                return int(begun.batch), begun.pin.files
            self._start()  # it was committed just before

    def _begun(self) -> Pinned | None:
        """Give the pin of the newest batch if that is not committed."""
        last = max(self._pins(), key=lambda pinned: int(pinned.batch), default=None)
        commits = self.folder / "checkpoint" / "commits"
        return None if last is None or (commits / last.batch).exists() else last

    def _pins(self) -> list[Pinned]:
        return [pinned for pinned in all_pins(self.data.master) if pinned.batch.isdigit()]

    def describe(self) -> str:
        kills = ", ".join(
            f"{count} {what}" for what, count in self.done.items() if what != "starts"
        )
        seen = f"{self.done['starts']} starts, {self.lost_tasks()} lost tasks seen"
        return f"{self.sink} on {self.spark}: killed {kills} ({seen})"

    def lost_tasks(self) -> int:
        """How many tasks ended with an error, whatever executors say of its cause."""
        logs = [self.log, *(self.cluster.logs() if self.cluster else ())]
        return sum(log.read_text().count("ERROR Executor: Exception in task") for log in logs)

    def _job(self) -> Job:
        self.folder.mkdir(parents=True, exist_ok=True)
        return Job(
            spark=self.spark,
            stream=str(self.data.stream),
            master=str(self.data.master),
            table=str(self.folder / "table"),
            checkpoint=str(self.folder / "checkpoint"),
            result=str(self.result),
            sink=self.sink,
            transfer=self._transfer,
            config={**SMALL, **self.config},
        )

    def _alive(self) -> bool:
        return self._driver is not None and self._driver.poll() is None

    def _start(self) -> None:
        command = [sys.executable, str(DRIVER), str(self.folder / "job.json")]
        path = os.pathsep.join(
            filter(None, [str(DRIVER.parent.parent), os.environ.get("PYTHONPATH")])
        )
        environment = {**os.environ, "PYTHONPATH": path}
        with self.log.open("ab") as log:
            self._driver = subprocess.Popen(  # noqa: S603
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        self.done["starts"] += 1

    def _reach(self, batches: int) -> None:
        """Wait until so many micro-batches are committed; a driver that failed is started again."""
        commits = self.folder / "checkpoint" / "commits"

        def reached() -> bool:
            if not self._alive() and not self.result.exists():
                if self.done["starts"] > 20:
                    raise RuntimeError(f"the driver fails:\n{self.log.read_text()[-5000:]}")
                self._start()
            return commits.exists() and sum(p.name.isdigit() for p in commits.iterdir()) >= batches

        wait_for(f"batch {batches}", reached, 600)

    def _kill(self, kind: str) -> None:
        {"worker": self._kill_worker, "executor": self._kill_executor, "driver": self._end}[kind]()
        self.done[kind] += 1

    def _kill_worker(self) -> None:
        """Kill until a task is lost: a worker that has just ended its task is not missed."""
        before = self.lost_tasks()
        while self.lost_tasks() == before:
            roots = self.cluster.executors() if self.cluster else [self._pid]
            os.kill(busy_worker(roots), signal.SIGKILL)
            with suppress(TimeoutError):
                wait_for("a lost task", lambda: self.lost_tasks() > before, 5)

    def _kill_executor(self) -> None:
        assert self.cluster is not None
        wait_for("an executor", lambda: bool(self.cluster and self.cluster.executors()))
        os.kill(self.cluster.executors()[0], signal.SIGKILL)

    @property
    def _pid(self) -> int:
        assert self._driver is not None
        return self._driver.pid

    def _end(self) -> None:
        """End the driver and its JVM, and whatever they started, all by SIGKILL."""
        if self._driver is None:
            return
        for pid in [self._pid, *descendants([self._pid])]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._driver.wait()
        self._driver = None


class WaitRun(Run):
    """A pipeline in which rows wait; with every kill some of their master rows come."""

    def execute(self, kills: list[str]) -> None:
        self._shares = len(kills)
        super().execute(kills)

    def _job(self) -> Job:
        self._late.bring(0)
        self.folder.mkdir(parents=True)
        path = self.folder / "pipeline.yaml"
        path.write_text(
            f"""\
source: {{kind: files, path: {self.data.stream}, files_per_batch: {FILES_A_BATCH}}}
enrich: {{master: {self.data.master}, on: key, how: left, memory: 8MB, on_missing: wait}}
waiting: {{delay: 1s}}
sink: {{kind: delta, path: table}}
checkpoint: checkpoint
"""
        )
        return replace(super()._job(), pipeline=str(path))

    @property
    def _late(self) -> LateData:
        assert isinstance(self.data, LateData)
        return self.data

    def _kill(self, kind: str) -> None:
        super()._kill(kind)
        killed = self.done.total() - self.done["starts"]
        self._late.bring(killed / self._shares)


def cluster_config() -> dict[str, str]:
    """Executors that fit the tests' cluster, may fail often, and find this package."""
    path = {"spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    return {
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "100",
        "spark.executor.maxNumFailures": "100",
        **{name: value for name, value in path.items() if value},
    }


def main() -> None:
    """Kill ten times for each sink; say what became of the rows, and fail if any was not once."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that what was started ends
    sinks = sys.argv[1:] or ["parquet", "delta", "wait"]
    failed = False
    with tempfile.TemporaryDirectory() as name:
        data = Data(Path(name) / "data", files=32, rows=100_000)
        data.write()
        cluster = Cluster(Path(name) / "cluster")
        try:
            cluster.start()
            for run, kills in _runs(sinks, data, cluster, Path(name)):
                run.execute(kills)
                lost, more = run.data.differences(run.result)
                failed |= bool(lost or more)
                sys.stdout.write(f"{run.describe()}: {lost} rows lost, {more} too many\n")
                sys.stdout.flush()
        finally:
            cluster.stop()
    sys.exit(failed)


def _runs(
    sinks: list[str], data: Data, cluster: Cluster, folder: Path
) -> Iterator[tuple[Run, list[str]]]:
    for sink in sinks:
        if sink == "wait":
            late = LateData(folder / "late", files=32, rows=20_000)
            late.write()
            run = WaitRun(late, folder / "wait", "delta", config=require("delta"))
            yield run, ["driver", "worker", "driver", "driver", "worker"]
            continue
        config = require("delta") if sink == "delta" else {}
        local = Run(data, folder / f"{sink}-local", sink, config=config)
        yield local, ["worker", "driver", "worker", "driver", "worker"]
        spread = {**config, **cluster_config()}
        apart = Run(data, folder / f"{sink}-cluster", sink, cluster.address, spread, cluster)
        yield apart, ["executor", "worker", "driver", "executor", "executor"]


if __name__ == "__main__":
    main()
