"""The trigger's path in memory, through the production wiring."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from engine.kafka.dead_letters import TooManyDeadLettersError
from engine.kafka.producer import OnAcknowledged
from engine.trigger.message import Message
from engine.trigger.partition import record_bytes
from rules.model import Cap
from tests.formats.records import minew_report
from tests.redis.index_writer import beacon_entry, campaign_entry, rules_entry
from tests.rules.records import UUID, venue
from tests.servers.waiting import eventually
from tests.trigger.conftest import MakeTrigger
from tests.trigger.pushed import PushedTrigger, Record, detection


def header(record: Record, name: str) -> str:
    headers: dict[str, bytes] = dict(record.headers)
    return headers[name].decode()


async def test_a_message_too_large_is_a_dead_letter_and_keeps_neither_claim_nor_place(
    trigger: PushedTrigger,
) -> None:
    """A cap has room for the other message and for one more."""
    large = campaign_entry(7, delay=3600, content="x" * 5000) | campaign_entry(8, delay=3600)
    await trigger.write_index(beacon_entry([7, 8]) | large | rules_entry(Cap(2, 3600)))
    topic = trigger.topics.name("notifications")
    trigger.publisher._refusals.note_size(topic, 1, 3000)
    await trigger.push(detection())
    (letter,) = await trigger.left("dead-letters")
    assert header(letter, "reason") == "too_large"
    assert letter.value == detection()
    out = await trigger.left("notifications")
    assert [header(each, "campaign") for each in out] == ["8"]
    assert trigger.worker.position.offset == 1
    # For five seconds this process remembers what it gave back; then the device has it again.
    await trigger.push(detection(seconds=1))
    assert len(await trigger.left("dead-letters")) == 1
    trigger.now += 5
    await trigger.push(detection(seconds=2))
    assert len(await trigger.left("dead-letters")) == 2
    await trigger.write_index(campaign_entry(7, delay=3600, content="short"))
    trigger.now += 5
    await trigger.push(detection(seconds=3))
    out = await trigger.left("notifications")
    assert [header(each, "campaign") for each in out] == ["8", "7"]


async def test_an_edit_while_a_detection_waits_counts(trigger: PushedTrigger) -> None:
    shop = venue(id=2, company_id=2)
    both = beacon_entry([7]) | beacon_entry([8], minor=3, id=3, venue=shop)
    await trigger.write_index(both | campaign_entry(7) | campaign_entry(8))
    with trigger.waiting():
        trigger.worker.offer(trigger.records([detection(), detection(minor=3)]))
        await eventually(lambda: len(trigger.role.cycle._queues) == 2, what="both wait")
        await trigger.write_index(campaign_entry(7, active=False))
    await trigger.until_finished()
    out = await trigger.left("notifications")
    assert [header(each, "campaign") for each in out] == ["8"]


async def test_more_than_a_cycle_leaves_once_and_in_order_of_each_device(
    trigger: PushedTrigger,
) -> None:
    await trigger.write_index(beacon_entry([7]) | campaign_entry(7, content="x" * 1000))
    values = [detection(f"phone {n % 999}", seconds=n // 999) for n in range(3000)]
    await trigger.push(*values)
    times: dict[str, list[str]] = {}
    for each in await trigger.sent():
        times.setdefault(each["device"]["udid"], []).append(each["detected_at"])
    assert len(times) == 999
    for udid, found in times.items():
        assert found == sorted(set(found)), udid
    assert sum(map(len, times.values())) == 3000
    assert trigger.worker.position.offset == 3000


async def test_an_unfinished_record_bounds_the_intake(trigger: PushedTrigger) -> None:
    """A crash repeats what comes behind it, however much of that is finished."""
    await trigger.write_index(beacon_entry([7]) | campaign_entry(7))
    most = 2 * trigger.role.batch_records
    with trigger.waiting():
        others = [detection(minor=99)] * (most + 2000)
        trigger.worker.offer(trigger.records([detection(), *others]))
        await eventually(lambda: trigger.worker.pending == 2002, what="two batches are taken in")
        assert trigger.worker.position.offset == 0
    await trigger.until_finished()
    assert trigger.worker.position.offset == most + 2001


async def test_bytes_in_flight_are_given_back(trigger: PushedTrigger) -> None:
    await trigger.write_index(beacon_entry([7]) | campaign_entry(7))
    await trigger.push(detection(), b"no json", detection(minor=99))
    assert trigger.role.in_flight.held == 0
    trigger.role.intake.index.built.clear()
    trigger.role.intake.index.cache.drop_all()
    trigger.worker.offer(trigger.records([detection()] * 10))
    assert trigger.role.in_flight.held > 0
    await trigger.worker.abandon()
    assert trigger.role.in_flight.held == 0
    assert trigger.worker.position.offset == 3


def test_keys_values_and_headers_are_in_flight(trigger: PushedTrigger) -> None:
    """A record of 2 MB counted as 2 bytes."""
    (record,) = trigger.records([b"{}"])
    heavy = replace(record, key=b"k" * 30, serialized_key_size=30, headers=(("name", b"v" * 500),))
    assert record_bytes([record, heavy]) == (2 + 5) + (2 + 30 + 504)


async def test_too_many_dead_letters_stop_the_worker(
    trigger: PushedTrigger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise TooManyDeadLettersError("limit")

    decoder = trigger.role.intake.decoders[trigger.partition.topic]
    monkeypatch.setattr(decoder.limit, "note", refuse)
    await trigger.write_index({})
    with pytest.raises(TooManyDeadLettersError):
        await trigger.push(b"no json")
    assert trigger.worker.position.offset == 0
    assert await trigger.left("dead-letters") == []


# Records that hold many detections


@pytest.fixture
async def gateways(trigger_with: MakeTrigger, topic_prefix: str) -> PushedTrigger:
    """A trigger whose topic of detections holds reports of Minew gateways."""
    return await trigger_with(detection_topics=f"{topic_prefix}detections=minew")


def report(*minors: int) -> bytes:
    """At NOW."""
    return minew_report("2026-11-20T18:40:00Z", *((UUID, 1, minor) for minor in minors))


async def test_a_report_of_two_companies_is_done_when_both_are(gateways: PushedTrigger) -> None:
    """Their messages are acknowledged one after the other; the offset waits for the last."""
    other = beacon_entry([8], minor=3, venue=venue(company_id=2))
    await gateways.write_index(
        beacon_entry([7]) | other | campaign_entry(7, delay=0) | campaign_entry(8, delay=0)
    )
    letters: Any = gateways.role.cycle.letters
    publish, proceed = letters.publish_or_dead_letter, asyncio.Event()

    async def slowly(messages: Sequence[Message], acknowledged: OnAcknowledged) -> list[Message]:
        await publish([each for each in messages if each.campaign.id == 7], acknowledged)
        await proceed.wait()
        second = [each for each in messages if each.campaign.id == 8]
        refused: list[Message] = await publish(second, acknowledged)
        return refused

    letters.publish_or_dead_letter = slowly
    worker = gateways.worker
    worker.offer(gateways.records([report(2, 3, 2, 3), report(2)]))

    async def first_company_is_through() -> bool:
        return len(await gateways.left("notifications")) == 3

    await eventually(first_company_is_through, what="the first company's are sent")
    assert worker.position.offset == 0
    assert worker.pending == 1
    proceed.set()
    await gateways.until_finished()
    assert worker.position.offset == 2
    assert len(await gateways.sent()) == 5
    assert (worker._bytes, worker._parts) == (0, {})
    assert gateways.role.in_flight.held == 0


async def test_the_detections_of_a_report_take_places_one_by_one(gateways: PushedTrigger) -> None:
    """As in a replay: priority decides within one detection."""
    fields = beacon_entry([7]) | beacon_entry([8], minor=3, id=3) | rules_entry(Cap(1, 60))
    await gateways.write_index(fields | campaign_entry(7) | campaign_entry(8, priority=9))
    await gateways.push(report(2, 3))
    assert [each["campaign"]["id"] for each in await gateways.sent()] == [7]
