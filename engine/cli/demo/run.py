"""Runs the demo, from its first server to its last line."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from rich.console import Console

from engine.cli.demo.catalog import demo_document, load_demo_catalog
from engine.cli.demo.figures import is_ready
from engine.cli.demo.instructions import (
    RunningDemo,
    env_file,
    instructions,
    next_steps,
    write_files,
)
from engine.cli.demo.library import library_service
from engine.cli.demo.readings import PATH_LOSS_EXPONENT, load_readings
from engine.cli.demo.replay import WalkReplay
from engine.cli.demo.summary import print_summary
from engine.cli.embedded.run import embedded_settings
from engine.cli.notifications.line import one_line, read_notification
from engine.process.errors import ServiceDiedError
from engine.process.settings import Settings
from engine.wiring.api import serve_api
from engine.wiring.run import ROLES, run_roles

_START_SECONDS = 30.0
_STOP_SECONDS = 30.0
_POLL = 0.05


def demo_settings() -> Settings:
    """The demo's own settings, which ignore the environment.

    The demo must neither touch your servers nor fail because of your settings.
    """
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


async def run_demo(console: Console, seconds: float, directory: Path | None) -> None:
    """The whole demo, with the walks compressed into `seconds`.

    With `directory` it writes there the files that other commands need, and goes on until it is
    cancelled, showing each notification. Raises ServerStartError, KafkaError, RedisError,
    SQLAlchemyError, ServiceDiedError and OSError.
    """
    _print(console, "Starting a Kafka broker, a Redis server and a database on this machine ...")
    async with AsyncExitStack() as stack:
        file = None if directory is None else env_file(directory)
        settings = await stack.enter_async_context(embedded_settings(demo_settings(), file))
        password = secrets.token_urlsafe(9)
        document = demo_document(
            datetime.now(UTC),
            connector=await stack.enter_async_context(library_service()),
            password=password,
        )
        readings = load_readings(document)
        campaigns = await load_demo_catalog(settings, document)
        active = sum(each.campaign.active for each in campaigns)
        _print(
            console,
            f"Loaded a catalog: 1 venue, {readings.beacons} beacons, {len(campaigns)} campaigns "
            f"({active} active).",
        )
        engine, metrics_port = await stack.enter_async_context(running_engine(settings))
        api, api_port = await stack.enter_async_context(running_interface(settings))
        running = (engine, api)
        _print(
            console,
            "The roles trigger, connector and recorder and the interface are running.",
            "Six people walk into the library ...",
            "",
        )
        replay = WalkReplay(settings, metrics_port, readings, campaigns)
        async with replay.receiving() as receiver:
            print_summary(console, await while_running(running, replay.run(console, seconds)))
            if directory is None:
                _print_unwrapped(console, next_steps())
                return
            email = document["companies"][0]["accounts"][0]["email"]
            demo = RunningDemo(settings, metrics_port, api_port, email, password)
            write_files(settings, directory)
            _print_unwrapped(console, instructions(demo, directory))
            receiver.on_notification = partial(_print_notification, console)
            with contextlib.suppress(asyncio.CancelledError):
                await while_running(running, asyncio.Event().wait())


def _print(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, highlight=False, markup=False)


def _print_unwrapped(console: Console, lines: Iterable[str]) -> None:
    """Print without wrapping, because users paste these lines."""
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def _print_notification(console: Console, value: bytes) -> None:
    notification = read_notification(value)
    if notification is not None:
        width = console.width if console.is_terminal else None
        _print_unwrapped(console, [one_line(notification, width=width)])


class BackgroundService:
    """A service of the product in this event loop; it can be stopped, and its error is known."""

    def __init__(
        self, name: str, serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]]
    ) -> None:
        self._stop = asyncio.Event()
        self.name = name
        self.task = asyncio.create_task(serve(self._stop), name=name)

    async def first(self, announced: "asyncio.Future[Any]") -> Any:
        """The service's announcement at its start. Raises the error that prevented the start."""
        await asyncio.wait([self.task, announced], return_when=asyncio.FIRST_COMPLETED)
        if not announced.done():
            self.raise_its_end()
        return announced.result()

    def raise_its_end(self) -> None:
        """Raise the error of a service that ended before it was stopped."""
        self.task.result()
        raise ServiceDiedError(f"{self.name} ended by itself")

    async def stop(self) -> None:
        """Stop the service, and await its end."""
        self._stop.set()
        await asyncio.wait([self.task], timeout=_STOP_SECONDS)
        self.task.cancel()


@asynccontextmanager
async def running_engine(settings: Settings) -> AsyncIterator[tuple[BackgroundService, int]]:
    """All roles as `proximity run` runs them, ready; gives their metrics port.

    At the end they are drained and stopped.
    """
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serve = partial(run_roles, settings, ROLES, on_started=started.set_result)
    engine = BackgroundService("the engine", serve)
    try:
        async with asyncio.timeout(_START_SECONDS):
            port = await engine.first(started)
            await while_running((engine,), _until_ready(port))
        yield engine, port
    finally:
        await engine.stop()


@asynccontextmanager
async def running_interface(settings: Settings) -> AsyncIterator[tuple[BackgroundService, int]]:
    """The management interface as `proximity api` serves it; gives its port."""
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def serve(stop: asyncio.Event) -> None:
        await serve_api(settings, stop, on_started=lambda port, _: started.set_result(port))

    interface = BackgroundService("the interface", serve)
    try:
        async with asyncio.timeout(_START_SECONDS):
            port = await interface.first(started)
        yield interface, port
    finally:
        await interface.stop()


async def while_running(
    services: Collection[BackgroundService], work: Coroutine[Any, Any, Any]
) -> Any:
    """The result of `work`. If a service ends first, its error is raised."""
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
    while not await is_ready(port):  # noqa: ASYNC110  # a server's state has no event
        await asyncio.sleep(_POLL)
