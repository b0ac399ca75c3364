"""What gateways and phones really send, each on samples of its own documentation."""

from typing import Any

import orjson
import pytest

from engine.kafka.formats.advertisement import IBeaconFrame, ibeacon_frame
from rules.model import Zone
from tests.unit.formats import samples
from tests.unit.formats.records import (
    ARRIVED_AT,
    decode,
    decoded,
    kontakt_event,
    kontakt_upload,
    report,
)

KIO_KEY = ("23e16784-c2b5-43b6-b199-49de659535de", 57095, 20686)
OMG = b"home/OpenMQTTGateway/BTtoMQTT/6087574C9BC2"


def seen(format_: str, record: Any) -> list[tuple[Any, ...]]:
    """Position in the report, triple, zone, receiver, and time."""
    return [
        (each.index, *each.key, each.zone, each.message.device.udid, each.detected_at)
        for each in decoded(format_, record)
    ]


@pytest.mark.parametrize(
    ("format_", "record", "expected"),
    [
        (
            "minew",
            report(samples.MINEW),
            [
                (
                    1,
                    "e2c56db5-dffb-48d2-b060-d0f5a71096e0",
                    0,
                    0,
                    Zone.NEAR,
                    "gateway:AC233FC03641",
                    1_770_596_033.667,
                )
            ],
        ),
        (
            "minew",
            report(samples.MINEW_2017, key=b"/gw/ac233fc00b5d/status"),
            [
                (
                    1,
                    "fda50693-a4e2-4fb1-afcf-c6eb07647825",
                    10002,
                    5208,
                    Zone.NEAR,
                    "gateway:ac233fc00b5d",
                    1_504_690_666.0,
                )
            ],
        ),
        (
            "theengs",
            report(samples.THEENGS, key=OMG),
            [
                (
                    0,
                    "1de4b189-115e-45f6-b44e-509352269977",
                    0,
                    0,
                    Zone.NEAR,
                    "gateway:OpenMQTTGateway",
                    ARRIVED_AT,
                )
            ],
        ),
        (
            "theengs",
            report(samples.THEENGS_BY_UUID, headers=[("mqtt.topic", b"home/presence/Hall")]),
            [
                (
                    0,
                    "1de4b189-115e-45f6-b44e-509352269977",
                    0,
                    0,
                    Zone.NEAR,
                    "gateway:Hall",
                    ARRIVED_AT,
                )
            ],
        ),
        (
            "owntracks",
            report(samples.OWNTRACKS, key=b"owntracks/jane/phone/beacon"),
            [
                (
                    0,
                    "ca271eae-5fa8-4e80-8f08-2a302a95a959",
                    1,
                    1,
                    Zone.NEAR,
                    "jane/phone",
                    1_399_028_969.0,
                )
            ],
        ),
        (
            "espresense",
            report(samples.ESPRESENSE, key=samples.ESPRESENSE_TOPIC),
            [
                (
                    0,
                    "1d4b2e16-481e-4579-8b35-ffc32e4a1758",
                    100,
                    1,
                    Zone.FAR,
                    "gateway:kitchen",
                    ARRIVED_AT,
                )
            ],
        ),
        (
            "mist",
            report(samples.MIST),
            [
                (
                    0,
                    "ac950d7b-af31-42d2-be7c-e15639fab2cd",
                    2,
                    2121,
                    Zone.FAR,
                    "gateway:00000000-0000-0000-1000-ac2316eca70b",
                    1_661_300_746.0,
                )
            ],
        ),
        *[
            (
                "kontakt-cloud",
                report(value, key=None),
                [(place, *KIO_KEY, Zone.UNKNOWN, "gateway:CKgIEuTDpY", 1_633_606_867.988)],
            )
            for place, value in (
                (0, samples.KIO_TELEMETRY),
                (1, samples.KIO_PAGE),
                (0, b"[" + samples.KIO_TELEMETRY + b"]"),
            )
        ],
    ],
)
def test_a_sample(format_: str, record: Any, expected: list[tuple[Any, ...]]):
    assert seen(format_, record) == expected


@pytest.mark.parametrize(
    ("format_", "value"),
    [
        ("minew", b"[]"),
        ("minew", b'[{"type":"Gateway","mac":"AC233FC03641"},{"type":"S1","mac":"C3000025EF6A"}]'),
        ("theengs", b'{"id":"4C:64:A8:D0:AE:65","model_id":"HHCCJCY01HHCC","rssi":-79}'),
        ("theengs", b'{"id":"60:87:57:4C:9B:C2","rssi":-79}'),
        ("owntracks", samples.OWNTRACKS_STEPS),
        ("espresense", samples.ESPRESENSE_KNOWN),
        ("mist", samples.MIST_LOCATION),
        ("mist", b'{"topic":"ping","events":[]}'),
        ("kontakt", samples.KONTAKT),
        ("kontakt-cloud", samples.KIO_TELEMETRY_2020),
        ("kontakt-cloud", samples.KIO_PRESENCE),
        ("kontakt-cloud", b'{"content":[]}'),
    ],
)
def test_reports_without_an_ibeacon_are_ignored(format_: str, value: bytes):
    assert decoded(format_, report(value, key=None)) == []


