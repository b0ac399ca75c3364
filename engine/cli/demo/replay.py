"""The walks, replayed through the engine and shown while it works."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console

from catalog.database import Database, open_database
from engine.cli.demo.figures import fetch_figures
from engine.cli.demo.readings import Readings
from engine.cli.demo.reasons import Entry
from engine.cli.demo.receiver import Receiver
from engine.cli.demo.recorded import counted, recorded
from engine.cli.demo.screen import Moment, Screen, open_screen
from engine.cli.demo.summary import Results
from engine.cli.publish.pace import RecordedPace
from engine.cli.publish.sender import Sender
from engine.kafka.publisher import Publisher
from engine.kafka.topics import Topics
from engine.process.settings import Settings

_CATCH_UP_SECONDS = 60.0
_REFRESH = 0.25
_POLL = 0.05


class Replay:
    """Publishes the readings at their pace and waits until all they lead to has happened."""

    def __init__(
        self, settings: Settings, port: int, readings: Readings, entries: list[Entry]
    ) -> None:
        self._settings = settings
        self._port = port
        self._readings = readings
        self._entries = entries
        self._receiver = Receiver(settings)
        self._begin = time.monotonic()

    @asynccontextmanager
    async def receiving(self) -> AsyncIterator[Receiver]:
        """Receive notifications, before the replay and as long as the context lasts."""
        task = asyncio.create_task(self._receiver.run())
        try:
            yield self._receiver
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def run(self, console: Console, seconds: float) -> Results:
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
            took = await self._shown(console, sender, database)
            return await self._results(took, database)
        finally:
            await publisher.close()
            await database.close()

    async def _shown(self, console: Console, sender: Sender, database: Database) -> float:
        self._begin = time.monotonic()
        with open_screen(console) as screen:
            showing = asyncio.create_task(self._show(screen, sender))
            try:
                await sender.send(self._readings.items)
                took = time.monotonic() - self._begin
                async with asyncio.timeout(_CATCH_UP_SECONDS):
                    await self._caught_up(sender, database)
            finally:
                showing.cancel()
                await asyncio.wait([showing])
        return took

    async def _show(self, screen: Screen, sender: Sender) -> None:
        while True:
            sends = {
                entry.campaign.name: self._receiver.sends[entry.campaign.id]
                for entry in self._entries
            }
            figures = await fetch_figures(self._port)
            seconds = time.monotonic() - self._begin
            in_all = len(self._readings.items)
            screen.show(Moment(seconds, sender.sent, in_all, figures, sends))
            await asyncio.sleep(_REFRESH)

    async def _caught_up(self, sender: Sender, database: Database) -> None:
        """Until every detection is decided, every call answered, and SQL has counted it all."""

        async def decided() -> bool:
            return (await fetch_figures(self._port)).decided >= sender.sent

        async def counted_all() -> bool:
            ends = await self._receiver.ends()
            return all(at >= ends[tp] for tp, at in (await recorded(database, ends)).items())

        for is_done in (decided, self._receiver.has_all, counted_all):
            while not await is_done():  # noqa: ASYNC110  # other servers' state, asked for
                await asyncio.sleep(_POLL)

    async def _results(self, took: float, database: Database) -> Results:
        receiver, readings = self._receiver, self._readings
        return Results(
            entries=self._entries,
            figures=await fetch_figures(self._port),
            sends=receiver.sends,
            phones={number: len(phones) for number, phones in receiver.phones.items()},
            first=receiver.first,
            at=time.time(),
            walked=readings.seconds,
            took=took,
            walkers=readings.phones,
            beacons=readings.beacons,
            counted=await counted(database),
        )
