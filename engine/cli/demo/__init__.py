"""`proximity demo`: sends real detections through the whole product, on servers of its own.

The demo uses the product as users do: it loads the catalog like `catalog load`, publishes the
readings like `publish`, runs the roles like `run`, and receives what a push sender would.
"""

import asyncio
import secrets
import shlex
import signal
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from pydantic import SecretStr
from sqlalchemy import func, select
from typer import Option

from catalog.database import Database
from catalog.models import Campaign, Company, RecorderOffset, Statistic, VisitStatistic
from engine.cli.catalog import write_catalog
from engine.cli.command import CommandError, command, read_settings
from engine.cli.demo.walk import (
    PATH_LOSS_EXPONENT,
    answer_call,
    demo_document,
    load_arrivals,
    load_readings,
    your_walk,
)
from engine.cli.local_servers import embedded_settings, free_port, write_env
from engine.cli.notifications import published
from engine.cli.output import print_table, say, shown_progress
from engine.cli.publish import Item, send
from engine.cli.servers import open_migrated_stores, open_publisher
from engine.kafka.topics import Topics
from engine.process.failures import describe
from engine.process.health import HttpServer, listen
from engine.process.logs import configure_logs
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.redis.figures import FigureStore
from engine.wiring.api import serve_api
from engine.wiring.parts import Stores
from engine.wiring.run import ROLES, run_roles
from rules.model import Reason

_CATCH_UP_SECONDS = 90.0
_POLL = 0.05
_NEXT = """\
What next:
  {command} demo --serve     keep the demo running, to explore it
  {command} publish --help   your own detections, JSON or CSV
  {command} run --help       on your own Kafka, Redis and PostgreSQL"""
_RUNNING = """\
Still running, until Ctrl-C:
  console    {api}/console
             {email} with the password {password}
  interface  {api}/docs
  metrics    http://127.0.0.1:{settings.metrics_port}/metrics
  Kafka      {settings.kafka_bootstrap_servers}
In another terminal, from this directory:
  Walk in yourself:
    {command} --env-file {env} publish {walk} --now
  The notifications:
    {command} --env-file {env} notifications tail --udid you --from-beginning
  The counts in SQL, and a check of them:
    {command} --env-file {env} statistics
    {command} --env-file {env} verify"""


@command("demo")
async def demo(
    serve: Annotated[bool, Option("--serve", help="Keep running until Ctrl-C.")] = False,
    seconds: Annotated[float, Option(min=1, max=800, help="Seconds that the walks take.")] = 50.0,
) -> None:
    """Send real beacon readings from a library through Kafka, Redis and the engine.

    Everything runs on this machine and is removed afterwards: an embedded Kafka broker, a Redis
    server, an SQLite file, all roles, the interface and a customer's service, with a catalog of 24
    beacons, a geofence, a QR code and some campaigns. The demo needs no settings and uses none.
    """
    read_settings()  # a wrong one stops every command
    configure_logs(demo_settings())
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  # asyncio.run made it
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        with tempfile.TemporaryDirectory(prefix="proximity-") as directory:
            await _run(seconds, Path(directory) if serve else None)
    except asyncio.CancelledError:
        raise typer.Abort from None
    except ExceptionGroup as group:
        raise CommandError(f"the demo failed: {describe(group.exceptions[0])}") from group
    if serve:
        typer.echo("stopped")


