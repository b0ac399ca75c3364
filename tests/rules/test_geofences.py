"""Which geofences contain a position, beside an independent look at every circle."""

import math
import random

from hypothesis import example, given
from hypothesis import strategies as st

from rules.geofences import Circle, GeofenceGrid

LATITUDES = st.floats(-90, 90) | st.sampled_from([-90.0, 0.0, 89.9999, 90.0])
LONGITUDES = st.floats(-180, 180) | st.sampled_from([-180.0, 0.0, 179.9999, 180.0])
RADII = st.floats(1, 20_100_000) | st.sampled_from([1.0, 10.0, 100.0, 10_000.0])


def metres_by_vectors(latitude, longitude, circle):
    """The great-circle distance by the angle between two vectors: no haversine, no grid."""

    def vector(lat, lon):
        lat, lon = math.radians(lat), math.radians(lon)
        return math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)

    a, b = vector(latitude, longitude), vector(circle.latitude, circle.longitude)
    cross = (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])
    dot = sum(map(math.prod, zip(a, b, strict=True)))
    return 6_371_008.8 * math.atan2(math.hypot(*cross), dot)


def assert_agrees(grid, circles, latitude, longitude):
    found = {circle.id for circle in grid.containing(latitude, longitude)}
    for circle in circles:
        metres = metres_by_vectors(latitude, longitude, circle)
        # Within a millimetre of the edge (both formulas round; near the antipode by metres).
        if abs(metres - circle.radius) > max(0.001, 1e-6 * metres):
            assert (circle.id in found) == (metres < circle.radius), (circle, metres)


@given(st.lists(st.tuples(LATITUDES, LONGITUDES, RADII), max_size=8), LATITUDES, LONGITUDES)
@example([(90.0, 0.0, 10.0)], 90.0, 180.0)
@example([(0.0, 180.0, 10.0)], 0.0, -180.0)
@example([(-89.99, 170.0, 5000.0)], -89.99, -10.0)
def test_any_circle_anywhere(places, latitude, longitude):
    circles = [Circle(number, *place) for number, place in enumerate(places)]
    assert_agrees(GeofenceGrid(circles), circles, latitude, longitude)


def test_positions_near_the_edges_of_many_circles():
    """Among them the poles and the 180th meridian; benchmarks.places asks a million times."""
    chance = random.Random(28)
    circles = []
    for number in range(400):
        radius = 10 ** chance.uniform(1, 4)
        latitude = chance.choice([chance.uniform(-90, 90), 90 - chance.random() / 9, -89.95])
        longitude = chance.choice([chance.uniform(-180, 180), 180 - chance.random() / 99, -179.999])
        circles.append(Circle(number, latitude, longitude, radius))
    grid = GeofenceGrid(circles)
    for circle in circles:
        for share in (0.5, 0.999, 1.001):
            angle, bearing = share * circle.radius / 6_371_008.8, chance.uniform(0, math.tau)
            assert_agrees(grid, circles, *destination(circle, angle, bearing))


def destination(circle, angle, bearing):
    """The position at this angle and bearing (radians) from the centre of a circle."""
    phi, lam = math.radians(circle.latitude), math.radians(circle.longitude)
    sine = math.sin(phi) * math.cos(angle) + math.cos(phi) * math.sin(angle) * math.cos(bearing)
    north = math.asin(max(-1.0, min(1.0, sine)))
    y = math.sin(bearing) * math.sin(angle) * math.cos(phi)
    x = math.cos(angle) - math.sin(phi) * math.sin(north)
    east = math.degrees(lam + math.atan2(y, x))
    return math.degrees(north), (east + 180) % 360 - 180


def test_a_position_must_be_as_accurate_as_the_geofence_is_large():
    small, large = Circle(1, 0, 0, 10), Circle(2, 0, 0, 500)
    assert small.admits(None)
    assert small.admits(100)
    assert not small.admits(100.1)
    assert large.admits(500)
    assert not large.admits(501)
