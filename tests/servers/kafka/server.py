"""A real Apache Kafka 4.1: broker and controller in one process, data in its directory."""

import logging
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.servers.kafka.jars import cached, jars_directory, java
from tests.servers.process import ServerProcess

# Failed attempts to reach a broker that is still starting are expected.
_quiet = logging.getLogger("tests.servers.kafka.readiness")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


class KafkaServer(ServerProcess):
    """One Kafka node; topics are made by their first mention, with 4 partitions."""

    start_deadline = 180.0

    def __init__(self, directory: Path, port: int) -> None:
        super().__init__(directory, port)
        self._java = java()
        self._jars = jars_directory()
        self._properties = directory / "server.properties"

    @property
    def bootstrap_servers(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    def properties(self) -> dict[str, object]:
        """The node's settings."""
        controller, plain = f"127.0.0.1:{self.port + 1}", f"PLAINTEXT://{self.bootstrap_servers}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"{plain},CONTROLLER://{controller}",
            "advertised.listeners": plain,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.directory / "data",
            "log.retention.ms": -1,
            "num.partitions": 4,
            "auto.create.topics.enable": "true",
            "offsets.topic.num.partitions": 4,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 500,
            "log.cleaner.dedupe.buffer.size": 8388608,
        }

    def prepare(self) -> None:
        # A node's place in the cluster is the same for all, and the tool is a Java of its own.
        formatted = cached(f"{self._jars.name}-formatted", Path(__file__), self._format)
        shutil.copytree(formatted, self.directory / "data")
        self._write(self.properties())

    def _write(self, properties: Mapping[str, object]) -> None:
        lines = [f"{name}={value}\n" for name, value in properties.items()]
        self._properties.write_text("".join(lines))

    def _format(self, data: Path) -> None:
        self._write(self.properties() | {"log.dirs": data})
        tool = [*self._run_java("-Xmx128m"), "kafka.tools.StorageTool", "format"]
        subprocess.run(
            [*tool, "-t", "proximity-test-cluster", "-c", self._properties],
            check=True,
            timeout=60,
            capture_output=True,
        )

    def command(self) -> Sequence[str | Path]:
        return [*self._run_java("-Xmx1g"), "kafka.Kafka", self._properties]

    def answers(self) -> bool:
        client = AdminClient({"bootstrap.servers": self.bootstrap_servers}, logger=_quiet)
        try:
            return bool(client.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    def java_options(self) -> list[str]:
        """A broker of a test lives for seconds: what is compiled quickly serves it best."""
        return ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]

    def _run_java(self, heap: str) -> list[str | Path]:
        log_level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return [self._java, heap, *self.java_options(), log_level, "-cp", f"{self._jars}/*"]
