"""`proximity tail`: shows the decisions of running triggers as they happen."""

import asyncio
import secrets
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog.plain_text import for_terminal
from engine.cli.errors import CommandError
from engine.cli.examples import examples
from engine.cli.invocation import begin_quietly
from engine.cli.servers import redis_reason, refuse_wrong_servers
from engine.process.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.redis.tail_store import TailedDecision, TailFilter, TailStore

_BEAT_SECONDS = 1.0
_LONGEST_ID = 18


def register(app: typer.Typer) -> None:
    """Add the command."""
    lines = ("tail", 'tail --company "Harbour Mall" --reason throttled --count 10')
    app.command("tail", epilog=examples(*lines))(tail)


def tail(
    context: typer.Context,
    company: Annotated[str | None, typer.Option(help="Only this company: id or name.")] = None,
    campaign: Annotated[
        str | None, typer.Option(help="Only at beacons of this campaign: id or name.")
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
    from engine.redis.tail_store import TailFilter
    from rules.model import Reason

    settings = begin_quietly(context)
    if reason is not None and reason not in set(Reason):
        raise typer.BadParameter(f"accepted: {', '.join(Reason)}", param_hint="--reason")
    tail_filter = TailFilter(0, None, campaign and campaign.casefold(), udid, reason)
    asyncio.run(_tail(settings, tail_filter, company, _Shown(count, as_json)))


class _Shown:
    """Prints decisions; `is_full` once it has printed `count` of them."""

    def __init__(self, count: int | None, as_json: bool) -> None:
        self._left = count
        self._as_json = as_json

    @property
    def is_full(self) -> bool:
        return self._left == 0

    def take(self, decision: "TailedDecision") -> None:
        from engine.cli.tables import echo_json

        if self.is_full:
            return
        if self._as_json:
            echo_json(_fields(decision))
        else:
            typer.echo(for_terminal(_line(decision)))
        self._left = None if self._left is None else self._left - 1


async def _tail(
    settings: Settings, tail_filter: "TailFilter", company: str | None, shown: _Shown
) -> None:
    import msgspec
    from redis.exceptions import RedisError

    from catalog.redis_connection import connect_redis
    from engine.redis.tail_store import TailStore

    await refuse_wrong_servers(settings)
    number = None if company is None else await _company(settings, company)
    redis = connect_redis(settings.redis_url.get_secret_value(), timeout=settings.redis_timeout)
    store = TailStore(redis=redis, prefix=settings.redis_prefix, deadline=settings.redis_timeout)
    try:
        await _follow(store, msgspec.structs.replace(tail_filter, company=number), shown)
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        raise
    except (RedisError, OSError, TimeoutError) as error:
        text = redis_reason(settings, error)
        raise CommandError(f"Redis does not serve: {text}; nothing more is shown") from None
    finally:
        await redis.aclose()


async def _follow(store: "TailStore", tail_filter: "TailFilter", shown: _Shown) -> None:
    import msgspec
    from redis.exceptions import RedisError

    from engine.redis.tail_store import WatchedTail

    clock = asyncio.get_running_loop().time
    place = WatchedTail(secrets.token_hex(8))
    beat, beat_at = 0, clock()
    try:
        while not shown.is_full:
            if clock() >= beat_at:
                beat, beat_at = beat + 1, clock() + _BEAT_SECONDS
                beating = msgspec.structs.replace(tail_filter, beat=beat)
                await store.watch(place.watcher, beating)
                if beat == 1:
                    _refuse_too_many(await store.watchers(), tail_filter)
                    typer.echo("watching; Ctrl-C ends", err=True)
            decisions, place = await store.read(place)
            for decision in decisions:
                shown.take(decision)
    finally:
        with suppress(RedisError, OSError, TimeoutError):
            await store.leave(place.watcher)


def _refuse_too_many(watchers: "Mapping[str, TailFilter]", tail_filter: "TailFilter") -> None:
    """Triggers serve so many of all companies, or of one, and so many companies."""
    from engine.redis.tail_store import MOST_COMPANIES, MOST_WATCHERS

    others = sum(each.company == tail_filter.company for each in watchers.values()) - 1
    if others >= MOST_WATCHERS:
        raise CommandError(
            f"{others} others watch already, and triggers serve {MOST_WATCHERS}: end one of them "
            "(a killed one is removed after a few seconds)"
        )
    companies = {each.company for each in watchers.values()} - {None, tail_filter.company}
    if tail_filter.company is not None and len(companies) >= MOST_COMPANIES:
        raise CommandError(f"{len(companies)} other companies are watched already; try again later")


async def _company(settings: Settings, name_or_id: str) -> int:
    """The id of the company; a name is looked up in SQL."""
    from catalog.company_lookup import find_company
    from engine.cli.servers import open_migrated_database

    if name_or_id.isascii() and name_or_id.isdigit() and len(name_or_id) <= _LONGEST_ID:
        return int(name_or_id)
    async with open_migrated_database(settings) as database, database.read() as session:
        found = await find_company(session, name_or_id)
    if found is None:
        raise CommandError(f"there is no company {name_or_id!r}")
    return found.id


def _fields(decision: "TailedDecision") -> dict[str, Any]:
    from rules.local_time import zone_clock
    from rules.model import Zone

    written = zone_clock("UTC").written
    return {
        "detected_at": written(decision.detected_at),
        "decided_at": written(decision.decided_at),
        "company": decision.company,
        "venue": decision.venue,
        "beacon": decision.beacon,
        "proximity": Zone(decision.zone).name.lower(),
        "reason": decision.reason,
        "campaigns": [
            {"id": each.number, "name": each.name, "outcome": each.outcome}
            for each in decision.campaigns
        ],
        "left_out": decision.left_out,
    }


def _line(decision: "TailedDecision") -> str:
    from rules.model import Zone

    at = datetime.fromtimestamp(decision.decided_at).astimezone()
    place = f"{decision.venue}, {decision.beacon}" if decision.venue else decision.beacon
    text = f"{at:%H:%M:%S}  {decision.reason}  {Zone(decision.zone).name.lower()} at {place}"
    if decision.campaigns:
        text += ": " + ", ".join(f"{each.name} {each.outcome}" for each in decision.campaigns)
    return text + (f"  ({decision.left_out} more before)" if decision.left_out else "")
