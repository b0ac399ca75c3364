"""The fields of campaigns, and how they are stored.

Weekdays and hours may be absent from a catalog file; the interface requires more (api.requests).
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import AliasChoices, Field

from catalog.fields.base import ABSENT, Fields
from catalog.fields.reader import BLANK_IS_NULL
from catalog.fields.texts import choice, json_list, line, link, text
from catalog.fields.values import cache, time_of_day, timestamp
from catalog.fields.venue import Colour, Flag, Name
from catalog.models import EVERY_DAY, WEEKDAYS
from catalog.models.base import offset_minutes
from rules.cache_delay import parse_delay

Text = Annotated[str, text(None)]
Source = Annotated[Annotated[str, text(None, shortest=0)] | None, BLANK_IS_NULL]
CacheDelay = Annotated[str, cache]
Instant = Annotated[datetime, timestamp]
JsonList = Annotated[list[Any], json_list]
StartMinute = Annotated[int, time_of_day(end=False)]
EndMinute = Annotated[int, time_of_day(end=True)]
REFERENCES = ("beacons", "geofencings", "tags")


class CampaignFields(Fields):
    """A campaign without its references to other records."""

    name: Name
    hash: Annotated[Annotated[str, line(255, shortest=0)] | None, BLANK_IS_NULL] = None
    push: Text
    title: Text
    format: Annotated[str, choice("template", "url", "html", "connector")]
    template: Source = None
    url: Annotated[Annotated[str, link] | None, BLANK_IS_NULL] = None
    html: Source = None
    background: Colour = None
    color: Colour = None
    cache: CacheDelay
    start: Instant
    end: Instant
    active: Flag
    start_minute: StartMinute = Field(ABSENT, validation_alias="start_time")
    end_minute: EndMinute = Field(ABSENT, validation_alias="end_time")
    monday: Flag = ABSENT
    tuesday: Flag = Field(ABSENT, validation_alias=AliasChoices("tuesday", "thuesday"))
    wednesday: Flag = ABSENT
    thursday: Flag = ABSENT
    friday: Flag = ABSENT
    saturday: Flag = ABSENT
    sunday: Flag = ABSENT
    nfcs: JsonList = ABSENT
    qrcodes: JsonList = ABSENT


def campaign_columns(values: Mapping[str, Any], *, weekdays: int = EVERY_DAY) -> dict[str, Any]:
    """The model's columns for values that were read.

    `weekdays` is the mask for the weekdays that are not given. References to other records (tags,
    beacons, geofencings) are left out.
    """
    columns = {key: value for key, value in values.items() if key not in (*WEEKDAYS, *REFERENCES)}
    for name in ("start", "end"):
        if name in columns:
            written: datetime = columns.pop(name)
            columns[f"{name}_at"], columns[f"{name}_offset"] = written, offset_minutes(written)
    if "cache" in columns:
        columns["delay"] = parse_delay(columns["cache"])
    for bit, day in enumerate(WEEKDAYS):
        if day in values:
            weekdays = weekdays | 1 << bit if values[day] else weekdays & ~(1 << bit)
    return columns | {"weekdays": weekdays}


def campaign_conflicts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Faults in the combination of fields, stored ones included, as (field, message) pairs."""
    conflicts = []
    content = values.get("format")
    if content in ("template", "url", "html") and not (values.get(content) or "").strip():
        conflicts.append((content, f"required with format {content}, and empty or not given"))
    start, end = values.get("start"), values.get("end")
    if start is not None and end is not None and _last(end) <= start:
        conflicts.append(("end", "accepted: an instant after start"))
    return conflicts


def _last(end: datetime) -> datetime:
    at_midnight = (end.hour, end.minute, end.second) == (0, 0, 0)
    try:
        return end + timedelta(days=1) if at_midnight else end
    except OverflowError:
        return end
