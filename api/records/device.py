"""Devices, and the traces that they left."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, false, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.answers import timestamp
from api.records.page import Page, Record, fetch, with_texts
from api.records.venue import beacons
from catalog.models import AuthenticationTrace, Beacon, DetectionTrace, Device, Venue
from catalog.soft_deletion import with_deleted

_DEVICE = select(
    Device.id,
    Device.nb_beacon,
    Device.nb_campaign,
    Device.udid,
    Device.token_push,
    Device.name,
    Device.version,
    Device.model,
    Device.id_connector,
    Device.create_on,
    Device.update_on,
    Device.test,
)
Trace = AuthenticationTrace | DetectionTrace
_PRESENT_ON_SOME = ("token_push", "id_connector")


async def devices(
    session: AsyncSession, where: Sequence[ColumnElement[bool]], page: Page
) -> list[Record]:
    """Devices: one query."""
    found = await fetch(session, _DEVICE, Device.id, where, page)
    return [_told(row) for row in with_texts(found, ("name", "version", "model"))]


async def authentications(session: AsyncSession, device_id: int, page: Page) -> list[Record]:
    """A page of a device's authentications, the newest first: one query, two behind another page.

    Behind a trace that is gone there is nothing: traces go the oldest first.
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
    """A page of a device's detections, the newest first: four queries, five behind another page.

    Deleted beacons and venues are told as they were. A beacon that is another company's now is
    told by its id alone, and such a venue has no name.
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
    """What follows the trace of this id, by time and then by id."""
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


def _told(row: dict[str, Any]) -> Record:
    for name in _PRESENT_ON_SOME:
        if row[name] is None:
            del row[name]
    row["create_on"] = timestamp(row["create_on"])
    row["update_on"] = timestamp(row["update_on"])
    return row
