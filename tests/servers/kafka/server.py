"""A real Apache Kafka 4.1: broker and controller in one process, data in its directory."""

import base64
import logging
import re
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from engine.cli.local_servers import free_port
from tests.servers.kafka.jars import jars_directory, java
from tests.servers.process import ServerProcess

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={directory}/data
log.retention.ms=-1
num.partitions=4
auto.create.topics.enable=true
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
log.cleaner.dedupe.buffer.size=8388608
"""
# Failed attempts to reach a broker that is still starting are expected.
_quiet = logging.getLogger("tests.servers.kafka.readiness")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False
# What the tool wrote for the first server of this process, by the names of the files.
_formatted: dict[str, bytes] = {}


class KafkaServer(ServerProcess):
    """One Kafka node; topics are made by their first mention, with 4 partitions."""

    start_deadline = 60.0
    stop_deadline = 30.0

    def __init__(self, directory: Path, port: int) -> None:
        super().__init__(directory, port)
        self._java = java()
        self._jars = jars_directory()
        self._properties = directory / "server.properties"

    @property
    def bootstrap_servers(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    def prepare(self) -> None:
        self.write_properties()
        data = self.directory / "data"
        if not _formatted:
            self.format_storage(new_cluster())
            _formatted.update({path.name: path.read_bytes() for path in data.iterdir()})
            return
        # The tool is a Java of its own, and writes the same but for the cluster's id.
        data.mkdir()
        for name, content in _formatted.items():
            mine = b"cluster.id=" + new_cluster().encode()
            (data / name).write_bytes(
                re.sub(rb"^cluster\.id=.*", mine, content, flags=re.MULTILINE)
            )

    def write_properties(self, changed: Mapping[str, str] | None = None, more: str = "") -> None:
        """The node's settings; those in `changed` take the place of its own."""
        text = _PROPERTIES.format(
            port=self.port, controller_port=free_port(), directory=self.directory
        )
        if changed is not None:
            lines = [f"{name}={value}" for name, value in changed.items()]
            lines += [line for line in text.splitlines() if line.partition("=")[0] not in changed]
            text = "\n".join(lines) + "\n" + more
        self._properties.write_text(text)

    def format_storage(self, cluster: str) -> None:
        """Make the data directory of a node of this cluster."""
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster]
        subprocess.run(
            [*self._run_java("-Xmx128m"), *tool, "-c", self._properties],
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
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        archive = archive_of(self._jars)
        return [*options, f"-XX:SharedArchiveFile={archive}"] if archive.exists() else options

    def _run_java(self, heap: str) -> list[str | Path]:
        log_level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return [self._java, heap, *self.java_options(), log_level, "-cp", f"{self._jars}/*"]


def new_cluster() -> str:
    """An id for a cluster. It may not begin with a dash: it would be taken for an option."""
    return base64.urlsafe_b64encode(b"p" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


def archive_of(jars: Path) -> Path:
    """Where `python -m tests.servers.kafka.archive` puts Kafka's classes."""
    return jars.with_name(f"{jars.name}.jsa")
