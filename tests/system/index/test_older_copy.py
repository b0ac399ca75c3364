"""A part of Redis falls back to an older copy: a campaign that was switched off does not fire."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from catalog.errors import IndexWriteError
from catalog.index.drain import DrainResult, drain_once, index_transaction, rebuild
from catalog.index.entries import campaign_field
from catalog.redis_connection import RedisClient
from tests.catalog.records import fresh_index, index_of
from tests.servers.waiting import eventually
from tests.system.index.reader import Reader


def logged(logs: list[Any]) -> list[str]:
    return [line["event"] for line in logs if "rebuilding it from SQL" in line["event"]]


@pytest.mark.parametrize("kept", [False, True], ids=["at rest", "while it is kept"])
async def test_one_bucket_alone_is_put_back(reader: Reader, redis: RedisClient, kept: bool) -> None:
    """A node of a cluster fell back; or a part of one write survived."""
    bucket = reader.store.keys.of(campaign_field(reader.campaign.id))
    await rebuild(reader.database, reader.store)
    older: Any = await redis.dump(bucket)
    await reader.edit(active=False)
    while await drain_once(reader.database, reader.store) is not DrainResult.IDLE:
        pass
    if not kept:
        await redis.restore(bucket, 0, older, replace=True)
    with capture_logs() as logs:
        async with reader.kept():
            if kept:
                await reader.until(fires=False)
                await redis.restore(bucket, 0, older, replace=True)
            await eventually(lambda: logged(logs), what="it is noticed")
            await reader.until(fires=False)
            await eventually(lambda: reader.lags[-1] == 0)
    assert logged(logs) == ["the index in Redis is older than SQL: rebuilding it from SQL"]
    assert await index_of(redis, reader.store) == await fresh_index(reader.database)
    assert max(reader.lags) > 0


async def test_a_write_on_top_does_not_hide_what_is_lost(
    reader: Reader, redis: RedisClient
) -> None:
    """The next edit comes before a comparison."""
    bucket = reader.store.keys.of(campaign_field(reader.campaign.id))
    await rebuild(reader.database, reader.store)
    older: Any = await redis.dump(bucket)
    async with index_transaction(reader.database, reader.store, wait=True) as transaction:
        assert transaction is not None
        await transaction.write({campaign_field(reader.campaign.id): b"{}"})
        await redis.restore(bucket, 0, older, replace=True)
        with pytest.raises(IndexWriteError):
            await transaction.write({campaign_field(reader.campaign.id): b"{}"})
    await reader.edit(title="the next edit")
    assert await drain_once(reader.database, reader.store) is DrainResult.REBUILT
    assert await index_of(redis, reader.store) == await fresh_index(reader.database)
