"""Venues, and the places in them: /region, and /venue for creating one."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field
from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import selectinload

from api.answers import Count, Id, NamedAnswer, Text
from api.bodies import MOST_LISTED
from api.permissions import PREFIX
from api.records import Records, Scope, Tags, add_operations
from catalog.fields import ABSENT
from catalog.index import reading
from catalog.inputs import BeaconFields, GeofenceFields, ScanTagFields, VenueInput
from catalog.limits import (
    check_geofences,
    check_open_campaigns,
    check_quiet_hours,
    check_venue_size,
)
from catalog.models import Beacon, Campaign, Geofence, ScanTag, Venue

router = APIRouter(prefix=PREFIX)
_LIST = f"A list of up to {MOST_LISTED} creates all of them or none."


class VenueAnswer(NamedAnswer):
    address: str
    active: bool
    width: Count | None
    height: Count | None
    image: Text
    time_zone: Text
    visit_silence: Count | None


async def _check_venue(
    session: AsyncSession, scope: Scope, venues: Sequence[Venue], added: bool
) -> None:
    services, company = scope.caller.services, scope.caller.company_id
    await check_quiet_hours(session, company, "time_zone")
    if added and scope.number:  # it was restored, and its places and campaigns are added with it
        limits, (venue,) = services.catalog_limits, venues
        await check_geofences(session, limits, company)
        campaigns = await session.scalars(select(Campaign.id).filter_by(venue_id=venue.id))
        reached = or_(Beacon.venue_id == venue.id, reading.targeted_by(campaigns.all()))
        await check_open_campaigns(session, limits, company, services.clock(), reached)


VENUES = Records(
    kind="venue",
    path="/region",
    other_path="/venue",
    model=Venue,
    answer=VenueAnswer,
    created=VenueInput,
    example={"name": "Library", "address": "Castelló de la Plana", "active": True, "width": 32},
    about="Deleting it deletes its places and campaigns too.",
    check=_check_venue,
)


class _PlaceAnswer(NamedAnswer):
    active: bool
    tags: list[NamedAnswer]


class BeaconInput(BeaconFields):
    """A beacon with its tags."""

    tags: Tags = ABSENT


class ExplainedBeaconAnswer(NamedAnswer):
    uuid: Annotated[str, Field(json_schema_extra={"format": "uuid"})]
    major: Count
    minor: Count


class BeaconAnswer(ExplainedBeaconAnswer, _PlaceAnswer):
    proximity: Literal["immediate", "near", "far"]
    x: int | None
    y: int | None
    color: Text


async def _check_beacons(
    session: AsyncSession, scope: Scope, beacons: Sequence[Beacon], added: bool
) -> None:
    services, company = scope.caller.services, scope.caller.company_id
    limits, now = services.catalog_limits, services.clock()
    if added:
        await check_venue_size(session, limits, Beacon, beacons[0].venue_id)
    # A campaign may have been opened since a beacon that is restored was deleted.
    gained = Beacon.id.in_([beacon.id for beacon in beacons if added or beacon.tags])
    await check_open_campaigns(session, limits, company, now, gained, "tags")


BEACONS = Records(
    kind="beacon",
    path="/region/{id}/beacon",
    model=Beacon,
    answer=BeaconAnswer,
    created=BeaconInput,
    example={
        "name": "Study desk Z",
        "uuid": "b5c4a7e0-6f0d-4c8e-9d5a-2c1f7a9e4b10",
        "major": 1,
        "minor": 260,
        "active": True,
        "proximity": "near",
        "tags": [{"name": "study"}],
    },
    about=f"{_LIST} 409: the triple is taken, perhaps by another company's beacon.",
    options=(selectinload(Beacon.tags),),
    check=_check_beacons,
    listed=True,
    unique=("uuid", "major", "minor"),
)


class GeofenceInput(GeofenceFields):
    """A geofence with its tags."""

    tags: Tags = ABSENT


class GeofenceAnswer(_PlaceAnswer):
    longitude: float
    latitude: float
    radius: Id


async def _check_geofences(session: AsyncSession, scope: Scope, _: Any, added: bool) -> None:
    if added:
        limits = scope.caller.services.catalog_limits
        await check_geofences(session, limits, scope.caller.company_id)


GEOFENCES = Records(
    kind="geofence",
    path="/region/{id}/geofencing",
    model=Geofence,
    answer=GeofenceAnswer,
    created=GeofenceInput,
    example={
        "name": "Campus",
        "longitude": -0.0672,
        "latitude": 39.9944,
        "radius": 300,
        "active": True,
    },
    about=_LIST,
    options=(selectinload(Geofence.tags),),
    check=_check_geofences,
    listed=True,
)


class ScanTagInput(ScanTagFields):
    """An NFC tag or QR code with its tags."""

    tags: Tags = ABSENT


class ScanTagAnswer(_PlaceAnswer):
    value: str


def _scan_tags(kind: Literal["nfc", "qrcode"], example: str) -> Records[ScanTag]:
    return Records(
        kind=kind,
        path=f"/region/{{id}}/{kind}",
        model=ScanTag,
        answer=ScanTagAnswer,
        created=ScanTagInput,
        example={"name": "Door", "value": example, "active": True, "tags": [{"name": "study"}]},
        about=f"{_LIST} 409: the value is another {kind}'s of the company.",
        options=(selectinload(ScanTag.tags),),
        constants={"kind": kind},
        listed=True,
        unique=("value",),
    )


NFCS = _scan_tags("nfc", "04:A2:24:B1:C8:5A:80")
QRCODES = _scan_tags("qrcode", "https://library.example/door")

for records in (VENUES, BEACONS, GEOFENCES, NFCS, QRCODES):
    add_operations(router, records)
