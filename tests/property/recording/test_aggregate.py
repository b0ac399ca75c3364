"""The sum of a batch, compared with a count of one detection after the other."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given

from engine.kafka.timestamps import parse
from engine.recorder.detections import CountedDetections
from engine.recorder.local_days import DayRule
from engine.recorder.rows import DeviceChanges, DeviceIdentity
from tests.property.recording.detections import PLACES, Message, Scene, scenes
from tests.unit.engine.records import RECORD_TIME

RULE = DayRule(max_age=300.0, retention=86_400.0)
NOW = RECORD_TIME + 3600
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def counted(scene: Scene) -> CountedDetections:
    return CountedDetections(scene.heard, PLACES, rule=RULE, trace="all")


@given(scenes)
def test_counters_and_the_last_that_is_said_of_a_device(scene: Scene) -> None:
    expected: dict[DeviceIdentity, DeviceChanges] = {}
    for message in scene.messages:
        place = scene.place(message)
        if place is None:
            continue
        update = expected.setdefault(
            DeviceIdentity(place.company_id, message.udid), DeviceChanges()
        )
        update.nb_beacon += 1
        for field, said in message.device.items():
            if said is not None:
                _say(update, field, said)
    assert counted(scene).device_updates() == expected


def _say(update: DeviceChanges, field: str, said: str | int) -> None:
    if isinstance(said, int):
        if said < 2**63:
            update.id_connector = said
        return
    kept = "".join(letter for letter in said if letter != "\0")
    setattr(update, field, kept if field == "token_push" else kept[:255])


@given(scenes)
def test_every_detection_that_counts_has_its_row(scene: Scene) -> None:
    known = scene.known()
    expected = []
    for message in scene.messages:
        place = scene.place(message)
        if place is not None and _leaves_trace(message):
            device = known[DeviceIdentity(place.company_id, message.udid)]
            ip = None if message.ip is None else message.ip.replace("\0", "")[:64]
            expected.append((device.id, place.venue_id, place.beacon_id, message.zone, ip))
    rows = counted(scene).rows(known, NOW).detections
    assert [(r.device_id, r.venue_id, r.beacon_id, r.status, r.ip) for r in rows] == expected
    assert all(row.create_on.tzinfo is UTC for row in rows)


@given(scenes)
def test_rows_carry_the_instant_where_sql_can_hold_it(scene: Scene) -> None:
    told = [m for m in scene.messages if scene.place(m) is not None and _leaves_trace(m)]
    rows = counted(scene).rows(scene.known(), NOW).detections
    for message, row in zip(told, rows, strict=True):
        if isinstance(message.at, int):
            assert row.create_on == EPOCH + timedelta(milliseconds=message.at)


@given(scenes)
def test_figures_of_days_leave_test_devices_out(scene: Scene) -> None:
    known = scene.known()
    heard: dict[tuple[date, str, int], list[int]] = {}
    for message in scene.messages:
        place = scene.place(message)
        if place is None or DeviceIdentity(place.company_id, message.udid) in scene.test_devices:
            continue
        device = known[DeviceIdentity(place.company_id, message.udid)].id
        day = _day(message, place.time_zone)
        if not _counts_for(day, message, place.time_zone):
            continue
        heard.setdefault((day, "venue", place.venue_id), []).append(device)
        heard.setdefault((day, "beacon", place.beacon_id), []).append(device)
    found = counted(scene).rows(known, NOW).statistics
    assert found is not None
    figures = {tuple(key): (f.detections, f.notifications) for key, f in found.figures.items()}
    assert figures == {key: (len(devices), 0) for key, devices in heard.items()}
    venues = {place.beacon_id: place.venue_id for place in PLACES.values()}
    for key, figure in found.figures.items():
        assert figure.venue_id == (key.ref if key.kind == "venue" else venues[key.ref])
    assert {tuple(key): ids for key, ids in found.devices.items()} == {
        key: set(devices) for key, devices in heard.items()
    }


def _counts_for(day: date, message: Message, time_zone: str | None) -> bool:
    """Every record comes at the same instant."""
    came = datetime.fromtimestamp(RECORD_TIME, UTC)
    at = EPOCH + timedelta(seconds=parse(message.at)) if isinstance(message.at, int) else None
    is_fresh = at is not None and abs((at - came).total_seconds()) <= 300
    return is_fresh or day == came.astimezone(ZoneInfo(time_zone or "UTC")).date()


def _leaves_trace(message: Message) -> bool:
    """Every record comes an hour before it is recorded, and traces are kept for a day and today."""
    if not isinstance(message.at, int):
        return False
    return -47 * 3600 <= message.at / 1000 - RECORD_TIME <= 24 * 3600


def _day(message: Message, time_zone: str | None) -> date:
    """By the calendar; at its two ends, where no local time can be told, the last day there is."""
    if message.at == "0001-01-01T00:00:00+1400":
        return date.min
    if message.at == "9999-12-31T23:59:59-1400":
        return date.max
    instant = datetime.fromtimestamp(parse(message.at), UTC)
    return instant.astimezone(ZoneInfo(time_zone or "UTC")).date()
