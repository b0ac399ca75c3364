"""The demo from its first server to its last line."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import SecretStr
from rich.console import Console

from engine.cli.demo.document import demo_document
from engine.cli.demo.entries import load_demo_catalog
from engine.cli.demo.figures import is_ready
from engine.cli.demo.library import library_service
from engine.cli.demo.readings import PATH_LOSS_EXPONENT, load_readings
from engine.cli.demo.replay import Replay
from engine.cli.demo.services import Running
from engine.cli.demo.summary import print_summary
from engine.cli.embedded.run import embedded_settings
from engine.process.settings import Settings
from engine.wiring.api import serve_api
from engine.wiring.run import ROLES, run_roles

_START_SECONDS = 30.0
_POLL = 0.05


class Stage(NamedTuple):
    """What runs, for those who look around: settings that lead there, ports, the account."""

    settings: Settings
    metrics_port: int
    api_port: int
    email: str
    password: str


def demo_settings() -> Settings:
    """Settings of the demo's own, whatever the environment says: it must not touch what is
    yours, nor fail because of it."""
    return Settings.model_construct(
        path_loss_exponent=PATH_LOSS_EXPONENT,
        metrics_host="127.0.0.1",
        metrics_port=0,
        api_port=0,
        api_metrics_port=0,
        secret_key=SecretStr(secrets.token_urlsafe(32)),
        # The customer's service of the demo is on this machine.
        connector_allow_networks=(ip_network("127.0.0.0/8"),),
        log_level="error",
        drain_timeout=5.0,
    )


async def perform(
    console: Console,
    seconds: float,
    env_file: Path | None,
    on_done: Callable[[Stage], None],
    on_notification: Callable[[bytes], None],
) -> None:
    """The whole demo, the walks compressed into `seconds`. With `env_file` the servers' addresses
    are written there, `on_done` is told where everything is, and it goes on until cancelled, with
    `on_notification` called for each notification.

    Raises ServerStartError, KafkaError, RedisError, SQLAlchemyError, OSError, TimeoutError.
    """
    _say(console, "Starting a Kafka broker, a Redis server and a database on this machine ...")
    async with AsyncExitStack() as stack:
        settings = await stack.enter_async_context(embedded_settings(demo_settings(), env_file))
        password = secrets.token_urlsafe(9)
        document = demo_document(
            datetime.now(UTC),
            connector=await stack.enter_async_context(library_service()),
            password=password,
        )
        readings = load_readings(document)
        entries = await load_demo_catalog(settings, document)
        active = sum(entry.campaign.active for entry in entries)
        _say(
            console,
            f"Loaded a catalog: 1 venue, {readings.beacons} beacons, {len(entries)} campaigns "
            f"({active} active).",
        )
        engine, metrics_port = await stack.enter_async_context(running_engine(settings))
        api, api_port = await stack.enter_async_context(running_interface(settings))
        running = (engine, api)
        _say(
            console,
            "The roles trigger, connector and recorder and the interface are running.",
            "Six people walk into the library ...",
            "",
        )
        replay = Replay(settings, metrics_port, readings, entries)
        async with replay.receiving() as receiver:
            print_summary(console, await while_running(running, replay.run(console, seconds)))
            email = document["companies"][0]["accounts"][0]["email"]
            on_done(Stage(settings, metrics_port, api_port, email, password))
            if env_file is not None:
                receiver.on_notification = on_notification
                await while_running(running, asyncio.Event().wait())


def _say(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, highlight=False, markup=False)


@asynccontextmanager
async def running_engine(settings: Settings) -> AsyncIterator[tuple[Running, int]]:
    """All roles as `proximity run` runs them, ready, and their metrics port; drained and stopped
    at the end."""
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serve = partial(run_roles, settings, ROLES, on_started=started.set_result)
    engine = Running("the engine", serve)
    try:
        async with asyncio.timeout(_START_SECONDS):
            port = await engine.first(started)
            await while_running((engine,), _until_ready(port))
        yield engine, port
    finally:
        await engine.stop()


@asynccontextmanager
async def running_interface(settings: Settings) -> AsyncIterator[tuple[Running, int]]:
    """The management interface as `proximity api` serves it, and its port."""
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def serve(stop: asyncio.Event) -> None:
        await serve_api(settings, stop, on_started=lambda port, _: started.set_result(port))

    interface = Running("the interface", serve)
    try:
        async with asyncio.timeout(_START_SECONDS):
            port = await interface.first(started)
        yield interface, port
    finally:
        await interface.stop()


async def while_running(services: Collection[Running], work: Coroutine[Any, Any, Any]) -> Any:
    """The result of `work`; should a service end before, what ended it is raised."""
    task = asyncio.create_task(work)
    try:
        tasks = [task, *(service.task for service in services)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        for service in services:
            if service.task.done():
                service.raise_its_end()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _until_ready(port: int) -> None:
    while not await is_ready(port):  # noqa: ASYNC110  # another server's state, asked over HTTP
        await asyncio.sleep(_POLL)
