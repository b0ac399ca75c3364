"""Generates very many records, and compares the figures in SQL with those expected of them."""

import random
import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import orjson
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from catalog.database import Database
from engine.kafka.messages import format_instant
from tests.catalog.records import UUID
from tests.recorder.estate import TEST_DEVICES, Estate, Spot
from tests.system.topics import Message

VISITED = ("beacon", "geofence")
LENGTHS = (0, 1, 5, 15, 30, 60, 120, 240)  # minutes
ZONES = ("immediate", "near", "far", "unknown")
_DAY_MS = 86_400_000
# Longer after its detection a record counts for no day but the one on which it comes: the settings
# MAX_DETECTION_AGE, and for notifications NOTIFICATION_LIFETIME besides.
FRESH_MS = {"detections": 300_000, "notifications": 600_000}
_TAG: dict[str, Any] = {"tag": {"kind": "nfc", "value": "nothing"}, "api_key": "no key"}
_UNKNOWN: dict[str, dict[str, Any]] = {
    "beacon": {"uuid": UUID, "major": 2, "minor": 1},
    "geofence": {"geofence": {"id": 2**40, "transition": "enter"}},
    "nfc": _TAG,
    "qrcode": _TAG,
}
_MALFORMED = (b"no json", b"{}", b'{"uuid": 7}', b"\xff")

Device = tuple[int, str]  # company id, udid


