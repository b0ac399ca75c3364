"""Three real Kafka nodes on loopback, each a broker and a controller: every partition on all of
them, written to two before it is acknowledged."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.servers.kafka.server import KafkaServer, new_cluster
from tests.servers.process import free_ports, started
from tests.servers.waiting import wait_until

_DEADLINE = 180.0


class KafkaNode(KafkaServer):
    """One of several; `voters` are the controllers' ports by the nodes' numbers."""

    number: int
    voters: Mapping[int, int]

    def answers(self) -> bool:
        return True  # none does before two of them run

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

    def has_brokers(self) -> bool:
        """Whether all nodes have joined."""
        with contextlib.suppress(KafkaException):
            return len(self._admin.list_topics(timeout=5).brokers) == len(self.nodes)
        return False

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
    voters, id_ = {number: free_ports() for number in (1, 2, 3)}, new_cluster()

    def node(number: int, directory: Path, port: int) -> KafkaNode:
        made = KafkaNode(directory, port)
        made.number, made.voters, made.cluster = number, voters, id_
        return made

    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(started(partial(node, number))) for number in voters]
        cluster = KafkaCluster(nodes)
        wait_until(cluster.has_brokers, deadline=_DEADLINE, what="three brokers")
        yield cluster
