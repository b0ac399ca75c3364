"""Reports of gateways and phones, as they write them, and malformed ones."""

from typing import Any

import orjson
import pytest

from tests.formats.records import (
    ARRIVED_AT,
    SAMPLES,
    decode,
    decoded,
    kontakt_event,
    kontakt_upload,
    refused,
    report,
    triple,
)

MINEW, MINEW_2017 = SAMPLES["minew"]
(THEENGS,) = SAMPLES["theengs"]
OWNTRACKS, STEPS, LOCATION, TRANSITION = SAMPLES["owntracks"]
(RADAR,) = SAMPLES["radar"]
ESPRESENSE, ESPRESENSE_KNOWN = SAMPLES["espresense"]
ESPRESENSE_TOPIC = b"espresense/devices/iBeacon:1d4b2e16-481e-4579-8b35-ffc32e4a1758-100-1/kitchen"
MIST, MIST_LOCATION = SAMPLES["mist"]
(KONTAKT,) = SAMPLES["kontakt"]
KIO_TELEMETRY, KIO_PAGE, KIO_PRESENCE = SAMPLES["kontakt-cloud"]
OMG = b"home/OpenMQTTGateway/BTtoMQTT/6087574C9BC2"


def seen(format_: str, record: Any) -> list[str]:
    """Position in the report, triple, zone, receiver, and time."""
    return [
        f"{each.index} {' '.join(map(str, triple(each)))} {each.zone.name} "
        f"{each.message.device.udid} {each.detected_at}"
        for each in decoded(format_, record)
    ]


OLD_MINEW = report(MINEW_2017, key=b"/gw/ac233fc00b5d/status")
IN_THE_HALL = report(THEENGS, headers=[("mqtt.topic", b"home/presence/Hall")])
KIO = "23e16784-c2b5-43b6-b199-49de659535de 57095 20686 UNKNOWN gateway:CKgIEuTDpY 1633606867.988"


@pytest.mark.parametrize(
    ("format_", "record", "expected"),
    [
        (
            "minew",
            report(MINEW),
            "1 e2c56db5-dffb-48d2-b060-d0f5a71096e0 0 0 NEAR gateway:AC233FC03641 1770596033.667",
        ),
        (
            "minew",
            OLD_MINEW,
            "1 fda50693-a4e2-4fb1-afcf-c6eb07647825 10002 5208 NEAR gateway:ac233fc00b5d "
            "1504690666.0",
        ),
        (
            "theengs",
            report(THEENGS, key=OMG),
            f"0 1de4b189-115e-45f6-b44e-509352269977 0 0 NEAR gateway:OpenMQTTGateway {ARRIVED_AT}",
        ),
        (
            "theengs",
            IN_THE_HALL,
            f"0 1de4b189-115e-45f6-b44e-509352269977 0 0 NEAR gateway:Hall {ARRIVED_AT}",
        ),
        (
            "owntracks",
            report(OWNTRACKS, key=b"owntracks/jane/phone/beacon"),
            "0 ca271eae-5fa8-4e80-8f08-2a302a95a959 1 1 NEAR jane/phone 1399028969.0",
        ),
        (
            "espresense",
            report(ESPRESENSE, key=ESPRESENSE_TOPIC),
            f"0 1d4b2e16-481e-4579-8b35-ffc32e4a1758 100 1 FAR gateway:kitchen {ARRIVED_AT}",
        ),
        (
            "mist",
            report(MIST),
            "0 ac950d7b-af31-42d2-be7c-e15639fab2cd 2 2121 FAR "
            "gateway:00000000-0000-0000-1000-ac2316eca70b 1661300746.0",
        ),
        ("kontakt-cloud", report(KIO_TELEMETRY, key=None), f"0 {KIO}"),
        ("kontakt-cloud", report(KIO_PAGE, key=None), f"1 {KIO}"),
        ("kontakt-cloud", report(b"[" + KIO_TELEMETRY + b"]", key=None), f"0 {KIO}"),
    ],
)
def test_a_sample(format_: str, record: Any, expected: str):
    assert seen(format_, record) == [expected]


@pytest.mark.parametrize(
    ("format_", "value"),
    [
        ("minew", b'[{"type":"Gateway","mac":"AC233FC03641"},{"type":"S1","mac":"C3000025EF6A"}]'),
        ("theengs", b'{"id":"4C:64:A8:D0:AE:65","model_id":"HHCCJCY01HHCC","rssi":-79}'),
        ("theengs", b'{"id":"60:87:57:4C:9B:C2","rssi":-79}'),
        ("owntracks", STEPS),
        ("espresense", ESPRESENSE_KNOWN),
        ("mist", MIST_LOCATION),
        ("kontakt", KONTAKT),
        ("kontakt-cloud", KIO_PRESENCE),
    ],
)
def test_reports_without_an_ibeacon_are_ignored(format_: str, value: bytes):
    assert decoded(format_, report(value, key=None)) == []