INGICS_KEY = ("b9a5d27d-56cc-4e3a-ab51-1f2153bcb967", 1, 0x452E)


def test_ibeacons_among_kontakts_events():
    kontakt_packet = orjson.loads(samples.KONTAKT)["events"][0]
    nested = {"rssi": -51, "timestamp": 1_688_335_200_123, "ble": {"data": kontakt_event()["data"]}}
    udid = "gateway:gatewayUniqueId"
    found = seen(
        "kontakt", kontakt_upload(3, kontakt_packet, kontakt_event(), kontakt_event(timestamp=None))
    )
    # (-51 dBm, of a beacon that has -42 at one metre, are 2.8 m.)
    assert found == [
        (1, *INGICS_KEY, Zone.NEAR, udid, 1_688_335_200.0),
        (2, *INGICS_KEY, Zone.NEAR, udid, ARRIVED_AT),
    ]
    assert seen("kontakt", kontakt_upload(4, nested)) == [
        (0, *INGICS_KEY, Zone.NEAR, udid, 1_688_335_200.123)
    ]


@pytest.mark.parametrize(
    ("times", "at"),
    [
        ({}, 1_633_606_867.988),
        ({"gatewayTimestamp": None}, 1_633_585_267.985),
        ({"gatewayTimestamp": 1_633_606_867}, 1_633_606_867.0),
        ({"gatewayTimestamp": None, "timestamp": None}, ARRIVED_AT),
    ],
)
def test_a_gateway_dates_what_kontakts_cloud_reports(times: dict[str, Any], at: float):
    event = orjson.loads(samples.KIO_TELEMETRY) | times | {"rssi": -80}
    (found,) = decoded("kontakt-cloud", report(event))
    assert (found.detected_at, found.zone) == (at, Zone.NEAR)  # -77 dBm at one metre


@pytest.mark.parametrize(
    ("advertisement", "frame"),
    [
        (samples.INGICS, IBeaconFrame("b9a5d27d56cc4e3aab511f2153bcb967", 1, 0x452E, -42)),
        (samples.APRIL_BROTHER, IBeaconFrame("b5b182c7eab14988aa99b5c1517008d9", 1, 0xCF64, -59)),
        (samples.INGICS[3:], IBeaconFrame("b9a5d27d56cc4e3aab511f2153bcb967", 1, 0x452E, -42)),
        (samples.INGICS_OTHER, None),
        (samples.INGICS[:-1], None),
        (samples.INGICS[:3] + b"\0" * 27, None),
        (b"\x02\x01", None),
        (b"", None),
        (b"\xff", None),
    ],
)
def test_the_ibeacon_of_an_advertisement(advertisement: bytes, frame: IBeaconFrame | None):
    assert ibeacon_frame(advertisement) == frame


def test_a_report_has_many_sightings_each_with_its_place():
    beacon = orjson.loads(samples.MINEW)[1]
    gateway = orjson.loads(samples.MINEW)[0]
    unknown = {"type": "Unknown", "mac": "1918FC051F60", "rssi": -72}
    elements = [beacon, unknown, gateway, beacon | {"ibeaconMinor": 3}]
    batch = decode("minew", report([gateway], offset=1), report(elements, offset=2))
    assert [(each.record.offset, each.index, each.key.minor) for each in batch.messages] == [
        (2, 0, 0),
        (2, 3, 3),
    ]
    assert {each.message.device.udid for each in batch.messages} == {"gateway:AC233FC03641"}


@pytest.mark.parametrize(
    ("format_", "value", "key"),
    [
        ("minew", samples.MINEW, None),
        ("theengs", samples.THEENGS, OMG),
        ("owntracks", samples.OWNTRACKS, b"owntracks/jane/phone/beacon"),
        ("espresense", samples.ESPRESENSE, samples.ESPRESENSE_TOPIC),
        ("mist", samples.MIST, None),
        ("kontakt", kontakt_upload(3, kontakt_event()).value, None),
        ("kontakt-cloud", samples.KIO_TELEMETRY, None),
    ],
)
def test_each_in_cloudevents(format_: str, value: bytes, key: bytes | None):
    bare = seen(format_, report(value, key=key))
    assert bare
    named = [("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"/"), ("ce_type", b"t")]
    assert seen(f"cloudevents+{format_}", report(value, key=key, headers=named)) == bare
    whole = {"specversion": "1.0", "id": "1", "source": "/", "type": "t"}
    structured = report(
        orjson.dumps(whole | {"data": orjson.loads(value)}),
        key=key,
        headers=[("content-type", b"application/cloudevents+json")],
    )
    assert seen(f"cloudevents+{format_}", structured) == bare
