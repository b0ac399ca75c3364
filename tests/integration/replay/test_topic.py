"""A stretch of a topic, on both brokers: the embedded one does not know its records' times."""

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer

from engine.cli.errors import CommandError
from engine.cli.replay.kafka_source import KafkaSource
from engine.cli.replay.period import ReplayPeriod
from engine.kafka.messages import Detection, ReceivedDevice
from engine.kafka.timestamps import format_instant
from engine.kafka.topic_reader import open_admin, open_topic_reader
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings
from rules.model import Reason
from tests.integration.replay.replay_run import replayed
from tests.integration.replay.test_catalogs import UUID, campaign, document

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


async def test_a_stretch_of_time(settings: Settings, broker_kind: str, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.json"
    catalog.write_bytes(document(CAMPAIGN))
    with pytest.raises(CommandError, match=r"there is no topic .*detections yet"):
        await replayed(settings, tmp_path, catalogs=[catalog], without_sql=True)
    await publish(settings)
    findings, sent = await replayed(
        settings, tmp_path, period=PERIOD, catalogs=[catalog], without_sql=True
    )
    (outcome,) = findings.outcomes
    # Minute 23 has the claim, before what is counted; 35, 42, 49 and 56 came too late.
    times = [format_instant(BEGIN + minute * MINUTE) for minute in (33, 43, 53)]
    assert sorted((each.udid, each.detected_at) for each in sent) == [
        (udid, at) for udid in ("a", "b") for at in times
    ]
    assert outcome.detections == {Reason.THROTTLED: 46, Reason.STALE: 8, Reason.GRANTED: 6}
    assert (findings.decided, findings.begins_cold) == (60, False)
    assert 0 < findings.undecodable <= MINUTES
    assert findings.first_fault.startswith(f"{settings.topic_prefix}detections/")
    async with open_topic_reader(settings, missing="skip") as reader:
        source = KafkaSource(settings, reader, PERIOD)
        read = [len(records) async for records in source.batches()]
    assert source.total == source.read == sum(read) == findings.records
    if broker_kind == "embedded":
        assert source.total == 3 * MINUTES
        return
    assert source.total < 2 * MINUTES
    async with open_admin(settings) as admin:
        groups = [name for name, *_ in await admin.list_consumer_groups()]
    assert not [name for name in groups if settings.topic_prefix in name]


async def test_it_ends_where_the_topic_ended(settings: Settings, tmp_path: Path) -> None:
    """Later detections are not waited for."""
    await publish(settings)
    async with open_topic_reader(settings, missing="skip") as reader:
        source = KafkaSource(settings, reader, ReplayPeriod())
        count = 0
        async for records in source.batches():
            if not count:
                await publish(settings)
            count += len(records)
    assert count == source.total == 3 * MINUTES


async def test_a_topic_of_another_format(broker: str, topic_prefix: str, tmp_path: Path) -> None:
    """A gateway's report holds many detections, each with an id of its own."""
    topic = f"{topic_prefix}gateways"
    settings = load_settings(
        None,
        kafka_bootstrap_servers=broker,
        topic_prefix=topic_prefix,
        detection_topics=f"{topic}=minew",
    )
    beacon = {"type": "iBeacon", "ibeaconUuid": UUID, "ibeaconMajor": 1, "rssi": -50}
    received = [beacon | {"ibeaconMinor": minor} for minor in (1, 99, 1)]
    report: list[dict[str, Any]] = [{"type": "Gateway", "mac": "AC23"}, *received]
    async with AIOKafkaProducer(bootstrap_servers=broker) as producer:
        values: list[list[dict[str, Any]]] = [report, report[:1], [{}]]
        for value in values:
            await producer.send_and_wait(topic, msgspec.json.encode(value), key=b"k", partition=0)
    catalog = tmp_path / "catalog.json"
    catalog.write_bytes(document(CAMPAIGN | {"cache": "none"}))
    findings, sent = await replayed(settings, tmp_path, catalogs=[catalog], without_sql=True)
    (outcome,) = findings.outcomes
    assert (findings.records, findings.decided, findings.undecodable) == (3, 3, 1)
    assert outcome.detections == {Reason.GRANTED: 2, Reason.UNKNOWN_BEACON: 1}
    assert "missing required field `type`" in findings.first_fault
    assert {each.udid for each in sent} == {"gateway:AC23"}
    assert len({each.id for each in sent}) == 2
