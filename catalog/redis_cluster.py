"""A client of a Redis Cluster that raises no errors but redis-py's own."""

from collections.abc import Iterable, Mapping
from typing import Any

from redis.asyncio import RedisCluster
from redis.asyncio.connection import Connection, SSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisClusterException


class _ErrorWhenClosed:
    """Raises redis-py's ConnectionError where redis-py 8.1 raises AttributeError.

    While a node fails, its connection may be closed after a command was handed over and before it
    is written. The AttributeError would look like a defect of the caller.
    """

    _writer: Any

    async def _send_packed_command(self, command: Iterable[bytes]) -> None:
        if self._writer is None:
            raise RedisConnectionError("the connection was closed before the command was sent")
        await super()._send_packed_command(command)  # type: ignore[misc]  # of the other base


class ClusterConnection(_ErrorWhenClosed, Connection):
    """A connection in plain text."""


class TlsClusterConnection(_ErrorWhenClosed, SSLConnection):
    """With TLS."""


_CLASSES: Mapping[Any, Any] = {Connection: ClusterConnection, SSLConnection: TlsClusterConnection}


class WaitingRedisCluster(RedisCluster):
    """A cluster that cannot be reached, or whose slots have no node yet, is an error of the
    connection: it may pass. redis-py's own for it is none of its RedisErrors."""

    async def initialize(self, *args: Any, **options: Any) -> "WaitingRedisCluster":
        try:
            await super().initialize(*args, **options)
        except RedisClusterException as error:
            raise RedisConnectionError(str(error)) from error
        return self


def connect_cluster(url: str, options: Mapping[str, Any]) -> RedisCluster:
    """A client for redis:// or rediss://, which names one node. Raises what redis-py raises."""
    client = WaitingRedisCluster.from_url(url, **options)
    # redis-py has no argument for the class. Nodes that are found later use these arguments too.
    kind = _CLASSES[client.connection_kwargs["connection_class"]]
    client.connection_kwargs["connection_class"] = kind
    for node in client.nodes_manager.startup_nodes.values():
        node.connection_class = kind
    return client
