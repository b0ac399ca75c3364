"""Devices: one is found by its udid; its record, its traces, its last decisions."""

from starlette.responses import Response

from api.console.errors import RefusedError
from api.console.pages.listing import record_page
from api.console.visit import Visit

_TRACES = 50


async def show_list(visit: Visit) -> Response:
    """The company's devices, or the one that was looked for."""
    wanted = visit.query("udid").strip()
    found = await record_page(visit, "/crm", udid=wanted)
    if wanted and len(found.records) == 1:
        return visit.leave(f"/devices/{found.records[0]['id']}")
    return visit.page("devices.html", found=found, wanted=wanted)


async def show_one(visit: Visit) -> Response:
    """The record and its traces; the decisions are asked of Redis and come by themselves."""
    detail = await visit.interface.read(f"/crm/{visit.number('id')}", limit=_TRACES)
    (device,) = detail["device"]
    return visit.page("device.html", device=device, detail=detail, most=_TRACES)


async def decisions(visit: Visit) -> Response:
    """What became of its last detections."""
    found = await visit.interface.call("GET", f"/crm/{visit.number('id')}/decisions")
    return visit.page(
        "part_decisions.html",
        found.status,
        found=found.body if found.is_good else [],
        message="" if found.is_good else found.message,
    )


async def mark(visit: Visit) -> Response:
    """Set the test flag, or take it away."""
    path = f"/crm/{visit.number('id')}"
    reply = await visit.interface.call("PUT", path, {"test": visit.form.is_on("test")})
    if not reply.is_good:
        raise RefusedError(reply.status, reply.message)
    return visit.leave(f"/devices/{visit.number('id')}")


async def show_held(visit: Visit) -> Response:
    """What is stored about a person, with the button that deletes it."""
    path = f"/crm/{visit.number('id')}"
    (device,) = (await visit.interface.read(path, limit=1))["device"]
    held = await visit.interface.read(f"{path}/held")
    return visit.page("held.html", device=device, held=held)


async def forget(visit: Visit) -> Response:
    """Delete it, and say how much it was, and what Kafka keeps."""
    if not visit.form.is_on("sure"):
        return await show_held(visit)
    reply = await visit.interface.call("DELETE", f"/crm/{visit.number('id')}")
    if not reply.is_good:
        raise RefusedError(reply.status, reply.message)
    return visit.page("forgotten.html", held=reply.body)


PAGES = (
    ("GET", "/devices", show_list),
    ("GET", "/devices/{id:int}", show_one),
    ("GET", "/devices/{id:int}/decisions", decisions),
    ("POST", "/devices/{id:int}/test", mark),
    ("GET", "/devices/{id:int}/held", show_held),
    ("POST", "/devices/{id:int}/forget", forget),
)
