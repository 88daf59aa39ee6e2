"""A Kafka broker of one process (KRaft, no ZooKeeper, no container), that can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from semistream.spark.cluster.java import find_java
from semistream.spark.cluster.maven import Artifact, download
from support import CACHE, JVM, downloads, free_ports, wait_for

VERSION = "4.1.2"
JARS = Path(__file__).with_name("kafka-jars.txt")
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
auto.create.topics.enable=false
"""


def broker_jars() -> Path:
    folder = CACHE / "kafka" / VERSION
    artifacts = [Artifact(*jar.split(":")) for jar in JARS.read_text().split()]
    with downloads(), ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda artifact: download(artifact, folder), artifacts))
    return folder


class Broker:
    """A broker with its data in a folder; ``kill`` and ``start`` again go on with that data."""

    def __init__(self, folder: Path) -> None:
        self._jars = broker_jars()
        self._folder = folder
        self._port, controller = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        data = folder / "data"
        data.mkdir(parents=True)
        text = SETTINGS.format(broker=self._port, controller=controller, data=data)
        (folder / "server.properties").write_text(text)
        identity = f"version=1\ncluster.id={uuid.uuid4().hex[:22]}\nnode.id=1\n"
        (data / "meta.properties").write_text(identity)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        options = ["-Xmx512m", *JVM.split()]
        main = ["kafka.Kafka", str(self._folder / "server.properties")]
        java = str(find_java().home / "bin" / "java")
        with (self._folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                [java, *options, "-cp", f"{self._jars}/*", *main], stdout=log, stderr=log
            )
        wait_for("the Kafka broker", self._healthy)

    def _healthy(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(
                f"the broker ended:\n{(self._folder / 'log.txt').read_text()[-3000:]}"
            )
        try:
            metadata = AdminClient(self._client()).list_topics(timeout=2)
        except KafkaException:
            return False
        return bool(metadata.brokers)

    def _client(self) -> dict[str, str | int]:
        return {"bootstrap.servers": self.address, "log_level": 0}

    def create(self, topic: str, partitions: int = 2) -> None:
        """Make a topic; a broker that has just started may want to be asked again."""
        wait_for(f"topic {topic}", lambda: self._create(NewTopic(topic, partitions, 1)))

    def _create(self, topic: NewTopic) -> bool:
        admin = AdminClient(self._client())
        try:
            admin.create_topics([topic], request_timeout=10)[topic.topic].result(15)
        except (KafkaException, TimeoutError) as error:
            return "TOPIC_ALREADY_EXISTS" in str(error)
        return True

    def kill(self) -> None:
        """End it by SIGKILL, in the middle of whatever it does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        os.kill(self._process.pid, how)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
