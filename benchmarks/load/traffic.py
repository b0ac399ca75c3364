"""The schedule of detections, which does not depend on the speed of the system under load."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NamedTuple

from benchmarks.catalog import UUID, place_of

Pattern = Literal["dwell", "sweep", "roam", "herd"]
_SEED = 20261122
_MANY = 1_000_000_007  # more than there are devices
_UNKNOWN = "00000000-0000-4000-8000-0000000000ff"


class Place(NamedTuple):
    """The triple of a beacon."""

    uuid: str
    major: int
    minor: int


class Meeting(NamedTuple):
    """A detection to send `at` seconds after the beginning."""

    at: float
    device: int
    place: Place
    malformed: bool
    known: bool


@dataclass(frozen=True)
class Traffic:
    """`rate` detections a second for `seconds`.

    dwell: `devices` stay at a beacon each. sweep: a new device each time. roam: `devices` are at
    any beacon each time. herd: all `devices` enter within the first second, and then dwell.
    Beacons are drawn uniformly, or by Zipf's law with exponent `zipf`. `unknown` and `malformed`
    are shares of the detections.
    """

    rate: float
    seconds: float
    beacons: list[Place]
    pattern: Pattern = "dwell"
    devices: int = 10_000
    zipf: float = 0.0
    poisson: bool = False
    unknown: float = 0.0
    malformed: float = 0.0
    seed: int = _SEED
    _weights: list[float] = field(init=False, repr=False, compare=False)
    _homes: dict[int, Place] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        shares = [1 / rank**self.zipf for rank in range(1, len(self.beacons) + 1)]
        object.__setattr__(self, "_weights", list(accumulate(shares)))

    def meetings(self) -> Iterator[Meeting]:
        """All detections in order of time; the same parameters give the same detections."""
        draw = random.Random(self.seed)
        for number, at in enumerate(self._times(draw)):
            device, place = self._device_and_place(number, draw)
            known = not self.unknown or draw.random() >= self.unknown
            malformed = bool(self.malformed) and draw.random() < self.malformed
            yield Meeting(at, device, place if known else _other_place(place), malformed, known)

    def _times(self, draw: random.Random) -> Iterator[float]:
        if self.pattern == "herd":
            yield from (number / self.devices for number in range(self.devices))
        at = 1.0 if self.pattern == "herd" else 0.0
        even = 1 / self.rate
        while at < self.seconds:
            yield at
            at += draw.expovariate(self.rate) if self.poisson else even

    def _device_and_place(self, number: int, draw: random.Random) -> tuple[int, Place]:
        if self.pattern == "sweep":
            return number, self._drawn(draw)
        if self.pattern == "herd" and number < self.devices:
            return number, self._home(number)
        device = draw.randrange(self.devices)
        return device, self._drawn(draw) if self.pattern == "roam" else self._home(device)

    def _home(self, device: int) -> Place:
        """The place of a device that dwells, drawn by its own random number."""
        home = self._homes.get(device)
        if home is None:
            home = self._homes[device] = self._drawn(random.Random(self.seed * _MANY + device))
        return home

    def _drawn(self, draw: random.Random) -> Place:
        if not self.zipf:
            return self.beacons[draw.randrange(len(self.beacons))]
        return draw.choices(self.beacons, cum_weights=self._weights)[0]


def _other_place(place: Place) -> Place:
    return place._replace(uuid=_UNKNOWN)


def numbered(count: int) -> list[Place]:
    """The beacons of the catalogs that benchmarks make."""
    return [Place(UUID, *place_of(number)) for number in range(count)]


def of_catalog(file: Path) -> list[Place]:
    """The beacons of a document for `proximity catalog load`."""
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return [
        Place(str(beacon["uuid"]).lower(), int(beacon["major"]), int(beacon["minor"]))
        for company in document["companies"]
        for venue in company.get("venues", ())
        for beacon in venue.get("beacons", ())
    ]