KEY = ("api_key", b"app-1")
PHONE = b"owntracks/jane/phone"
IN_WEBHOOK = orjson.loads(RADAR)
RADAR_EVENT = IN_WEBHOOK["events"][0]
ENTERED = f"40.783826 -73.977797 5.0 app-1 {RADAR_EVENT['user']['deviceId']} 1528811050.535"
EXITED = RADAR_EVENT | {"type": "user.exited_geofence"}


def located(format_: str, value: Any, key: bytes | None = None) -> list[str]:
    """Position in the report, place, application, device, and time of each detection."""
    return [
        f"{each.index} {p.latitude} {p.longitude} {p.accuracy} {each.message.api_key} "
        f"{each.message.device.udid} {each.detected_at}"
        for each in decoded(format_, report(value, key=key, headers=[KEY]))
        if (p := each.message.position) is not None and each.key is None
    ]


@pytest.mark.parametrize(
    ("format_", "value", "key", "expected"),
    [
        ("owntracks", LOCATION, PHONE, "0 52.1 5.1 12.0 app-1 jane/phone 1704110400.0"),
        (
            "owntracks",
            TRANSITION,
            PHONE + b"/event",
            "0 42.53 18.22 10.0 app-1 jane/phone 1527966973.0",
        ),
        (
            "owntracks",
            b'{"_type":"location","lat":-90,"lon":180}',
            b"phone",
            f"0 -90.0 180.0 None app-1 phone {ARRIVED_AT}",
        ),
        (
            "radar",
            RADAR,
            None,
            f"0 {ENTERED}",
        ),
        (
            "radar",
            {"event": RADAR_EVENT | {"user": None}, "user": IN_WEBHOOK["user"]},
            None,
            f"0 {ENTERED}",
        ),
        (  # two geofences of Radar's, one update of the location
            "radar",
            {"events": [EXITED, RADAR_EVENT, RADAR_EVENT]},
            None,
            f"1 {ENTERED}",
        ),
    ],
)
def test_a_position(format_: str, value: Any, key: bytes | None, expected: str):
    assert located(format_, value, key) == [expected]


@pytest.mark.parametrize(
    ("format_", "value", "headers", "expected"),
    [
        ("owntracks", LOCATION.replace(b"52.1", b"91"), [KEY], "<= 90.0 - at `$.latitude`"),
        ("owntracks", LOCATION, [("api_key", b"x" * 256)], "length <= 255"),
        ("radar", {"event": RADAR_EVENT | {"user": None}}, [KEY], "user.deviceId: it is required"),
        ("radar", RADAR, [], "header api_key: it is required"),
    ],
)
def test_a_bad_position_is_a_dead_letter(format_: str, value: Any, headers: Any, expected: str):
    reason, detail = refused(format_, report(value, headers=headers))
    assert reason == "invalid_field"
    assert expected in detail


INGICS = "b9a5d27d-56cc-4e3a-ab51-1f2153bcb967 1 17710 NEAR gateway:gatewayUniqueId"


def test_ibeacons_among_kontakts_events():
    kontakt_packet = orjson.loads(KONTAKT)["events"][0]
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


def changed(sample: bytes, old: bytes, new: bytes, key: bytes | None = b"hall") -> Any:
    """The sample with one thing in it replaced."""
    assert old in sample
    return report(sample.replace(old, new, 1), key=key)


def kio(old: bytes, new: bytes) -> Any:
    """The cloud's event with one thing in it replaced; the gateway's time stands first."""
    event = KIO_TELEMETRY.replace(b'"beaconTimestamp": "2021-10-07T11:41:07.988Z",', b"")
    return changed(event, old, new)


@pytest.mark.parametrize(
    ("format_", "record", "expected"),
    [
        ("minew", minew(ibeaconUuid="x"), "32 hexadecimal digits"),
        ("minew", minew(rssi=None), "missing required field `rssi`"),
        ("minew", report(orjson.loads(MINEW) * 1001), "more than 1000 sightings in a record"),
        ("minew", report(MINEW_2017, key=b"\xff"), "key is not UTF-8"),
        ("minew", report(MINEW_2017, key=b"x" * 256), "255 characters"),
        ("minew", report(MINEW_2017, key=b"a\0b"), "NUL"),
        ("owntracks", changed(OWNTRACKS, b'"prox":2', b'"prox":4'), "3"),
        ("espresense", changed(ESPRESENSE, b"-100-1", b"-100"), "iBeacon"),
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
