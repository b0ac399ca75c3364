"""`proximity demo`: sends real detections through the whole product, on servers of its own.

The demo uses the product as users do: it loads the catalog like `catalog load`, publishes the
readings like `publish`, runs the roles like `run`, and receives what a push sender would.
"""

import asyncio
import os
import secrets
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import httpx
import msgspec
import typer
from aiokafka.errors import KafkaError
from pydantic import SecretStr
from redis.exceptions import RedisError
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from typer import Option

from catalog.database import Database, open_database
from catalog.models import Statistic
from engine.cli.command import CommandError, CommandInterruptedError, command, new_app
from engine.cli.demo.walk import (
    PATH_LOSS_EXPONENT,
    MessageReceiver,
    arrival,
    cancelled,
    demo_document,
    library_service,
    load_arrivals,
    load_demo_catalog,
    load_readings,
    print_summary,
    read_figures,
)
from engine.cli.local_servers import embedded_settings
from engine.cli.notifications import one_line, read_notification
from engine.cli.output import say, shown_progress
from engine.cli.publish import Item, Pace, Sender
from engine.cli.servers import open_publisher, reason_of
from engine.kafka.topics import Topics
from engine.process.errors import ServiceDiedError
from engine.process.logs import configure_logs
from engine.process.metrics import Metrics
from engine.process.settings import PREFIX, Settings
from engine.wiring.api import serve_api
from engine.wiring.run import ROLES, run_roles

_START_SECONDS = 30.0
_CATCH_UP_SECONDS = 60.0
_POLL = 0.05
_UUID = "b5c4a7e0-6f0d-4c8e-9d5a-2c1f7a9e4b10"
# Entrance, study desk, lending desk: a template, html, and content from the customer's service.
_WAY = ((44, "far"), (23, "near"), (45, "immediate"))
_ENV, _DETECTIONS = "env", "you.jsonl"

app = new_app()


@command(app, "demo")
async def demo(
    serve: Annotated[bool, Option("--serve", help="Keep running until Ctrl-C.")] = False,
    seconds: Annotated[float, Option(min=1, max=800, help="Seconds that the walks take.")] = 50.0,
) -> None:
    """Send real beacon readings from a library through Kafka, Redis and the engine.

    Everything runs on this machine and is removed afterwards: an embedded Kafka broker, a Redis
    server, an SQLite file, all roles, the interface and a customer's service, with a catalog of 24
    beacons, a geofence, a QR code and some campaigns. The demo needs no settings and reads none.
    """
    configure_logs(demo_settings())
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  # asyncio.run made it
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        with tempfile.TemporaryDirectory(prefix="proximity-") as directory:
            await _run(seconds, Path(directory) if serve else None)
    except asyncio.CancelledError:
        raise CommandInterruptedError("interrupted") from None
    except ExceptionGroup as group:
        raise CommandError(f"the demo failed: {reason_of(group.exceptions[0])}") from group
    except (KafkaError, RedisError, SQLAlchemyError, OSError) as error:
        raise CommandError(f"the demo failed: {reason_of(error)}") from error
    if serve:
        typer.echo("stopped")


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


