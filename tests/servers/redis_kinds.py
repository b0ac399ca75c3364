"""Real Redis in the forms that only some tests need: Sentinel, three nodes of a cluster, TLS."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import trustme
from redis import Redis
from redis.exceptions import RedisError

from tests.servers.process import started
from tests.servers.redis import SLOTS, ClusterNode, RedisServer
from tests.servers.waiting import wait_until

SERVICE = "proximity-primary"


class SentinelServer(RedisServer):
    """Promotes the replica of the primary that listens on the port `primary` after a second."""

    def prepare(self) -> None:
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {self.directory}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.more['primary']} 1",
            f"sentinel down-after-milliseconds {SERVICE} 1000",
            f"sentinel failover-timeout {SERVICE} 5000",
        ]
        (self.directory / "sentinel.conf").write_text("\n".join(lines) + "\n")

    def command(self) -> Sequence[str | Path]:
        return [self._executable, self.directory / "sentinel.conf", "--sentinel"]


class TlsRedisServer(RedisServer):
    """Speaks TLS only, and wants a client's certificate."""

    def prepare(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.directory / "ca.pem")
        for name in ("server.pem", "client.pem"):
            issued = authority.issue_cert("127.0.0.1", "localhost")
            issued.private_key_and_cert_chain_pem.write_to_path(self.directory / name)
        own = str(self.directory / "server.pem")
        self.more = {"port": "0", "tls_port": str(self.port), "tls_cert_file": own}
        self.more |= {"tls_key_file": own, "tls_ca_cert_file": str(self.directory / "ca.pem")}

    def url_of(self, login: str) -> str:
        """For a user and password, with an @ after them."""
        files = {"ssl_ca_certs": "ca.pem", "ssl_certfile": "client.pem"}
        files["ssl_keyfile"] = "client.pem"
        query = "&".join(f"{name}={self.directory / file}" for name, file in files.items())
        return f"rediss://{login}127.0.0.1:{self.port}/0?{query}"

    def connect(self) -> Redis:
        return Redis.from_url(self.url_of(""), socket_timeout=5.0, decode_responses=True)


@contextlib.contextmanager
def sentinel_and_two() -> Iterator[tuple[str, RedisServer]]:
    """A Sentinel's URL, and the primary, which has a replica."""
    with started(RedisServer) as primary:

        def replica(directory: Path, port: int) -> RedisServer:
            return RedisServer(directory, port, replicaof=f"127.0.0.1 {primary.port}")

        def sentinel(directory: Path, port: int) -> SentinelServer:
            return SentinelServer(directory, port, primary=str(primary.port))

        with started(replica) as second, started(sentinel) as watcher:
            with watcher.connect() as client:
                wait_until(
                    lambda: int(client.sentinel_masters()[SERVICE]["num-slaves"]) == 1,
                    what="Sentinel knows the replica",
                )
            until_it_has_the_data(second)
            yield f"redis+sentinel://127.0.0.1:{watcher.port}/{SERVICE}", primary


@contextlib.contextmanager
def cluster_of_three() -> Iterator[tuple[str, RedisServer]]:
    """The URL of three primaries, and the first of them, which has a replica."""
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(started(ClusterNode)) for _ in range(4)]
        clients = [stack.enter_context(node.connect()) for node in nodes]
        third = SLOTS // 3 + 1
        for number, client in enumerate(clients):
            if slots := range(number * third, min((number + 1) * third, SLOTS)):
                client.execute_command("CLUSTER ADDSLOTS", *slots)
            client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            client.execute_command("CLUSTER MEET", "127.0.0.1", nodes[0].port)
        first = clients[0].execute_command("CLUSTER MYID")

        def follows() -> bool:
            with contextlib.suppress(RedisError):  # it does not know that node yet
                return bool(clients[3].execute_command("CLUSTER REPLICATE", first))
            return False

        wait_until(follows, what="a replica follows")
        wait_until(lambda: all(map(_is_whole, clients)), what="a cluster")
        until_it_has_the_data(nodes[3])
        yield nodes[1].url, nodes[0]


def until_it_has_the_data(replica: RedisServer) -> None:
    """Wait until a replica follows its primary."""
    with replica.connect() as client:
        wait_until(
            lambda: client.info("replication")["master_link_status"] == "up",
            what="the replica has the data",
        )


def _is_whole(client: Redis) -> bool:
    state: dict[str, str] = client.execute_command("CLUSTER INFO")
    return state["cluster_state"] == "ok" and state["cluster_known_nodes"] == "4"
