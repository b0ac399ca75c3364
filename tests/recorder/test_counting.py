"""The sum of a batch, compared with a count of one detection after the other."""

from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from engine.formats.decoders import OwnFormatDecoder
from engine.kafka.detections import BeaconKey, DecodedDetection, decode_detections
from engine.kafka.messages import parse
from engine.process.metrics import Metrics
from engine.recorder.days import DayRule
from engine.recorder.ledger import (
    ActiveBeacon,
    DeviceChanges,
    DeviceIdentity,
    StoredDevice,
)
from engine.recorder.readers import DetectionReader, NewRows
from tests.kafka.records import RECORD_TIME, UUID, detection, record

ZONES = ("immediate", "near", "far", "unknown")
# Two companies, three venues, one of them without a time zone; the last beacon has no place.
PLACES = {
    BeaconKey(UUID, 1, 1): ActiveBeacon(11, 101, 1, "America/Los_Angeles"),
    BeaconKey(UUID, 1, 2): ActiveBeacon(12, 101, 1, "America/Los_Angeles"),
    BeaconKey(UUID, 1, 3): ActiveBeacon(13, 102, 1, None),
    BeaconKey(UUID, 1, 4): ActiveBeacon(14, 103, 2, "Pacific/Kiritimati"),
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

    def place(self, message: Message) -> ActiveBeacon | None:
        """Where it was made."""
        return PLACES.get(BeaconKey(UUID, 1, message.minor))

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
    },
)
messages = st.builds(
    Message,
    st.sampled_from(UDIDS),
    st.integers(1, 5),
    st.sampled_from(ZONES),
    instants,
    _devices,
    st.none() | texts,
)
device_keys = st.tuples(st.integers(1, 2), st.sampled_from(UDIDS))
scenes = st.builds(Scene, st.lists(messages, max_size=25), st.frozensets(device_keys))


def _body(message: Message) -> dict[str, Any]:
    return detection(
        minor=message.minor,
        proximity=message.zone,
        detected_at=message.at,
        ip=message.ip,
        device={"udid": message.udid, **message.device},
    )


RULE = DayRule(max_age=300.0, retention=86_400.0)
NOW = RECORD_TIME + 3600
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


READER = DetectionReader(
    decoder=OwnFormatDecoder(path_loss_exponent=2.0),
    trace="all",
    skipped=Metrics().recorder_skipped,
    rule=RULE,
)


def rows_of(scene: Scene) -> NewRows:
    return READER.rows(READER.at(PLACES, scene.received), scene.known(), NOW)


@given(scenes)
def test_counters_and_the_newest_values_of_a_device(scene: Scene) -> None:
    expected: dict[DeviceIdentity, DeviceChanges] = {}
    for message in scene.messages:
        place = scene.place(message)
        if place is None:
            continue
        update = expected.setdefault(key := (place.company_id, message.udid), DeviceChanges(*key))
        update.nb_beacon += 1
        for field, value in message.device.items():
            if value is not None:
                _set_field(update, field, value)
    assert READER.changes(READER.at(PLACES, scene.received)) == expected


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
    for message in scene.messages:
        place = scene.place(message)
        if place is not None and _leaves_trace(message):
            device = known[(place.company_id, message.udid)]
            ip = None if message.ip is None else message.ip.replace("\0", "")[:64]
            at = EPOCH + timedelta(milliseconds=int(message.at))
            place_ids = (place.venue_id, place.beacon_id)
            expected.append((device[0], *place_ids, message.zone, at, ip))
    rows = rows_of(scene).detections
    assert rows == expected
    assert all(row.create_on.tzinfo is UTC for row in rows)


@given(scenes)
def test_figures_of_days_leave_test_devices_out(scene: Scene) -> None:
    known = scene.known()
    received: dict[tuple[date, str, int], list[int]] = {}
    for message in scene.messages:
        place = scene.place(message)
        if place is None or (place.company_id, message.udid) in scene.test_devices:
            continue
        device = known[(place.company_id, message.udid)][0]
        day = _day(message, place.time_zone)
        if not _counts_for(day, message, place.time_zone):
            continue
        received.setdefault((day, "venue", place.venue_id), []).append(device)
        received.setdefault((day, "beacon", place.beacon_id), []).append(device)
    found = rows_of(scene).figures
    figures = {tuple(key): (f.detections, f.notifications) for key, f in found.items()}
    assert figures == {key: (len(devices), 0) for key, devices in received.items()}
    venues = {place.beacon_id: place.venue_id for place in PLACES.values()}
    for key, figure in found.items():
        assert figure.venue_id == (key.ref if key.kind == "venue" else venues[key.ref])
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
