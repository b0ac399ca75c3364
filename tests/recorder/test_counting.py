"""The sum of a batch, compared with a count of one detection after the other."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from engine.formats.decoders import OwnFormatDecoder
from engine.kafka.detections import DecodedDetection, decode_detections
from engine.kafka.messages import parse
from engine.process.metrics import Metrics
from engine.recorder.days import DayRule
from engine.recorder.ledger import (
    ActivePlace,
    DeviceChanges,
    DeviceIdentity,
    StoredDevice,
)
from engine.recorder.readers import Counted, DetectionReader, NewRows
from tests.kafka.records import RECORD_TIME, detection, record

ZONES = ("immediate", "near", "far", "unknown")
# Two companies, three venues, one of them without a time zone; by the number of a beacon, or of
# what stands for it in _ELSEWHERE. The position is in two geofences, and number 5 is nowhere.
PLACES = {
    1: (ActivePlace(11, 101, 1, "America/Los_Angeles"),),
    2: (ActivePlace(12, 101, 1, "America/Los_Angeles"),),
    3: (ActivePlace(13, 102, 1, None),),
    4: (ActivePlace(14, 103, 2, "Pacific/Kiritimati"),),
    6: (ActivePlace(11, 101, 1, "America/Los_Angeles", "geofence"),),
    7: (ActivePlace(11, 103, 2, "Pacific/Kiritimati", "nfc"),),
    8: (ActivePlace(12, 102, 1, None, "geofence"), ActivePlace(13, 102, 1, None, "geofence")),
}
_ELSEWHERE: dict[int, dict[str, Any]] = {
    6: {"geofence": {"id": 11, "transition": "enter"}},
    7: {"tag": {"kind": "nfc", "value": "04:a2"}, "api_key": "k"},
    8: {"position": {"latitude": 1.5, "longitude": 2}, "api_key": "k"},
}
NOON_MS = 1_795_173_600_000
RECORD_MS = int(RECORD_TIME * 1000)
_DAY_MS = 86_400_000

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=64)
instants = st.one_of(
    st.integers(NOON_MS - 2 * _DAY_MS, NOON_MS + 2 * _DAY_MS),
    st.integers(NOON_MS - 90_000, NOON_MS),
    st.integers(RECORD_MS - 400_000, RECORD_MS + 400_000),
    st.sampled_from(["0001-01-01T00:00:00+1400", "9999-12-31T23:59:59-1400"]),
)


class Message(NamedTuple):
    """A detection as it is written: `device` without the udid."""

    udid: str
    minor: int
    zone: str
    at: int | str
    device: dict[str, Any]
    ip: str | None


class Scene(NamedTuple):
    """A batch, decoded, and the devices that are marked as test devices."""

    messages: list[Message]
    test_devices: frozenset[DeviceIdentity]

    @property
    def received(self) -> list[DecodedDetection]:
        """The batch as the recorder gets it."""
        records = [record(_body(message)) for message in self.messages]
        decoded = decode_detections(records, 2.0)
        assert decoded.dead_letters == []
        return decoded.messages

    @property
    def counted(self) -> list[tuple[Message, ActivePlace]]:
        """The detections, each with its places."""
        return [(each, place) for each in self.messages for place in PLACES.get(each.minor, ())]

    def known(self) -> dict[DeviceIdentity, StoredDevice]:
        """Every device there may be, as SQL would answer."""
        keys = sorted((c, udid) for c in (1, 2) for udid in UDIDS)
        return {key: (n, key in self.test_devices) for n, key in enumerate(keys, 1)}


UDIDS = ("a", "b", "c", "手机")

_devices = st.fixed_dictionaries(
    {},
    optional={
        "name": st.none() | texts,
        "version": texts,
        "model": texts,
        "token_push": texts,
        "id_connector": st.integers(-(2**63), 2**64 - 1),
        "time_zone": st.sampled_from((None, "Europe/Paris", "Asia/Tokyo")),
    },
)
messages = st.builds(
    Message,
    st.sampled_from(UDIDS),
    st.integers(1, 8),
    st.sampled_from(ZONES),
    instants,
    _devices,
    st.none() | texts,
)
device_keys = st.tuples(st.integers(1, 2), st.sampled_from(UDIDS))
scenes = st.builds(Scene, st.lists(messages, max_size=25), st.frozensets(device_keys))


def _body(message: Message) -> dict[str, Any]:
    body = detection(
        minor=message.minor,
        proximity=message.zone,
        detected_at=message.at,
        ip=message.ip,
        device={"udid": message.udid, **message.device},
    )
    elsewhere = _ELSEWHERE.get(message.minor)
    if elsewhere is None:
        return body
    return {
        name: body[name] for name in body if name in ("device", "detected_at", "ip")
    } | elsewhere


RULE = DayRule(max_age=300.0, retention=86_400.0)
NOW = RECORD_TIME + 3600
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


READER = DetectionReader(
    decoder=OwnFormatDecoder(path_loss_exponent=2.0),
    trace="all",
    skipped=Metrics().recorder_skipped,
    exits=Metrics().records_skipped.labels("recorder", "geofence_exit"),
    rule=RULE,
)


def counted(scene: Scene) -> list[Counted]:
    received = scene.received
    numbers = {id(each): m.minor for each, m in zip(received, scene.messages, strict=True)}
    return READER.at(lambda each: PLACES.get(numbers[id(each)], ()), received)


def rows_of(scene: Scene) -> NewRows:
    return READER.rows(counted(scene), scene.known(), NOW)


@given(scenes)
def test_counters_and_the_newest_values_of_a_device(scene: Scene) -> None:
    expected: dict[DeviceIdentity, DeviceChanges] = {}
    for message, place in scene.counted:
        update = expected.setdefault(key := (place.company_id, message.udid), DeviceChanges(*key))
        update.nb_beacon += place.kind == "beacon"
        for field, value in message.device.items():
            if value is not None:
                _set_field(update, field, value)
    assert READER.changes(counted(scene)) == expected


def _set_field(update: DeviceChanges, field: str, value: str | int) -> None:
    if isinstance(value, int):
        if value < 2**63:
            update.id_connector = value
        return
    kept = "".join(letter for letter in value if letter != "\0")
    setattr(update, field, kept if field == "token_push" else kept[:255])


@given(scenes)
def test_every_detection_that_counts_has_its_row(scene: Scene) -> None:
    known = scene.known()
    expected = []
    for message, place in scene.counted:
        if _leaves_trace(message):
            device = known[(place.company_id, message.udid)]
            ip = None if message.ip is None else message.ip.replace("\0", "")[:64]
            at = EPOCH + timedelta(milliseconds=int(message.at))
            is_beacon, id_ = place.kind == "beacon", place.id
            zone = message.zone if is_beacon else "unknown"
            beacon = id_ if is_beacon else None
            others = [id_ if place.kind == kind else None for kind in ("geofence", "nfc")]
            expected.append((device[0], place.venue_id, beacon, zone, at, ip, *others))
    rows = rows_of(scene).detections
    assert rows == expected
    assert all(row.create_on.tzinfo is UTC for row in rows)


@given(scenes)
def test_figures_of_days_leave_test_devices_out(scene: Scene) -> None:
    known = scene.known()
    received: dict[tuple[date, str, int], list[int]] = {}
    at_beacons = Counter[tuple[date, str, int]]()
    for message, place in scene.counted:
        if (place.company_id, message.udid) in scene.test_devices:
            continue
        device = known[(place.company_id, message.udid)][0]
        day = _day(message, place.time_zone)
        if not _counts_for(day, message, place.time_zone):
            continue
        for key in ((day, "venue", place.venue_id), (day, place.kind, place.id)):
            received.setdefault(key, []).append(device)
            at_beacons[key] += place.kind == "beacon"
    found = rows_of(scene).figures
    figures = {tuple(k): (f.detections, f.place_detections) for k, f in found.items()}
    assert figures == {
        key: (at_beacons[key], len(devices) - at_beacons[key]) for key, devices in received.items()
    }
    venues = {(str(each.kind), each.id): each.venue_id for some in PLACES.values() for each in some}
    for key, figure in found.items():
        assert figure.venue_id == (key.ref if key.kind == "venue" else venues[key.kind, key.ref])
    assert {tuple(key): figure.devices for key, figure in found.items()} == {
        key: set(devices) for key, devices in received.items()
    }


def _counts_for(day: date, message: Message, time_zone: str | None) -> bool:
    """Every record comes at the same instant."""
    arrived = datetime.fromtimestamp(RECORD_TIME, UTC)
    at = EPOCH + timedelta(seconds=parse(message.at)) if isinstance(message.at, int) else None
    is_fresh = at is not None and abs((at - arrived).total_seconds()) <= 300
    return is_fresh or day == arrived.astimezone(ZoneInfo(time_zone or "UTC")).date()


def _leaves_trace(message: Message) -> bool:
    """Every record comes an hour before it is recorded, and traces are kept for a day and today."""
    if not isinstance(message.at, int):
        return False
    return -47 * 3600 <= message.at / 1000 - RECORD_TIME <= 24 * 3600


def _day(message: Message, time_zone: str | None) -> date:
    """By the calendar; at its two ends, without a local time, the last day that exists."""
    if message.at == "0001-01-01T00:00:00+1400":
        return date.min
    if message.at == "9999-12-31T23:59:59-1400":
        return date.max
    instant = datetime.fromtimestamp(parse(message.at), UTC)
    return instant.astimezone(ZoneInfo(time_zone or "UTC")).date()
