"""The workloads. Each detection is one record; the same parameters give the same records."""

import json
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.catalog import API_KEY, BEACONS, UUID, centre_of, place_of
from engine.kafka.messages import format_instant

_SEED = 20261120
_ROAMING_DEVICES = 5000
_STRIDE = 7919  # a prime: few devices are at beacons far apart, however many there are
_SPAN = 60  # seconds over which the detections spread

_CAPS = {"caps": [{"max": 1000, "per": each} for each in ("hour", "day", "week")]}

Record = tuple[bytes, bytes]


@dataclass(frozen=True)
class Workload:
    """`devices` at BEACONS beacons, or places of another `kind`, of `campaigns` campaigns each.

    A roaming device is at another beacon each time; the others stay at theirs. `held` in a hundred
    detections were made before, by the same devices at the same beacons, so that their claims are
    held in Redis while the requesting process does not know them. `company` has other
    fields of the company.
    """

    name: str
    meaning: str
    devices: int
    campaigns: int
    roaming: bool = False
    held: int = 0
    kind: str = "beacon"
    company: Mapping[str, Any] = field(default_factory=dict)

    def records(self, count: int) -> Iterator[Record]:
        """Key and value of `count` detections of the last minute, in an order that repeats."""
        begin = time.time() - _SPAN
        for number, (device, beacon) in enumerate(self._meetings(count)):
            yield self._record(device, beacon, begin + number * _SPAN / count)

    def earlier_records(self, count: int) -> list[Record]:
        """The earlier detections whose claims are held."""
        at = time.time() - 2 * _SPAN
        meetings = enumerate(self._meetings(count))
        return [
            self._record(device, beacon, at)
            for n, (device, beacon) in meetings
            if n % 100 < self.held
        ]

    def notifications(self, count: int) -> set[tuple[str, int]]:
        """The udid and the number of the beacon of all that leads to notifications, each of them
        to one a campaign."""
        meetings = enumerate(self._meetings(count))
        return {
            (udid_of(device), beacon) for n, (device, beacon) in meetings if n % 100 >= self.held
        }

    def _meetings(self, count: int) -> Iterator[tuple[int, int]]:
        """Device and beacon; a roaming device meets no beacon twice."""
        draw = random.Random(_SEED)
        order = list(range(self.devices))
        for number in range(count):
            lap, place = divmod(number, self.devices)
            if self.roaming:
                if not place:
                    draw.shuffle(order)
                yield order[place], (order[place] * 7 + lap) % BEACONS
            else:
                device = number if self.devices >= count else draw.randrange(self.devices)
                yield device, device * _STRIDE % BEACONS

    def _record(self, device: int, number: int, at: float) -> Record:
        udid = udid_of(device)
        detection = {
            **_place(self.kind, number),
            "device": {"udid": udid, "name": "android", "version": "14", "model": "Pixel 8"},
            "detected_at": format_instant(at),
        }
        return udid.encode(), json.dumps(detection).encode()


def workloads(count: int) -> dict[str, Workload]:
    """The workloads for `count` detections, by name."""
    roaming = min(count, _ROAMING_DEVICES)
    if count > roaming * BEACONS:
        raise SystemExit(f"at most {roaming * BEACONS:,} records: a device meets no beacon twice")
    every = (
        Workload("dwell", "devices stay at a beacon; 1% of detections grant", count // 100, 2),
        Workload("scatter", "devices roam; every detection grants both", roaming, 2, True),
        Workload("capped", "as scatter, under three caps", roaming, 2, True, company=_CAPS),
        Workload(
            "steady", "devices roam; 95% of the requested claims are held", roaming, 2, True, 95
        ),
        Workload(
            "steady-capped", "as steady, under three caps", roaming, 2, True, 95, company=_CAPS
        ),
        Workload("sweep", "a new device each time; every detection grants", count, 1),
    )
    return {workload.name: workload for workload in every}


def udid_of(device: int) -> str:
    """The udid of a device."""
    return f"device-{device:08d}"


def _place(kind: str, number: int) -> dict[str, object]:
    if kind == "geofence":
        return {"geofence": {"id": number + 1, "transition": "dwell"}}
    if kind == "position":
        latitude, longitude = centre_of(number)
        position = {"latitude": latitude, "longitude": longitude, "accuracy": 12.5}
        return {"position": position, "api_key": API_KEY}
    if kind == "nfc":
        return {"tag": {"kind": kind, "value": f"tag {number}"}, "api_key": API_KEY}
    major, minor = place_of(number)
    return {"uuid": UUID, "major": major, "minor": minor, "proximity": "near"}
