"""The role connector as a subject: reads connector-calls, calls services, publishes, commits."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import msgspec

from engine.kafka.messages import (
    BeaconReference,
    CampaignReference,
    CompanyReference,
    ConnectorCall,
    ConnectorEndpoint,
    KnownDevice,
    VenueReference,
)
from engine.kafka.publisher import Outgoing, Publisher
from engine.kafka.timestamps import format_instant
from engine.kafka.topics import Topics
from engine.process.lifecycle import run_services
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings
from engine.wiring.connector import build_connector
from engine.wiring.role import ProcessParts
from engine.wiring.stores import open_stores

COMPANIES = 16
_DEADLINE = 240.0
_BETWEEN_LOOKS = 0.02  # a look at the metrics takes 1% of that

Result = dict[str, float]


def messages(settings: Settings, calls: int, url: str) -> Iterator[Outgoing]:
    """Calls of fresh detections, of companies in turn, each of another device."""
    topic = Topics.named(settings.topic_prefix).connector_calls
    now = format_instant(time.time())
    for number in range(calls):
        company = number % COMPANIES + 1
        call = ConnectorCall(
            id=f"00000000-0000-5000-8000-{number:012d}",
            campaign=CampaignReference(company, "campaign", None),
            company=CompanyReference(company),
            venue=VenueReference(company, "venue"),
            beacon=BeaconReference(1, "door", "f7826da6-4fa2-4e98-8024-bc5b71e0893e", 1, 2),
            proximity="near",
            device=KnownDevice(udid=f"phone {number}", name="android"),
            title="T",
            push="P",
            background=None,
            color=None,
            detected_at=now,
            triggered_at=now,
            expires_at=now,
            delay=3600,
            connector=ConnectorEndpoint(id=1, name="c", url=url, method="POST", auth="header"),
        )
        yield Outgoing(topic, f"phone {number}".encode(), msgspec.json.encode(call), [])


async def publish(settings: Settings, calls: int, url: str) -> None:
    """Put the calls on the topic."""
    publisher = Publisher.from_settings(settings)
    await publisher.start()
    try:
        await publisher.publish(list(messages(settings, calls, url)))
    finally:
        await publisher.close()


async def role(calls: int, url: str) -> Result:
    """The product: decode, look up, call, publish, update claims, commit. From the first call
    that is done to the last."""
    settings = load_settings(None, connector_call_timeout=10.0, connector_connect_timeout=5.0)
    await publish(settings, calls, url)
    metrics = Metrics()
    async with _running(settings, metrics):
        async with asyncio.timeout(_DEADLINE):
            first = 0.0
            begin = cpu = 0.0
            while (done := _published(metrics)) < calls:
                if done and not begin:
                    begin, cpu, first = time.perf_counter(), time.process_time(), done
                await asyncio.sleep(_BETWEEN_LOOKS)
    seconds = time.perf_counter() - begin
    return {
        "calls": done - first,
        "seconds": seconds,
        "seconds_processor": time.process_time() - cpu,
    }


@asynccontextmanager
async def _running(settings: Settings, metrics: Metrics) -> AsyncIterator[None]:
    stop = asyncio.Event()
    publisher = Publisher.from_settings(settings)
    await publisher.start()
    async with open_stores(settings) as stores:
        built = build_connector(
            ProcessParts(settings=settings, stores=stores, publisher=publisher, metrics=metrics)
        )
        running = asyncio.create_task(
            run_services(
                foreground={"connector": built.consumer.run(stop)},
                background={name: work() for name, work in built.background.items()},
                stop=stop,
            )
        )
        try:
            yield
        finally:
            stop.set()
            await running
            await publisher.close()


def _published(metrics: Metrics) -> float:
    value = metrics.registry.get_sample_value(
        "proximity_connector_calls_total", {"outcome": "published"}
    )
    return value or 0.0
