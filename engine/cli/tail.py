"""`proximity tail`: shows the decisions of running triggers as they happen."""

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer
from redis.exceptions import RedisError

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
from engine.redis.tail_store import (
    MOST_COMPANIES,
    MOST_WATCHERS,
    TailedDecision,
    TailFilter,
    TailStore,
    WatchedTail,
)
from rules.model import Reason, Zone
from rules.schedule import zone_clock

_BEAT_SECONDS = 1.0


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
    tail_filter = TailFilter(0, None, campaign and campaign.casefold(), udid, reason)
    asyncio.run(_tail(settings, tail_filter, company, count, as_json))


async def _tail(
    settings: Settings,
    tail_filter: TailFilter,
    company: str | None,
    count: int | None,
    as_json: bool,
) -> None:
    await refuse_wrong_servers(settings)
    number = None if company is None else await company_id(settings, company)
    tail_filter = msgspec.structs.replace(tail_filter, company=number)
    redis = connect_redis(settings.redis_url.get_secret_value(), timeout=REDIS_SECONDS)
    store = TailStore(redis=redis, prefix=settings.redis_prefix, deadline=REDIS_SECONDS)
    try:
        await _follow(store, tail_filter, count, as_json)
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        raise
    except (RedisError, OSError, TimeoutError) as error:
        text = redis_reason(settings, error)
        raise CommandError(f"Redis does not serve: {text}; nothing more is shown") from None
    finally:
        await redis.aclose()


async def _follow(
    store: TailStore, tail_filter: TailFilter, count: int | None, as_json: bool
) -> None:
    clock = asyncio.get_running_loop().time
    place = WatchedTail(secrets.token_hex(8))
    beat, beat_at, shown = 0, clock(), 0
    try:
        while count is None or shown < count:
            if clock() >= beat_at:
                beat, beat_at = beat + 1, clock() + _BEAT_SECONDS
                await store.watch(place.watcher, msgspec.structs.replace(tail_filter, beat=beat))
                if beat == 1:
                    _refuse_too_many(await store.watchers(), tail_filter)
                    typer.echo("watching; Ctrl-C ends", err=True)
            decisions, place = await store.read(place)
            for decision in decisions[: None if count is None else count - shown]:
                if as_json:
                    echo_json(_fields(decision))
                else:
                    typer.echo(for_terminal(_line(decision)))
            shown += len(decisions)
    finally:
        with suppress(RedisError, OSError, TimeoutError):
            await store.leave(place.watcher)


def _refuse_too_many(watchers: Mapping[str, TailFilter], tail_filter: TailFilter) -> None:
    """Triggers serve so many of all companies, or of one, and so many companies."""
    others = sum(each.company == tail_filter.company for each in watchers.values()) - 1
    if others >= MOST_WATCHERS:
        raise CommandError(
            f"{others} others watch already, and triggers serve {MOST_WATCHERS}: end one of them "
            "(a killed one is removed after a few seconds)"
        )
    companies = {each.company for each in watchers.values()} - {None, tail_filter.company}
    if tail_filter.company is not None and len(companies) >= MOST_COMPANIES:
        raise CommandError(f"{len(companies)} other companies are watched already; try again later")


def _fields(decision: TailedDecision) -> dict[str, Any]:
    written = zone_clock("UTC").written
    return {
        "detected_at": written(decision.detected_at),
        "decided_at": written(decision.decided_at),
        "company": decision.company,
        "venue": decision.venue,
        "kind": decision.kind,
        "beacon": decision.beacon,  # or another place, of that kind
        "proximity": Zone(decision.zone).name.lower(),
        "reason": decision.reason,
        "campaigns": [
            {"id": each.number, "name": each.name, "outcome": each.outcome}
            for each in decision.campaigns
        ],
        "left_out": decision.left_out,
    }


def _line(decision: TailedDecision) -> str:
    at = datetime.fromtimestamp(decision.decided_at).astimezone()
    place = f"{decision.venue}, {decision.beacon}" if decision.venue else decision.beacon
    how = Zone(decision.zone).name.lower() if decision.kind == "beacon" else decision.kind
    text = f"{at:%H:%M:%S}  {decision.reason}  {how} at {place}"
    if decision.campaigns:
        text += ": " + ", ".join(f"{each.name} {each.outcome}" for each in decision.campaigns)
    return text + (f"  ({decision.left_out} more before)" if decision.left_out else "")
