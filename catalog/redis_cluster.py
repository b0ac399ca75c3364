"""A client of a Redis Cluster whose connections end in redis-py's own errors only."""

from collections.abc import Iterable, Mapping
from typing import Any

from redis.asyncio import RedisCluster
from redis.asyncio.connection import Connection, SSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisClusterException


class _LostInTime:
    """While a node fails, its connection may be closed between the moment that a command is
    given to it and the moment that it is written; redis-py 8.1 then fails with an AttributeError,
    which looks like a defect of the caller."""

    _writer: Any

    async def _send_packed_command(self, command: Iterable[bytes]) -> None:
        if self._writer is None:
            raise RedisConnectionError("the connection was closed before the command was sent")
        await super()._send_packed_command(command)  # type: ignore[misc]  # of the other base


class ClusterConnection(_LostInTime, Connection):
    """In plain text."""


class TlsClusterConnection(_LostInTime, SSLConnection):
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
    # There is no argument for it: nodes that are found later are made with these, too.
    kind = _CLASSES[client.connection_kwargs["connection_class"]]
    client.connection_kwargs["connection_class"] = kind
    for node in client.nodes_manager.startup_nodes.values():
        node.connection_class = kind
    return client
