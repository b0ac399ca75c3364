"""Reports of gateways and phones, as they write them, and malformed ones."""

from typing import Any

import orjson
import pytest

from engine.kafka.detections import DecodedDetection
from tests.formats.records import (
    ARRIVED_AT,
    SAMPLES,
    Sample,
    decode,
    decoded,
    kontakt_event,
    kontakt_upload,
    refused,
    report,
    triple,
)

MINEW, OLD_MINEW = (each.value for each in SAMPLES["minew"])
OWNTRACKS, _, LOCATION, _ = (each.value for each in SAMPLES["owntracks"])
(RADAR,), (THEENGS,) = SAMPLES["radar"], SAMPLES["theengs"]
KIO = SAMPLES["kontakt-cloud"][0]
KEY = ("api_key", b"app-1")
IN_WEBHOOK = orjson.loads(RADAR.value)
RADAR_EVENT = IN_WEBHOOK["events"][0]
NO_USER = RADAR_EVENT | {"user": None}
EXITED = RADAR_EVENT | {"type": "user.exited_geofence"}


def seen(format_: str, record: Any) -> list[str]:
    """Position in the report, place, device, and time of each detection, as in samples.md."""
    return [
        f"{each.index} {place_of(each)} {each.message.device.udid} {each.detected_at}"
        for each in decoded(format_, record)
    ]


def place_of(detection: DecodedDetection) -> str:
    if (position := detection.message.position) is None:
        return f"{' '.join(map(str, triple(detection)))} {detection.zone.name}"
    assert detection.message.api_key == "app-1"
    return f"{position.latitude} {position.longitude} {position.accuracy}"


@pytest.mark.parametrize(
    ("format_", "sample"), [(format_, each) for format_, of in SAMPLES.items() for each in of]
)
def test_a_sample(format_: str, sample: Sample):
    record = report(sample.value, key=sample.key, headers=[KEY])
    assert seen(format_, record) == sample.detections


@pytest.mark.parametrize(
    ("format_", "value", "headers", "expected"),
    [
        (
            "theengs",
            THEENGS.value,
            [("mqtt.topic", b"home/presence/Hall")],
            [f"0 1de4b189-115e-45f6-b44e-509352269977 0 0 NEAR gateway:Hall {ARRIVED_AT}"],
        ),
        ("theengs", b'{"id":"4C:64:A8:D0:AE:65","model_id":"HHCCJCY01HHCC","rssi":-79}', [], []),
        ("theengs", b'{"id":"60:87:57:4C:9B:C2","rssi":-79}', [], []),
        (
            "minew",
            b'[{"type":"Gateway","mac":"AC233FC03641"},{"type":"S1","mac":"C3000025EF6A"}]',
            [],
            [],
        ),
        ("kontakt-cloud", b"[" + KIO.value + b"]", [], KIO.detections),
        (
            "owntracks",
            b'{"_type":"location","lat":-90,"lon":180}',
            [KEY],
            [f"0 -90.0 180.0 None hall {ARRIVED_AT}"],
        ),
        (
            "radar",
            {"event": NO_USER, "user": IN_WEBHOOK["user"]},
            [KEY],
            RADAR.detections,
        ),
        # Two geofences of Radar's, one update of the location.
        (
            "radar",
            {"events": [EXITED, RADAR_EVENT, RADAR_EVENT]},
            [KEY],
            [RADAR.detections[0].replace("0", "1", 1)],
        ),
    ],
)
def test_another_report(format_: str, value: Any, headers: Any, expected: list[str]):
    assert seen(format_, report(value, headers=headers)) == expected


INGICS = "b9a5d27d-56cc-4e3a-ab51-1f2153bcb967 1 17710 NEAR gateway:gatewayUniqueId"


