"""A process was killed between its claims and its messages: the next one loses nothing."""

import asyncio
import gc
import json
from typing import cast

import pytest
from aiokafka.errors import TopicAuthorizationFailedError

from engine.kafka.detections import decode_record
from engine.kafka.offsets import Position
from engine.kafka.producer import Publisher
from engine.redis.claims import Claims
from rules.model import CampaignSnapshot
from tests.redis.claim_requests import ClaimRequest, take
from tests.redis.index_writer import PREFIX, beacon_entry, campaign_entry
from tests.rules.records import campaign
from tests.servers.waiting import eventually
from tests.trigger.pushed import NOW, PushedTrigger, Record, detection
from tests.trigger.samples import notification_id

DELAY = 3


def request(of: Record, chosen: CampaignSnapshot) -> ClaimRequest:
    decoded = decode_record(of, 2.0)
    return ClaimRequest(
        chosen.id, "phone", notification_id(decoded, chosen), decoded.detected_at, DELAY
    )


@pytest.mark.parametrize(
    "batches", [[[0, 1, 2, 3, 4]], [[0, 1], [2, 3], [4]], [[n] for n in range(5)]]
)
@pytest.mark.parametrize("claimed", [0, 1, 3, 5])
async def test_every_claim_that_was_taken_is_taken_again(
    trigger: PushedTrigger, batches: list[list[int]], claimed: int
) -> None:
    """For any part of the claims that the killed process had taken, and any delivery."""
    chosen = campaign(id=7, delay=DELAY)
    await trigger.write_index(beacon_entry([7]) | campaign_entry(7, delay=DELAY))
    # Granted, too soon, granted, too soon, granted.
    records = trigger.records(detection(seconds=seconds) for seconds in (0, 1, 4, 5, 8))
    killed = Claims(
        redis=trigger.redis, prefix=PREFIX, retain=600, deadline=5, metrics=trigger.metrics
    )
    await take(killed, [request(each, chosen) for each in records[:claimed]], NOW / 1000)

    worker = trigger.worker
    for batch in batches:
        worker.offer([records[n] for n in batch])
        await trigger.until_finished()
    await worker.finish(5)
    assert worker.failure is None
    assert worker.done_offset == len(records)

    out = [json.loads(each.value or b"") for each in await trigger.left("notifications")]
    expected = [notification_id(decode_record(records[n], 2.0), chosen).hex() for n in (0, 2, 4)]
    assert [body["id"].replace("-", "") for body in out] == expected


async def test_a_device_that_is_met_again_requests_once_what_it_holds(
    trigger: PushedTrigger,
) -> None:
    """From then on memory refuses repeats, also at beacons that it has not met."""
    fields: dict[str, bytes] = {}
    for number in range(2, 12):
        fields |= beacon_entry([number], minor=number) | campaign_entry(number, delay=3600)
    await trigger.write_index(fields)
    before = trigger.records(detection(minor=number) for number in range(2, 12))
    killed = Claims(
        redis=trigger.redis, prefix=PREFIX, retain=600, deadline=5, metrics=trigger.metrics
    )
    await take(
        killed,
        [
            request(each, campaign(id=number, delay=3600))._replace(delay=3600)
            for number, each in enumerate(before, 2)
        ],
        NOW / 1000,
    )
    denied = trigger.count("claims_total", outcome="denied")
    for number in range(2, 12):
        await trigger.push(detection(seconds=number, minor=number))
    assert trigger.count("claims_total", outcome="denied") - denied == 1
    assert trigger.count("claims_total", outcome="held") == 9
    assert trigger.count("detections_total", reason="throttled") == 10
    assert not await trigger.left("notifications")


async def test_what_is_denied_by_redis_denies_no_earlier_record(trigger: PushedTrigger) -> None:
    """Two records of a device in one second, and the campaign was switched on between them.

    The killed process claimed for the second one, and published nothing. The second one's claim
    must not deny the first one from memory: it has to ask, and both get what Redis has.
    """
    chosen = campaign(id=7, delay=DELAY)
    on = beacon_entry([7]) | campaign_entry(7, delay=DELAY)
    await trigger.write_index(on)
    first, second, third = trigger.records(detection(seconds=at) for at in (0, 0, 1))
    killed = Claims(
        redis=trigger.redis, prefix=PREFIX, retain=600, deadline=5, metrics=trigger.metrics
    )
    assert await take(killed, [request(second, chosen)], NOW / 1000) == [None]

    for each in (first, second, third):  # the first one is denied
        trigger.worker.offer([each])
        await trigger.until_finished()
    out = [json.loads(each.value or b"") for each in await trigger.left("notifications")]
    assert [body["id"].replace("-", "") for body in out] == [
        notification_id(decode_record(second, 2.0), chosen).hex()
    ]


class RefusedPublisher:
    """The error of a login that may not write."""

    async def publish(self, _messages: object) -> None:
        await asyncio.sleep(0)  # so that several are on their way
        raise TopicAuthorizationFailedError


async def fail_twice(trigger: PushedTrigger) -> None:
    """A detection that fires, and a dead letter; both cannot be published."""
    role = trigger.role.publishing_with(cast(Publisher, RefusedPublisher()))
    worker = role.worker_for(trigger.partition, Position(0), lambda: None)
    worker.offer(trigger.records([detection(), b"no json"]))
    await eventually(lambda: worker.failure and not role.cycle._sends, what="both have failed")
    assert isinstance(worker.failure, TopicAuthorizationFailedError)
    await worker.abandon()


async def test_whatever_fails_is_reported_once(trigger: PushedTrigger) -> None:
    """Otherwise asyncio prints a traceback for each error but the first, when the process ends."""
    reasons: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reasons.append(context["message"])
    )
    await trigger.write_index(beacon_entry([7]) | campaign_entry(7))
    await fail_twice(trigger)
    gc.collect()
    assert not reasons
