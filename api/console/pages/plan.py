"""Computes the drawing of a venue's plan: its size, its grid, and the positions of beacons."""

import math
import re
from typing import Any, NamedTuple

_COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}|[a-zA-Z]{3,24}")
_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=]+")
_EMPTY_SIDE = 20
_DOTS_A_SIDE = 80
_LINES_A_SIDE = 16
_CIRCLES_A_SIDE = 14


class PlacedBeacon(NamedTuple):
    """A beacon on the plan. If `colour` is empty, the console's own is used."""

    record: dict[str, Any]
    x: int
    y: int
    colour: str


class RecentCircle(NamedTuple):
    """A beacon's recent detections. `radius` is 0 if the beacon has no position on the plan."""

    name: str
    detections: int
    x: int = 0
    y: int = 0
    radius: float = 0.0


class Plan(NamedTuple):
    """A plan, in the units of the venue's positions.

    `image` is empty if there is none that can be shown. An image on another site is not loaded, so
    that the other site does not see the request.
    """

    left: int
    top: int
    width: int
    height: int
    dot: float
    step: int
    image: str
    image_is_elsewhere: bool
    beacons: list[PlacedBeacon]

    def vertical_lines(self) -> range:
        """The x positions of the vertical grid lines."""
        return range(self.left - self.left % self.step, self.left + self.width, self.step)

    def horizontal_lines(self) -> range:
        """The y positions of the horizontal grid lines."""
        return range(self.top - self.top % self.step, self.top + self.height, self.step)


def venue_plan(venue: dict[str, Any], beacons: list[dict[str, Any]]) -> Plan:
    """The plan of a venue. It is large enough for beacons outside of the venue's size."""
    placed = [
        PlacedBeacon(each, each["x"], each["y"], _colour(each["color"]))
        for each in beacons
        if each["x"] is not None and each["y"] is not None
    ]
    left, right = _extent(venue["width"], [each.x for each in placed])
    top, bottom = _extent(venue["height"], [each.y for each in placed])
    width, height = right - left, bottom - top
    image = venue["image"] if _IMAGE.fullmatch(venue["image"]) else ""
    longest = max(width, height)
    elsewhere = bool(venue["image"]) and not image
    dot, step = longest / _DOTS_A_SIDE, _step(longest)
    return Plan(left, top, width, height, dot, step, image, elsewhere, placed)


def detection_circles(
    plan: Plan, beacons: list[dict[str, Any]], detections: dict[int, int]
) -> list[RecentCircle]:
    """A circle per beacon, the most detections first; its area is proportional to them."""
    places = {each.record["id"]: each for each in plan.beacons}
    most = max(detections.values(), default=1)
    room = max(plan.width, plan.height) / _CIRCLES_A_SIDE
    found = []
    for beacon in beacons:
        count = detections.get(beacon["id"], 0)
        place = places.get(beacon["id"])
        if count and place is None:
            found.append(RecentCircle(beacon["name"], count))
        elif count and place is not None:
            radius = max(1.5 * plan.dot, room * math.sqrt(count / most))
            found.append(RecentCircle(beacon["name"], count, place.x, place.y, round(radius, 3)))
    return sorted(found, key=lambda each: -each.detections)


def _step(longest: int) -> int:
    """The distance of grid lines: the first of 1, 2, 5, 10, 20, 50 ... that makes few lines."""
    step, places = 1, 0
    while longest / step > _LINES_A_SIDE:
        places += 1
        step = (1, 2, 5)[places % 3] * 10 ** (places // 3)
    return step


def _extent(size: int | None, positions: list[int]) -> tuple[int, int]:
    """The extent of an axis, with room for the dot of a beacon at the edge or beyond it."""
    beyond = 1 if positions else 0
    end = max([size or 0, *(each + beyond for each in positions)])
    return min([0, *(each - beyond for each in positions if each <= 0)]), end or _EMPTY_SIDE


def _colour(written: str) -> str:
    return written if _COLOUR.fullmatch(written or "") else ""
