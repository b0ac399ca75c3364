"""Venues, and the places in them: /region, and /venue for creating one."""

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import selectinload

from api.answers import Answer, Count, Id, NamedAnswer, Text
from api.bodies import MOST_LISTED
from api.permissions import PREFIX, AuthorizedCaller
from api.records import Records, Tags, add_operations
from catalog.fields import ABSENT
from catalog.inputs import BeaconFields, GeofenceFields, ScanTagFields, VenueInput
from catalog.limits import check_beacon, check_geofences, check_quiet_hours, check_venue_size
from catalog.models import Beacon, Geofence, ScanTag, Venue

router = APIRouter(prefix=PREFIX)
_LIST = f"A list of up to {MOST_LISTED} creates all of them or none."


class VenueAnswer(Answer):
    id: Id
    name: str
    address: str
    active: bool
    width: Count | None
    height: Count | None
    image: Text
    time_zone: Text
    visit_silence: Count | None


async def _check_venue(session: AsyncSession, caller: AuthorizedCaller, _venue: Venue) -> None:
    await check_quiet_hours(session, caller.company_id, "time_zone")


VENUES = Records(
    kind="venue",
    path="/region",
    other_path="/venue",
    model=Venue,
    answer=VenueAnswer,
    created=VenueInput,
    example={
        "name": "Library",
        "address": "Castelló de la Plana",
        "active": True,
        "width": 32,
    },
    about="Deleting it deletes its places and campaigns too.",
    check=_check_venue,
)


class BeaconInput(BeaconFields):
    """A beacon with its tags."""

    tags: Tags = ABSENT


class BeaconAnswer(Answer):
    id: Id
    name: str
    uuid: Annotated[str, Field(json_schema_extra={"format": "uuid"})]
    major: Count
    minor: Count
    active: bool
    proximity: Literal["immediate", "near", "far"]
    x: int | None
    y: int | None
    color: Text
    tags: list[NamedAnswer]


async def _check_beacon(session: AsyncSession, caller: AuthorizedCaller, beacon: Beacon) -> None:
    limits, now = caller.services.catalog_limits, caller.services.clock()
    if beacon.tags:
        await check_beacon(session, limits, caller.company_id, beacon, now)


async def _check_beacons(session: AsyncSession, caller: AuthorizedCaller, beacon: Beacon) -> None:
    await check_venue_size(session, caller.services.catalog_limits, Beacon, beacon.venue_id)


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
    check=_check_beacon,
    check_size=_check_beacons,
    listed=True,
    unique=("uuid", "major", "minor"),
)


class GeofenceInput(GeofenceFields):
    """A geofence with its tags."""

    tags: Tags = ABSENT


class GeofenceAnswer(Answer):
    id: Id
    name: str
    longitude: float
    latitude: float
    radius: Id
    active: bool
    tags: list[NamedAnswer]


async def _check_geofences(session: AsyncSession, caller: AuthorizedCaller, _: Geofence) -> None:
    await check_geofences(session, caller.services.catalog_limits, caller.company_id)


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
    check_size=_check_geofences,
    listed=True,
)


class ScanTagInput(ScanTagFields):
    """An NFC tag or QR code with its tags."""

    tags: Tags = ABSENT


class ScanTagAnswer(Answer):
    id: Id
    name: str
    value: str
    active: bool
    tags: list[NamedAnswer]


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
