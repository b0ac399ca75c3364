"""Redis falls back to an older copy: a campaign that was switched off does not fire again."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from catalog.database import Database
from catalog.errors import IndexBehindError, IndexMissingError
from catalog.index.drain import DrainResult, drain_once, rebuild
from catalog.index.entries import BUCKETS, campaign_field
from catalog.index.transaction import index_transaction
from catalog.redis_connection import RedisClient, connect_redis
from tests.catalog.records import fresh_index, index_of
from tests.servers.process import started
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually, wait_until
from tests.system.index.address import Address
from tests.system.index.reader import Reader


class SavingRedis(RedisServer):
    """Keeps a snapshot file instead of a log of writes."""

    def options(self) -> dict[str, str]:
        return {"appendonly": "no"}


@pytest.fixture
def replica(own_redis: RedisServer) -> Iterator[RedisServer]:
    with started(RedisServer) as server:
        with server.connect() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", own_redis.port)
        yield server


def logged(logs: list[Any]) -> list[str]:
    return [line["event"] for line in logs if "rebuilding it from SQL" in line["event"]]


async def assert_healed(reader: Reader, redis: RedisClient, logs: list[Any]) -> None:
    assert logged(logs) == ["the index in Redis is older than SQL: rebuilding it from SQL"]
    assert await index_of(redis, reader.store) == await fresh_index(reader.database)
    assert max(reader.lags) > 0
    await eventually(lambda: reader.lags[-1] == 0)


async def test_a_replica_is_promoted_that_lagged(
    database: Database, own_redis: RedisServer, replica: RedisServer
) -> None:
    address = Address(own_redis.port)
    async with (
        address.listening(),
        aclosing(connect_redis(f"redis://127.0.0.1:{address.port}/0", timeout=2.0)) as redis,
    ):
        reader = Reader(database, redis)
        await reader.furnish()
        async with reader.kept():
            await reader.until(fires=True)
            with own_redis.connect() as first, replica.connect() as second:
                caught_up = first.info("replication")["master_repl_offset"]
                wait_until(
                    lambda: second.info("replication")["slave_repl_offset"] >= caught_up,
                    deadline=15,
                    what="the replica has it all",
                )
                # Its link is gone, as in a network that is split; it stays a replica.
                second.execute_command("REPLICAOF", "127.0.0.1", "1")
            await reader.edit(active=False)
            await reader.until(fires=False)
            with capture_logs() as logs:
                own_redis.kill()
                with replica.connect() as second:
                    second.execute_command("REPLICAOF", "NO", "ONE")
                address.move(replica.port)
                reader.index.cache.drop_all()  # a trigger that has just been started
                await eventually(lambda: logged(logs), deadline=30, what="it is noticed")
                seconds = await reader.until(fires=False)
                await eventually(lambda: reader.lags[-1] == 0)
            await assert_healed(reader, redis, logs)
            # Later changes are received.
            await reader.edit(active=True)
            await reader.until(fires=True)
    print(f"switched off again {seconds:.2f} s after it was noticed")


@pytest.mark.parametrize("kind", [RedisServer, SavingRedis])
async def test_an_older_file_is_restored(
    database: Database, kind: type[RedisServer], tmp_path: Path
) -> None:
    """The append-only file of an hour ago, or the snapshot."""
    with started(kind) as server:
        async with aclosing(connect_redis(server.url, timeout=2.0)) as redis:
            reader = Reader(database, redis)
            await reader.furnish()
            async with reader.kept():
                await reader.until(fires=True)
                copy = tmp_path / "copy"
                with server.connect() as client:
                    client.save()
                shutil.copytree(server.directory, copy)
                await reader.edit(active=False)
                await reader.until(fires=False)
                with capture_logs() as logs:
                    await asyncio.to_thread(_restore, server, copy)
                    reader.index.cache.drop_all()
                    await eventually(lambda: logged(logs), deadline=30, what="it is noticed")
                    await reader.until(fires=False)
                    await eventually(lambda: reader.lags[-1] == 0)
                await assert_healed(reader, redis, logs)


def _restore(server: RedisServer, copy: Path) -> None:
    server.kill()
    shutil.rmtree(server.directory)
    shutil.copytree(copy, server.directory)
    server.start()


@pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)
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
            await eventually(lambda: logged(logs), deadline=30, what="it is noticed")
            await reader.until(fires=False)
            await eventually(lambda: reader.lags[-1] == 0)
    await assert_healed(reader, redis, logs)


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
        with pytest.raises(IndexBehindError):
            await transaction.write({campaign_field(reader.campaign.id): b"{}"})
    await reader.edit(title="the next edit")
    assert await drain_once(reader.database, reader.store) is DrainResult.REBUILT
    assert await index_of(redis, reader.store) == await fresh_index(reader.database)


async def test_the_second_of_two_writes_of_a_transaction_is_missed_too(
    reader: Reader, redis: RedisClient
) -> None:
    bucket = reader.store.keys.of(campaign_field(reader.campaign.id))
    await rebuild(reader.database, reader.store)
    async with index_transaction(reader.database, reader.store, wait=True) as transaction:
        assert transaction is not None
        await transaction.write({campaign_field(reader.campaign.id): b"{}"})
        half: Any = await redis.dump(bucket)
        await transaction.write({}, [campaign_field(reader.campaign.id)])
    await redis.restore(bucket, 0, half, replace=True)
    reader.lags.clear()
    async with reader.kept():
        await eventually(lambda: 1 in reader.lags, deadline=30)
        await eventually(lambda: reader.lags[-1] == 0)
    assert await index_of(redis, reader.store) == await fresh_index(reader.database)


async def test_a_rebuild_that_lost_a_part_is_not_put_in_place(
    reader: Reader, redis: RedisClient
) -> None:
    async with index_transaction(reader.database, reader.store, wait=True) as transaction:
        assert transaction is not None
        store = reader.store
        await store.begin(transaction.marker)
        begin_at: list[Any] = [
            await redis.dump(store.keys.building(number)) for number in range(BUCKETS)
        ]
        await transaction.fill({f"c:{number}": b"{}" for number in range(100)})
        for number, dump in enumerate(begin_at):
            await redis.restore(store.keys.building(number), 0, dump, replace=True)
        await transaction.fill({"c:1000": b"{}"})
        with pytest.raises(IndexMissingError):
            await transaction.finish()
