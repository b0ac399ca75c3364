"""`proximity tail`: shows the decisions of running triggers as they happen."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

import typer
from redis.exceptions import RedisError
from typer import Option

from api.reports import LiveDecision
from engine.cli.command import CommandError, Json, begin_quietly, command, new_app
from engine.cli.output import echo_json, say
from engine.cli.servers import company_id, open_redis
from engine.redis.tail_store import MOST_WATCHERS, TailFilter, TailStore
from engine.wiring.parts import redis_options
from rules.model import Reason
from rules.schedule import zone_clock

_RENEW_SECONDS = 1.0

app = new_app()


@command(app, "tail", "tail", 'tail --company "Harbour Mall" --reason throttled --count 10')
async def tail(
    context: typer.Context,
    company: Annotated[str | None, Option(help="Only this company: id or name.")] = None,
    campaign: Annotated[str | None, Option(help="Only at its places: id or name.")] = None,
    udid: Annotated[str | None, Option(help="Only this device.")] = None,
    reason: Annotated[str | None, Option(help="Only with this outcome.")] = None,
    count: Annotated[int | None, Option(min=1, help="End after this many.")] = None,
    as_json: Json = False,
) -> None:
    """Show the decisions of running triggers as they happen, until Ctrl-C.

    Shows at most a hundred decisions a second from each process, and the number of those left out.
    No device is named. Triggers notice within a second that somebody watches; if nobody does, it
    costs them nothing.
    """
    settings = begin_quietly(context)
    if reason is not None and reason not in set(Reason):
        raise typer.BadParameter(f"accepted: {', '.join(Reason)}", param_hint="--reason")
    owner = None if company is None else await company_id(settings, company)
    name = secrets.token_hex(8)
    wanted = TailFilter(name, owner, campaign and campaign.casefold(), udid, reason)
    async with open_redis(settings) as redis:
        store = TailStore(**redis_options(settings, redis))
        try:
            async for decision in _decisions(store, wanted):
                if as_json:
                    echo_json(_fields(decision))
                else:
                    say(_line(decision))
                count = None if count is None else count - 1
                if count == 0:
                    return
        finally:
            with suppress(RedisError, OSError, TimeoutError):
                await store.leave(wanted)


async def _decisions(store: TailStore, wanted: TailFilter) -> AsyncIterator[LiveDecision]:
    clock = asyncio.get_running_loop().time
    after, renewed_at = "0-0", None
    while True:
        if renewed_at is None or clock() >= renewed_at + _RENEW_SECONDS:
            if not await store.watch(wanted):
                raise CommandError(
                    f"{MOST_WATCHERS} others watch already: end one of them (a killed one is "
                    "removed after five seconds)"
                )
            if renewed_at is None:
                say("watching; Ctrl-C ends", err=True)
            renewed_at = clock()
        after, decisions = await store.read(wanted.name, after)
        for decision in decisions:
            yield decision


def _fields(decision: LiveDecision) -> dict[str, Any]:
    written = zone_clock("UTC").written
    return {
        "detected_at": written(decision.detected_at),
        "decided_at": written(decision.decided_at),
        "company": decision.company,
        "venue": decision.venue,
        "kind": decision.kind,
        "beacon": decision.beacon,  # or another place, of that kind
        "proximity": decision.zone.name.lower(),
        "reason": decision.reason,
        "campaigns": [each._asdict() for each in decision.campaigns],
        "left_out": decision.left_out,
    }


def _line(decision: LiveDecision) -> str:
    at = datetime.fromtimestamp(decision.decided_at).astimezone()
    place = f"{decision.venue}, {decision.beacon}" if decision.venue else decision.beacon
    how = decision.zone.name.lower() if decision.kind == "beacon" else decision.kind
    text = f"{at:%H:%M:%S}  {decision.reason}  {how} at {place}"
    if decision.campaigns:
        text += ": " + ", ".join(f"{each.name} {each.outcome}" for each in decision.campaigns)
    return text + (f"  ({decision.left_out} more before)" if decision.left_out else "")
