"""Converts a campaign between the form of a page and the form of the interface."""

from datetime import timedelta
from typing import Any

from api.console.forms import PostedForm
from api.console.pages.venue_records import comma_separated
from api.console.times import parse_time, start_of_day
from catalog.models import WEEKDAYS

_TEXTS = (
    "name",
    "title",
    "push",
    "format",
    "template",
    "url",
    "html",
    "cache",
    "start_time",
    "end_time",
)
_YEAR = timedelta(days=365)


def new_campaign(today: Any) -> dict[str, Any]:
    """The initial values of the form for a new campaign."""
    texts = dict.fromkeys(_TEXTS, "")
    return {
        **texts,
        **dict.fromkeys(WEEKDAYS, True),
        "format": "url",
        "cache": "day",
        "start_time": "09:00",
        "end_time": "18:00",
        "start_day": str(today),
        "end_day": str(today + _YEAR),
        "start": "",
        "end": "",
        "active": True,
        "beacons": [],
        "tags": [],
    }


def stored_campaign(record: dict[str, Any]) -> dict[str, Any]:
    """The values of the form for a stored campaign."""
    days = {f"{name}_day": str(parse_time(record[name]).date()) for name in ("start", "end")}
    return record | days


def submitted_campaign(form: PostedForm, zone: str) -> dict[str, Any]:
    """The submitted campaign, as the body of a request to the interface.

    If a date was not changed, its stored instant is sent again, with the stored offset.
    """
    return {
        **form.texts(_TEXTS),
        **{name: _instant(form, name, zone) for name in ("start", "end")},
        **{day: form.is_on(day) for day in WEEKDAYS},
        "active": form.is_on("active"),
        "beacons": form.numbers("beacons"),
        "tags": [{"name": name} for name in comma_separated(form.text("tags"))],
    }


def redisplayed_campaign(form: PostedForm, values: dict[str, Any]) -> dict[str, Any]:
    """The submitted values, to show the form again with the faults."""
    dates = {name: form.text(name) for name in ("start", "end", "start_day", "end_day")}
    return values | dates | {"beacons": [{"id": number} for number in values["beacons"]]}


def _instant(form: PostedForm, name: str, zone: str) -> str:
    stored, day = form.text(name), form.text(f"{name}_day")
    return stored if day and stored.startswith(f"{day}T") else start_of_day(day, zone)
