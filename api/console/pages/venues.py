"""A venue's plan with its beacons and their last minutes, and the map of its geofences."""

import math
import re
from typing import Any, NamedTuple

from starlette.responses import JSONResponse, Response

from api.console.context import PageContext
from api.console.pages.records import BEACONS

ON_THE_PLAN = 1000
_NAMED = 12
_COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}|[a-zA-Z]{3,24}")
_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=]+")
_EMPTY_SIDE = 20
_LINES_A_SIDE = 16
_METRES_A_DEGREE = 111_195.0


async def show_plan(context: PageContext) -> Response:
    """Show a venue's plan with its beacons, and the map of its geofences."""
    path = f"/region/{context.path_number('id')}"
    venue = await context.get(path)
    beacons: list[dict[str, Any]] = []
    if context.may_read("beacon"):
        beacons = await context.get(f"{path}/beacon", limit=ON_THE_PLAN)
    geofences = await context.get(f"{path}/geofencing", limit=ON_THE_PLAN)
    return context.page(
        "venue.html",
        venue=venue,
        plan=venue_plan(venue, beacons),
        map=geofence_map(geofences),
        most=ON_THE_PLAN,
        may_place=context.may_write("beacon"),
    )


async def show_recent(context: PageContext) -> Response:
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


async def move_beacon(context: PageContext) -> Response:
    """Save a beacon's new position on the plan. Its other fields stay as they are stored."""
    path = BEACONS.one_path(context)
    reply = await context.call("GET", path)
    if reply.is_success:
        position = {name: context.form.get(name) for name in ("x", "y")}
        reply = await context.call("PUT", path, reply.json() | position)
    return JSONResponse(reply.json(), reply.status_code)


class Plan(NamedTuple):
    """A plan, in the units of the venue's positions: what it shows, and its beacons.

    `image` is empty if there is none that can be shown. An image on another site is not loaded, so
    that the other site does not see the request.
    """

    left: int
    top: int
    width: int
    height: int
    step: int
    image: str
    image_is_elsewhere: bool
    placed: list[dict[str, Any]]
    unplaced: list[dict[str, Any]]

    @property
    def view(self) -> str:
        """What is shown at first: everything, with room for the dots and names at the edges."""
        margin = max(self.width, self.height) / 20
        sides = self.width + 2 * margin, self.height + 2 * margin
        return f"{self.left - margin:g} {self.top - margin:g} {sides[0]:g} {sides[1]:g}"

    @property
    def dot(self) -> float:
        """The radius of a dot before the script knows the size of the picture."""
        return max(self.width, self.height) / 80

    def vertical_lines(self) -> range:
        """The x positions of the vertical grid lines."""
        return range(self.left - self.left % self.step, self.left + self.width + 1, self.step)

    def horizontal_lines(self) -> range:
        """The y positions of the horizontal grid lines."""
        return range(self.top - self.top % self.step, self.top + self.height + 1, self.step)


def venue_plan(venue: dict[str, Any], beacons: list[dict[str, Any]]) -> Plan:
    """The plan of a venue. It is large enough for beacons outside of the venue's size."""
    placed = [each for each in beacons if None not in (each["x"], each["y"])]
    unplaced = [each for each in beacons if None in (each["x"], each["y"])]
    for each in beacons:
        # An unknown colour would hide the dot.
        each["fill"] = each["color"] if _COLOUR.fullmatch(each["color"]) else ""
    left, width = _extent(venue["width"], [each["x"] for each in placed])
    top, height = _extent(venue["height"], [each["y"] for each in placed])
    image = venue["image"] if _IMAGE.fullmatch(venue["image"]) else ""
    step = _step(max(width, height))
    elsewhere = bool(venue["image"]) and not image
    return Plan(left, top, width, height, step, image, elsewhere, placed, unplaced)


def _extent(size: int | None, positions: list[int]) -> tuple[int, int]:
    """The begin and the length of an axis."""
    begin, end = min([0, *positions]), max([size or 0, *positions])
    return begin, end - begin or _EMPTY_SIDE


def _step(longest: int) -> int:
    """The distance of grid lines: the first of 1, 2, 5, 10, 20, 50 ... that makes few lines."""
    step, places = 1, 0
    while longest / step > _LINES_A_SIDE:
        places += 1
        step = (1, 2, 5)[places % 3] * 10 ** (places // 3)
    return step


class MappedCircle(NamedTuple):
    """A geofence on the map, in metres from the map's centre."""

    record: dict[str, Any]
    x: float
    y: float


class GeofenceMap(NamedTuple):
    """The geofences of a venue to scale. Lengths are metres; y grows to the south."""

    left: float
    top: float
    width: float
    height: float
    circles: list[MappedCircle]


def geofence_map(geofences: list[dict[str, Any]]) -> GeofenceMap | None:
    """The map around the first geofence; None without geofences."""
    if not geofences:
        return None
    centre = geofences[0]
    across = _METRES_A_DEGREE * math.cos(math.radians(centre["latitude"]))
    circles = []
    for each in geofences:
        east = (each["longitude"] - centre["longitude"] + 180) % 360 - 180
        y = (centre["latitude"] - each["latitude"]) * _METRES_A_DEGREE
        circles.append(MappedCircle(each, round(east * across, 1), round(y, 1)))
    left, top = (min(c[axis] - c.record["radius"] for c in circles) for axis in (1, 2))
    right, bottom = (max(c[axis] + c.record["radius"] for c in circles) for axis in (1, 2))
    return GeofenceMap(left, top, right - left, bottom - top, circles)


PAGES = (
    ("GET", "/venues/{id:int}", show_plan),
    ("GET", "/venues/{id:int}/recent", show_recent),
    ("POST", "/venues/{id:int}/beacons/{uid:int}/place", move_beacon),
)
