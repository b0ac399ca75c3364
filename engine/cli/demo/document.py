"""The demo's catalog document: data/catalog.json with its dates and times filled in."""

import json
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Any
from zoneinfo import ZoneInfo

ZONE = ZoneInfo("Europe/Madrid")
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NOT_TODAY = "{not_today}"


def demo_document(
    now: datetime,
    *,
    connector: str = "https://library.example/loans",
    password: str = "of no account",  # noqa: S107
) -> dict[str, Any]:
    """The document for a demo that runs at `now` (aware); `connector` is the url of the customer's
    service, `password` that of the account."""
    written = files("engine.cli.demo").joinpath("data/catalog.json").read_text(encoding="utf-8")
    local = now.astimezone(ZONE)
    words = _words(local) | {"{connector}": connector, "{password}": password}
    filled: dict[str, Any] = _filled(json.loads(written), words, _days(local))
    return filled


def _words(local: datetime) -> dict[str, str]:
    days = {"a_month_ago": -30, "last_week": -7, "next_week": 7, "in_a_month": 30}
    hours = {"in_two_hours": 2, "in_four_hours": 4}
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    return {
        **{f"{{{word}}}": _written(midnight + timedelta(days=n)) for word, n in days.items()},
        **{f"{{{w}}}": f"{local + timedelta(hours=n):%H:%M}" for w, n in hours.items()},
    }


def _written(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S%z}"


def _days(local: datetime) -> dict[str, bool]:
    """Every weekday but today and tomorrow: the demo may run over midnight."""
    near = {local.weekday(), (local.weekday() + 1) % 7}
    return {name: number not in near for number, name in enumerate(_WEEKDAYS)}


def _filled(value: Any, words: dict[str, str], days: dict[str, bool]) -> Any:
    if isinstance(value, list):
        return [_filled(item, words, days) for item in value]
    if isinstance(value, dict):
        return {
            key: days[key] if item == _NOT_TODAY else _filled(item, words, days)
            for key, item in value.items()
        }
    return words.get(value, value) if isinstance(value, str) else value
