"""A venue's plan with its beacons and their last minutes."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from api.console.context import Context
from api.console.pages.records import BEACONS

router = APIRouter()
ON_THE_PLAN = 1000
_NAMED = 12
_EMPTY_SIDE = 20


@router.get("/venues/{id:int}")
async def show_plan(context: Context) -> Response:
    """Show a venue's plan with its beacons."""
    path = f"/region/{context.path_number('id')}"
    venue = await context.get(path)
    beacons: list[dict[str, Any]] = []
    if context.may_read("beacon"):
        beacons = await context.get(f"{path}/beacon", limit=ON_THE_PLAN)
    return context.page(
        "venue.html",
        venue=venue,
        plan=venue_plan(venue, beacons),
        most=ON_THE_PLAN,
        may_place=context.may_write("beacon"),
    )


@router.get("/venues/{id:int}/recent")
async def show_recent(context: Context) -> Response:
    """Show the beacons' detections of the last minutes; the script draws a circle for each."""
    number = context.path_number("id")
    recent = await context.get(f"/statistics/region/{number}/recent")
    names = {}
    if context.may_read("beacon"):
        beacons = await context.get(f"/region/{number}/beacon", limit=ON_THE_PLAN)
        names = {each["id"]: each["name"] for each in beacons}
    found = [each for each in recent["beacons"] if each["id"] in names]
    total = sum(each["detections"] for each in recent["beacons"])
    since = recent["since"]
    return context.page(
        "venue.html#recent", found=found, names=names, total=total, most=_NAMED, since=since
    )


@router.post("/venues/{id:int}/beacons/{uid:int}/place")
async def move_beacon(context: Context) -> Response:
    """Save a beacon's new position on the plan. Its other fields stay as they are stored."""
    path = BEACONS.one_path(context)
    position = {name: context.form.get(name) for name in ("x", "y")}
    moved = await context.ask("PUT", path, await context.get(path) | position)
    return context.page("venue.html#placed", beacon=moved)


def venue_plan(venue: dict[str, Any], beacons: list[dict[str, Any]]) -> dict[str, Any]:
    """What the plan shows, in the units of the venue's positions.

    It is large enough for beacons outside of the venue's size; the view has room for dots and names
    at its edges. An image on another site is not shown: the policy of pages forbids to load it.
    """
    placed = [each for each in beacons if None not in (each["x"], each["y"])]
    left, width = _extent(venue["width"], [each["x"] for each in placed])
    top, height = _extent(venue["height"], [each["y"] for each in placed])
    longest = max(width, height)
    edge = longest / 20
    image = venue["image"] if venue["image"].startswith("data:image/") else ""
    return {
        "placed": placed,
        "unplaced": [each for each in beacons if None in (each["x"], each["y"])],
        "left": left,
        "top": top,
        "width": width,
        "height": height,
        "view": f"{left - edge:g} {top - edge:g} {width + 2 * edge:g} {height + 2 * edge:g}",
        "step": 10 ** (len(str(longest)) - 1) // 2 or 1,  # makes 2 to 20 lines
        "image": image,
        "image_is_elsewhere": bool(venue["image"]) and not image,
    }


def _extent(size: int | None, positions: list[int]) -> tuple[int, int]:
    """The begin and the length of an axis."""
    begin, end = min([0, *positions]), max([size or 0, *positions])
    return begin, end - begin or _EMPTY_SIDE
