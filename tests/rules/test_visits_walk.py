"""Visits of phones that were carried through a real library, whose true positions are known."""

import csv
import gzip
import math
from collections import defaultdict
from importlib.resources import files
from typing import NamedTuple

import pytest

from rules.model import Zone
from rules.parsing import zone_from_rssi
from rules.visits import MARGIN, Observation, VisitBook, VisitPlace, weakest_signal
from tests.rules.test_visits import Recorded

DATA = files("engine.cli.demo").joinpath("data")
SILENCE, EXPONENT, REACH = 30, 2.0, Zone.NEAR
NEARBY = 10.0  # seconds between a change and a true one

Reading = tuple[float, int, float, tuple[float, float]]


class Walk(NamedTuple):
    """Times at which the nearest beacon changed, truly and by the visits; visits that began."""

    true: list[float]
    found: list[float]
    enters: int


@pytest.fixture(scope="module")
def walks() -> list[Walk]:
    rows = csv.DictReader(DATA.joinpath("beacons.csv").read_text().splitlines())
    beacons = {int(row["beacon"]): (float(row["x"]), float(row["y"])) for row in rows}
    text = gzip.decompress(DATA.joinpath("detections.csv.gz").read_bytes()).decode()
    readings: dict[str, list[Reading]] = defaultdict(list)
    for row in csv.DictReader(text.splitlines()):
        here = float(row["x"]), float(row["y"])
        reading = float(row["seconds"]), int(row["beacon"]), float(row["rssi"]), here
        readings[row["walk"]].append(reading)
    return [walk(each, beacons) for each in readings.values()]


def walk(readings: list[Reading], beacons: dict[int, tuple[float, float]]) -> Walk:
    book, me, enters = VisitBook(), (1, "phone"), 0
    true, found = list[float](), list[float]()
    truly, nearest = 0, 0  # no beacon has this number
    for number, (at, beacon, rssi, here) in enumerate(readings):
        closest = min(beacons, key=lambda each: math.dist(beacons[each], here))
        if closest != truly:
            true += [at] if truly else []
            truly = closest
        near = zone_from_rssi(rssi, exponent=EXPONENT) <= REACH
        weakest = weakest_signal(REACH, None, EXPONENT)
        seen = Observation(at, at, Recorded("walks", 0, number), 0, near, rssi, weakest)
        events = book.observe(me, [VisitPlace(("beacon", beacon), (beacon,), SILENCE)], seen)
        enters += sum(each.type == "enter" for each in events)
        means = {v.place_id: v.rssi_mean or 0.0 for v in book.of(me) if v.ended_at is None}
        if means:
            best = max(means, key=lambda each: means[each])
            if nearest not in means or means[best] > means[nearest] + MARGIN:
                found += [] if nearest in (0, best) else [at]
                nearest = best
    return Walk(true, found, enters)


def test_the_nearest_beacon_changes_when_it_truly_does(walks: list[Walk]) -> None:
    """198 true changes; single detections would tell of thousands."""
    assert sum(len(each.true) for each in walks) == 198
    found = [(at, each.true) for each in walks for at in each.found]
    assert 170 < len(found) <= 230
    right = sum(any(abs(at - other) <= NEARBY for other in true) for at, true in found)
    assert right >= 0.55 * len(found)


def test_visits_near_a_beacon_are_about_as_many_as_there_are(walks: list[Walk]) -> None:
    """546 times a phone truly came within 4 m of a beacon."""
    assert 450 < sum(each.enters for each in walks) <= 500
