"""The CRM: devices, what they did, their test flag, and their deletion."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Any, NamedTuple

import structlog
from fastapi import APIRouter, Query
from redis.exceptions import RedisError
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import Record, answer
from api.body import raise_faults
from api.errors import bad_fields, not_found, unavailable
from api.openapi.operations import operation
from api.permissions import AuthorizedCaller, may_read, may_write
from api.plain_route import PlainRoute
from api.records import device
from api.records.decision import DecisionAnswer, shown_decisions
from api.records.device import DeviceAnswer, DeviceDetailAnswer
from api.records.held import ForgottenAnswer, HeldDataAnswer, shown_held
from api.records.page import Page
from api.requests import DeviceUpdate
from api.retrieval import After, Limit, listed
from api.routes.parameters import PREFIX, DeviceId
from api.writing import write
from catalog.fields.base import Faults, read_fields
from catalog.fields.values import INT64
from catalog.forgetting import DeviceData
from catalog.models import Device
from catalog.reading import Reader, read, read_within

router = APIRouter(route_class=PlainRoute, prefix=PREFIX, tags=["crm"])
_log = structlog.get_logger(__name__)
Traces = Annotated[
    int,
    Query(ge=1, le=1000, description="The most entries of `auth` and of `beacon`."),
]
AfterDetection = Annotated[
    int,
    Query(
        ge=0, le=INT64, description="Older entries of `beacon`: the last id of the previous page."
    ),
]
AfterAuthentication = Annotated[
    int,
    Query(ge=0, le=INT64, description="Older entries of `auth`: the last id of the previous page."),
]
Udid = Annotated[str | None, Query(description="Only the device with this udid, if there is one.")]
_LONGEST_UDID = 255
_NEWEST = 100
_ACCEPTED = "accepted: an array with this device and its test flag, or the flag alone as test"


@router.get("/crm", **operation("List devices", list[DeviceAnswer]))
async def list_devices(
    caller: Annotated[AuthorizedCaller, may_read("device")],
    limit: Limit = None,
    after: After = 0,
    udid: Udid = None,
) -> Response:
    """The company's devices."""
    if udid is None:
        return await listed(caller, device.DEVICES, after=after, limit=limit)
    if "\0" in udid or len(udid) > _LONGEST_UDID:
        raise bad_fields({"udid": f"accepted: at most {_LONGEST_UDID} characters, no NUL"})
    return await listed(caller, device.DEVICES_OF_UDID, after=after, limit=limit, udid=udid)


@router.get("/crm/{id}", **operation("Get device", DeviceDetailAnswer))
async def get_device(
    caller: Annotated[AuthorizedCaller, may_read("device")],
    number: DeviceId,
    limit: Traces = _NEWEST,
    after: AfterDetection = 0,
    after_auth: AfterAuthentication = 0,
) -> Response:
    """A device and its traces, the newest first.

    `after` continues the list `beacon`, `after_auth` the list `auth`.
    """
    pages = _TracePages(auth=Page(after_auth, limit), beacon=Page(after, limit))
    detail = partial(_detail, caller.company_id, number, pages)
    return answer(await read(caller.services.database, detail))


@router.get("/crm/{id}/decisions", **operation("List decisions", list[DecisionAnswer]))
async def list_decisions(
    caller: Annotated[AuthorizedCaller, may_read("device")], number: DeviceId
) -> Response:
    """The decisions on the device's last detections of the last day, the newest first.

    Exact repeats are left out: a device that stays at a beacon with the same outcome. A setting of
    the service limits how many are kept, and may be 0. Under high load more are left out.
    """
    services, company = caller.services, caller.company_id
    udid = await _udid(caller, number)
    try:
        kept = await services.recent_decisions(company, udid)
    except (RedisError, OSError, TimeoutError) as error:
        _log.error("decisions cannot be read", error=type(error).__name__)
        raise unavailable("Redis, which has the decisions, does not answer; try again") from None
    async with services.database.autocommit() as session:
        return answer(await shown_decisions(session, company, kept))


