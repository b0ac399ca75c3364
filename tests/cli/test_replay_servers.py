"""A replay of a topic on both brokers."""

import time
from pathlib import Path

import msgspec
import pytest
from aiokafka import AIOKafkaProducer

from engine.cli.command import CommandError
from engine.cli.replay import ReplayPeriod
from engine.kafka.messages import Detection, ReceivedDevice, format_instant
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings
from rules.model import Reason
from tests.cli.replay_run import UUID, campaign, document, reasons, replayed

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
