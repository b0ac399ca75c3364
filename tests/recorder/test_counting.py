"""What a batch changes of its devices, compared with one detection after the other."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.formats.decoders import OwnFormatDecoder
from engine.kafka.detections import decode_record
from engine.process.metrics import Metrics
from engine.recorder.days import DayRule
from engine.recorder.ledger import ActivePlace, DeviceChanges, DeviceIdentity
from engine.recorder.readers import Counted, DetectionReader
from tests.kafka.records import detection, record

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
