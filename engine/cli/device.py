"""`proximity device`, `forget` and `tail`: what was decided about one device, the deletion of its
data, and decisions as they happen."""

import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from redis.exceptions import RedisError
from sqlalchemy import select
from typer import Argument, Option

from api.devices import shown_decisions
from api.reports import LiveDecision
from catalog.models import Device
from engine.cli.command import Json, begin_quietly, command, telling
from engine.cli.output import echo_json, say
from engine.cli.servers import company_id, company_named, open_migrated_stores, open_redis
from engine.kafka.messages import format_instant
from engine.redis.decisions import DecisionStore, TailFilter, TailStore
from engine.redis.devices import DeviceKey
from engine.wiring.parts import device_eraser
from rules.model import Reason

Company = Annotated[str, Argument(help="The company's name or id.")]
Udid = Annotated[str, Argument(help="The device.")]


@command("device", 'device "Harbour Mall" device-1')
async def device(company: Company, udid: Udid, as_json: Json = False) -> None:
    """Show the last decisions on the device UDID of COMPANY, the newest first.

    Each decision has its reason, and each campaign its own. Triggers keep the last
    RECENT_DECISIONS of them for a day. Exact repeats are left out, and under high load others too.
    """
    settings = begin_quietly()
    async with open_migrated_stores(settings) as stores, stores.database.read() as session:
        owner = await company_named(session, company)
        query = select(Device.id).where(Device.company_id == owner.id, Device.udid == udid)
        number = await session.scalar(query)
        store = DecisionStore(most=settings.recent_decisions, **stores.redis_options)
        kept = await store.read(DeviceKey(owner.id, udid))
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
    beacon, kind = decision["beacon"], decision["kind"]
    place = f"{beacon['name'] or beacon['id']}, {decision['lieu'] or 'deleted'}"
    how = decision["proximity"] if kind == "beacon" else kind
    say(f"{decision['detected_at']}  {decision['reason']}  {how} at {place}")
    for campaign in decision["campaigns"]:
        name = campaign["name"] or "deleted"
        say(f"    {campaign['outcome']:13}  {campaign['id']:>6}  {name}")


@command("forget", 'forget "Harbour Mall" device-1', 'forget "Harbour Mall" device-1 --yes')
async def forget(
    company: Company,
    udid: Udid,
    yes: Annotated[bool, Option("--yes", help="Delete; else only show what.")] = False,
) -> None:
    """Delete all data of the device UDID of COMPANY from SQL and Redis.

    Daily statistics stay, because they name no device. Kafka keeps the messages until each topic's
    retention ends. A later detection creates the device again. It is safe to run this again.
    """
    settings = begin_quietly()
    async with open_migrated_stores(settings) as stores:
        async with stores.database.read() as session:
            owner = await company_named(session, company)
        eraser = device_eraser(settings, stores)
        with telling(lambda: "run it again"):
            data = await (eraser.erase if yes else eraser.count)(DeviceKey(owner.id, udid))
    say(
        f"{'deleted' if yes else 'would delete'}, of {owner.name}: "
        f"devices {data.devices}, detections {data.detections}, authentications "
        f"{data.authentications}, presences {data.presences}, keys in Redis {data.keys}"
    )
    until = "which no broker reports"
    if data.kafka.longest is not None:
        until = f"{datetime.now(UTC) + data.kafka.longest:%Y-%m-%d %H:%M} UTC at the latest"
    elif data.kafka.kind == "unbounded":
        until = "which one of them does not have"
    say(f"Kafka keeps its messages until retention: {settings.topic_prefix}*, {until}")
    if not yes:
        say("nothing is deleted yet: add --yes")


@command("tail", "tail", 'tail --company "Harbour Mall" --reason throttled --count 10')
async def tail(
    company: Annotated[str | None, Option(help="Only this company: id or name.")] = None,
    campaign: Annotated[str | None, Option(help="Only at its places: id or name.")] = None,
    udid: Annotated[str | None, Option(help="Only this device.")] = None,
    reason: Annotated[
        Reason | None, Option(metavar="REASON", help="Only with this outcome.")
    ] = None,
    count: Annotated[int | None, Option(min=1, help="End after this many.")] = None,
    as_json: Json = False,
) -> None:
    """Show the decisions of running triggers as they happen, until Ctrl-C.

    Shows at most a hundred decisions a second from each process, and the number of those left out.
    No device is named. Triggers notice within a second that somebody watches; if nobody does, it
    costs them nothing.
    """
    settings = begin_quietly()
    owner = None if company is None else await company_id(settings, company)
    name = secrets.token_hex(8)
    wanted = TailFilter(name, owner, campaign and campaign.casefold(), udid, reason)
    async with open_redis(settings) as stores:
        store, after = TailStore(**stores.redis_options), "0-0"
        try:
            await store.watch(wanted)
            say("watching; Ctrl-C ends", err=True)
            while count is None or count > 0:
                after, decisions = await store.read(name, after)
                for decision in decisions[:count]:
                    if as_json:
                        echo_json(_fields(decision))
                    else:
                        say(_line(decision))
                count = None if count is None else count - len(decisions)
                await store.watch(wanted)
        finally:
            with suppress(RedisError, OSError, TimeoutError):
                await store.leave(wanted)


def _fields(decision: LiveDecision) -> dict[str, Any]:
    fields = msgspec.structs.asdict(decision)
    return fields | {
        "detected_at": format_instant(decision.detected_at),
        "decided_at": format_instant(decision.decided_at),
        "proximity": fields.pop("zone").name.lower(),
        "campaigns": [each._asdict() for each in decision.campaigns],
    }


def _line(decision: LiveDecision) -> str:
    at = datetime.fromtimestamp(decision.decided_at).astimezone()
    place = f"{decision.venue}, {decision.beacon}" if decision.venue else decision.beacon
    how = decision.zone.name.lower() if decision.kind == "beacon" else decision.kind
    text = f"{at:%H:%M:%S}  {decision.reason}  {how} at {place}"
    if decision.campaigns:
        text += ": " + ", ".join(f"{each.name} {each.outcome}" for each in decision.campaigns)
    return text + (f"  ({decision.left_out} more before)" if decision.left_out else "")