def demo_settings() -> Settings:
    """The demo's own settings: it must not touch your servers."""
    return Settings.model_construct(
        path_loss_exponent=PATH_LOSS_EXPONENT,
        metrics_host="127.0.0.1",
        metrics_port=free_port(),
        api_port=free_port(),
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
        settings = await stack.enter_async_context(embedded_settings(demo_settings()))
        password = secrets.token_urlsafe(9)
        library = HttpServer(answer_call, listen("127.0.0.1", 0, "API_PORT"), interface="asgi3")
        service = f"http://127.0.0.1:{library.port}/loans"
        document = demo_document(datetime.now(UTC), connector=service, password=password)
        stores = await stack.enter_async_context(open_migrated_stores(settings))
        await write_catalog(settings, stores.database, msgspec.json.encode(document))
        (venue,) = document["companies"][0]["venues"]
        active = sum(each["active"] for each in venue["campaigns"])
        say(
            f"Loaded a catalog: 1 venue, {len(venue['beacons'])} beacons, a geofence, a QR code, "
            f"{len(venue['campaigns'])} campaigns ({active} active)."
        )
        metrics = await stack.enter_async_context(running_engine(settings, library))
        say("The roles trigger, connector and recorder and the interface start.")
        say("Six people walk into the library ...")
        readings = load_readings(document)
        items = load_arrivals(document, readings) + readings
        await _walk(settings, items, seconds)
        await until_done(metrics, stores.database, len(items))
        await _print_summary(settings, stores, metrics)
        phones = len({item.key for item in readings})
        say(
            f"{len(readings):,} real readings, taken by {phones} phones in "
            f"{readings[-1].recorded / 60:.0f} minutes of walking through a university "
            f"library, were replayed in {seconds:.0f} s. Before, each phone told a position on the "
            "square (a geofence) and scanned the QR code at the door."
        )
        installed = shlex.quote(str(Path(sys.executable).with_name("proximity")))
        if directory is None:
            typer.echo(_NEXT.format(command=installed))
            return
        walk, file = directory / "you.jsonl", directory / "env"
        walk.write_bytes(your_walk(document))
        write_env(file, settings, "secret_key", "path_loss_exponent", "connector_allow_networks")
        where = _RUNNING.format(
            command=installed,
            settings=settings,
            api=f"http://127.0.0.1:{settings.api_port}",
            email=document["companies"][0]["accounts"][0]["email"],
            password=password,
            env=shlex.quote(str(file)),
            walk=shlex.quote(str(walk)),
        )
        typer.echo(where)
        on_begin = partial(say, "Notifications as they come:")
        with suppress(asyncio.CancelledError):
            async with aclosing(published(settings, False, on_begin)) as values:
                async for _, _, line in values:
                    say(line)
        if (task := asyncio.current_task()) is not None:
            task.uncancel()


@asynccontextmanager
async def running_engine(settings: Settings, service: HttpServer) -> AsyncIterator[Metrics]:
    """All roles as `proximity run` runs them, the interface as `proximity api` serves it, and a
    customer's service.

    At the end they are drained and stopped. An error of one of them cancels the context and is
    raised in an ExceptionGroup.
    """
    stop, metrics = asyncio.Event(), Metrics()
    async with asyncio.TaskGroup() as group:
        group.create_task(run_roles(settings, ROLES, stop, metrics=metrics))
        group.create_task(serve_api(settings, stop))
        group.create_task(service.serve_until(stop))
        try:
            yield metrics
        finally:
            stop.set()


async def _walk(settings: Settings, items: list[Item], seconds: float) -> None:
    """Publish the items in `seconds`. Raises KafkaError or TimeoutError."""
    speed = items[-1].recorded / seconds
    with shown_progress("published", "detections") as progress:
        progress(total=len(items))
        topic = Topics.of(settings.topic_prefix).detections
        async with open_publisher(settings) as publisher:
            async for sent in send(publisher, topic, items, speed=speed, stamp=True):
                progress(count=sent, completed=sent)


async def until_done(metrics: Metrics, database: Database, records: int) -> None:
    """Wait until so many records are decided, each call is answered, and all is recorded."""
    async with asyncio.timeout(_CATCH_UP_SECONDS):
        while True:
            async with database.read() as session:
                recorded = await session.scalar(select(func.sum(RecorderOffset.next_offset)))
            # After SQL: what happened meanwhile is not recorded yet.
            sent, visits = counts_of(metrics.notifications).total(), counts_of(metrics.visits)
            failed = counts_of(metrics.dead_letters).total()
            if (
                counts_of(metrics.detections).total() >= records
                and not metrics.registry.get_sample_value("proximity_visits_open")
                and sent >= counts_of(metrics.decisions)[Reason.GRANTED] - failed
                # The recorder reads the detections, the notifications and the events of visits.
                and recorded == records + sent + visits.total() - visits["late"]
            ):
                return
            await asyncio.sleep(_POLL)


def counts_of(metric: Any) -> Counter[str]:
    """The counts of a metric so far, by its last label."""
    samples = [sample for family in metric.collect() for sample in family.samples]
    counts = Counter[str]()
    for sample in samples:
        if sample.name.endswith("_total"):
            counts[[*sample.labels.values()][-1]] += round(sample.value)
    return counts


async def _print_summary(settings: Settings, stores: Stores, metrics: Metrics) -> None:
    """Print a notification, what was detected, what fired or did not and why, and the visits."""
    of, stay, one = Statistic, VisitStatistic, Campaign
    sent_of = select(one.id, one.name, one.format, func.sum(of.notifications), func.sum(of.devices))
    sent_of = sent_of.outerjoin(of, (of.kind == "campaign") & (of.ref == one.id))
    stays = select(stay.kind, func.sum(stay.ended), func.sum(stay.seconds)).group_by(stay.kind)
    detections = select(func.sum(of.detections + of.place_detections)).where(of.kind == "venue")
    async with stores.database.read() as session:
        campaigns = (await session.execute(sent_of.group_by(one.id).order_by(one.id))).all()
        visits = (await session.execute(stays.order_by(stay.kind.desc()))).all()
        counted = await session.scalar(detections) or 0
        (company_id,) = await session.scalars(select(Company.id))
    today = datetime.now(UTC).date()
    figures = FigureStore(**stores.redis_options)
    days = await figures.read(company_id, today - timedelta(days=1), today)
    held_back: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for day in days.values():
        for (id_, reason), count in day.campaigns.items():
            if reason != Reason.GRANTED:
                held_back[id_][reason.value] += count
    fired = []
    for id_, name, form, sent, devices in campaigns:
        nothing = None if sent else "nobody was at its places"
        mostly, _ = next(iter(held_back[id_].most_common(1)), (nothing, 0))
        fired.append((name, form, sent or 0, devices or 0, mostly))
    say("A notification, as a push sender gets it:")
    # Of the connector campaign: its content is from the customer's service.
    (called,) = (each.name for each in campaigns if each.format == "connector")
    async with aclosing(published(settings, from_beginning=True)) as values:
        async for found, value, _ in values:
            if found.campaign.name == called:
                typer.echo(msgspec.json.format(value).decode())
                break
    means = [(kind, ended, round(seconds / max(ended, 1))) for kind, ended, seconds in visits]
    for header, rows in (
        (("what was detected", "records"), (+counts_of(metrics.detections)).most_common()),
        (("campaign", "format", "sent", "phones", "mostly held back by"), fired),
        (("who came, stayed and left", "visits", "seconds on average"), means),
    ):
        say("")
        print_table(header, rows)
    say("")
    total = sum(sent for _, _, sent, *_ in fired)
    say(f"SQL has counted {counted:,} detections at active places and {total:,} notifications.")