async def _run(seconds: float, directory: Path | None) -> None:
    """The whole demo, with the walks compressed into `seconds`.

    With `directory` it writes there the files that other commands need, and goes on until it is
    cancelled, showing each notification.
    """
    say("Starting a Kafka broker, a Redis server and a database on this machine ...")
    async with AsyncExitStack() as stack:
        file = None if directory is None else directory / _ENV
        settings = await stack.enter_async_context(embedded_settings(demo_settings(), file))
        password = secrets.token_urlsafe(9)
        service = stack.enter_context(library_service())
        document = demo_document(datetime.now(UTC), connector=service, password=password)
        catalog = await load_demo_catalog(settings, document)
        (venue,) = document["companies"][0]["venues"]
        active = sum(each["active"] for each in venue["campaigns"])
        say(
            f"Loaded a catalog: 1 venue, {len(venue['beacons'])} beacons, a geofence, a QR code, "
            f"{len(venue['campaigns'])} campaigns ({active} active)."
        )
        engine = await stack.enter_async_context(running_engine(settings))
        say("The roles trigger, connector and recorder and the interface are running.")
        say("Six people walk into the library ...")
        receiver = MessageReceiver(settings)
        receiving = asyncio.create_task(receiver.run())
        stack.push_async_callback(cancelled, receiving)
        readings = load_readings(document)
        items = load_arrivals(document, readings) + readings
        took, recorded = await _walk(settings, engine.metrics, receiver, items, seconds)
        print_summary(catalog, receiver, read_figures(engine.metrics))
        phones = len({item.key for item in readings})
        say(
            f"{len(readings):,} real readings, taken by {phones} phones in "
            f"{(readings[-1].recorded or 0.0) / 60:.0f} minutes of walking through a university "
            f"library, were replayed in {took:.0f} s. Before, each phone told a position on the "
            "square (a geofence) and scanned the QR code at the door."
        )
        say(
            f"SQL has counted {recorded[0]:,} detections at active places and {recorded[1]:,} "
            "notifications."
        )
        if directory is None:
            _say_what_next()
            return
        _write_files(settings, document, directory)
        email = document["companies"][0]["accounts"][0]["email"]
        _say_where(settings, engine, f"{email} with the password {password}", directory)
        receiver.on_notification = _show_notification
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        if (task := asyncio.current_task()) is not None:
            task.uncancel()


class RunningEngine(NamedTuple):
    """All roles and the management interface in this process."""

    metrics: Metrics
    metrics_port: int
    api_port: int


