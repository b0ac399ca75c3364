"""The CRM: devices, what they did, their test flag, and their deletion."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from sqlalchemy import and_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import joinedload, load_only, selectinload
from starlette.responses import Response

from api.answers import (
    Answer,
    Count,
    DoneAnswer,
    Id,
    NamedAnswer,
    ReasonName,
    Record,
    Text,
    Timestamp,
    ZoneName,
    bad_fields,
)
from api.bodies import LISTING, FromZero, Listing, OwnId, Searched, accepted, accepts
from api.permissions import PREFIX, Caller, may_read, may_write
from api.reports import HeldData
from api.tenancy import assign, find, listed, of_company, writing
from api.venues import BeaconAnswer
from catalog.fields import Fields
from catalog.inputs import Flag, TimeZone
from catalog.models import (
    AuthenticationTrace,
    Beacon,
    Campaign,
    DetectionTrace,
    Device,
    Geofence,
    ScanTag,
    Venue,
)
from catalog.session import with_deleted
from catalog.statistics import PLACES
from rules.model import PlaceKind, StoredDecision
from rules.schedule import zone_clock

router = APIRouter(prefix=f"{PREFIX}/crm", tags=["crm"])
Writer = Annotated[Caller, may_write("device")]
Reader = Annotated[Caller, may_read("device")]
Traces = Annotated[
    int, Query(ge=1, le=1000, description="The most entries of `auth` and of `beacon`.")
]
_NEWEST = 100


class DeviceUpdate(Fields):
    """The test flag of a device: alone, or in `device` or `datas`, as its detail was read."""

    test: Flag
    time_zone: TimeZone = None


class DeviceAnswer(Answer):
    """A device. `token_push` and `id_connector` are absent if the device has none."""

    id: Id
    nb_beacon: Count
    nb_campaign: Count
    udid: str
    token_push: str | None = Field(None, exclude_if=lambda value: value is None)
    name: Text
    version: Text
    model: Text
    id_connector: int | None = Field(None, exclude_if=lambda value: value is None)
    time_zone: Text
    create_on: Timestamp
    update_on: Timestamp
    test: bool


class AuthenticationTraceAnswer(Answer):
    id: Id
    create_on: Timestamp
    ip: Text


class BeaconIdAnswer(Answer):
    id: Id


class _TraceAnswer(AuthenticationTraceAnswer):
    lieu: str = Field(description="Empty if the venue is not the company's.")
    lieu_id: Id


class BeaconTraceAnswer(_TraceAnswer):
    """The device detected a beacon. Deleted beacons and venues are shown as they were."""

    beacon: BeaconAnswer | BeaconIdAnswer
    status: str


class PlaceTraceAnswer(_TraceAnswer):
    """The device detected a geofence, NFC tag or QR code."""

    kind: Literal["geofence", "nfc", "qrcode"]
    place: NamedAnswer = Field(description="A deleted one keeps its name.")


class DeviceDetailAnswer(Answer):
    device: list[DeviceAnswer]
    auth: list[AuthenticationTraceAnswer]
    beacon: list[BeaconTraceAnswer]
    place: list[PlaceTraceAnswer]


class HeldDataAnswer(Answer):
    """How much is stored about a device. Topics delete messages by age, not one by one."""

    detections: Count = Field(description="Traces of detections.")
    authentications: Count = Field(description="Traces of authentications.")
    presences: Count = Field(description="Beacons at which it was last seen.")
    keys: Count = Field(
        description="Claims, the last decisions, and a copy of the record, in Redis."
    )
    kafka: Literal["bounded", "unbounded", "unknown"] = Field(
        description="Whether topics delete messages by age; unknown if no broker reports it."
    )
    kafka_until: Timestamp | None = Field(
        description="When Kafka has deleted all messages of today; null where `kafka` is not "
        "`bounded`."
    )


class ForgottenAnswer(HeldDataAnswer, DoneAnswer):
    """The amount of deleted data."""


class CampaignOutcomeAnswer(NamedAnswer):
    """A campaign and the reason of its outcome. A deleted one keeps its name."""

    outcome: ReasonName


class DecisionAnswer(Answer):
    detected_at: Timestamp
    decided_at: Timestamp
    lieu: str = Field(description="The venue's name.")
    kind: PlaceKind = Field(description="What kind of place `beacon` is.")
    beacon: NamedAnswer = Field(description="The place. A deleted one keeps its name.")
    proximity: ZoneName
    reason: ReasonName = Field(
        description="The furthest check that any campaign reached, or the one that refused the "
        "detection."
    )
    campaigns: list[CampaignOutcomeAnswer] = Field(
        description="The outcome of each campaign; empty if the detection was refused."
    )


@router.get("", response_model=list[DeviceAnswer])
async def list_devices(
    caller: Reader,
    listing: Listing = LISTING,
    udid: Annotated[
        Searched | None, Query(description="Only the device with this udid, if there is one.")
    ] = None,
) -> Response:
    """The company's devices."""
    query = of_company(Device, caller.company_id)
    if udid is not None:
        query = query.where(Device.udid == udid)
    return await listed(caller, query, DeviceAnswer, listing)