class Expected:
    """The figures that SQL must have in the end."""

    def __init__(self) -> None:
        self.nb_beacon: Counter[Device] = Counter()
        self.nb_campaign: Counter[Device] = Counter()
        # Rows of traces, each behind its device.
        self.detections: Counter[tuple[Any, ...]] = Counter()
        self.authentications: Counter[tuple[Any, ...]] = Counter()
        self.receptions: dict[str, tuple[int, str, int]] = {}
        # Detections, those of other places than beacons, and notifications.
        self.figures: dict[tuple[date, str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
        self.visitors: dict[tuple[date, str, int], set[str]] = defaultdict(set)
        # Visits begun and ended, and their seconds, by day, kind, id and least minutes.
        self.visits: dict[tuple[date, str, int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
        self.visit_events: set[str] = set()
        self.dead_letters: Counter[str] = Counter()

    def note_figures(self, day: date, refs: Iterator[tuple[str, int]], what: int, who: str) -> None:
        """Add to the figures of a day, unless a test device did it."""
        if int(who.split()[1]) < TEST_DEVICES:
            return
        for kind, ref in refs:
            self.figures[day, kind, ref][what] += 1
            self.visitors[day, kind, ref].add(who)


class Flood:
    """Makes records of all topics; `expected` keeps up. `now_ms` is the end of their time."""

    def __init__(self, estate: Estate, dice: random.Random, *, devices: int, now_ms: int) -> None:
        self.expected = Expected()
        self._estate = estate
        self._dice = dice
        self._now_ms = now_ms
        # Each phone has its places, some of them of both companies.
        self._places = [dice.sample(estate.spots, 3) for _ in range(devices)]
        self._sent: list[Message] = []

    def messages(self, **counts: int) -> Iterator[tuple[str, Iterator[Message]]]:
        """So many of each of these topics."""
        for topic, count in counts.items():
            yield topic, getattr(self, topic)(count)

    def detections(self, count: int) -> Iterator[Message]:
        """Generate detections, a few of them malformed or of unknown beacons."""
        for _ in range(count):
            fate = self._dice.random()
            if fate < 0.005:
                yield self._malformed()
            else:
                yield self._detection(unknown=fate < 0.015)

    def notifications(self, count: int) -> Iterator[Message]:
        """Generate notifications; one in ten repeats an earlier one."""
        for _ in range(count):
            fate = self._dice.random()
            if fate < 0.1 and self._sent:
                yield self._dice.choice(self._sent)
            elif fate < 0.105:
                self.expected.dead_letters["notifications"] += 1
                yield self._malformed()
            else:
                yield self._notification()

    def authentications(self, count: int) -> Iterator[Message]:
        """Generate authentications, some with an invalid key."""
        for _ in range(count):
            udid = self._udid()
            key = self._dice.choice([*self._estate.keys, "no key"])
            at, ip = self._instant(), f"192.0.2.{self._dice.randrange(256)}"
            body = {"api_key": key, "device": {"udid": udid}, "authenticated_at": at, "ip": ip}
            company = self._estate.keys.get(key)
            if company is None:
                self.expected.dead_letters["authentications"] += 1
            else:
                self.expected.authentications[(company, udid), at, ip] += 1
            yield _message(udid, body, self._now_ms)

    def presence(self, count: int) -> Iterator[Message]:
        """Generate enters and exits; some repeat an earlier one, some are of no use."""
        sent: list[Message] = []
        for _ in range(count):
            fate = self._dice.random()
            if fate < 0.1 and sent:
                yield self._dice.choice(sent)
            elif fate < 0.11:
                self.expected.dead_letters["presence"] += 1
                yield self._malformed()
            else:
                sent.append(self._presence())
                yield sent[-1]

    def _presence(self) -> Message:
        dice, udid = self._dice, self._udid()
        spot = dice.choice(self._places[int(udid.split()[1])])
        number = str(uuid.UUID(int=dice.getrandbits(128), version=4))
        type_, seconds = dice.choice(("enter", "dwell", "exit")), dice.randrange(20_000)
        at = self._instant() // 1000 * 1000
        kind = dice.choice((spot.kind, "venue")) if spot.kind in VISITED else "venue"
        place = spot.venue if kind == "venue" else spot.id
        body: dict[str, Any] = {
            "id": number,
            "visit_id": number,
            "type": type_,
            "place": {"kind": kind, "id": place, "name": ""},
            "venue": {"id": spot.venue, "name": ""},
            "company": {"id": spot.company},
            "device": {"udid": udid},
            "entered_at": format_instant(at / 1000),
            "last_seen": format_instant(at / 1000 + seconds),
            "detections": 1,
        }
        if type_ == "exit":
            body["duration_seconds"] = seconds
        if type_ != "dwell":
            self.expected.visit_events.add(number)
        if type_ != "dwell" and int(udid.split()[1]) >= TEST_DEVICES:
            ended = type_ == "exit"
            minutes = max(each for each in LENGTHS if each * 60 <= seconds) if ended else 0
            figures = self.expected.visits[_day(at, spot), kind, place, minutes]
            figures[ended] += 1
            figures[2] += seconds * ended
        return _message(udid, body, self._arrival(at))

    def _detection(self, *, unknown: bool) -> Message:
        dice, udid = self._dice, self._udid()
        spot = dice.choice(self._places[int(udid.split()[1])])
        zone, at = dice.choice(ZONES), self._instant()
        arrived = self._arrival(at)
        body: dict[str, Any] = {
            **(_UNKNOWN[spot.kind] if unknown else spot.signal),
            "proximity": zone,
            "device": {"udid": udid, "name": "iOS", "version": "17.1", "token_push": "t" * 64},
            "detected_at": at,
        }
        if spot.counts and not unknown:
            self._expect_detection(spot, udid, zone, at, arrived)
        return _message(udid, body, arrived)

    def _expect_detection(self, spot: Spot, udid: str, zone: str, at: int, arrived: int) -> None:
        device = (spot.company, udid)
        is_beacon = spot.kind == "beacon"
        if is_beacon:
            self.expected.nb_beacon[device] += 1
        status = zone if is_beacon else "unknown"
        column = {"beacon": 0, "geofence": 1}.get(spot.kind, 2)
        ids = [spot.id if number == column else None for number in range(3)]
        self.expected.detections[(device, spot.venue, *ids, status, at)] += 1
        refs = iter((("venue", spot.venue), (spot.kind, spot.id)))
        if _has_a_day("detections", at, arrived, spot):
            self.expected.note_figures(_day(at, spot), refs, 0 if is_beacon else 1, udid)

    def _notification(self) -> Message:
        dice, udid = self._dice, self._udid()
        spot = dice.choice(self._places[int(udid.split()[1])])
        number = str(uuid.UUID(int=dice.getrandbits(128), version=4))
        at = self._instant() // 1000 * 1000  # as the trigger writes it: whole seconds
        arrived = self._arrival(at)
        message = _message(udid, _body_of(number, spot, udid, at), arrived)
        self._sent.append(message)
        self.expected.nb_campaign[spot.company, udid] += 1
        self.expected.receptions[number] = (spot.company, udid, spot.campaign)
        refs = iter((("venue", spot.venue), (spot.kind, spot.id), ("campaign", spot.campaign)))
        if _has_a_day("notifications", at, arrived, spot):
            self.expected.note_figures(_day(at, spot), refs, 2, udid)
        return message

    def _malformed(self) -> Message:
        value = self._dice.choice(_MALFORMED)
        return Message(b"-", value, timestamp_ms=self._now_ms)

    def _udid(self) -> str:
        return f"phone {self._dice.randrange(len(self._places))}"

    def _arrival(self, at: int) -> int:
        """The timestamp of a detection's record: mostly at once, sometimes on another day."""
        if self._dice.random() < 0.8:
            return min(at + self._dice.randrange(200_000), self._now_ms)
        return self._dice.randrange(at, self._now_ms + 1)

    def _instant(self) -> int:
        return self._now_ms - self._dice.randrange(2 * _DAY_MS)


def _message(udid: str, body: dict[str, Any], arrived_ms: int) -> Message:
    return Message(udid.encode(), orjson.dumps(body), timestamp_ms=arrived_ms)


def _has_a_day(topic: str, at: int, arrived: int, spot: Spot) -> bool:
    return arrived - at <= FRESH_MS[topic] or _day(at, spot) == _day(arrived, spot)


def _day(at_ms: int, spot: Spot) -> date:
    instant = datetime.fromtimestamp(at_ms / 1000, UTC)
    return instant.astimezone(ZoneInfo(spot.time_zone or "UTC")).date()


def _body_of(number: str, spot: Spot, udid: str, at: int) -> dict[str, Any]:
    return {
        "id": number,
        "campaign": {"id": spot.campaign},
        "company": {"id": spot.company},
        "venue": {"id": spot.venue},
        spot.kind: {"id": spot.id},
        "device": {"udid": udid},
        "detected_at": format_instant(at / 1000),
    }


async def assert_written(database: Database, expected: Expected) -> None:
    """Assert that every row is as expected."""
    devices = {
        row.id: (row.company_id, row.udid)
        async for row in _rows(database, "SELECT id, company_id, udid FROM device")
    }
    await _assert_counters(database, expected)
    await _assert_traces(database, devices, expected)
    receptions = {
        str(uuid.UUID(str(row.notification))): (*devices[row.device_id], row.campaign_id)
        async for row in _rows(database, "SELECT * FROM reception")
    }
    assert receptions == expected.receptions
    await _assert_figures(database, expected)
    await _assert_visits(database, expected)


async def recorded(database: Database) -> int:
    """How many records are recorded, of all topics; -1 while SQL does not answer."""
    try:
        query = "SELECT sum(next_offset) AS done FROM recorder_offset"
        (done,) = [row.done async for row in _rows(database, query)]
    except (SQLAlchemyError, OSError):
        return -1
    return int(done or 0)


async def _assert_counters(database: Database, expected: Expected) -> None:
    for counter in ("nb_beacon", "nb_campaign"):
        query = f"SELECT company_id, udid, {counter} AS figure FROM device WHERE {counter} <> 0"
        found = {(r.company_id, r.udid): r.figure async for r in _rows(database, query)}
        assert found == dict(getattr(expected, counter)), counter


async def _assert_traces(
    database: Database, devices: dict[int, Device], expected: Expected
) -> None:
    detections: Counter[tuple[Any, ...]] = Counter()
    async for row in _rows(database, "SELECT * FROM detection_trace"):
        place = (row.venue_id, row.beacon_id, row.geofence_id, row.scan_tag_id)
        detections[(devices[row.device_id], *place, row.status, _ms(row.create_on))] += 1
    assert detections == expected.detections
    authentications: Counter[tuple[Any, ...]] = Counter()
    async for row in _rows(database, "SELECT * FROM authentication_trace"):
        authentications[devices[row.device_id], _ms(row.create_on), row.ip] += 1
    assert authentications == expected.authentications


async def _assert_figures(database: Database, expected: Expected) -> None:
    found = {
        (_date_of(row.day), row.kind, row.ref): (
            *(row.detections, row.place_detections, row.notifications),
            row.devices,
        )
        async for row in _rows(database, "SELECT * FROM statistic")
    }
    assert found == {
        key: (*figures, len(expected.visitors[key])) for key, figures in expected.figures.items()
    }


async def _assert_visits(database: Database, expected: Expected) -> None:
    found = {
        (_date_of(row.day), row.kind, row.ref, row.minutes): [row.begun, row.ended, row.seconds]
        async for row in _rows(database, "SELECT * FROM visit_statistic")
    }
    assert found == expected.visits
    events = {row.id async for row in _rows(database, "SELECT id FROM visit_event")}
    assert {str(uuid.UUID(str(each))) for each in events} == expected.visit_events


async def _rows(database: Database, query: str) -> AsyncIterator[Any]:
    async with database.engine.connect() as connection:
        async for row in await connection.stream(text(query)):
            yield row


def _ms(instant: datetime | str) -> int:
    if isinstance(instant, str):  # as SQLite keeps it
        instant = datetime.fromisoformat(instant)
    aware = instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant
    return round(aware.timestamp() * 1000)


def _date_of(day: date | str) -> date:
    return date.fromisoformat(day) if isinstance(day, str) else day
