"""The stream of changes goes back, or loses a message: no process keeps stale entries."""

import time
from typing import Any

from structlog.testing import capture_logs

from catalog.redis_connection import RedisClient
from tests.servers.waiting import eventually
from tests.system.index.reader import Reader

HOUR_MS = 3_600_000


async def test_a_stream_whose_ids_went_back_is_read(reader: Reader, redis: RedisClient) -> None:
    """The clock of the lost server was ahead of its successor's."""
    changes = reader.store.keys.changes
    async with reader.kept():
        await reader.until(fires=True)
        ahead = f"{int(time.time() * 1000) + HOUR_MS}-0"
        fields: dict[Any, Any] = {"generation": 0, "step": 0, "keys": "[]"}
        older: Any = await redis.dump(changes)
        await redis.xadd(changes, fields, id=ahead)
        await eventually(lambda: _read_to(redis, changes))
        await redis.restore(changes, 0, older, replace=True)
        await reader.edit(active=False)
        await reader.until(fires=False)


async def _read_to(redis: RedisClient, changes: str) -> bool:
    """Every waiting reader is at an id beyond the end of the stream, so none gets an answer."""
    clients = await redis.client_list()
    return any(client["cmd"] == "xread" and client["flags"] == "b" for client in clients)


async def test_a_change_whose_message_is_lost_is_seen(reader: Reader, redis: RedisClient) -> None:
    """The bucket is on one node, and the stream on one that fell back."""

    async def silent(*_: object) -> None:
        return None

    async with reader.kept():
        await reader.until(fires=True)
        reader.store._announce = silent  # type: ignore[method-assign,assignment]
        with capture_logs() as logs:
            await reader.edit(active=False)
            await reader.until(fires=False)
        events = [line["event"] for line in logs]
        assert "a change of the index was not heard of, reading everything again" in events
