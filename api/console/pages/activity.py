"""What happens now and what was changed: the live page and the audit."""

from collections import Counter
from datetime import datetime
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.responses import Response

from api.console.context import Context
from api.console.pages.records import CAMPAIGNS, IN_VENUES, VENUES
from api.console.texts import Translations
from catalog.models import WEEKDAYS
from catalog.session import RESTORABLE
from rules.model import Reason

router = APIRouter()
_RESTORABLE = {each.record: each for each in (VENUES, *IN_VENUES, CAMPAIGNS)}
_MOST_VENUES, _MOST_NAMES = 20, 100  # whose campaigns can be chosen, and how many of each


@router.get("/live")
async def show_live(context: Context) -> Response:
    """Show the empty page, which asks for decisions, with the names to choose from."""
    venues, chosen = await context.venues(), context.query("lieu")
    campaigns = [
        (venue, await context.get(f"/lieu/{venue['id']}/campaign", limit=_MOST_NAMES))
        for venue in [each for each in venues if chosen in ("", each["name"])][:_MOST_VENUES]
        if context.may_read("campaign")
    ]
    reasons = [reason.value for reason in Reason]
    return context.page("live.html", venues=venues, campaigns=campaigns, reasons=reasons)


@router.get("/live/feed")
async def feed(context: Context) -> Response:
    """Show new decisions, the newest first. Equal ones of a second are one row with a count."""
    query = {name: context.query(name) for name in ("after", "lieu", "campaign", "reason")}
    found = await context.get("/realtime/decisions", **query)
    decisions = found["decisions"][::-1]
    return context.page(
        "live.html#feed",
        after=found["after"],
        rows=Counter(_live_row(each, context.texts) for each in decisions),
        left_out=sum(each["left_out"] for each in decisions),
    )


def _live_row(decision: dict[str, Any], texts: Translations) -> tuple[str, ...]:
    """The texts of a row; the reason and the proximity by their names."""
    place = ", ".join(filter(None, (decision["beacon"], decision["lieu"])))
    outcomes = "; ".join(
        f"{each['name']}: {texts.get('reason_' + each['outcome'])}"
        for each in decision["campaigns"]
    )
    time = decision["decided_at"][11:19]
    return time, decision["reason"], decision["proximity"], place, outcomes


@router.get("/audit")
async def show_audit(context: Context) -> Response:
    """Show who changed what, the newest first, and restore what was deleted."""
    found, since = await context.listed("/audit", sort="-id"), context.now - RESTORABLE
    rows = [
        (each, changes_in_words(each, context.texts), _restore_page(each, since))
        for each in found.records
    ]
    return context.page("audit.html", found=found, rows=rows)


# Fields that another one says better, or that are no news.
_REPEATED = ("delay", "start_offset", "end_offset", "venue_id")


def changes_in_words(entry: dict[str, Any], texts: Translations) -> list[tuple[str, str, str]]:
    """The changed fields of an entry of the audit: each with its text after and before."""
    before, after = entry["before"], entry["after"]
    return [
        (texts.get(name), in_words(name, value, texts), in_words(name, before.get(name), texts))
        for name, value in after.items()
        if name not in _REPEATED and (name in before or value not in (None, "", []))
    ]


def in_words(name: str, value: Any, texts: Translations) -> str:
    """The value of a stored field, in the language of the page."""
    match name, value:
        case _, None:
            return ""
        case _, bool():
            return texts("yes" if value else "no")
        case "weekdays", int():
            return " ".join(texts(day)[:2] for bit, day in enumerate(WEEKDAYS) if value >> bit & 1)
        case "start_minute" | "end_minute", int():
            return f"{value // 60:02}:{value % 60:02}"
        case "format" | "on" | "proximity", _:
            return texts.get(f"{name}_{value}")
        case _, [*listed] if all(isinstance(each, int) for each in listed):
            return str(len(listed))
        case _, list() | dict():
            return orjson.dumps(value).decode()
    return str(value)


def _restore_page(entry: dict[str, Any], since: datetime) -> str:
    """The page that restores what was deleted by the entry; empty if nothing can be restored."""
    kind = _RESTORABLE.get(entry["kind"])
    is_late = datetime.fromisoformat(entry["create_on"]) < since
    if kind is None or entry["action"] != "delete" or is_late:
        return ""
    return f"{kind.pages.format(id=entry['before'].get('venue_id'))}/{entry['ref']}/restore"
