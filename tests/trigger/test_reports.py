"""Records that hold many detections, on their way through the trigger."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from engine.kafka.producer import OnAcknowledged
from engine.trigger.message import Message
from rules.model import Cap
from tests.formats.records import minew_report
from tests.redis.index_writer import beacon_entry, campaign_entry, rules_entry
from tests.rules.records import UUID, venue
from tests.servers.waiting import eventually
from tests.trigger.conftest import MakeTrigger
from tests.trigger.pushed import PushedTrigger

AT = "2026-11-20T18:40:00Z"  # NOW of the pushed trigger


@pytest.fixture
async def gateways(trigger_with: MakeTrigger, topic_prefix: str) -> PushedTrigger:
    """A trigger whose topic of detections holds reports of Minew gateways."""
    return await trigger_with(detection_topics=f"{topic_prefix}detections=minew")


def report(*minors: int) -> bytes:
    return minew_report(AT, *((UUID, 1, minor) for minor in minors))


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
