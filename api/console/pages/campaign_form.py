"""The form of a campaign: what is typed there, as the interface takes it, and the other way."""

from datetime import timedelta
from typing import Any

from api.console.forms import PostedForm
from api.console.moments import begin_of_day, read_moment
from api.console.pages.places import named
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
    """What the form of a new campaign begins with."""
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
    """A campaign as the form shows it."""
    days = {f"{name}_day": str(read_moment(record[name]).date()) for name in ("start", "end")}
    return record | days


def given_campaign(form: PostedForm, zone: str) -> dict[str, Any]:
    """What was typed, as the interface takes it.

    A day that was not changed stays the instant that it was, with the offset it was written in.
    """
    return {
        **form.texts(_TEXTS),
        **{name: _instant(form, name, zone) for name in ("start", "end")},
        **{day: form.is_on(day) for day in WEEKDAYS},
        "active": form.is_on("active"),
        "beacons": form.numbers("beacons"),
        "tags": [{"name": name} for name in named(form.text("tags"))],
    }


def typed_campaign(form: PostedForm, given: dict[str, Any]) -> dict[str, Any]:
    """What was typed, for the form to show it again."""
    kept = {name: form.text(name) for name in ("start", "end", "start_day", "end_day")}
    return given | kept | {"beacons": [{"id": number} for number in given["beacons"]]}


def _instant(form: PostedForm, name: str, zone: str) -> str:
    stored, day = form.text(name), form.text(f"{name}_day")
    return stored if day and stored.startswith(f"{day}T") else begin_of_day(day, zone)
