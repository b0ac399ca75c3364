"""A process was killed between its claims and its messages: the next one loses nothing, and sends
nothing else."""

import random
import uuid
from collections.abc import Sequence
from itertools import accumulate, chain

import pytest

from engine.kafka.detections import decode_record
from engine.redis.claims import COUNTED, NOT_COUNTED, Claims
from rules.model import Cap
from tests.redis.claim_requests import ClaimRequest, ClaimsOracle, take
from tests.redis.index_writer import PREFIX, beacon_entry, campaign_entry, rules_entry
from tests.rules.records import campaign
from tests.trigger.pushed import NOW, PushedTrigger, Record, detection
from tests.trigger.samples import notification_id

DELAYS = {1: 5, 2: 12, 3: 3}  # of the campaigns
BEACONS = {2: [1], 3: [2], 4: [1, 2, 3]}  # campaigns by minor
CAPS = (Cap(2, 7), Cap(3, 15))


def wanted(record: Record, oracle: ClaimsOracle) -> list[ClaimRequest]:
    """What the record is granted: without memory, each record requests each campaign."""
    decoded = decode_record(record, 2.0)
    minor, udid, at = decoded.message.minor, decoded.message.device.udid, decoded.detected_at
    found = [
        ClaimRequest(
            number, udid, notification_id(decoded, campaign(id=number)), at, DELAYS[number], COUNTED
        )
        for number in BEACONS[int(minor or 0)]
    ]
    return [each for each in found if oracle.take(each) is None]


async def take_and_die(trigger: PushedTrigger, caps: Sequence[Cap], *taken: ClaimRequest) -> None:
    """Take claims in the killed process, which sends nothing for them."""
    claims = Claims(
        redis=trigger.redis, prefix=PREFIX, retain=600, deadline=30, metrics=trigger.metrics
    )
    kind = COUNTED if caps else NOT_COUNTED
    requests = [each._replace(counted=kind) for each in taken]
    assert set(await take(claims, requests, NOW / 1000, caps)) <= {None}


@pytest.mark.parametrize("most_remembered", [10, 300, 100_000])
@pytest.mark.parametrize("caps", [(), CAPS], ids=["claims", "caps"])
async def test_nothing_is_lost_and_nothing_else_is_sent(
    trigger: PushedTrigger, caps: tuple[Cap, ...], most_remembered: int
) -> None:
    """Whatever was claimed, sent and committed before; beside brute force."""
    seed = random.randrange(2**32)
    dice, oracle = random.Random(seed), ClaimsOracle(caps)
    trigger.role.claim_memory.most = most_remembered
    fields = rules_entry(*caps) if caps else {}
    for number, delay in DELAYS.items():
        fields |= campaign_entry(number, delay=delay)
    for minor, numbers in BEACONS.items():
        fields |= beacon_entry(numbers, minor)
    await trigger.write_index(fields)
    values = list[tuple[float, bytes]]()
    for phone in range(150):
        begin = dice.uniform(0, 10)
        for place, at in enumerate(accumulate(dice.randint(-3, 6) for _ in range(12))):
            value = detection(f"phone {phone}", seconds=at, minor=dice.choice(list(BEACONS)))
            values.append((begin + place, value))
    records = trigger.records(value for _, value in sorted(values))
    sent = dice.randrange(len(records))
    claimed = dice.randrange(sent, len(records))
    grants = [wanted(each, oracle) for each in records]

    async def handle(part: list[Record]) -> None:
        while part:
            count = dice.choice((1, 3, 40))
            trigger.worker.offer(part[:count])
            await trigger.until_finished()
            part = part[count:]

    await handle(records[:sent])
    await take_and_die(trigger, caps, *chain.from_iterable(grants[sent:claimed]))
    await trigger.worker.abandon()
    trigger.worker = trigger.assigned()
    await handle(records[dice.randrange(sent + 1) :])
    found = {uuid.UUID(each["id"]).bytes for each in await trigger.sent()}
    assert found == {each.notification_id for each in chain.from_iterable(grants)}, f"seed {seed}"


async def test_a_device_that_is_met_again_requests_once_what_it_holds(
    trigger: PushedTrigger,
) -> None:
    """From then on memory refuses repeats, also at beacons that it has not met."""
    fields: dict[str, bytes] = {}
    for number in range(2, 12):
        fields |= beacon_entry([number], minor=number) | campaign_entry(number, delay=3600)
    await trigger.write_index(fields)
    await trigger.push(*(detection(minor=number) for number in range(2, 12)))
    await trigger.worker.abandon()
    trigger.worker = trigger.assigned()
    for number in range(2, 12):
        await trigger.push(detection(seconds=number, minor=number))
    assert trigger.count("claims_total", outcome="denied") == 1
    assert trigger.count("claims_total", outcome="held") == 9
    assert trigger.count("detections_total", reason="throttled") == 10
    assert len(await trigger.sent()) == 10


async def test_what_is_denied_by_redis_denies_no_earlier_record(trigger: PushedTrigger) -> None:
    """Two records of a device in one second, and the campaign was switched on between them.

    The killed process claimed for the second one, and published nothing. The second one's claim
    must not deny the first one from memory: it has to ask, and both get what Redis has.
    """
    await trigger.write_index(beacon_entry([7]) | campaign_entry(7, delay=3))
    records = trigger.records(detection(seconds=at) for at in (0, 0, 1))
    second = decode_record(records[1], 2.0)
    id_ = notification_id(second, campaign(id=7))
    await take_and_die(trigger, (), ClaimRequest(7, "phone", id_, second.detected_at, 3))
    for each in records:  # the first one is denied
        trigger.worker.offer([each])
        await trigger.until_finished()
    assert [uuid.UUID(each["id"]).bytes for each in await trigger.sent()] == [id_]
