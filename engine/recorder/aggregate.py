"""What a batch adds up to. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from aiokafka import ConsumerRecord

from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.kafka.messages import Device
from engine.recorder.local_days import DayRule
from engine.recorder.rows import (
    BEACON,
    VENUE,
    DetectionRow,
    DeviceKey,
    DeviceNews,
    Figures,
    KnownDevice,
    Place,
    StatisticDevice,
    StatisticKey,
)
from rules.model import Zone

_LONGEST_NAME = 255
# An address, with a port and a zone; a token cut off would be the token of nobody.
_LONGEST_IP = 64
_LONGEST_TOKEN = 4096
_STATUS = {zone: zone.name.lower() for zone in Zone}
_INT64 = 2**63
# A timestamp with an offset may lie a few hours beyond year 1 or 9999.
_FIRST = -62_135_596_800
_LAST = 253_402_300_799


class Counted(NamedTuple):
    """A detection that counts, where it was made and by which device."""

    heard: DecodedDetection
    place: Place
    device: DeviceKey


class Statistics(NamedTuple):
    """What to add to the figures of days, and the devices that belong into them."""

    figures: dict[StatisticKey, Figures]
    devices: set[StatisticDevice]


def counted_detections(
    heard: Iterable[DecodedDetection], places: Mapping[BeaconKey, Place]
) -> list[Counted]:
    """The detections of active beacons at active venues."""
    found = []
    for detection in heard:
        place = places.get(detection.key)
        if place is not None:
            key = DeviceKey(place.company_id, detection.message.device.udid)
            found.append(Counted(detection, place, key))
    return found


def news_of_detections(counted: Iterable[Counted]) -> dict[DeviceKey, DeviceNews]:
    """Counters by device, and what the last detection that says so says of it."""
    news: dict[DeviceKey, DeviceNews] = {}
    for heard, _, key in counted:
        known = news.get(key)
        if known is None:
            known = news[key] = DeviceNews()
        known.nb_beacon += 1
        learn(known, heard.message.device)
    return news


def learn(news: DeviceNews, device: Device) -> None:
    """Take over what the message says of the device, as far as SQL can keep it."""
    if device.name is not None:
        news.name = storable(device.name, _LONGEST_NAME)
    if device.version is not None:
        news.version = storable(device.version, _LONGEST_NAME)
    if device.model is not None:
        news.model = storable(device.model, _LONGEST_NAME)
    if device.token_push is not None and len(device.token_push) <= _LONGEST_TOKEN:
        news.token_push = storable(device.token_push)
    number = device.id_connector
    if number is not None and -_INT64 <= number < _INT64:
        news.id_connector = number


def storable(text: str, longest: int | None = None) -> str:
    """Without NUL characters, which PostgreSQL has no place for, and not too long for a column."""
    if "\0" in text:
        text = text.replace("\0", "")
    return text if longest is None else text[:longest]


def address(ip: str | None) -> str | None:
    """An address as SQL keeps it."""
    return None if ip is None else storable(ip, _LONGEST_IP)


def instant(epoch: float) -> datetime:
    """Epoch seconds as SQL keeps them; beyond the calendar in UTC, its first or last second."""
    return datetime.fromtimestamp(min(max(epoch, _FIRST), _LAST), UTC)


def detection_rows(
    counted: Iterable[Counted],
    devices: Mapping[DeviceKey, KnownDevice],
    rule: DayRule,
    now: float,
) -> list[DetectionRow]:
    """A trace row for each detection that leaves one by `rule`; `now` is SQL's clock."""
    return [
        DetectionRow(
            devices[key].id,
            place.venue_id,
            place.beacon_id,
            _STATUS[heard.zone],
            instant(heard.detected_at),
            address(heard.message.ip),
        )
        for heard, place, key in counted
        if rule.leaves_trace(heard.detected_at, came_at(heard.record), now)
    ]


def statistics_of_detections(
    counted: Iterable[Counted],
    devices: Mapping[DeviceKey, KnownDevice],
    rule: DayRule,
    now: float,
) -> Statistics:
    """The figures of venues and beacons; test devices are left out, and what has no day by `rule`.

    `now` is SQL's clock, in epoch seconds.
    """
    visits = Counter(
        (rule.day_of(heard.detected_at, came_at(heard.record), now, place.time_zone), place, device)
        for heard, place, key in counted
        for device, is_test in (devices[key],)
        if not is_test
    )
    statistics = Statistics({}, set())
    for (day, place, device_id), count in visits.items():
        if day is None:
            continue
        for kind, ref in ((VENUE, place.venue_id), (BEACON, place.beacon_id)):
            key = StatisticKey(day, kind, ref)
            figures_of(statistics, key, place.venue_id).detections += count
            statistics.devices.add(StatisticDevice(*key, device_id))
    return statistics


def came_at(record: "ConsumerRecord[bytes, bytes]") -> float:
    """The record's own timestamp, in epoch seconds."""
    return float(record.timestamp) / 1000


def figures_of(statistics: Statistics, key: StatisticKey, venue_id: int) -> Figures:
    """The figures under `key`, new ones if there are none."""
    figures = statistics.figures.get(key)
    if figures is None:
        figures = statistics.figures[key] = Figures(venue_id)
    return figures