@router.get("/{id}", response_model=DeviceDetailAnswer)
async def get_device(
    caller: Reader,
    number: OwnId,
    limit: Traces = _NEWEST,
    after: Annotated[
        FromZero, Query(description="The id of the oldest in `beacon` and `place`.")
    ] = 0,
    after_auth: Annotated[
        FromZero, Query(description="The last id of the previous page of `auth`.")
    ] = 0,
) -> Any:
    """A device and its traces, the newest first.

    `after` continues the lists `beacon` and `place`, whose ids are distinct, `after_auth` the list
    `auth`.
    """
    async with caller.services.database.read() as session:
        device = await find(session, of_company(Device, caller.company_id), number)
        return await _detail(session, device, limit, after, after_auth)


@router.put(
    "/{id}",
    response_model=DeviceDetailAnswer,
    openapi_extra=accepts(DeviceUpdate, {"test": True}),
)
async def update_device(caller: Writer, number: OwnId, limit: Traces = _NEWEST) -> Any:
    """Set the test flag, and the time zone if it is given; only devices change anything else."""
    values = _update_of(await caller.body(), number)
    async with writing(caller.services) as session:
        device = await find(session, of_company(Device, caller.company_id), number, lock=True)
        if any(getattr(device, name) != value for name, value in values.items()):
            assign(device, values | {"update_on": caller.services.clock()})
            await session.flush()
        return await _detail(session, device, limit)


@router.delete("/{id}", response_model=ForgottenAnswer)
async def delete_device(caller: Writer, number: OwnId) -> Any:
    """Forget the device's person: the record, its traces, its claims and decisions.

    Daily figures stay: they name no device. Kafka keeps its messages until `kafka_until`, and a
    device that is detected again gets a new record. After a 503 some traces may be deleted
    already; try again.
    """
    return await _held(caller, number, caller.services.forget_device)


@router.get("/{id}/held", response_model=HeldDataAnswer)
async def get_held_data(caller: Reader, number: OwnId) -> Any:
    """How much is stored about the device's person, and until when Kafka keeps its messages."""
    return await _held(caller, number, caller.services.held_data)


@router.get("/{id}/decisions", response_model=list[DecisionAnswer])
async def list_decisions(caller: Reader, number: OwnId) -> Any:
    """The decisions on the device's last detections of the last day, the newest first.

    Exact repeats are left out: a device that stays at a beacon with the same outcome. A setting of
    the service limits how many are kept, and may be 0. Under high load more are left out.
    """
    kept = await caller.services.recent_decisions(caller.company_id, await _udid(caller, number))
    async with caller.services.database.read() as session:
        return await shown_decisions(session, caller.company_id, kept)


def _update_of(body: Any, number: int) -> Record:
    """The fields of DeviceUpdate, wherever they are. Raises ApiError 400."""
    name = "device" if isinstance(body, dict) and "device" in body else "datas"
    if not isinstance(body, dict) or name not in body:
        return accepted(DeviceUpdate, body)
    items = body[name] if isinstance(body[name], list) else [body[name]]
    for place, item in enumerate(items):
        if isinstance(item, dict) and item.get("id", number) in (number, str(number)):
            return accepted(DeviceUpdate, item, place=f"{name}[{place}]")
    message = "accepted: an array with this device and its test flag, or the flag alone as test"
    raise bad_fields({name: message})


