"""The fields of campaigns, and how they are kept.

What is required is the interface's affair and said by `required`; a catalog file asks less of
weekdays and hours (catalog.load).
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from catalog.fields.display import colour, link
from catalog.fields.reading import Field
from catalog.fields.values import (
    boolean,
    cache,
    choice,
    json_list,
    line,
    text,
    time_of_day,
    timestamp,
)
from catalog.fields.venue import names
from catalog.models import EVERY_DAY, WEEKDAYS
from catalog.models.base import offset_minutes
from rules.cache_delay import parse_delay

_text = text(None)
_source = text(None, shortest=0)

TIES = ("beacons", "geofencings", "tags")
HOURS = (
    Field(name="start_time", attribute="start_minute", read=time_of_day(end=False), required=True),
    Field(name="end_time", attribute="end_minute", read=time_of_day(end=True), required=True),
)
DAYS = tuple(
    Field(name=day, also=("thuesday",) if day == "tuesday" else (), read=boolean, required=True)
    for day in WEEKDAYS
)
CAMPAIGN = (
    Field(name="name", read=line(), required=True),
    Field(name="hash", read=line(255, shortest=0), nullable=True, blank=True),
    Field(name="push", read=_text, required=True),
    Field(name="title", read=_text, required=True),
    Field(name="format", read=choice("template", "url", "html", "connector"), required=True),
    Field(name="template", read=_source, nullable=True, blank=True),
    Field(name="url", read=link, nullable=True, blank=True),
    Field(name="html", read=_source, nullable=True, blank=True),
    Field(name="background", read=colour, nullable=True, blank=True),
    Field(name="color", read=colour, nullable=True, blank=True),
    Field(name="cache", read=cache, required=True),
    Field(name="start", read=timestamp, required=True),
    Field(name="end", read=timestamp, required=True),
    Field(name="active", read=boolean, required=True),
    Field(name="nfcs", read=json_list),
    Field(name="qrcodes", read=json_list),
    Field(name="tags", read=names),
)


def campaign_columns(values: Mapping[str, Any], *, weekdays: int = EVERY_DAY) -> dict[str, Any]:
    """The model's columns for values that were read.

    `weekdays` is the mask that days that are not given keep. Ties to other records (tags,
    beacons, geofencings) are left out.
    """
    columns = {key: value for key, value in values.items() if key not in (*WEEKDAYS, *TIES)}
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
    """What is wrong with the fields together, those already stored included: (field, message)."""
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
