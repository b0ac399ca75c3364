"""Three real Kafka nodes on loopback, each a broker and a controller: every partition on all of
them, written to two before it is acknowledged."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.servers.kafka.server import KafkaServer, new_cluster
from tests.servers.process import free_ports
from tests.servers.waiting import wait_until

_DEADLINE = 120.0


class KafkaNode(KafkaServer):
    """One of several; `voters` are the controllers' ports by the nodes' numbers."""

    start_deadline = _DEADLINE
    number: int
    voters: Mapping[int, int]

    def properties(self) -> dict[str, object]:
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in self.voters.items())
        plain = f"PLAINTEXT://{self.bootstrap_servers}"
        return super().properties() | {
            "node.id": self.number,
            "controller.quorum.voters": voters,
            "listeners": f"{plain},CONTROLLER://127.0.0.1:{self.voters[self.number]}",
            "default.replication.factor": 3,
            "min.insync.replicas": 2,
            "offsets.topic.replication.factor": 3,
            "transaction.state.log.replication.factor": 3,
            "transaction.state.log.min.isr": 2,
            "controller.quorum.election.timeout.ms": 1000,
            "controller.quorum.fetch.timeout.ms": 2000,
            "replica.lag.time.max.ms": 3000,
        }


class KafkaCluster:
    """Three nodes. `replicas` returns the in-sync replicas of each partition of a topic."""

    def __init__(self, nodes: Sequence[KafkaNode]) -> None:
        self.nodes = nodes
        self.bootstrap_servers = ",".join(node.bootstrap_servers for node in nodes)
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})

    def replicas(self, topic: str) -> list[tuple[int, int, int]]:
        """Leader (a node's number), replicas, and how many are in sync, by partition."""
        found = self._admin.list_topics(topic, timeout=10).topics[topic].partitions
        return [(each.leader, len(each.replicas), len(each.isrs)) for each in found.values()]

    def until_in_sync(self, topic: str) -> None:
        """Wait until every partition is on all nodes again."""

        def is_in_sync() -> bool:
            with contextlib.suppress(KafkaException):
                return all(in_sync == len(self.nodes) for _, _, in_sync in self.replicas(topic))
            return False

        wait_until(is_in_sync, deadline=_DEADLINE, what=f"{topic} is in sync")


@contextlib.contextmanager
def kafka_cluster() -> Iterator[KafkaCluster]:
    """Three nodes that run, in directories that go with them."""
    with tempfile.TemporaryDirectory(prefix="proximity-test-", ignore_cleanup_errors=True) as base:
        voters, cluster = {number: free_ports() for number in (1, 2, 3)}, new_cluster()
        nodes = []
        for number in voters:
            directory = Path(base) / str(number)
            directory.mkdir()
            node = KafkaNode(directory, free_ports())
            node.number, node.voters, node.cluster = number, voters, cluster
            node.prepare()
            nodes.append(node)
        try:
            # None answers before two of them run.
            with ThreadPoolExecutor(len(nodes)) as threads:
                list(threads.map(KafkaNode.start, nodes))
            yield KafkaCluster(nodes)
        finally:
            for node in nodes:
                node.kill()
