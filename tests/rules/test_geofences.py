"""Which geofences contain a position, beside an independent look at every circle."""

import math

from hypothesis import example, given
from hypothesis import strategies as st

from rules.geofences import Circle, GeofenceGrid

EARTH = 6_371_008.8  # metres
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
    return EARTH * math.atan2(math.hypot(*cross), dot)


def assert_agrees(grid, circles, latitude, longitude):
    found = {circle.id for circle in grid.containing(latitude, longitude)}
    for circle in circles:
        metres = metres_by_vectors(latitude, longitude, circle)
        # Within a millimetre of the edge (both formulas round; near the antipode by metres).
        if abs(metres - circle.radius) > max(0.001, 1e-6 * metres):
            assert (circle.id in found) == (metres < circle.radius), (circle, metres)


@st.composite
def cases(draw):
    """Circles, and positions anywhere and on both sides of their edges."""
    places = draw(st.lists(st.tuples(LATITUDES, LONGITUDES, RADII), max_size=8))
    circles = [Circle(number, *place) for number, place in enumerate(places)]
    positions = [(draw(LATITUDES), draw(LONGITUDES))]
    for circle in circles:
        bearing = draw(st.floats(0, math.tau))
        angles = [share * circle.radius / EARTH for share in (0.5, 0.999, 1.001)]
        positions += [destination(circle, angle, bearing) for angle in angles]
    return circles, positions


@given(cases())
@example(([Circle(0, 90.0, 0.0, 10.0)], [(90.0, 180.0)]))
@example(([Circle(0, 0.0, 180.0, 10.0)], [(0.0, -180.0)]))
@example(([Circle(0, -89.99, 170.0, 5000.0)], [(-89.99, -10.0)]))
def test_any_circle_anywhere(case):
    circles, positions = case
    grid = GeofenceGrid(circles)
    for position in positions:
        assert_agrees(grid, circles, *position)


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
