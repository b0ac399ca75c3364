"""What happens now and what was changed: the live page, the audit, and what can be restored."""

from datetime import datetime
from typing import Any, NamedTuple

import orjson
from starlette.responses import JSONResponse, Response

from api.console.context import PageContext, RecordList
from api.console.forms import split_delay
from api.console.texts import Translations
from catalog.models import WEEKDAYS
from catalog.session import RESTORABLE
from rules.model import Reason

_MOST_AUDIT_PAGES = 8
_MOST_NAMES = 1000
_FILTERS = ("after", "lieu", "campaign", "reason")


async def show_live(context: PageContext) -> Response:
    """Show the empty page, which the script fills, with the names to choose from."""
    venues = await context.venues()
    campaigns, left = [], _MOST_NAMES
    for venue in venues if context.may_read("campaign") else []:
        found = await context.get(f"/lieu/{venue['id']}/campaign", limit=left) if left else []
        campaigns.append((venue, found))
        left -= len(found)
    reasons = [reason.value for reason in Reason]
    return context.page("live.html", venues=venues, campaigns=campaigns, reasons=reasons)


async def feed(context: PageContext) -> Response:
    """New decisions as JSON, as the operation answers them, with translated reasons."""
    query = {name: context.query(name) for name in _FILTERS}
    reply = await context.call("GET", "/realtime/decisions", **query)
    body = reply.json()
    for decision in body["decisions"] if reply.is_success else []:
        decision["reason_text"] = context.texts.get(f"reason_{decision['reason']}")
        for each in decision["campaigns"]:
            each["outcome_text"] = context.texts.get(f"reason_{each['outcome']}")
    return JSONResponse(body, reply.status_code)


async def show_audit(context: PageContext) -> Response:
    """Show who changed what, the newest first."""
    found = await context.listed("/audit", sort="-id")
    changes = {entry["id"]: changes_in_words(entry, context.texts) for entry in found.records}
    return context.page("audit.html", found=found, changes=changes)


class ChangeText(NamedTuple):
    """A field that a change has set; `before` is empty if there was no value."""

    field: str
    after: str
    before: str


# Fields that another one says better, or that are no news.
_REPEATED = ("delay", "start_offset", "end_offset", "venue_id", "expire_offset")
_FIELD_TEXTS = {
    "start_at": "first_day",
    "end_at": "last_day",
    "start_minute": "from_hour",
    "end_minute": "to_hour",
    "geofencings": "geofences",
    "scan_tags": "nfcs_and_qrcodes",
    "color": "colour",
    "auth": "parameters_as",
    "password_hash": "password",
}
_OF_CHOICES = ("format", "on", "proximity")


def changes_in_words(entry: dict[str, Any], texts: Translations) -> list[ChangeText]:
    """The changed fields of an entry of the audit; what was deleted is told by its name alone."""
    before, after = entry["before"], entry["after"]
    return [
        ChangeText(
            texts.get(_FIELD_TEXTS.get(name, name)),
            _value_in_words(name, value, texts),
            _value_in_words(name, before.get(name), texts),
        )
        for name, value in after.items()
        if name not in _REPEATED and (name in before or value not in (None, "", []))
    ]


def _value_in_words(name: str, value: Any, texts: Translations) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return texts("yes" if value else "no")
    if name == "weekdays" and isinstance(value, int):
        return " ".join(texts(day)[:2] for bit, day in enumerate(WEEKDAYS) if value >> bit & 1)
    if name in ("start_minute", "end_minute") and isinstance(value, int):
        return f"{value // 60:02}:{value % 60:02}"
    if isinstance(value, list) and all(isinstance(each, int) for each in value):
        return str(len(value))
    if name in ("cache", "start_at", "end_at") and isinstance(value, str):
        return delay_in_words(value, texts) if name == "cache" else value[:10]
    if name in _OF_CHOICES:
        return texts.get(f"{name}_{value}")
    if isinstance(value, list | dict):
        return orjson.dumps(value).decode()
    return str(value)


def delay_in_words(delay: str, texts: Translations) -> str:
    """As 2 hours, in the language of the page."""
    number, unit = split_delay(delay)
    return texts(f"one_{unit}") if number == "1" else f"{number} {texts(f'unit_{unit}')}".strip()


async def show_deleted(context: PageContext) -> Response:
    """Show what was deleted in the last 30 days and not restored, the newest first."""
    since, before = context.now - RESTORABLE, 2**63 - 1
    seen, found = set(), []
    for _ in range(_MOST_AUDIT_PAGES):
        entries = await context.get("/audit", before=before)
        for entry in entries:
            record, page = (entry["kind"], entry["ref"]), _restore_page(entry)
            is_new = datetime.fromisoformat(entry["create_on"]) >= since
            if entry["action"] == "delete" and page and is_new and record not in seen:
                found.append(entry | {"page": page})
            seen.add(record)
        if not entries or datetime.fromisoformat(entries[-1]["create_on"]) < since:
            break
        before = entries[-1]["id"]
    listed = RecordList(found, 0, len(found), is_filtered=False)
    return context.page("audit.html", found=listed, changes=None)


def _restore_page(entry: dict[str, Any]) -> str:
    """The page that restores the record of an entry; empty for kinds without one."""
    if entry["kind"] == "venue":
        return f"/venues/{entry['ref']}/restore"
    venue = entry["before"].get("venue_id")
    if entry["kind"] not in ("beacon", "geofence", "nfc", "qrcode", "campaign") or not venue:
        return ""
    return f"/venues/{venue}/{entry['kind']}s/{entry['ref']}/restore"


PAGES = (
    ("GET", "/live", show_live),
    ("GET", "/live/feed", feed),
    ("GET", "/audit", show_audit),
    ("GET", "/audit/deleted", show_deleted),
)
