"""A replay of a topic on both brokers, and beside the live engine."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord

from catalog.database import open_database
from engine.cli.catalog import update_index, write_catalog
from engine.cli.command import CommandError
from engine.cli.demo import counts_of, demo_settings, running_engine, until_done
from engine.cli.demo.walk import demo_document, library_service, load_readings
from engine.cli.local_servers import embedded_settings
from engine.cli.publish import Item, stamped
from engine.cli.replay import ReplayPeriod
from engine.kafka.messages import Detection, Notification, ReceivedDevice, format_instant
from engine.kafka.producer import Outgoing, Publisher
from engine.kafka.topic_reader import open_topic_reader, partitions_of
from engine.kafka.topics import Topics
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings
from rules.model import Reason
from tests.cli.replay_run import UUID, Sent, campaign, document, reasons, replayed

MINUTE = 60
MINUTES = 120
# (Of today: brokers delete what is days old.)
BEGIN = time.time() // 3600 * 3600 - 4 * 3600
PERIOD = ReplayPeriod(BEGIN + 30 * MINUTE, BEGIN + 60 * MINUTE, BEGIN + 23 * MINUTE)
CAMPAIGN = campaign("Now and then", cache="10 minutes", end="2040-12-31T00:00:00+0100")


@pytest.fixture
def settings(broker: str, topic_prefix: str) -> Settings:
    return load_settings(None, kafka_bootstrap_servers=broker, topic_prefix=topic_prefix)


def detection(udid: str, at: float) -> bytes:
    device = ReceivedDevice(udid=udid)
    made = Detection(uuid=UUID, major=1, minor=1, proximity="near", device=device)
    return msgspec.json.encode(msgspec.structs.replace(made, detected_at=round(at * 1000)))


async def publish(settings: Settings) -> None:
    """A detection of each of two devices a minute, every seventh six minutes late, and what is
    none."""
    topic = f"{settings.topic_prefix}detections"
    producer = AIOKafkaProducer(bootstrap_servers=settings.kafka_bootstrap_servers)
    await producer.start()
    try:
        for number in range(MINUTES):
            at = BEGIN + number * MINUTE
            arrived = round((at + (6 * MINUTE if number % 7 == 0 else 0)) * 1000)
            for udid in ("a", "b"):
                key = udid.encode()
                await producer.send(topic, detection(udid, at), key=key, timestamp_ms=arrived)
            await producer.send(topic, b"{", key=b"x", timestamp_ms=round(at * 1000))
        await producer.flush()
    finally:
        await producer.stop()


async def test_a_stretch_of_time(settings: Settings, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.json"
    catalog.write_bytes(document(CAMPAIGN))
    with pytest.raises(CommandError, match=r"there is no topic .*detections yet"):
        await replayed(settings, catalogs=[catalog], without_sql=True)
    await publish(settings)
    found, sent = await replayed(settings, period=PERIOD, catalogs=[catalog], without_sql=True)
    # Minute 23 has the claim, before what is counted; 35, 42, 49 and 56 came too late.
    times = [format_instant(BEGIN + minute * MINUTE) for minute in (33, 43, 53)]
    assert sorted((each.udid, each.detected_at) for each in sent) == [
        (udid, at) for udid in ("a", "b") for at in times
    ]
    assert reasons(found) == {Reason.THROTTLED: 46, Reason.STALE: 8, Reason.GRANTED: 6}
    summary = found[0]
    assert (summary["detections"], summary["begins_cold"]) == (60, False)
    assert 0 < summary["undecodable"] <= MINUTES
    assert summary["first_fault"].startswith(f"{settings.topic_prefix}detections/")
    assert summary["records"] <= 3 * MINUTES


WALK = 780.0  # seconds, about
TOO_OLD = 3600.0
decode = msgspec.json.Decoder(Notification).decode


@pytest.mark.timeout(120)
async def test_it_sends_what_the_live_engine_published_one_by_one() -> None:
    async with live() as (settings, counts, published):
        found, sent = await replayed(settings)
        assert reasons(found) == counts
        assert [row.id for row in sent] == [row.id for row in published]
        assert sent == published
        assert {row.campaign for row in sent} >= {"Welcome", "Your loans"}
        # It read, and left everything as it was.
        topics = Topics.named(settings.topic_prefix)
        assert await notifications(settings) == published
        assert await values(settings, topics.dead_letters) == []


@asynccontextmanager
async def live() -> AsyncIterator[tuple[Settings, dict[str, int], list[Sent]]]:
    """Settings of servers where the engine has decided the demo's readings, its counts by reason,
    and what it published."""
    own = demo_settings().model_copy(update={"max_detection_age": TOO_OLD})
    began = time.time() - WALK - 60
    async with AsyncExitStack() as stack:
        service = stack.enter_context(library_service())
        document = demo_document(datetime.now(UTC), connector=service)
        (venue,) = document["companies"][0]["venues"]  # a replay sends nothing for visits
        venue["campaigns"] = [each for each in venue["campaigns"] if "on" not in each]
        readings = load_readings(document)
        settings = await stack.enter_async_context(embedded_settings(own))
        database = open_database(settings.database_url.get_secret_value())
        stack.push_async_callback(database.close)
        await write_catalog(settings, database, msgspec.json.encode(document))
        await update_index(settings)
        async with running_engine(settings) as metrics:
            await publish_readings(settings, readings, began)
            await until_done(metrics, database, len(readings))
            counts = {name: count for name, count in counts_of(metrics.detections).items() if count}
        yield settings, counts, await notifications(settings)


async def publish_readings(settings: Settings, readings: list[Item], began: float) -> None:
    """Each dated as it was recorded; the first of each phone as if it had come hours too late."""
    topic = Topics.named(settings.topic_prefix).detections
    seen: set[bytes | None] = set()
    messages = []
    for key, value, recorded in readings:
        at = began + (recorded or 0.0) - (0 if key in seen else 2 * TOO_OLD)
        seen.add(key)
        messages.append(Outgoing(topic, key, stamped(value, at), []))
    publisher = Publisher(settings)
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
    campaign, device, place = message.campaign, message.device, message.beacon
    assert place is not None
    return Sent(message.id, message.detected_at, campaign.name, place.name, device.udid)


async def values(settings: Settings, topic: str) -> "list[ConsumerRecord[bytes, bytes]]":
    partitions = await partitions_of(settings, [topic])
    async with open_topic_reader(settings, missing="error") as reader:
        ranges = await reader.ranges(partitions)
        return [record async for records in reader.records_until(ranges) for record in records]