def test_ibeacons_among_kontakts_events():
    kontakt_packet = orjson.loads(SAMPLES["kontakt"][0].value)["events"][0]
    nested = {"rssi": -51, "timestamp": 1_688_335_200_123, "ble": {"data": kontakt_event()["data"]}}
    uploaded = kontakt_upload(3, kontakt_packet, kontakt_event(), kontakt_event(timestamp=None))
    # (-51 dBm, of a beacon that has -42 at one metre, are 2.8 m.)
    assert seen("kontakt", uploaded) == [f"1 {INGICS} 1688335200.0", f"2 {INGICS} {ARRIVED_AT}"]
    assert seen("kontakt", kontakt_upload(4, nested)) == [f"0 {INGICS} 1688335200.123"]


def minew(**fields: Any) -> Any:
    """The sample, with fields of its beacon replaced, or removed where they are None."""
    gateway, beacon = orjson.loads(MINEW)
    whole = {name: value for name, value in (beacon | fields).items() if value is not None}
    return report([gateway, whole])


def changed(sample: bytes, old: bytes, new: bytes) -> Any:
    """The sample with one thing in it replaced."""
    assert old in sample
    return report(sample.replace(old, new, 1), headers=[KEY])


def kio(old: bytes, new: bytes) -> Any:
    """The cloud's event with one thing in it replaced; the gateway's time stands first."""
    event = KIO.value.replace(b'"beaconTimestamp": "2021-10-07T11:41:07.988Z",', b"")
    return changed(event, old, new)


@pytest.mark.parametrize(
    ("format_", "record", "expected"),
    [
        ("minew", minew(ibeaconUuid="x" * 32), "32 hexadecimal digits"),
        ("minew", minew(rssi=None), "one of proximity and rssi is required"),
        ("minew", report(orjson.loads(MINEW) * 1001), "more than 1000 sightings in a record"),
        ("minew", report(OLD_MINEW, key=b"\xff"), "key is not UTF-8"),
        ("minew", report(OLD_MINEW, key=b"x" * 256), "length <= 255"),
        ("minew", report(OLD_MINEW, key=b"a\0b"), "NUL"),
        ("owntracks", changed(OWNTRACKS, b'"prox":2', b'"prox":4'), "3"),
        ("owntracks", changed(LOCATION, b"52.1", b"91"), "<= 90.0 - at `$.position.latitude`"),
        ("owntracks", report(LOCATION, headers=[("api_key", b"x" * 256)]), "length <= 255"),
        ("radar", report({"event": NO_USER}, headers=[KEY]), "user.deviceId: it is required"),
        ("radar", report(RADAR.value), "header api_key: it is required"),
        ("espresense", changed(SAMPLES["espresense"][0].value, b"-100-1", b"-100"), "iBeacon"),
        ("kontakt", kontakt_upload(2, kontakt_event()), "must be 3 or 4"),
        ("kontakt", kontakt_upload(3, kontakt_event(data="%")), "base64"),
        ("kontakt-cloud", kio(b'"2021-10-07T11:41:07.988Z"', b"1e300"), "9999"),
    ],
)
def test_a_malformed_report_is_a_dead_letter(format_: str, record: Any, expected: str):
    reason, detail = refused(format_, record)
    assert reason == "invalid_field"
    assert expected in detail


def test_a_report_with_many_sightings_is_decoded_completely_or_not_at_all():
    """Else one that is put back would count its good part twice."""
    gateway, beacon = orjson.loads(MINEW)
    unknown = {"type": "Unknown", "mac": "1918FC051F60", "rssi": -72}
    good = report([beacon, unknown, gateway, beacon | {"ibeaconMinor": 3}], offset=4)
    half = report([gateway, beacon, beacon | {"ibeaconMajor": -1}], offset=5)
    batch = decode("minew", good, half, report(b"[", offset=6))
    places = [(each.record.offset, each.index, triple(each).minor) for each in batch.messages]
    assert places == [(4, 0, 0), (4, 3, 3)]
    assert {each.message.device.udid for each in batch.messages} == {"gateway:AC233FC03641"}
    assert [each.record.offset for each in batch.dead_letters] == [5, 6]
