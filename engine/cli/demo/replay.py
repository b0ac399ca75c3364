"""Replays the walks through the engine and shows the progress."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import TopicPartition
from rich.console import Console
from sqlalchemy import func, select

from catalog.database import Database, open_database
from catalog.models import Device, RecorderOffset
from engine.cli.demo.figures import fetch_figures
from engine.cli.demo.readings import Readings
from engine.cli.demo.reasons import DemoCampaign
from engine.cli.demo.receiver import MessageReceiver
from engine.cli.demo.screen import DemoProgress, DemoScreen, open_screen
from engine.cli.demo.summary import DemoResults
from engine.cli.publish.pace import RecordedPace
from engine.cli.publish.sender import Sender
from engine.kafka.publisher import Publisher
from engine.kafka.topics import Topics
from engine.process.settings import Settings

_CATCH_UP_SECONDS = 60.0
_REFRESH = 0.25
_POLL = 0.05


class WalkReplay:
    """Publishes the readings at their pace, and waits until the engine has handled all of them."""

    def __init__(
        self, settings: Settings, port: int, readings: Readings, campaigns: list[DemoCampaign]
    ) -> None:
        self._settings = settings
        self._port = port
        self._readings = readings
        self._campaigns = campaigns
        self._receiver = MessageReceiver(settings)
        self._begin = time.monotonic()

    @asynccontextmanager
    async def receiving(self) -> AsyncIterator[MessageReceiver]:
        """Receive notifications while the context lasts, beginning before the replay."""
        task = asyncio.create_task(self._receiver.run())
        try:
            yield self._receiver
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def run(self, console: Console, seconds: float) -> DemoResults:
        """The whole replay, in `seconds`. Raises KafkaError, SQLAlchemyError, TimeoutError."""
        publisher = Publisher.from_settings(self._settings)
        sender = Sender(
            publisher=publisher,
            topic=Topics.named(self._settings.topic_prefix).detections,
            pace=RecordedPace(self._readings.seconds / seconds),
            stamp=True,
            deadline=self._settings.kafka_request_timeout,
        )
        database = open_database(self._settings.database_url.get_secret_value())
        try:
            await publisher.start()
            took = await self._publish(console, sender, database)
            return await self._results(took, database)
        finally:
            await publisher.close()
            await database.close()

    async def _publish(self, console: Console, sender: Sender, database: Database) -> float:
        """Publish and show the progress until all is done; returns the publishing seconds."""
        self._begin = time.monotonic()
        with open_screen(console) as screen:
            showing = asyncio.create_task(self._show(screen, sender))
            try:
                await sender.send(self._readings.items)
                took = time.monotonic() - self._begin
                async with asyncio.timeout(_CATCH_UP_SECONDS):
                    await self._wait_for_all(sender, database)
            finally:
                showing.cancel()
                await asyncio.wait([showing])
        return took

    async def _show(self, screen: DemoScreen, sender: Sender) -> None:
        while True:
            sends = {
                campaign.name: self._receiver.sends[campaign.id] for campaign, _ in self._campaigns
            }
            figures = await fetch_figures(self._port)
            seconds = time.monotonic() - self._begin
            total = len(self._readings.items)
            screen.show(DemoProgress(seconds, sender.sent, total, figures, sends))
            await asyncio.sleep(_REFRESH)

    async def _wait_for_all(self, sender: Sender, database: Database) -> None:
        """Wait until every detection is decided and recorded, and every call is answered."""

        async def are_decided() -> bool:
            return (await fetch_figures(self._port)).decided >= sender.sent

        async def are_recorded() -> bool:
            ends = await self._receiver.ends()
            recorded = await _recorded_offsets(database)
            return all(recorded.get(tp, 0) >= end for tp, end in ends.items())

        for is_done in (are_decided, self._receiver.has_all, are_recorded):
            while not await is_done():  # noqa: ASYNC110  # other servers' state has no event
                await asyncio.sleep(_POLL)

    async def _results(self, took: float, database: Database) -> DemoResults:
        receiver, readings = self._receiver, self._readings
        return DemoResults(
            campaigns=self._campaigns,
            figures=await fetch_figures(self._port),
            sends=receiver.sends,
            phones={number: len(phones) for number, phones in receiver.phones.items()},
            first=receiver.first,
            at=time.time(),
            walked=readings.seconds,
            took=took,
            walkers=readings.phones,
            beacons=readings.beacons,
            recorded=await _recorded_totals(database),
        )


async def _recorded_offsets(database: Database) -> dict[TopicPartition, int]:
    """The first record of each partition that SQL has not counted. Raises SQLAlchemyError."""
    of = RecorderOffset
    async with database.read() as session:
        rows = await session.execute(select(of.topic, of.partition, of.next_offset))
        return {TopicPartition(topic, number): offset for topic, number, offset in rows}


async def _recorded_totals(database: Database) -> tuple[int, int]:
    """Detections of active beacons and notifications of all devices. Raises SQLAlchemyError."""
    sums = select(func.sum(Device.nb_beacon), func.sum(Device.nb_campaign))
    async with database.read() as session:
        detections, notifications = (await session.execute(sums)).one()
    return int(detections or 0), int(notifications or 0)
