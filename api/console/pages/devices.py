"""Devices: the search by udid, the record, its traces, its last decisions."""

from fastapi import APIRouter
from starlette.responses import Response

from api.console.context import Context

router = APIRouter()
_TRACES = 50


@router.get("/devices")
async def show_list(context: Context) -> Response:
    """Show the company's devices, or redirect to the only one with what was searched."""
    found = await context.listed("/crm", sort="-update_on")
    if context.query("search") and found.total == 1 and "hx-request" not in context.request.headers:
        return context.redirect(f"/devices/{found.records[0]['id']}")
    return context.page("devices.html", found=found)


@router.get("/devices/{id:int}")
async def show_one(context: Context) -> Response:
    """Show the record and its traces. The decisions, from Redis, are loaded after the page."""
    detail = await context.get(f"/crm/{context.path_number('id')}", limit=_TRACES)
    (device,) = detail["device"]
    return context.page("device.html", device=device, detail=detail, most=_TRACES)


@router.get("/devices/{id:int}/decisions")
async def decisions(context: Context) -> Response:
    """Show the decisions on the device's last detections."""
    found = await context.get(f"/crm/{context.path_number('id')}/decisions")
    return context.page("device.html#decisions", found=found)


@router.post("/devices/{id:int}/test")
async def set_test_flag(context: Context) -> Response:
    """Set or clear the test flag."""
    number, is_test = context.path_number("id"), "test" in context.form
    await context.ask("PUT", f"/crm/{number}", {"test": is_test})
    return context.redirect(f"/devices/{number}")


@router.get("/devices/{id:int}/held")
async def show_held_data(context: Context) -> Response:
    """Show how much data is stored about the device's person, with a button that deletes it."""
    path = f"/crm/{context.path_number('id')}"
    (device,) = (await context.get(path, limit=1))["device"]
    held = await context.get(f"{path}/held")
    return context.page("held_data.html", device=device, held=held)


@router.post("/devices/{id:int}/forget")
async def erase(context: Context) -> Response:
    """Delete the data. Show how much was deleted, and until when Kafka keeps messages."""
    held = await context.ask("DELETE", f"/crm/{context.path_number('id')}")
    return context.page("held_data.html", device=None, held=held)
