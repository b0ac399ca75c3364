"""Process shutdown: by a signal under load, by two, with workers, by too many dead letters."""

import asyncio
import json
import os
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually
from tests.system.comparison import assert_equal
from tests.system.load import steady_load
from tests.system.oracle import Oracle
from tests.system.rig import Command, Rig
from tests.system.topics import Record, TopicSet
from tests.system.traffic import Message, Traffic
from tests.system.world import World, small_world

DRAIN = 5.0


@pytest.fixture
async def world(sqlite_url: str, topics: TopicSet) -> World:
    made = small_world()
    await made.save(sqlite_url)
    await topics.create()
    return made


async def decided(trigger: Command, more_than: int) -> bool:
    assert trigger.process.poll() is None, trigger.output
    return (await trigger.metrics()).total("detections") > more_than


async def handled(topics: TopicSet) -> list[Record]:
    """The detections before the committed offsets."""
    committed = await topics.committed()
    records = await topics.read("detections")
    return [record for record in records if record.offset < committed[record.partition]]


@pytest.mark.timeout(120)
async def test_stopped_under_load(
    rig: Rig, topics: TopicSet, world: World, redis_url: str, sqlite_url: str
) -> None:
    """After each stop, exactly the committed detections were handled; in the end all, once each."""
    begin = time.time()
    settings = {
        "REDIS_URL": redis_url,
        "DATABASE_URL": sqlite_url,
        "DRAIN_TIMEOUT": str(DRAIN),
        "BATCH_RECORDS": "50",
    }
    async with steady_load(world, topics, seed=8, rate=1500) as traffic:
        for _ in range(2):
            trigger = rig.trigger(**settings)
            await eventually(partial(decided, trigger, 1000))
            stopped_at = time.monotonic()
            await trigger.stop()
            assert time.monotonic() - stopped_at < DRAIN
            expected = Oracle(world, traffic.cases, begin).walk(await handled(topics))
            assert_equal(expected.notifications, await topics.read("notifications"), repeats=False)
    last = rig.trigger(**settings)
    await topics.until_done()
    await last.stop()
    expected = Oracle(world, traffic.cases, begin).walk(await topics.read("detections"))
    assert_equal(expected.notifications, await topics.read("notifications"), repeats=False)
    assert_equal(expected.connector_calls, await topics.read("connector-calls"), repeats=False)


@pytest.mark.timeout(60)
async def test_stopped_before_it_has_started(
    rig: Rig, world: World, redis_url: str, sqlite_url: str
) -> None:
    trigger = rig.trigger(REDIS_URL=redis_url, DATABASE_URL=sqlite_url)
    await eventually(lambda: _answers(trigger))
    await trigger.stop()


async def _answers(trigger: Command) -> bool:
    status, _ = await trigger.get("/healthz")
    return status == 200


@pytest.mark.timeout(90)
async def test_an_abandoned_batch_is_processed_by_the_next_trigger(
    rig: Rig, topics: TopicSet, world: World, own_redis: RedisServer, sqlite_url: str
) -> None:
    """Redis is down, so the batch in flight never ends: it is abandoned after the drain timeout."""
    begin = time.time()
    settings = {"REDIS_URL": own_redis.url, "DATABASE_URL": sqlite_url, "DRAIN_TIMEOUT": "1"}
    trigger = rig.trigger(**settings)
    await trigger.until_ready()
    traffic = await _stuck(trigger, topics, world, own_redis)
    await trigger.stop(deadline=15)
    assert await topics.lag() > 0
    own_redis.start()
    trigger = rig.trigger(**settings)
    await topics.until_done()
    await trigger.stop()
    expected = Oracle(world, traffic.cases, begin).walk(await topics.read("detections"))
    assert_equal(expected.notifications, await topics.read("notifications"), repeats=True)


@pytest.mark.timeout(60)
async def test_signalled_twice_it_ends_at_once(
    rig: Rig, topics: TopicSet, world: World, own_redis: RedisServer, sqlite_url: str
) -> None:
    settings = {"REDIS_URL": own_redis.url, "DATABASE_URL": sqlite_url, "DRAIN_TIMEOUT": "60"}
    trigger = rig.trigger(**settings)
    await trigger.until_ready()
    await _stuck(trigger, topics, world, own_redis)
    trigger.process.send_signal(signal.SIGTERM)
    await eventually(lambda: "stopping" in trigger.output)
    trigger.process.send_signal(signal.SIGTERM)
    assert await trigger.ended(5) == 128 + signal.SIGTERM


async def _stuck(trigger: Command, topics: TopicSet, world: World, redis: RedisServer) -> Traffic:
    """Stop Redis, publish detections that need claims, wait until the trigger waits for Redis."""
    await asyncio.to_thread(redis.stop)
    traffic = Traffic(random.Random(1), [plan.triple for plan in world.beacons], devices=50)
    await topics.publish([traffic.detection(None) for _ in range(500)])

    async def waits() -> bool:
        metrics = await trigger.metrics()
        decoded = metrics.observed("batch_seconds", step="decode")
        return decoded > 0 and metrics.total("redis_errors") > 0

    await eventually(waits, what="a batch waits for Redis")
    return traffic


@pytest.mark.timeout(90)
async def test_two_workers(
    rig: Rig, topics: TopicSet, world: World, redis_url: str, sqlite_url: str
) -> None:
    begin = time.time()
    parent = rig.start(
        *("run", "--role", "trigger", "--workers", "2"),
        REDIS_URL=redis_url,
        DATABASE_URL=sqlite_url,
    )
    async with steady_load(world, topics, seed=9, rate=500) as traffic:
        await eventually(parent.is_ready, deadline=40)
        await eventually(partial(_both_work, parent), deadline=40)
    await topics.until_done()
    await _one_is_stalled(parent)
    await parent.stop()
    expected = Oracle(world, traffic.cases, begin).walk(await topics.read("detections"))
    assert_equal(expected.notifications, await topics.read("notifications"), repeats=True)