@router.put("/crm/{id}", **operation("Update device", DeviceDetailAnswer, body=DeviceUpdate))
async def update_device(
    caller: Annotated[AuthorizedCaller, may_write("device")],
    number: DeviceId,
    limit: Traces = _NEWEST,
) -> Response:
    """Set the test flag. Everything else in the body is ignored: only devices change it."""
    test = _test_flag(await caller.body(), number)
    pages = _TracePages(auth=Page(limit=limit), beacon=Page(limit=limit))

    async def work(session: AsyncSession) -> Record:
        query = select(Device).where(Device.id == number, Device.company_id == caller.company_id)
        found = await session.scalar(query.with_for_update())
        if found is None:
            raise not_found("device")
        if found.test != test:
            found.test, found.update_on = test, caller.services.clock()
            await session.flush()
        return await read_within(session, partial(_detail, caller.company_id, number, pages))

    return answer(await write(caller.services, work))


@router.get("/crm/{id}/held", **operation("Get held data", HeldDataAnswer))
async def get_held_data(
    caller: Annotated[AuthorizedCaller, may_read("device")], number: DeviceId
) -> Response:
    """How much is stored about the device's person, and until when Kafka keeps its messages."""
    return answer(await _held(caller, number, caller.services.held_data))


@router.delete("/crm/{id}", **operation("Delete device", ForgottenAnswer))
async def delete_device(
    caller: Annotated[AuthorizedCaller, may_write("device")], number: DeviceId
) -> Response:
    """Forget the device's person: the record, its traces, its claims and decisions.

    Figures of days stay: they name no device. Kafka keeps its messages until `kafka_until`, and a
    device that is detected again begins anew. After a 503 some traces may be gone already; try
    again.
    """
    held = await _held(caller, number, caller.services.forget_device)
    return answer({"status": "success", "code": 200} | held)


async def _held(
    caller: AuthorizedCaller, number: int, work: Callable[[int, str], Awaitable[DeviceData]]
) -> Record:
    services = caller.services
    udid = await _udid(caller, number)
    try:
        data = await work(caller.company_id, udid)
    except (RedisError, OSError, TimeoutError) as error:
        _log.error("the data of a device cannot be reached", error=type(error).__name__)
        raise unavailable("SQL or Redis does not answer; try again") from None
    if not data.rows.devices:  # deleted meanwhile
        raise not_found("device")
    return shown_held(data, services.clock())


async def _udid(caller: AuthorizedCaller, number: int) -> str:
    query = select(Device.udid).where(Device.id == number, Device.company_id == caller.company_id)
    async with caller.services.database.autocommit() as session:
        udid = await session.scalar(query)
    if udid is None:
        raise not_found("device")
    return udid


class _TracePages(NamedTuple):
    auth: Page
    beacon: Page


def _detail(company_id: int, number: int, pages: _TracePages, reader: Reader) -> Record:
    return {
        "device": [device.DEVICES.one(reader, company=company_id, id=number)],
        "auth": device.authentications(reader, number, pages.auth),
        "beacon": device.detections(reader, company_id, number, pages.beacon),
    }


def _test_flag(body: Mapping[str, Any], number: int) -> bool:
    """The flag, wherever it is. Raises ApiError 400."""
    name = next((name for name in ("device", "datas") if name in body), None)
    if name is None:
        return _read_flag(body, "")
    items = body[name] if isinstance(body[name], list) else [body[name]]
    for place, item in enumerate(items):
        if isinstance(item, dict) and item.get("id", number) in (number, str(number)):
            return _read_flag(item, f"{name}[{place}]")
    raise bad_fields({name: _ACCEPTED})


def _read_flag(item: Mapping[str, Any], place: str) -> bool:
    faults = Faults()
    values = read_fields(DeviceUpdate, item, place=place, faults=faults)
    raise_faults(faults)
    return bool(values["test"])
