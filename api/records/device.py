"""Devices, and the traces that they left."""

from collections.abc import Collection
from typing import Any

from pydantic import Field
from sqlalchemy import bindparam, or_, select

from api.answers import Answer, Count, Id, Record, Timestamp, timestamp
from api.records.page import Columns, Page, RecordKind, columns_of
from api.records.venue import BeaconAnswer, beacons_with_deleted
from catalog.models import AuthenticationTrace, DetectionTrace, Device, Venue
from catalog.models.base import Id as IdColumn
from catalog.models.base import Instant
from catalog.reading import Reader, Reading


class DeviceAnswer(Answer):
    """A device. `token_push` and `id_connector` are absent if the device has none."""

    id: Id
    nb_beacon: Count
    nb_campaign: Count
    udid: str
    token_push: str = ""
    name: str
    version: str
    model: str
    id_connector: int = 0
    create_on: Timestamp
    update_on: Timestamp
    test: bool


class AuthenticationTraceAnswer(Answer):
    id: Id
    create_on: Timestamp
    ip: str


class BeaconIdAnswer(Answer):
    """A beacon that was deleted, or is another company's now."""

    id: Id


class BeaconTraceAnswer(Answer):
    lieu: str = Field(description="Empty if the venue was deleted.")
    lieu_id: Id
    id: Id
    beacon: BeaconAnswer | BeaconIdAnswer
    status: str
    create_on: Timestamp
    ip: str


class DeviceDetailAnswer(Answer):
    device: list[DeviceAnswer]
    auth: list[AuthenticationTraceAnswer]
    beacon: list[BeaconTraceAnswer]


def _shown(_reader: Reader, found: list[Record]) -> list[Record]:
    for record in found:
        for name in ("token_push", "id_connector"):
            if record[name] is None:
                del record[name]
        record["create_on"] = timestamp(record["create_on"])
        record["update_on"] = timestamp(record["update_on"])
    return found


def _kind(columns: Columns) -> RecordKind:
    return RecordKind(
        "device",
        DeviceAnswer,
        columns,
        key=Device.id,
        company=Device.company_id,
        complete=_shown,
    )


_DEVICE = columns_of(DeviceAnswer, Device)
DEVICES = _kind(_DEVICE)
# Reading takes `udid` as a parameter.
DEVICES_OF_UDID = _kind(_DEVICE.where(Device.udid == bindparam("udid")))
Trace = type[AuthenticationTrace] | type[DetectionTrace]


class _NewestTraces:
    """The readings of a device's traces, page by page, the newest first."""

    def __init__(self, trace: Trace, *columns: Any) -> None:
        of_device = trace.device_id == bindparam("device")
        newest_first = (trace.create_on.desc(), trace.id.desc())
        page = select(trace.id, trace.create_on, trace.ip, *columns).where(of_device)
        page = page.order_by(*newest_first).limit(bindparam("limit"))
        before, at = bindparam("after", type_=IdColumn), bindparam("at", type_=Instant)
        older = (trace.create_on <= at, or_(trace.create_on < at, trace.id < before))
        self._newest = Reading(page)
        self._older = Reading(page.where(*older))
        self._last = Reading(select(trace.create_on).where(trace.id == before, of_device))

    def page(self, reader: Reader, device_id: int, page: Page) -> list[Record]:
        """One query, two after another page.

        If the trace `after` was deleted the page is empty, because the oldest traces are deleted
        first.
        """
        if not page.after:
            return reader.rows(self._newest, device=device_id, limit=page.limit)
        last = reader.row(self._last, device=device_id, after=page.after)
        if last is None:
            return []
        at = last["create_on"]
        return reader.rows(self._older, device=device_id, at=at, **page._asdict())


_AUTHENTICATIONS = _NewestTraces(AuthenticationTrace)
_DETECTIONS = _NewestTraces(
    DetectionTrace, DetectionTrace.venue_id, DetectionTrace.beacon_id, DetectionTrace.status
)
_VENUE_NAMES = Reading(
    select(Venue.id, Venue.name).where(
        Venue.company_id == bindparam("company"),
        Venue.id.in_(bindparam("venues", expanding=True)),
    ),
    deleted=True,
)


def authentications(reader: Reader, device_id: int, page: Page) -> list[Record]:
    """A page of a device's authentications, the newest first: one query, two after another page."""
    return [
        {"id": row["id"], "create_on": timestamp(row["create_on"]), "ip": row["ip"] or ""}
        for row in _AUTHENTICATIONS.page(reader, device_id, page)
    ]


def detections(reader: Reader, company_id: int, device_id: int, page: Page) -> list[Record]:
    """A page of a device's detections, the newest first: four queries, five after another page.

    Deleted beacons and venues are shown as they were. If a beacon belongs to another company now,
    only its id is shown; if a venue does, its name is not shown.
    """
    rows = _DETECTIONS.page(reader, device_id, page)
    names = _venue_names(reader, company_id, {row["venue_id"] for row in rows})
    heard = beacons_with_deleted(reader, company_id, {row["beacon_id"] for row in rows})
    known = {beacon["id"]: beacon for beacon in heard}
    return [
        {
            "lieu": names.get(row["venue_id"], ""),
            "lieu_id": row["venue_id"],
            "id": row["id"],
            "beacon": known.get(row["beacon_id"], {"id": row["beacon_id"]}),
            "status": row["status"],
            "create_on": timestamp(row["create_on"]),
            "ip": row["ip"] or "",
        }
        for row in rows
    ]


def _venue_names(reader: Reader, company_id: int, ids: Collection[int]) -> dict[int, str]:
    if not ids:
        return {}
    found = reader.rows(_VENUE_NAMES, company=company_id, venues=list(ids))
    return {row["id"]: row["name"] for row in found}
