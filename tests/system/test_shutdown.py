"""Process shutdown: by a signal under load, by two, and with workers."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.servers.proximity import Command, Rig
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually
from tests.system.scene import Scene
from tests.system.topics import TopicSet
from tests.system.world import small_world

DRAIN = 20.0


async def test_stopped_under_load(scene: Scene) -> None:
    """After the stop, exactly the committed detections were handled; in the end all, once each."""
    settings = {"DRAIN_TIMEOUT": str(DRAIN), "BATCH_RECORDS": "50"}
    async with scene.load(rate=500):
        trigger = await scene.rig.ready("trigger", **settings)
        await trigger.until_decided(500)
        stopped_at = time.monotonic()
        await trigger.stop()
        assert time.monotonic() - stopped_at < DRAIN
        committed = await scene.topics.committed()
    records = await scene.topics.read("detections")
    handled = [each for each in records if each.offset < committed[each.partition]]
    await scene.assert_published(repeats=False, records=handled)
    last = scene.rig.role("trigger", **settings)
    expected = await scene.assert_published(repeats=False)
    await last.stop()
    await scene.assert_calls(expected, repeats=False)


async def test_a_second_signal_ends_it_at_once_and_the_next_trigger_goes_on(
    on_own_redis: Rig, topics: TopicSet, own_redis: RedisServer
) -> None:
    """Redis is down, so the batch in flight never ends."""
    scene = await Scene(on_own_redis, topics, small_world()).begin()
    # It does not leave the group: the next one waits for the end of its session.
    ended = {"DRAIN_TIMEOUT": "600", "KAFKA_SESSION_TIMEOUT": "4"}
    trigger = await on_own_redis.ready("trigger", **ended)
    await get_stuck(trigger, scene, own_redis)
    trigger.send_signal(signal.SIGTERM)
    await eventually(lambda: "stopping" in trigger.output)
    trigger.send_signal(signal.SIGTERM)
    assert await trigger.ended() == 128 + signal.SIGTERM
    assert await topics.lag() > 0
    await asyncio.to_thread(own_redis.start)
    trigger = on_own_redis.role("trigger")
    await scene.assert_published(repeats=True)
    await trigger.stop()


async def get_stuck(trigger: Command, scene: Scene, redis: RedisServer) -> None:
    """Stop Redis, publish detections that need claims, wait until the trigger waits for Redis."""
    await asyncio.to_thread(redis.stop)
    await scene.topics.publish(scene.detections(500))

    async def waits() -> bool:
        metrics = await trigger.metrics()
        is_decoded = "decode" in metrics.by("batch_seconds", "step")
        return is_decoded and metrics.total("redis_errors") > 0

    await eventually(waits, what="a batch waits for Redis")


@pytest.fixture
async def parent(scene: Scene) -> Command:
    """A trigger of two workers that answer."""
    command = scene.rig.start(
        "run", "--role", "trigger", "--workers", "2", KAFKA_SESSION_TIMEOUT="5"
    )
    await eventually(lambda: both_are_up(command))
    return command


async def both_are_up(parent: Command) -> bool:
    return set((await parent.metrics()).by("worker_up", "worker")) == {"0", "1"}


async def test_two_workers(scene: Scene, parent: Command) -> None:
    async def both_work() -> bool:
        _, body = await parent.get("/metrics")
        counted = 'proximity_detections_total{reason="granted",worker="%d"}'
        return all(counted % worker in body for worker in range(2))

    await parent.until_ready()
    async with scene.load(rate=500):
        await eventually(both_work)
    await scene.assert_published(repeats=True)
    # The page reports the worker that does not answer, and shows the other one.
    await eventually(lambda: both_are_up(parent))
    stalled = workers_of(parent)[1]
    os.kill(stalled, signal.SIGSTOP)
    try:
        # Each waits for the worker, as long as a page may.
        are_up, (status, body), (alive, _) = await asyncio.gather(
            both_are_up(parent), parent.get("/readyz"), parent.get("/healthz")
        )
        assert not are_up
        assert (status, alive) == (503, 503)
        assert json.loads(body)["workers"][1]["status"] == "no answer"
    finally:
        os.kill(stalled, signal.SIGCONT)
    await parent.until_ready()
    # The terminal signals the whole process group; each worker must drain, as after one signal.
    os.killpg(parent.pid, signal.SIGINT)
    assert await parent.ended() == 0, parent.output


async def test_a_worker_that_ends_stops_the_others(parent: Command) -> None:
    first, second = workers_of(parent)
    os.kill(first, signal.SIGKILL)
    assert await parent.ended() == 1
    assert "a worker ended by itself" in parent.output
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)


async def test_workers_do_not_outlive_their_parent(parent: Command) -> None:
    gone = "the parent of this worker is gone"
    parent.kill()
    await eventually(lambda: parent.output.count(gone) == 2)


def workers_of(parent: Command) -> list[int]:
    pid = parent.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
