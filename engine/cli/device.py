"""`proximity device` and `proximity forget`: what is kept of one device, and its deletion."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

import typer
from sqlalchemy import select

from api.devices import shown_decisions
from catalog.erasure import DeviceData, TopicRetention
from catalog.models import Device
from catalog.plain_text import for_terminal
from engine.cli.command import begin_quietly, examples, new_app
from engine.cli.output import echo_json
from engine.cli.servers import company_named, open_migrated_stores
from engine.process.settings import Settings
from engine.redis.devices import DeviceKey
from engine.wiring.parts import build_decision_store, device_eraser


class _Found(NamedTuple):
    company: str
    device_id: int | None
    decisions: list[dict[str, Any]]


Company = Annotated[str, typer.Argument(help="The company's name or id.")]
Udid = Annotated[str, typer.Argument(help="The device.")]


app = new_app()


@app.command("device", epilog=examples('device "Harbour Mall" device-1'))
def device(
    context: typer.Context,
    company: Company,
    udid: Udid,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show the decisions on the last detections of the device UDID of COMPANY, the newest first.

    Each decision has its reason, and each campaign its own. Triggers keep the last
    RECENT_DECISIONS of them for a day. Exact repeats are left out, and under high load others too.
    """
    settings = begin_quietly(context)
    found = asyncio.run(_read(settings, company, udid))
    if as_json:
        for decision in found.decisions:
            echo_json(decision)
        return
    for line in _lines(settings, found, udid):
        typer.echo(for_terminal(line))


async def _read(settings: Settings, company: str, udid: str) -> _Found:
    async with open_migrated_stores(settings) as stores, stores.database.read() as session:
        owner = await company_named(session, company)
        query = select(Device.id).where(Device.company_id == owner.id, Device.udid == udid)
        device_id = await session.scalar(query)
        kept = await build_decision_store(settings, stores.redis).read(DeviceKey(owner.id, udid))
        return _Found(owner.name, device_id, await shown_decisions(session, owner.id, kept))


def _lines(settings: Settings, found: _Found, udid: str) -> Iterator[str]:
    known = "not recorded yet" if found.device_id is None else f"device {found.device_id}"
    yield f"{udid} at {found.company}, {known}"
    if not found.decisions:
        off = " (RECENT_DECISIONS is 0 here)" if not settings.recent_decisions else ""
        yield f"nothing is kept of the last day{off}"
    for each in found.decisions:
        place = f"{each['beacon']['name'] or each['beacon']['id']}, {each['lieu'] or 'deleted'}"
        kind = each.get("kind", "beacon")
        how = each["proximity"] if kind == "beacon" else kind
        yield f"{each['detected_at']}  {each['reason']}  {how} at {place}"
        for campaign in each["campaigns"]:
            name = campaign["name"] or "deleted"
            yield f"    {campaign['outcome']:13}  {campaign['id']:>6}  {name}"


@app.command(
    "forget",
    epilog=examples('forget "Harbour Mall" device-1', 'forget "Harbour Mall" device-1 --yes'),
)
def forget(
    context: typer.Context,
    company: Company,
    udid: Udid,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete; without it, only show what would be deleted.")
    ] = False,
) -> None:
    """Delete all data of the device UDID of COMPANY, one person's data, from SQL and Redis.

    Daily statistics stay, because they name no device. Kafka keeps the messages until each topic's
    retention ends. A later detection creates the device again. It is safe to run this again.
    """
    settings = begin_quietly(context)
    name, data = asyncio.run(_forget(settings, company, udid, delete=yes))
    rows = data.rows
    typer.echo(
        f"{'deleted' if yes else 'would delete'}, of {for_terminal(name)}: "
        f"devices {rows.devices}, detections {rows.detections}, authentications "
        f"{rows.authentications}, presences {rows.presences}, keys in Redis {data.keys}"
    )
    until = _until(data.kafka)
    typer.echo(f"Kafka keeps its messages until retention: {settings.topic_prefix}*, {until}")
    if not yes:
        typer.echo("nothing is deleted yet: add --yes")


async def _forget(
    settings: Settings, company: str, udid: str, *, delete: bool
) -> tuple[str, DeviceData]:
    async with open_migrated_stores(settings, "run it again") as stores:
        async with stores.database.read() as session:
            owner = await company_named(session, company)
        eraser = device_eraser(settings, stores)
        work = eraser.erase if delete else eraser.count
        return owner.name, await work(DeviceKey(owner.id, udid))


def _until(kafka: TopicRetention) -> str:
    if not kafka.is_known:
        return "which no broker reports"
    if kafka.longest is None:
        return "which one of them does not have"
    return f"{(datetime.now(UTC) + kafka.longest):%Y-%m-%d %H:%M} UTC at the latest"
