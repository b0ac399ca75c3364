"""A replay beside the live engine: the demo's readings, published with their recorded distances."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
import pytest
from aiokafka import ConsumerRecord

from engine.cli.demo.catalog import demo_document, load_demo_catalog
from engine.cli.demo.figures import fetch_figures
from engine.cli.demo.library import library_service
from engine.cli.demo.readings import load_readings
from engine.cli.demo.receiver import MessageReceiver
from engine.cli.demo.run import demo_settings, running_engine
from engine.cli.embedded.run import embedded_settings
from engine.cli.publish.item import Item, stamped
from engine.cli.replay.outcome import Outcome, ReplayFindings
from engine.cli.replay.period import ReplayPeriod
from engine.kafka.messages import Notification
from engine.kafka.publisher import Outgoing, Publisher
from engine.kafka.topic_reader import open_topic_reader, partitions_of
from engine.kafka.topics import Topics
from engine.process.settings import Settings
from rules.model import Reason
from tests.integration.replay.replay_run import Sent, replayed
from tests.servers.waiting import eventually

WALK = 780.0  # seconds, about
TOO_OLD = 3600.0
decode = msgspec.json.Decoder(Notification).decode


@pytest.mark.timeout(120)
async def test_it_sends_what_the_live_engine_published_one_by_one(tmp_path: Path) -> None:
    async with live() as (settings, began, counts, published):
        findings, sent = await replayed(settings, tmp_path)
        (outcome,) = findings.outcomes
        assert outcome.detections == counts
        assert [row.id for row in sent] == [row.id for row in published]
        assert sent == published
        assert {row.campaign for row in sent} >= {"Welcome", "Your loans"}
        await check_halves(settings, tmp_path, began + WALK / 2, outcome)
        await check_another_catalog(settings, tmp_path, outcome)
        # It read, and left everything as it was.
        topics = Topics.named(settings.topic_prefix)
        assert await notifications(settings) == published
        assert await values(settings, topics.dead_letters) == []


async def check_halves(settings: Settings, path: Path, middle: float, whole: Outcome) -> None:
    """The second half, with and without the first half as warm-up."""
    first, _ = await replayed(settings, path, period=ReplayPeriod(until=middle))
    second, _ = await replayed(
        settings, path, period=ReplayPeriod(middle, warm_up=middle - 2 * WALK)
    )
    cold, _ = await replayed(settings, path, period=ReplayPeriod(middle, warm_up=middle))
    assert added(first, second) == whole.detections
    assert first.outcomes[0].sent + second.outcomes[0].sent == whole.sent
    assert cold.outcomes[0].sent > second.outcomes[0].sent > 0
    assert (cold.begins_cold, second.begins_cold, cold.decided) == (True, False, second.decided)


def added(*parts: ReplayFindings) -> dict[Reason, int]:
    counts = [Counter(part.outcomes[0].detections) for part in parts]
    return dict(sum(counts, Counter[Reason]()))


async def check_another_catalog(settings: Settings, path: Path, before: Outcome) -> None:
    """One campaign less, and one with a shorter delay; SQL is unchanged."""
    other = path / "other.json"
    other.write_bytes(other_catalog())
    findings, _ = await replayed(settings, path, catalogs=(other,), compares=True)
    mine, others = findings.outcomes
    assert (mine.name, others.name) == ("as it is", "other.json")
    assert (mine.sent, mine.detections) == (before.sent, before.detections)
    changed = {row.campaign.name: row for row in others.campaigns}
    kept = {row.campaign.name: row for row in mine.campaigns}
    assert (changed["Welcome"].sent, changed["Welcome"].only_here) == (0, 0)
    assert kept["Welcome"].only_here == kept["Welcome"].sent == 6
    again = changed["Quiet, please"]
    assert again.campaign.id is None
    assert again.only_here == again.sent > 0
    for name in kept.keys() - {"Welcome"}:
        assert (kept[name].only_here, changed[name].only_here) == (0, 0), name
        assert kept[name].sent == changed[name].sent


def other_catalog() -> bytes:
    """A catalog file with two campaigns, one of them new."""
    document = demo_document(datetime.now(UTC))
    (company,) = document["companies"]
    (venue,) = company["venues"]
    campaigns = {each["name"]: each for each in venue["campaigns"]}
    welcome = campaigns["Welcome"] | {"active": False}
    again = campaigns["Quiet study area"] | {"name": "Quiet, please", "cache": "20 seconds"}
    place = {name: venue[name] for name in ("name", "address", "active")}
    changed = [{"name": company["name"], "venues": [place | {"campaigns": [welcome, again]}]}]
    return msgspec.json.encode({"companies": changed})


@asynccontextmanager
async def live() -> AsyncIterator[tuple[Settings, float, dict[str, int], list[Sent]]]:
    """Settings of servers on which the engine has decided the demo's readings; when the walks
    began, its counts by reason, and what it published."""
    own = demo_settings().model_copy(update={"max_detection_age": TOO_OLD})
    async with embedded_settings(own) as settings, library_service() as service:
        document = demo_document(datetime.now(UTC), connector=service)
        await load_demo_catalog(settings, document)
        readings = load_readings(document).items
        began = time.time() - WALK - 60
        async with running_engine(settings) as (_, port), receiving(settings) as receiver:
            await publish(settings, readings, began)
            count = len(readings)
            await eventually(partial(has_decided, port, count), deadline=60)
            await eventually(receiver.has_all, deadline=60)
            counts = (await fetch_figures(port)).detections
        yield settings, began, counts, await notifications(settings)


async def has_decided(port: int, count: int) -> bool:
    return (await fetch_figures(port)).decided >= count


@asynccontextmanager
async def receiving(settings: Settings) -> AsyncIterator[MessageReceiver]:
    receiver = MessageReceiver(settings)
    task = asyncio.create_task(receiver.run())
    try:
        yield receiver
    finally:
        task.cancel()
        await asyncio.wait([task])


async def publish(settings: Settings, readings: list[Item], began: float) -> None:
    """Each dated as it was recorded; the first of each phone as if it had come hours too late."""
    topic = Topics.named(settings.topic_prefix).detections
    seen: set[bytes | None] = set()
    messages = []
    for key, value, recorded in readings:
        at = began + (recorded or 0.0) - (0 if key in seen else 2 * TOO_OLD)
        seen.add(key)
        messages.append(Outgoing(topic, key, stamped(value, at), []))
    publisher = Publisher.from_settings(settings)
    await publisher.start()
    try:
        await publisher.publish(messages)
    finally:
        await publisher.close()


async def notifications(settings: Settings) -> list[Sent]:
    topic = Topics.named(settings.topic_prefix).notifications
    return sorted(map(sent_of, await values(settings, topic)))


def sent_of(record: "ConsumerRecord[bytes, bytes]") -> Sent:
    message = decode(record.value or b"")
    campaign, device = message.campaign, message.device
    return Sent(message.id, message.detected_at, campaign.name, message.beacon.name, device.udid)


async def values(settings: Settings, topic: str) -> "list[ConsumerRecord[bytes, bytes]]":
    partitions = await partitions_of(settings, [topic])
    async with open_topic_reader(settings, missing="error") as reader:
        ranges = await reader.ranges(partitions)
        begins = {tp: each.begin for tp, each in ranges.items()}
        ends = {tp: each.end for tp, each in ranges.items()}
        return [
            record async for records in reader.records_until(begins, ends) for record in records
        ]
