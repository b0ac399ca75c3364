"""What a batch changes of its devices, compared with one detection after the other; and the local
day at a venue, with the standard library's calendar."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from engine.formats.decoders import OwnFormatDecoder
from engine.kafka.detections import decode_record
from engine.process.metrics import Metrics
from engine.recorder.days import DayRule, local_day
from engine.recorder.ledger import ActivePlace, DeviceChanges, DeviceIdentity
from engine.recorder.readers import Counted, DetectionReader
from tests.kafka.records import detection, record
from tests.rules.campaigns import zones

# Of two companies, by minor; the last one is in two geofences, and others are nowhere.
PLACES = {
    1: (ActivePlace(11, 101, 1, None),),
    2: (ActivePlace(14, 103, 2, "Pacific/Kiritimati"),),
    3: (ActivePlace(12, 102, 1, None, "geofence"), ActivePlace(13, 102, 1, None, "geofence")),
}
READER = DetectionReader(
    decoder=OwnFormatDecoder(path_loss_exponent=2.0),
    trace="all",
    skipped=Metrics().recorder_skipped,
    exits=Metrics().records_skipped.labels("recorder", "geofence_exit"),
    rule=DayRule(max_age=300.0, retention=86_400.0),
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=64)
devices = st.fixed_dictionaries(
    {"udid": st.sampled_from(("a", "b", "手机"))},
    optional={
        "name": st.none() | texts,
        "version": texts,
        "model": texts,
        "token_push": texts,
        "id_connector": st.integers(-(2**63), 2**63 - 1),
    },
)


@given(st.lists(st.tuples(st.integers(1, 4), devices), max_size=25))
def test_counters_and_the_newest_values_of_a_device(sent: list[tuple[int, dict[str, Any]]]) -> None:
    counted = []
    expected: dict[DeviceIdentity, DeviceChanges] = {}
    for minor, device in sent:
        each = decode_record(record(detection(minor=minor, device=device)), 2.0)
        for place in PLACES.get(minor, ()):
            key, what = (place.company_id, device["udid"]), (place, each.zone)
            counted.append(Counted(each.message, key, each.detected_at, each.record, what))
            update = expected.setdefault(key, DeviceChanges(*key))
            update.nb_beacon += place.kind == "beacon"
            for field, value in device.items():
                if field != "udid" and value is not None:
                    stored = value if isinstance(value, int) else value.replace("\0", "")
                    setattr(update, field, stored)
    assert READER.changes(counted) == expected


# Of times at which all zones have offsets of whole quarters, that a datetime can hold.
seconds = st.floats(94_694_400, 253_402_000_000, allow_nan=False)


@given(seconds, zones | st.none())
def test_the_day_is_that_of_the_calendar(instant: float, zone: str | ZoneInfo | None) -> None:
    name = None if zone is None else str(zone)
    local = datetime.fromtimestamp(instant // 1, UTC).astimezone(ZoneInfo(name or "UTC"))
    assert local_day(instant, name) == local.date()


def test_a_venue_in_a_zone_that_this_host_does_not_know_has_days_in_utc() -> None:
    assert local_day(NOW, "Mars/Olympus") == local_day(NOW, None)


DAY = 86_400.0
NOW = 1_795_173_600.0
RULE = DayRule(max_age=300.0, retention=30 * DAY)
ZONES = st.sampled_from([None, "Pacific/Kiritimati", "America/Los_Angeles", "Europe/Paris"])
anything = st.floats(-1e17, 1e17)


@given(anything, anything, ZONES)
def test_no_record_makes_figures_of_a_day_on_which_none_can_come(
    detected_at: float, arrived_at: float, zone: str | None
) -> None:
    """However the phone and the producer date it: so the days of figures are bounded."""
    day = RULE.day_of(detected_at, arrived_at, NOW, zone)
    first = local_day(NOW - RULE.retention - RULE.max_age, zone)
    last = local_day(NOW + 2 * RULE.max_age, zone)
    assert day is None or first <= day <= last
