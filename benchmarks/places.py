"""`python -m benchmarks.places`: geofences beside brute force, their memory, and the rates of
detections of geofences, positions and tags, and of beacons with visits, beside beacons."""

import argparse
import asyncio
import gc
import random
import tracemalloc
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import replace
from math import asin, cos, degrees, radians, sin, sqrt
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from benchmarks.catalog import PLACES
from benchmarks.lineup import EVERYBODY, TRIGGER
from benchmarks.machine import MachineWatch
from benchmarks.report import Result, Sheet, Spread, add_json, cost, finish, rate
from benchmarks.rounds import Rounds
from benchmarks.servers import servers
from benchmarks.workloads import Workload
from catalog.index.entries import CompanyGeofences, decode_geofences, decode_place, encode
from catalog.index.entries import PlaceEntry as Entry
from rules.geofences import EARTH_RADIUS, Circle, GeofenceGrid
from rules.model import GeofenceSnapshot, VenueSnapshot

_SEED = 28
_GEOFENCES = 10_000
_PARTS = ("search", "memory", "rates")
_LARGEST = 10_000.0


def main() -> None:
    """Parse the arguments, run, print tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.places", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=_PARTS)
    parser.add_argument("--positions", type=int, default=1_000_000)
    parser.add_argument("--records", type=int, default=100_000, help="detections a round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians are printed")
    parser.add_argument("--broker", default="apache", help="apache, or host:port")
    add_json(parser)
    arguments = parser.parse_args()
    console, watch = Console(), MachineWatch()
    circles = list(_circles(random.Random(_SEED)))
    sheets, found, wrong = [], dict[str, list[Result]](), 0
    if "search" in arguments.parts:
        rows, wrong = _search(circles, arguments.positions)
        sheets.append(Sheet("Geofences of a position, beside brute force", ["", ""], rows))
    if "memory" in arguments.parts:
        sheets.append(Sheet("Memory of a company's geofences", ["", "MiB"], _memory(circles)))
    if "rates" in arguments.parts:
        found = asyncio.run(_rates(arguments, console))
        sheets.append(_beside_beacons(found))
    finish(console, arguments, watch, sheets, found)
    if wrong:
        raise SystemExit(f"{wrong} positions have other geofences than brute force finds")


def _circles(dice: random.Random) -> Iterator[Circle]:
    """Anywhere on the sphere, a tenth at the poles, a tenth at the 180th meridian; radius 10 m to
    10 km."""
    for number in range(1, _GEOFENCES + 1):
        latitude, longitude = degrees(asin(dice.uniform(-1, 1))), dice.uniform(-180, 180)
        if number % 10 == 0:
            latitude = dice.choice((-1, 1)) * (90 - dice.expovariate(20))
        elif number % 10 == 1:
            longitude = dice.choice((-180, 180)) * (1 - dice.uniform(0, 0.0005))
        yield Circle(number, latitude, longitude, 10 ** dice.uniform(1, 4))


def _positions(dice: random.Random, circles: list[Circle], count: int) -> Iterator[list[float]]:
    """A third anywhere, the others in or near a circle."""
    for number in range(count):
        latitude, longitude = degrees(asin(dice.uniform(-1, 1))), dice.uniform(-180, 180)
        if number % 3:
            centre = dice.choice(circles)
            spread = degrees(centre.radius / EARTH_RADIUS)
            latitude = max(-90.0, min(90.0, centre.latitude + dice.gauss(0, spread)))
            width = max(cos(radians(latitude)), 1e-9)
            longitude = (centre.longitude + dice.gauss(0, spread) / width + 180) % 360 - 180
        yield [latitude, longitude]


def _vector(latitude: float, longitude: float) -> tuple[float, float, float]:
    phi, theta = radians(latitude), radians(longitude)
    return cos(phi) * cos(theta), cos(phi) * sin(theta), sin(phi)


def _search(circles: list[Circle], count: int) -> tuple[list[list[str]], int]:
    """Compare with every circle whose latitude is close enough: the way between two points is at
    least that between their latitudes. The straight line through the earth decides."""
    grid = GeofenceGrid(circles)
    ordered = sorted(circles, key=lambda circle: circle.latitude)
    latitudes = [circle.latitude for circle in ordered]
    vectors = [(*_vector(c.latitude, c.longitude), c.radius, c.id) for c in ordered]
    reach = degrees(_LARGEST / EARTH_RADIUS) + 1e-6
    wrong = inside = 0
    for latitude, longitude in _positions(random.Random(_SEED), circles, count):
        x, y, z = _vector(latitude, longitude)
        first = bisect_left(latitudes, latitude - reach)
        last = bisect_right(latitudes, latitude + reach)
        expected = set()
        for u, v, w, radius, id_ in vectors[first:last]:
            line = sqrt((x - u) ** 2 + (y - v) ** 2 + (z - w) ** 2)
            if 2 * EARTH_RADIUS * asin(min(1.0, line / 2)) <= radius:
                expected.add(id_)
        found = {circle.id for circle in grid.containing(latitude, longitude)}
        wrong += found != expected
        inside += bool(expected)
    counts = {"geofences": len(circles), "positions": count, "inside": inside, "off": wrong}
    return [[name, f"{number:,}"] for name, number in counts.items()], wrong


def _memory(circles: list[Circle]) -> list[list[str]]:
    """What decoding the index's entries adds: the geometry, and every geofence's own entry."""
    geometry = encode(CompanyGeofences(circles))
    entries = [encode(_entry(circle)) for circle in circles]
    gc.collect()
    tracemalloc.start()
    grid = GeofenceGrid(decode_geofences(geometry).circles)
    of_grid = tracemalloc.get_traced_memory()[0]
    places = [decode_place(entry) for entry in entries]
    whole = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del grid, places
    figures = {"search": of_grid, "entries, one campaign each": whole - of_grid, "all": whole}
    return [[name, f"{size / 2**20:.1f}"] for name, size in figures.items()]


def _entry(circle: Circle) -> Entry[GeofenceSnapshot]:
    venue = VenueSnapshot(id=1, name="Mall", company_id=1, active=True)
    name, fields = f"Geofence {circle.id}", circle._asdict()
    place = GeofenceSnapshot(name=name, active=True, venue=venue, **fields)
    return Entry(place=place, campaigns=[circle.id])


async def _rates(arguments: argparse.Namespace, console: Console) -> dict[str, list[Result]]:
    """Of devices that stay, by kind of place; the kinds take turns."""
    count, found = arguments.records, dict[str, list[Result]]()
    async with servers(arguments.broker) as running:
        with TemporaryDirectory() as directory:
            staying = Workload("dwell-beacon", "devices stay", count // 100, 2)
            workloads = {kind: replace(staying, name=f"dwell-{kind}", kind=kind) for kind in PLACES}
            visited = replace(staying, name="dwell-visits", company={"presence": True})
            runs = {}
            for kind, workload in (workloads | {"beacon with visits": visited}).items():
                (home := Path(directory) / workload.name).mkdir()
                runs[kind] = Rounds(running, workload, count, home)
                await runs[kind].prepare()
            for _ in range(arguments.rounds):
                for kind, each in runs.items():
                    result = await each.run(EVERYBODY[TRIGGER])
                    found.setdefault(kind, []).append(result)
                    line = f"{kind}: {rate(result):,.0f}/s, {cost(result):.1f} us each"
                    console.print(line, highlight=False)
    return found


def _beside_beacons(found: dict[str, list[Result]]) -> Sheet:
    rows = []
    for kind, results in found.items():
        pairs = list(zip(results, found["beacon"], strict=True))
        spreads = [Spread(map(of, results)) for of in (rate, cost)]
        spreads.append(Spread(rate(own) / rate(beacon) for own, beacon in pairs))
        spreads.append(Spread(cost(beacon) / cost(own) for own, beacon in pairs))
        rows.append([kind, *map(str, spreads)])
    columns = ["", "/s", "processor, us each", "rate of beacons'", "beacons' processor time"]
    return Sheet("Trigger, one processor, devices that stay", columns, rows)


if __name__ == "__main__":
    main()
