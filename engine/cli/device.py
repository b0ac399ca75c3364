"""`proximity device` and `proximity forget`: what is kept of one device, and its deletion."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from sqlalchemy import select
from typer import Argument, Option

from api.devices import shown_decisions
from catalog.erasure import TopicRetention
from catalog.models import Device
from engine.cli.command import Json, begin_quietly, command, new_app, telling
from engine.cli.output import echo_json, say
from engine.cli.servers import company_named, open_migrated_stores
from engine.redis.devices import DeviceKey
from engine.wiring.parts import build_decision_store, device_eraser

Company = Annotated[str, Argument(help="The company's name or id.")]
Udid = Annotated[str, Argument(help="The device.")]

app = new_app()


@command(app, "device", 'device "Harbour Mall" device-1')
async def device(
    context: typer.Context, company: Company, udid: Udid, as_json: Json = False
) -> None:
    """Show the decisions on the last detections of the device UDID of COMPANY, the newest first.

    Each decision has its reason, and each campaign its own. Triggers keep the last
    RECENT_DECISIONS of them for a day. Exact repeats are left out, and under high load others too.
    """
    settings = begin_quietly(context)
    async with open_migrated_stores(settings) as stores, stores.database.read() as session:
        owner = await company_named(session, company)
        query = select(Device.id).where(Device.company_id == owner.id, Device.udid == udid)
        number = await session.scalar(query)
        kept = await build_decision_store(settings, stores.redis).read(DeviceKey(owner.id, udid))
        decisions = await shown_decisions(session, owner.id, kept)
    if as_json:
        for decision in decisions:
            echo_json(decision)
        return
    known = "not recorded yet" if number is None else f"device {number}"
    say(f"{udid} at {owner.name}, {known}")
    if not decisions:
        off = " (RECENT_DECISIONS is 0 here)" if not settings.recent_decisions else ""
        say(f"nothing is kept of the last day{off}")
    for decision in decisions:
        _show(decision)


def _show(decision: Mapping[str, Any]) -> None:
    beacon, kind = decision["beacon"], decision.get("kind", "beacon")
    place = f"{beacon['name'] or beacon['id']}, {decision['lieu'] or 'deleted'}"
    how = decision["proximity"] if kind == "beacon" else kind
    say(f"{decision['detected_at']}  {decision['reason']}  {how} at {place}")
    for campaign in decision["campaigns"]:
        name = campaign["name"] or "deleted"
        say(f"    {campaign['outcome']:13}  {campaign['id']:>6}  {name}")


@command(app, "forget", 'forget "Harbour Mall" device-1', 'forget "Harbour Mall" device-1 --yes')
async def forget(
    context: typer.Context,
    company: Company,
    udid: Udid,
    yes: Annotated[bool, Option("--yes", help="Delete, not only show what.")] = False,
) -> None:
    """Delete all data of the device UDID of COMPANY, one person's data, from SQL and Redis.

    Daily statistics stay, because they name no device. Kafka keeps the messages until each topic's
    retention ends. A later detection creates the device again. It is safe to run this again.
    """
    settings = begin_quietly(context)
    with telling(lambda: "run it again"):
        async with open_migrated_stores(settings) as stores:
            async with stores.database.read() as session:
                owner = await company_named(session, company)
            eraser = device_eraser(settings, stores)
            data = await (eraser.erase if yes else eraser.count)(DeviceKey(owner.id, udid))
    rows = data.rows
    say(
        f"{'deleted' if yes else 'would delete'}, of {owner.name}: "
        f"devices {rows.devices}, detections {rows.detections}, authentications "
        f"{rows.authentications}, presences {rows.presences}, keys in Redis {data.keys}"
    )
    until = _until(data.kafka)
    say(f"Kafka keeps its messages until retention: {settings.topic_prefix}*, {until}")
    if not yes:
        say("nothing is deleted yet: add --yes")


def _until(kafka: TopicRetention) -> str:
    if not kafka.is_known:
        return "which no broker reports"
    if kafka.longest is None:
        return "which one of them does not have"
    return f"{(datetime.now(UTC) + kafka.longest):%Y-%m-%d %H:%M} UTC at the latest"
