"""`proximity tail`: shows the decisions of running triggers as they happen."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer
from redis.exceptions import RedisError

from api.reports import LiveDecision
from catalog.plain_text import for_terminal
from catalog.redis_connection import REDIS_SECONDS, connect_redis
from engine.cli.command import CommandError, begin_quietly, examples, new_app
from engine.cli.output import echo_json
from engine.cli.servers import (
    company_id,
    redis_reason,
    refuse_wrong_servers,
)
from engine.process.settings import Settings
from engine.redis.tail_store import MOST_WATCHERS, TailFilter, TailStore
from rules.model import Reason
from rules.schedule import zone_clock

_RENEW_SECONDS = 1.0


app = new_app()


@app.command(
    "tail", epilog=examples("tail", 'tail --company "Harbour Mall" --reason throttled --count 10')
)
def tail(
    context: typer.Context,
    company: Annotated[str | None, typer.Option(help="Only this company: id or name.")] = None,
    campaign: Annotated[
        str | None, typer.Option(help="Only at places of this campaign: id or name.")
    ] = None,
    udid: Annotated[str | None, typer.Option(help="Only this device.")] = None,
    reason: Annotated[
        str | None,
        typer.Option(help="Only with this outcome, of a campaign or of the whole detection."),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after this many.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show the decisions of running triggers as they happen, until Ctrl-C.

    Shows at most a hundred decisions a second from each process, and the number of those left out.
    No device is named. Triggers notice within a second that somebody watches; if nobody does, it
    costs them nothing.
    """
    settings = begin_quietly(context)
    if reason is not None and reason not in set(Reason):
        raise typer.BadParameter(f"accepted: {', '.join(Reason)}", param_hint="--reason")
    wanted = TailFilter(secrets.token_hex(8), None, campaign and campaign.casefold(), udid, reason)
    asyncio.run(_tail(settings, wanted, company, count, as_json))


async def _tail(
    settings: Settings,
    wanted: TailFilter,
    company: str | None,
    count: int | None,
    as_json: bool,
) -> None:
    await refuse_wrong_servers(settings)
    if company is not None:
        number = await company_id(settings, company)
        wanted = msgspec.structs.replace(wanted, company=number)
    redis = connect_redis(settings.redis_url.get_secret_value(), timeout=REDIS_SECONDS)
    store = TailStore(redis=redis, prefix=settings.redis_prefix, deadline=REDIS_SECONDS)
    try:
        async for decision in _decisions(store, wanted):
            if as_json:
                echo_json(_fields(decision))
            else:
                typer.echo(for_terminal(_line(decision)))
            count = None if count is None else count - 1
            if count == 0:
                return
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        raise
    except (RedisError, OSError, TimeoutError) as error:
        text = redis_reason(settings, error)
        raise CommandError(f"Redis does not serve: {text}; nothing more is shown") from None
    finally:
        with suppress(RedisError, OSError, TimeoutError):
            await store.leave(wanted)
        await redis.aclose()


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
                typer.echo("watching; Ctrl-C ends", err=True)
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