async def _detail(
    session: AsyncSession, device: Device, limit: int, after: int = 0, after_auth: int = 0
) -> Record:
    of, own = DetectionTrace, Venue.company_id == device.company_id
    query = (
        select(of, Venue, Beacon, Geofence, ScanTag)
        .outerjoin(Venue, and_(Venue.id == of.venue_id, own))
        .outerjoin(Beacon, and_(Beacon.id == of.beacon_id, Beacon.venue_id == Venue.id))
        .outerjoin(Geofence, and_(Geofence.id == of.geofence_id, Geofence.venue_id == Venue.id))
        .outerjoin(ScanTag, and_(ScanTag.id == of.scan_tag_id, ScanTag.venue_id == Venue.id))
        .options(selectinload(Beacon.tags))
    )
    traces: Any = await session.execute(with_deleted(_newest(query, of, device.id, after, limit)))
    auth = _newest(select(AuthenticationTrace), AuthenticationTrace, device.id, after_auth, limit)
    at_beacons, at_places = [], []
    for trace, venue, beacon, fence, tag in traces:
        shown = {
            "lieu": venue.name if venue else "",
            "lieu_id": trace.venue_id,
            "id": trace.id,
            "create_on": trace.create_on,
            "ip": trace.ip,
        }
        if trace.beacon_id:
            seen = {"beacon": beacon or {"id": trace.beacon_id}, "status": trace.status}
            at_beacons.append(shown | seen)
            continue
        kind = "geofence" if trace.geofence_id else getattr(tag, "kind", "nfc")
        number, name = trace.geofence_id or trace.scan_tag_id, getattr(fence or tag, "name", "")
        at_places.append(shown | {"kind": kind, "place": {"id": number, "name": name}})
    return {
        "device": [device],
        "auth": (await session.scalars(auth)).all(),
        "beacon": at_beacons,
        "place": at_places,
    }


def _newest(query: Any, trace: Any, device_id: int, after: int, limit: int) -> Any:
    """A page of a device's traces, the newest first.

    If the trace `after` was deleted the page is empty, because the oldest are deleted first.
    """
    query = query.where(trace.device_id == device_id)
    if after:
        last = select(trace.create_on, trace.id).where(trace.id == after)
        last = last.where(trace.device_id == device_id)
        query = query.where(tuple_(trace.create_on, trace.id) < last.scalar_subquery())
    return query.order_by(trace.create_on.desc(), trace.id.desc()).limit(limit)


async def _with_deleted(
    session: AsyncSession, model: Any, company_id: int, ids: Iterable[int], *options: Any
) -> dict[int, Any]:
    """Those of the records that are the company's, deleted ones included, by id."""
    query = of_company(model, company_id).where(model.id.in_(ids)).options(*options)
    return {found.id: found for found in await session.scalars(with_deleted(query))}


async def _udid(caller: Caller, number: int) -> str:
    async with caller.services.database.read() as session:
        return (await find(session, of_company(Device, caller.company_id), number)).udid


async def _held(
    caller: Caller, number: int, work: Callable[[int, str], Awaitable[HeldData]]
) -> Record:
    data = await work(caller.company_id, await _udid(caller, number))
    longest = data.kafka.longest
    return {
        "detections": data.detections,
        "authentications": data.authentications,
        "presences": data.presences,
        "keys": data.keys,
        "kafka": data.kafka.kind,
        "kafka_until": None if longest is None else caller.services.clock() + longest,
    }


async def shown_decisions(
    session: AsyncSession, company_id: int, decisions: Sequence[StoredDecision]
) -> list[Record]:
    """Decisions about a device, as the interface and `proximity device` show them."""
    places: dict[tuple[str, int], Any] = {}
    for kind, model in PLACES.items():
        heard = {each.beacon for each in decisions if each.kind == kind}
        venue = joinedload(model.venue)
        found = await _with_deleted(session, model, company_id, heard, venue)
        places |= {(kind, number): record for number, record in found.items()}
    numbers = {n for each in decisions for listed in each.campaigns.values() for n in listed}
    name = load_only(Campaign.name)
    campaigns = await _with_deleted(session, Campaign, company_id, numbers, name)
    return [_shown(each, places.get((each.kind, each.beacon)), campaigns) for each in decisions]


def _shown(kept: StoredDecision, place: Any, campaigns: Mapping[int, Any]) -> Record:
    venue = None if place is None else place.venue
    written = zone_clock((venue and venue.time_zone) or "UTC").written
    return {
        "detected_at": written(kept.detected_at),
        "decided_at": written(kept.decided_at),
        "lieu": "" if venue is None else venue.name,
        "kind": kept.kind,
        "beacon": {"id": kept.beacon, "name": getattr(place, "name", "")},
        "proximity": kept.zone.name.lower(),
        "reason": kept.reason,
        "campaigns": [
            {"id": number, "name": getattr(campaigns.get(number), "name", ""), "outcome": outcome}
            for outcome, numbers in kept.campaigns.items()
            for number in numbers
        ],
    }
