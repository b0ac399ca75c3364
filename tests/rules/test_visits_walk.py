"""Visits of phones that were carried through a real library."""

import csv
import gzip
from collections import defaultdict
from importlib.resources import files

from rules.model import Zone
from rules.parsing import zone_from_rssi
from rules.visits import Observation, VisitBook, VisitPlace, weakest_signal
from tests.rules.test_visits import Recorded

DATA = files("engine.cli.demo").joinpath("data")
SILENCE, REACH = 30, Zone.NEAR


def test_visits_near_a_beacon_are_about_as_many_as_there_are() -> None:
    """By their true positions, the phones came within 4 m of a beacon 546 times."""
    books: dict[str, VisitBook] = defaultdict(VisitBook)
    weakest, entered = weakest_signal(REACH, None, 2.0), 0
    text = gzip.decompress(DATA.joinpath("detections.csv.gz").read_bytes()).decode()
    for number, row in enumerate(csv.DictReader(text.splitlines())):
        at, beacon, rssi = float(row["seconds"]), int(row["beacon"]), float(row["rssi"])
        is_near, record = zone_from_rssi(rssi) <= REACH, Recorded(row["walk"], 0, number)
        seen = Observation(at, at, record, 0, is_near, rssi, weakest)
        place = VisitPlace(("beacon", beacon), (beacon,), SILENCE)
        events = books[row["walk"]].observe((1, "phone"), [place], seen)
        entered += sum(each.type == "enter" for each in events)
    assert 450 < entered <= 500
