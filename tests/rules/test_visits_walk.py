"""Visits of phones that were carried through a real library, whose true positions are known."""

import csv
import gzip
import math
from collections import defaultdict
from importlib.resources import files

from rules.model import Zone
from rules.parsing import zone_from_rssi
from rules.visits import MARGIN, Observation, VisitBook, VisitPlace, weakest_signal
from tests.rules.test_visits import Recorded

DATA = files("engine.cli.demo").joinpath("data")
SILENCE, EXPONENT, REACH = 30, 2.0, Zone.NEAR
NEARBY = 10.0  # seconds between a change and a true one

Place = tuple[float, float]


def walk(
    readings: list[dict[str, str]], beacons: dict[int, Place]
) -> tuple[list[float], list[float], int]:
    """When the nearest beacon changed, truly and by the visits; how many visits began."""
    book, me, enters = VisitBook(), (1, "phone"), 0
    true, found = list[float](), list[float]()
    truly, nearest = 0, 0  # no beacon has this number
    weakest = weakest_signal(REACH, None, EXPONENT)
    for number, row in enumerate(readings):
        at, beacon, rssi = float(row["seconds"]), int(row["beacon"]), float(row["rssi"])
        here = float(row["x"]), float(row["y"])
        closest = min(beacons, key=lambda each: math.dist(beacons[each], here))
        if closest != truly:
            true += [at] if truly else []
            truly = closest
        near = zone_from_rssi(rssi, exponent=EXPONENT) <= REACH
        seen = Observation(at, at, Recorded("walks", 0, number), 0, near, rssi, weakest)
        events = book.observe(me, [VisitPlace(("beacon", beacon), (beacon,), SILENCE)], seen)
        enters += sum(each.type == "enter" for each in events)
        means = {v.place_id: v.rssi_mean or 0.0 for v in book.of(me) if v.ended_at is None}
        if means:
            best = max(means, key=lambda each: means[each])
            if nearest not in means or means[best] > means[nearest] + MARGIN:
                found += [] if nearest in (0, best) else [at]
                nearest = best
    return true, found, enters


def test_the_nearest_beacon_changes_when_it_truly_does() -> None:
    """198 true changes, of which single detections would tell thousands; 546 times a phone truly
    came within 4 m of a beacon."""
    rows = csv.DictReader(DATA.joinpath("beacons.csv").read_text().splitlines())
    beacons = {int(row["beacon"]): (float(row["x"]), float(row["y"])) for row in rows}
    text = gzip.decompress(DATA.joinpath("detections.csv.gz").read_bytes()).decode()
    readings = defaultdict(list)
    for row in csv.DictReader(text.splitlines()):
        readings[row["walk"]].append(row)
    walks = [walk(each, beacons) for each in readings.values()]
    assert sum(len(true) for true, _, _ in walks) == 198
    changes = [(at, true) for true, found, _ in walks for at in found]
    assert 170 < len(changes) <= 230
    right = sum(any(abs(at - other) <= NEARBY for other in true) for at, true in changes)
    assert right >= 0.55 * len(changes)
    assert 450 < sum(enters for _, _, enters in walks) <= 500