@asynccontextmanager
async def running_engine(settings: Settings) -> AsyncIterator[RunningEngine]:
    """All roles as `proximity run` runs them, and the interface as `proximity api` serves it.

    At the end they are drained and stopped. An end of one of them by itself cancels the context and
    is raised in an ExceptionGroup.
    """
    stop, metrics = asyncio.Event(), Metrics()
    ports: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    roles = run_roles(
        settings,
        ROLES,
        stop,
        metrics=metrics,
        on_started=lambda port: ports.put_nowait(("metrics_port", port)),
    )
    interface = serve_api(
        settings, stop, on_started=lambda port, _: ports.put_nowait(("api_port", port))
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(_until_stopped(stop, "the engine", roles))
        group.create_task(_until_stopped(stop, "the interface", interface))
        try:
            async with asyncio.timeout(_START_SECONDS):
                started = dict([await ports.get(), await ports.get()])
                url = f"http://127.0.0.1:{started['metrics_port']}/readyz"
                async with httpx.AsyncClient(trust_env=False) as client:
                    while not (await client.get(url)).is_success:  # noqa: ASYNC110  # no event
                        await asyncio.sleep(_POLL)
            yield RunningEngine(metrics, **started)
        finally:
            stop.set()


async def _until_stopped(stop: asyncio.Event, name: str, work: Coroutine[Any, Any, None]) -> None:
    await work
    if not stop.is_set():
        raise ServiceDiedError(f"{name} ended by itself")


async def _walk(
    settings: Settings,
    metrics: Metrics,
    receiver: MessageReceiver,
    items: list[Item],
    seconds: float,
) -> tuple[float, tuple[int, int]]:
    """Publish the items in `seconds`, and wait until the engine has handled all of them.

    Returns the seconds that it took, and SQL's counts of detections and of notifications. Raises
    KafkaError, SQLAlchemyError, TimeoutError.
    """
    async with AsyncExitStack() as stack:
        database = open_database(settings.database_url.get_secret_value())
        stack.push_async_callback(database.close)
        publisher = await stack.enter_async_context(open_publisher(settings))
        progress = stack.enter_context(shown_progress("published", "detections"))
        progress.expect(len(items))
        pace = Pace(speed=(items[-1].recorded or 0.0) / seconds)
        topic = Topics.of(settings).detections
        sender = Sender(topic, pace, stamp=True, on_sent=progress.update)
        begin = time.monotonic()
        await sender.send(publisher, items)
        took = time.monotonic() - begin
        async with asyncio.timeout(_CATCH_UP_SECONDS):
            while True:  # until each detection is decided and recorded, and each call answered
                figures = read_figures(metrics)
                if figures.decided >= len(items) and receiver.has_all(figures.published):
                    recorded = await _recorded_totals(database)
                    if recorded[0] >= figures.counted and recorded[1] >= figures.published:
                        return took, recorded
                await asyncio.sleep(_POLL)


async def _recorded_totals(database: Database) -> tuple[int, int]:
    """Detections at active places and notifications of all devices. Raises SQLAlchemyError."""
    of = Statistic
    sums = select(func.sum(of.detections + of.place_detections), func.sum(of.notifications))
    async with database.read() as session:
        detections, notifications = (await session.execute(sums.where(of.kind == "venue"))).one()
    return int(detections or 0), int(notifications or 0)


def _command() -> str:
    """The command `proximity` as the user types it in this directory."""
    installed = Path(sys.executable).with_name("proximity")
    if not installed.is_file():
        return f"{shlex.quote(sys.executable)} -m engine.cli"
    shown = os.path.relpath(installed) if installed.is_relative_to(Path.cwd()) else str(installed)
    return shlex.quote(shown)


def _say_what_next() -> None:
    command = _command()
    say("What next:")
    say(f"  {command} demo --serve     keep the demo running, to explore it")
    say(f"  {command} publish --help   your own detections, JSON or CSV")
    say(f"  {command} run --help       on your own Kafka, Redis and PostgreSQL")


def _write_files(settings: Settings, document: dict[str, Any], directory: Path) -> None:
    """Complete the file of settings, and write detections of a visitor to publish."""
    key = settings.secret_key.get_secret_value() if settings.secret_key else ""
    networks = ",".join(map(str, settings.connector_allow_networks))
    with (directory / _ENV).open("a", encoding="utf-8") as file:
        file.write(f"{PREFIX}SECRET_KEY={key}\n")
        file.write(f"{PREFIX}PATH_LOSS_EXPONENT={settings.path_loss_exponent}\n")
        file.write(f"{PREFIX}CONNECTOR_ALLOW_NETWORKS={networks}\n")
    device = {"udid": "you", "name": "Android"}
    place = {"uuid": _UUID, "major": 1, "device": device}
    way = [signal | {"device": device} for signal in arrival(document)]
    way += ({**place, "minor": minor, "proximity": proximity} for minor, proximity in _WAY)
    (directory / _DETECTIONS).write_bytes(b"".join(msgspec.json.encode(d) + b"\n" for d in way))


def _say_where(settings: Settings, engine: RunningEngine, login: str, directory: Path) -> None:
    """The addresses of the running demo, and commands that can be pasted."""
    start = f"{_command()} --env-file {shlex.quote(str(directory / _ENV))}"
    for line in (
        "Still running, until Ctrl-C:",
        f"  console    http://127.0.0.1:{engine.api_port}/console",
        f"             {login}",
        f"  interface  http://127.0.0.1:{engine.api_port}/docs",
        f"  metrics    http://127.0.0.1:{engine.metrics_port}/metrics",
        f"  Kafka      {settings.kafka_bootstrap_servers}",
        "In another terminal, from this directory:",
        "  Walk in yourself:",
        f"    {start} publish {shlex.quote(str(directory / _DETECTIONS))} --now",
        "  The notifications:",
        f"    {start} notifications tail --udid you --from-beginning",
        "  The counts in SQL, and a check of them:",
        f"    {start} statistics",
        f"    {start} verify",
        "Notifications as they come:",
    ):
        say(line)


def _show_notification(value: bytes) -> None:
    if (notification := read_notification(value)) is not None:
        say(one_line(notification))
