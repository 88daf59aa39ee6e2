"""A standalone Spark cluster of separate processes: a master and two workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from semistream.spark.cluster.java import find_java
from support import JVM, free_ports, wait_for
from support.processes import command, descendants

if TYPE_CHECKING:
    from typing import Any

SPARK = Path(pyspark.__file__).parent


class Cluster:
    """Started by ``start``; its executors are processes whose ids ``executors`` gives."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._workers = workers
        self._port, self._web = free_ports(2)
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def start(self) -> None:
        web = ["--webui-port", str(self._web)]
        self._run("master.Master", "127.0.0.1", "--port", str(self._port), *web)
        wait_for("the cluster's master", lambda: self._state() is not None)
        for number in range(self._workers):
            # An address each: Spark runs a task's second attempt only on another host.
            place = ["-d", str(self._folder / f"worker{number}"), "--webui-port", "0"]
            size = ["-c", "1", "-m", "1g"]
            self._run("worker.Worker", f"127.0.0.{number + 1}", *size, *place, self.address)
        wait_for("the cluster's workers", lambda: self._alive() == self._workers)

    def _run(self, part: str, host: str, *arguments: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": host,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JVM,
            "PYSPARK_PYTHON": sys.executable,
        }
        start = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{part}"]
        with (self._folder / "log.txt").open("ab") as log:
            self._processes.append(
                subprocess.Popen(  # noqa: S603
                    [*start, "--host", host, *arguments], env=environment, stdout=log, stderr=log
                )
            )

    def _state(self) -> dict[str, Any] | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=5) as answer:
                return dict(json.load(answer))
        except OSError:
            return None

    def _alive(self) -> int:
        state = self._state()
        return int(state["aliveworkers"]) if state else 0

    def executors(self) -> list[int]:
        """The ids of the executors' processes: started by this cluster's workers."""
        started = descendants([process.pid for process in self._processes[1:]])
        return [pid for pid in started if "CoarseGrainedExecutorBackend" in command(pid)]

    def logs(self) -> list[Path]:
        """What the executors of all applications said."""
        return list(self._folder.glob("worker*/*/*/stderr"))

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
