"""Which circles on the earth contain a position. Degrees are WGS 84, lengths are metres.

A grid finds candidates, the haversine decides. Circles of about one size share a level, a grid of
rows and columns at least as large as their radius, so a circle lies in few cells. Columns are wider
near the poles, and go round the earth.
"""

from collections.abc import Iterable
from math import asin, ceil, cos, floor, log2, pi, radians, sin, sqrt
from typing import NamedTuple

EARTH_RADIUS = 6_371_008.8  # the mean radius of WGS 84
# A position may be this uncertain, or as uncertain as the geofence is large.
ACCURACY_ALLOWED = 100.0
_SMALLEST_ROW = 2.0**-10  # degrees: 109 m
_BAND = 0.125  # degrees; rows within it have equally many columns
_MARGIN = 1e-9  # radians, for rounding: 6 mm
_COLUMNS = 2**32  # more than any row has


class Circle(NamedTuple):
    """A geofence: its id, its centre and its radius."""

    id: int
    latitude: float
    longitude: float
    radius: float

    def admits(self, accuracy: float | None) -> bool:
        """Whether a position of this accuracy is precise enough to count as inside."""
        return accuracy is None or accuracy <= max(self.radius, ACCURACY_ALLOWED)


def distance(latitude: float, longitude: float, other: Circle) -> float:
    """Metres on the sphere from a position to the centre of a circle (haversine)."""
    phi, phi_other = radians(latitude), radians(other.latitude)
    across = sin(radians(other.longitude - longitude) / 2)
    along = sin((phi_other - phi) / 2)
    square = along * along + cos(phi) * cos(phi_other) * across * across
    return 2 * EARTH_RADIUS * asin(min(1.0, sqrt(square)))


class _Level(NamedTuple):
    """The circles of about one size, by cell. `height` is that of its rows, in degrees.

    So many `rows` of a band have equally many columns.
    """

    height: float
    rows: int
    columns: list[int]
    cells: dict[int, tuple[Circle, ...]]


class GeofenceGrid:
    """Finds the circles of one company that contain a position. `circles` has them by id."""

    def __init__(self, circles: Iterable[Circle]) -> None:
        self._levels: dict[float, _Level] = {}  # by the height of their rows
        self.circles = {circle.id: circle for circle in circles}
        for circle in self.circles.values():
            self._add(circle)

    def containing(self, latitude: float, longitude: float) -> list[Circle]:
        """The circles within whose radius the position is, by id."""
        found: list[Circle] = []
        north, east = latitude + 90, (longitude + 180) / 360
        for height, rows, of_bands, cells in self._levels.values():
            row = int(north / height)
            columns = of_bands[row // rows]
            for circle in cells.get(row * _COLUMNS + int(east * columns) % columns, ()):
                if distance(latitude, longitude, circle) <= circle.radius:
                    found.append(circle)  # noqa: PERF401  faster for the usual one circle
        return sorted(found) if len(found) > 1 else found

    def _add(self, circle: Circle) -> None:
        angle = min(pi, circle.radius / EARTH_RADIUS + _MARGIN)
        reach = angle * 180 / pi
        level = self._level_of(max(_SMALLEST_ROW, 4.0 ** ceil(log2(reach) / 2)))
        height, cells = level.height, level.cells
        south, north = circle.latitude - reach, circle.latitude + reach
        # How far the circle extends to the east and to the west; all round with a pole inside.
        extent = 180.0
        if south > -90 and north < 90:
            extent = asin(min(1.0, sin(angle) / cos(radians(circle.latitude)))) * 180 / pi
        first, last = (int((each + 90) / height) for each in (max(south, -90), min(north, 90)))
        for row in range(first, last + 1):
            columns = level.columns[row // level.rows]
            west, east = (
                floor((circle.longitude + side + 180) / 360 * columns) for side in (-extent, extent)
            )
            for column in range(west, min(east, west + columns - 1) + 1):
                cell = row * _COLUMNS + column % columns
                cells[cell] = (*cells.get(cell, ()), circle)

    def _level_of(self, height: float) -> _Level:
        level = self._levels.get(height)
        if level is None:
            band = max(height, _BAND)
            columns = [_columns_of(number, band, height) for number in range(int(180 / band) + 1)]
            level = self._levels[height] = _Level(height, int(band / height), columns, {})
        return level


def _columns_of(number: int, band: float, height: float) -> int:
    """The columns of a band's rows: each is at least as wide as a row is high, in metres."""
    edges = (number * band - 90, (number + 1) * band - 90)
    narrowest = min(cos(radians(min(abs(edge), 90.0))) for edge in edges)
    return max(1, floor(360 / height * narrowest))
