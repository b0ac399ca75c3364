"""Real Redis in the forms that only some tests need: Sentinel, three nodes of a cluster, TLS."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import trustme
from redis import Redis
from redis.exceptions import RedisError

from engine.cli.local_servers import free_port
from tests.servers.process import started
from tests.servers.redis import RedisServer
from tests.servers.waiting import wait_until

SERVICE = "proximity-primary"
USER, PASSWORD = "engine", "s3cret-of-redis"
_SLOTS = 16384
_HIGHEST_PORT = 55535


class ReplicaServer(RedisServer):
    """Follows `primary`."""

    primary: RedisServer

    def options(self) -> dict[str, str]:
        return {"replicaof": f"127.0.0.1 {self.primary.port}"}

    def answers(self) -> bool:
        if not super().answers():
            return False
        with self.connect() as client:
            return str(client.info("replication")["master_link_status"]) == "up"


class SentinelServer(RedisServer):
    """Watches `primary`, and promotes its replica after a second."""

    primary: RedisServer

    def prepare(self) -> None:
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {self.directory}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.primary.port} 1",
            f"sentinel down-after-milliseconds {SERVICE} 1000",
            f"sentinel failover-timeout {SERVICE} 5000",
        ]
        (self.directory / "sentinel.conf").write_text("\n".join(lines) + "\n")

    def command(self) -> Sequence[str | Path]:
        return [self._executable, self.directory / "sentinel.conf", "--sentinel"]

    def knows_replica(self) -> bool:
        """Whether it could promote one."""
        with self.connect() as client:
            return int(client.sentinel_masters()[SERVICE]["num-slaves"]) == 1


class ClusterNode(RedisServer):
    """One node of several; `form_cluster` makes them one."""

    def __init__(self, directory: Path, port: int) -> None:
        while port > _HIGHEST_PORT:
            port = free_port()
        super().__init__(directory, port)

    def options(self) -> dict[str, str]:
        return {
            "cluster-enabled": "yes",
            "cluster-announce-ip": "127.0.0.1",
            "cluster-node-timeout": "2000",
        }


class TlsRedisServer(RedisServer):
    """Speaks TLS only, wants a client's certificate, and knows one user by name."""

    def prepare(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.directory / "ca.pem")
        for name in ("server", "client"):
            issued = authority.issue_cert("127.0.0.1", "localhost")
            issued.private_key_pem.write_to_path(self.directory / f"{name}.key")
            chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
            (self.directory / f"{name}.pem").write_bytes(chain)

    def options(self) -> dict[str, str]:
        return {
            "port": "0",
            "tls-port": str(self.port),
            "tls-cert-file": str(self.directory / "server.pem"),
            "tls-key-file": str(self.directory / "server.key"),
            "tls-ca-cert-file": str(self.directory / "ca.pem"),
        }

    @property
    def url(self) -> str:
        files = "&".join(
            f"{name}={self.directory / file}"
            for name, file in {
                "ssl_ca_certs": "ca.pem",
                "ssl_certfile": "client.pem",
                "ssl_keyfile": "client.key",
            }.items()
        )
        return f"rediss://{USER}:{PASSWORD}@127.0.0.1:{self.port}/0?{files}"

    def connect(self) -> Redis:
        return Redis(
            port=self.port,
            ssl=True,
            ssl_ca_certs=str(self.directory / "ca.pem"),
            ssl_certfile=str(self.directory / "client.pem"),
            ssl_keyfile=str(self.directory / "client.key"),
            socket_timeout=5.0,
            decode_responses=True,
        )


@contextlib.contextmanager
def sentinel_and_two() -> Iterator[tuple[SentinelServer, RedisServer, RedisServer]]:
    """A Sentinel, the primary, and its replica."""
    with started(RedisServer) as primary:

        def replica(directory: Path, port: int) -> ReplicaServer:
            made = ReplicaServer(directory, port)
            made.primary = primary
            return made

        def sentinel(directory: Path, port: int) -> SentinelServer:
            made = SentinelServer(directory, port)
            made.primary = primary
            return made

        with started(replica) as second, started(sentinel) as watcher:
            wait_until(watcher.knows_replica, deadline=30.0, what="Sentinel knows the replica")
            yield watcher, primary, second


@contextlib.contextmanager
def cluster_of_three() -> Iterator[list[ClusterNode]]:
    """Three primaries, and a replica of the first behind them."""
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(started(ClusterNode)) for _ in range(4)]
        _form_cluster(nodes)
        yield nodes


def _form_cluster(nodes: Sequence[ClusterNode]) -> None:
    clients = [node.connect() for node in nodes]
    try:
        third = _SLOTS // 3 + 1
        for number, client in enumerate(clients[:3]):
            last = min((number + 1) * third, _SLOTS)
            client.execute_command("CLUSTER ADDSLOTS", *range(number * third, last))
        for number, client in enumerate(clients):
            client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            client.execute_command("CLUSTER MEET", "127.0.0.1", nodes[0].port)
        first = clients[0].execute_command("CLUSTER MYID")
        wait_until(lambda: _follows(clients[3], first), deadline=30.0, what="a replica follows")
        wait_until(
            lambda: all(_is_whole(client) for client in clients), deadline=30.0, what="a cluster"
        )
    finally:
        for client in clients:
            client.close()


def _follows(client: Redis, primary: str) -> bool:
    with contextlib.suppress(RedisError):  # it does not know that node yet
        client.execute_command("CLUSTER REPLICATE", primary)
        return True
    return False


def _is_whole(client: Redis) -> bool:
    state: dict[str, str] = client.execute_command("CLUSTER INFO")
    return state["cluster_state"] == "ok" and state["cluster_known_nodes"] == "4"
