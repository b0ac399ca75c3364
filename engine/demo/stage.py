"""The demo from its first server to its last line."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import SecretStr
from rich.console import Console

from engine.app.run import run_roles
from engine.demo.document import demo_document
from engine.demo.entries import load_demo_catalog
from engine.demo.figures import fetch_figures, is_ready
from engine.demo.readings import PATH_LOSS_EXPONENT, Readings, load_readings
from engine.demo.reasons import Entry
from engine.demo.receiver import Receiver
from engine.demo.screen import Moment, Screen, open_screen
from engine.demo.summary import Results, print_summary
from engine.embedded.run import embedded_settings
from engine.kafka.publisher import Publisher
from engine.kafka.topics import Topics
from engine.lifecycle import ServiceDiedError
from engine.publish.pace import RecordedPace
from engine.publish.sender import Sender
from engine.settings import Settings

_START_SECONDS = 30.0
_CATCH_UP_SECONDS = 30.0
_STOP_SECONDS = 30.0
_REFRESH = 0.25
_POLL = 0.05


class Engine(NamedTuple):
    """The running engine: its task, and its metrics port."""

    task: "asyncio.Task[None]"
    port: int


def demo_settings() -> Settings:
    """Settings of the demo's own, whatever the environment says: it must not touch what is
    yours, nor fail because of it."""
    return Settings.model_construct(
        path_loss_exponent=PATH_LOSS_EXPONENT,
        metrics_host="127.0.0.1",
        metrics_port=0,
        secret_key=SecretStr(secrets.token_urlsafe(32)),
        log_level="warning",
        drain_timeout=5.0,
    )


async def perform(
    console: Console,
    seconds: float,
    env_file: Path | None,
    on_done: Callable[[Settings, int], None],
) -> None:
    """The whole demo, the walks compressed into `seconds`. With `env_file` the servers' addresses
    are written there, `on_done` is told where everything is, and it goes on until cancelled.

    Raises ServerStartError, KafkaError, RedisError, SQLAlchemyError, OSError, TimeoutError.
    """
    document = demo_document(datetime.now(UTC))
    readings = load_readings(document)
    console.print("Starting a Kafka broker, a Redis server and a database on this machine ...")
    async with embedded_settings(demo_settings(), env_file) as settings:
        entries = await load_demo_catalog(settings, document)
        active = sum(entry.campaign.active for entry in entries)
        console.print(
            f"Loaded a catalog: 1 venue, {readings.beacons} beacons, "
            f"{len(entries)} campaigns ({active} active)."
        )
        async with running_engine(settings) as engine:
            console.print("The trigger is running. Six people walk into the library ...\n")
            results = await while_running(
                engine, _replay(settings, engine, console, readings, entries, seconds)
            )
            print_summary(console, results)
            on_done(settings, engine.port)
            if env_file is not None:
                await while_running(engine, asyncio.Event().wait())


@asynccontextmanager
async def running_engine(settings: Settings) -> AsyncIterator[Engine]:
    """The engine as `proximity run` runs it, ready; drained and stopped at the end."""
    stop = asyncio.Event()
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        run_roles(settings, ["trigger"], stop, on_started=started.set_result)
    )
    try:
        async with asyncio.timeout(_START_SECONDS):
            engine = Engine(task, await _first(started, task))
            await while_running(engine, _until_ready(engine.port))
        yield engine
    finally:
        stop.set()
        await asyncio.wait([task], timeout=_STOP_SECONDS)
        task.cancel()


async def while_running(engine: Engine, work: Coroutine[Any, Any, Any]) -> Any:
    """The result of `work`; should the engine end before, what ended it is raised."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task, engine.task], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        engine.task.result()
        raise ServiceDiedError("the engine ended by itself")
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _first(started: "asyncio.Future[int]", task: "asyncio.Task[None]") -> int:
    task.add_done_callback(lambda _: started.cancel())
    try:
        return await started
    except asyncio.CancelledError:
        if task.done() and not task.cancelled():
            task.result()  # what kept it from starting
        raise


async def _until_ready(port: int) -> None:
    while not await is_ready(port):  # noqa: ASYNC110  # another server's state, asked over HTTP
        await asyncio.sleep(_POLL)


async def _replay(
    settings: Settings,
    engine: Engine,
    console: Console,
    readings: Readings,
    entries: list[Entry],
    seconds: float,
) -> Results:
    publisher = Publisher.from_settings(settings)
    receiver = Receiver(settings)
    receiving = asyncio.create_task(receiver.run())
    sender = Sender(
        publisher=publisher,
        topic=Topics.named(settings.topic_prefix).detections,
        pace=RecordedPace(readings.seconds / seconds),
        stamp=True,
        deadline=settings.kafka_request_timeout,
    )
    show = _Show(engine, receiver, sender, readings, entries)
    try:
        await publisher.start()
        with open_screen(console) as screen:
            showing = asyncio.create_task(show.run(screen))
            try:
                await sender.send(readings.items)
                took = show.seconds
                async with asyncio.timeout(_CATCH_UP_SECONDS):
                    await show.caught_up()
            finally:
                showing.cancel()
                await asyncio.wait([showing])
    finally:
        receiving.cancel()
        await asyncio.wait([receiving])
        await publisher.close()
    return Results(
        entries=entries,
        figures=await fetch_figures(engine.port),
        sends=receiver.sends,
        phones={number: len(phones) for number, phones in receiver.phones.items()},
        first=list(receiver.first.values()),
        at=time.time(),
        walked=readings.seconds,
        took=took,
        walkers=readings.phones,
        beacons=readings.beacons,
    )


class _Show:
    """Brings what the engine says onto the screen."""

    def __init__(
        self,
        engine: Engine,
        receiver: Receiver,
        sender: Sender,
        readings: Readings,
        entries: list[Entry],
    ) -> None:
        self._port = engine.port
        self._receiver = receiver
        self._sender = sender
        self._in_all = len(readings.items)
        self._entries = entries
        self._begin = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begin

    async def run(self, screen: Screen) -> None:
        while True:
            screen.show(await self._moment())
            await asyncio.sleep(_REFRESH)

    async def caught_up(self) -> None:
        """Until everything published is decided, and everything sent is received."""
        while True:
            figures = await fetch_figures(self._port)
            received = self._receiver.sends.total()
            if figures.decided >= self._sender.sent and received >= figures.sent:
                return
            await asyncio.sleep(_POLL)

    async def _moment(self) -> Moment:
        sends = {
            entry.campaign.name: self._receiver.sends[entry.campaign.id] for entry in self._entries
        }
        figures = await fetch_figures(self._port)
        return Moment(self.seconds, self._sender.sent, self._in_all, figures, sends)
