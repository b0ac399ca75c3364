"""Devices, and the traces that they left."""

from collections.abc import Sequence

from pydantic import Field
from sqlalchemy import ColumnElement, false, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.answers import Answer, Count, Id, Record, Timestamp, timestamp
from api.records.page import Page, Where, columns_of, fetch
from api.records.venue import BeaconAnswer, beacons
from catalog.models import AuthenticationTrace, Beacon, DetectionTrace, Device, Venue
from catalog.soft_deletion import with_deleted


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


_DEVICE = columns_of(DeviceAnswer, Device)
Trace = AuthenticationTrace | DetectionTrace


async def devices(session: AsyncSession, where: Where, page: Page) -> list[Record]:
    """Devices, in one query."""
    found = await fetch(session, DeviceAnswer, _DEVICE, Device.id, where, page)
    for record in found:
        for name in ("token_push", "id_connector"):
            if record[name] is None:
                del record[name]
        record["create_on"] = timestamp(record["create_on"])
        record["update_on"] = timestamp(record["update_on"])
    return found


async def authentications(session: AsyncSession, device_id: int, page: Page) -> list[Record]:
    """A page of a device's authentications, the newest first: one query, two after another page.

    If the trace `after` was deleted the page is empty, because the oldest traces are deleted first.
    """
    trace = AuthenticationTrace
    older = await _older(session, trace, device_id, page.after)
    query = (
        select(trace.id, trace.create_on, trace.ip)
        .where(trace.device_id == device_id, *older)
        .order_by(trace.create_on.desc(), trace.id.desc())
        .limit(page.limit)
    )
    return [
        {"id": number, "create_on": timestamp(instant), "ip": ip or ""}
        for number, instant, ip in await session.execute(query)
    ]


async def detections(
    session: AsyncSession, company_id: int, device_id: int, page: Page
) -> list[Record]:
    """A page of a device's detections, the newest first: four queries, five after another page.

    Deleted beacons and venues are shown as they were. If a beacon belongs to another company now,
    only its id is shown; if a venue does, its name is not shown.
    """
    trace = DetectionTrace
    older = await _older(session, trace, device_id, page.after)
    query = (
        select(trace.id, trace.venue_id, trace.beacon_id, trace.status, trace.create_on, trace.ip)
        .where(trace.device_id == device_id, *older)
        .order_by(trace.create_on.desc(), trace.id.desc())
        .limit(page.limit)
    )
    rows = (await session.execute(query)).all()
    names = await _names(session, company_id, {row.venue_id for row in rows})
    known = await _beacons(session, company_id, {row.beacon_id for row in rows})
    return [
        {
            "lieu": names.get(row.venue_id, ""),
            "lieu_id": row.venue_id,
            "id": row.id,
            "beacon": known.get(row.beacon_id, {"id": row.beacon_id}),
            "status": row.status,
            "create_on": timestamp(row.create_on),
            "ip": row.ip or "",
        }
        for row in rows
    ]


async def _older(
    session: AsyncSession, trace: type[Trace], device_id: int, after: int
) -> Sequence[ColumnElement[bool]]:
    """The traces that follow the trace with this id, by time and then by id."""
    if not after:
        return ()
    query = select(trace.create_on).where(trace.id == after, trace.device_id == device_id)
    at = await session.scalar(query)
    if at is None:
        return (false(),)
    return (trace.create_on <= at, or_(trace.create_on < at, trace.id < after))


async def _names(session: AsyncSession, company_id: int, ids: set[int]) -> dict[int, str]:
    if not ids:
        return {}
    query = select(Venue.id, Venue.name).where(Venue.company_id == company_id, Venue.id.in_(ids))
    return {row.id: row.name for row in await session.execute(with_deleted(query))}


async def _beacons(session: AsyncSession, company_id: int, ids: set[int]) -> dict[int, Record]:
    if not ids:
        return {}
    where = (Venue.company_id == company_id, Beacon.id.in_(ids))
    found = await beacons(session, where, Page(limit=len(ids)), deleted=True)
    return {record["id"]: record for record in found}