async def _both_work(parent: Command) -> bool:
    """Whether each worker has decided something."""
    _, body = await parent.get("/metrics")
    counted = 'proximity_detections_total{worker="%d",reason="granted"}'
    return all(counted % worker in body for worker in range(2))


async def _one_is_stalled(parent: Command) -> None:
    """The page reports the worker that does not answer, and shows the other one."""
    children = _children(parent.process.pid)
    assert (await parent.metrics()).gauges("worker_up", "worker") == {"0": 1, "1": 1}
    os.kill(children[1], signal.SIGSTOP)
    try:
        assert (await parent.metrics()).gauges("worker_up", "worker") == {"0": 1, "1": 0}
        status, body = await parent.get("/readyz")
        assert status == 503
        assert [each["status"] for each in json.loads(body)["workers"]] == ["ready", "no answer"]
        assert (await parent.get("/healthz"))[0] == 503
    finally:
        os.kill(children[1], signal.SIGCONT)
    await eventually(parent.is_ready, deadline=40)
    assert (await parent.get("/healthz"))[0] == 200


@pytest.mark.timeout(60)
async def test_ctrl_c_with_workers(
    rig: Rig, topics: TopicSet, world: World, redis_url: str, sqlite_url: str
) -> None:
    """The terminal signals the whole process group; each worker must drain, as after one signal."""
    parent = rig.start(
        *("run", "--role", "trigger", "--workers", "2"),
        REDIS_URL=redis_url,
        DATABASE_URL=sqlite_url,
    )
    await eventually(parent.is_ready, deadline=40)
    os.killpg(parent.process.pid, signal.SIGINT)
    assert await parent.ended() == 0, parent.output


@pytest.mark.timeout(60)
async def test_a_worker_that_ends_stops_the_others(
    rig: Rig, topics: TopicSet, world: World, redis_url: str, sqlite_url: str
) -> None:
    parent = rig.start(
        *("run", "--role", "trigger", "--workers", "2"),
        REDIS_URL=redis_url,
        DATABASE_URL=sqlite_url,
    )
    await eventually(parent.is_ready, deadline=40)
    children = _children(parent.process.pid)
    assert len(children) == 2
    os.kill(children[0], signal.SIGKILL)
    assert await parent.ended() == 1
    assert "a worker ended by itself" in parent.output
    with pytest.raises(ProcessLookupError):
        os.kill(children[1], 0)


@pytest.mark.timeout(90)
async def test_workers_do_not_outlive_their_parent(
    rig: Rig, topics: TopicSet, world: World, redis_url: str, sqlite_url: str
) -> None:
    parent = rig.start(
        *("run", "--role", "trigger", "--workers", "2"),
        REDIS_URL=redis_url,
        DATABASE_URL=sqlite_url,
    )
    await eventually(parent.is_ready, deadline=40)
    children = _children(parent.process.pid)
    parent.kill()
    for child in children:
        await eventually(partial(_has_ended, child), deadline=30)
    assert parent.output.count("the parent of this worker is gone") == 2


def _has_ended(pid: int) -> bool:
    """Whether a process has ended; a zombie has."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True
    return "State:\tZ" in status


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.timeout(120)
async def test_too_many_dead_letters_stop_it(
    rig: Rig, topics: TopicSet, world: World, redis_url: str, sqlite_url: str
) -> None:
    """A faulty producer: many different keys, and no valid record for ten seconds."""
    settings = {"REDIS_URL": redis_url, "DATABASE_URL": sqlite_url}
    sent = 3000
    await topics.publish([Message(0, b"device %d" % n, b"{}") for n in range(sent)])
    trigger = rig.trigger(**settings)

    async def one_more_has_ended_it() -> bool:
        nonlocal sent
        sent += 1
        await topics.publish([Message(0, b"device %d" % sent, b"{}")])
        return trigger.process.poll() is not None

    await eventually(one_more_has_ended_it, deadline=60, what="it stops")
    assert await trigger.ended() == 1
    assert "PROXIMITY_DEAD_LETTER_SHARE" in trigger.output.splitlines()[-1]
    assert await topics.lag() > 0  # nothing of the last batch was published

    trigger = rig.trigger(**settings, DEAD_LETTER_SHARE="1")
    await topics.until_done()
    await trigger.stop()
    assert {letter.key for letter in await topics.read("dead-letters")} == {
        record.key for record in await topics.read("detections")
    }


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "wrong",
    [
        {"REDIS_URL": "redis://user:hushhush@127.0.0.1:nowhere/0"},
        {"DATABASE_URL": "postgresql://user:hushhush@127.0.0.1:nowhere/x"},
    ],
)
async def test_a_url_that_cannot_be_used_is_reported_in_one_line(
    rig: Rig, world: World, redis_url: str, sqlite_url: str, wrong: dict[str, str]
) -> None:
    trigger = rig.trigger(**({"REDIS_URL": redis_url, "DATABASE_URL": sqlite_url} | wrong))
    assert await trigger.ended() == 2
    (setting,) = wrong
    assert f"PROXIMITY_{setting}: cannot be read; accepted: " in trigger.output.splitlines()[-1]
    assert "Traceback" not in trigger.output
    assert "hushhush" not in trigger.output
