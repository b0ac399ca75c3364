"""Malformed reports of gateways and phones become dead letters."""

from typing import Any

import orjson
import pytest

from engine.kafka.formats.report import MOST_SIGHTINGS
from tests.unit.formats import samples
from tests.unit.formats.records import decode, kontakt_event, kontakt_upload, refused, report


def minew(**fields: Any) -> Any:
    """The sample, with fields of its beacon replaced, or removed where they are None."""
    gateway, beacon = orjson.loads(samples.MINEW)
    whole = {name: value for name, value in (beacon | fields).items() if value is not None}
    return report([gateway, whole])


def changed(sample: bytes, old: bytes, new: bytes, key: bytes | None = b"hall") -> Any:
    """The sample with one thing in it replaced."""
    assert old in sample
    return report(sample.replace(old, new, 1), key=key)


def kio(old: bytes, new: bytes) -> Any:
    """The cloud's event with one thing in it replaced; the gateway's time stands first."""
    event = samples.KIO_TELEMETRY.replace(b'"beaconTimestamp": "2021-10-07T11:41:07.988Z",', b"")
    return changed(event, old, new)


@pytest.mark.parametrize(
    ("format_", "record", "reason", "expected"),
    [
        ("minew", report(samples.MINEW[:-1]), "malformed_json", "truncated"),
        ("minew", report(None), "malformed_json", "truncated"),
        ("minew", report(b"{}"), "invalid_field", "array"),
        ("minew", report(b"[5]"), "invalid_field", "object"),
        ("minew", report(b"[{}]"), "invalid_field", "`type`"),
        ("minew", minew(ibeaconUuid="x"), "invalid_field", "32 hexadecimal digits"),
        ("minew", minew(ibeaconUuid=None), "invalid_field", "`ibeaconUuid`"),
        ("minew", minew(ibeaconMajor=65536), "invalid_field", "65535"),
        ("minew", minew(ibeaconMinor=None), "invalid_field", "`ibeaconMinor`"),
        ("minew", minew(rssi=None), "invalid_field", "`rssi`"),
        ("minew", minew(timestamp="yesterday"), "invalid_field", "timestamp"),
        ("minew", report(samples.MINEW_2017, key=None), "invalid_field", "names the receiver"),
        ("minew", report(samples.MINEW_2017, key=b"\xff"), "invalid_field", "key is not UTF-8"),
        ("minew", report(samples.MINEW_2017, key=b"gw//x"), "invalid_field", "has no name"),
        ("minew", report(samples.MINEW_2017, key=b"x" * 256), "invalid_field", "255 characters"),
        ("minew", report(samples.MINEW_2017, key=b"a\0b"), "invalid_field", "NUL"),
        (
            "minew",
            report([orjson.loads(samples.MINEW)[1]] * (MOST_SIGHTINGS + 1)),
            "invalid_field",
            "more than 1000 sightings",
        ),
        ("theengs", report(b"[]"), "invalid_field", "object"),
        ("theengs", changed(samples.THEENGS, b'"major":0,', b""), "invalid_field", "`major`"),
        ("theengs", report(samples.THEENGS, key=None), "invalid_field", "names the receiver"),
        ("theengs", changed(samples.THEENGS, b"-78", b"null"), "invalid_field", "rssi"),
        ("owntracks", report(b"{}"), "invalid_field", "`_type`"),
        ("owntracks", changed(samples.OWNTRACKS, b'"prox":2', b'"prox":4'), "invalid_field", "3"),
        ("owntracks", changed(samples.OWNTRACKS, b"1399028969", b"1e308"), "invalid_field", "9999"),
        ("owntracks", changed(samples.OWNTRACKS, b"1399028969", b"-1"), "invalid_field", "9999"),
        ("owntracks", report(samples.OWNTRACKS, key=None), "invalid_field", "names the receiver"),
        ("espresense", report(b"{}"), "invalid_field", "`id`"),
        ("espresense", changed(samples.ESPRESENSE, b"-100-1", b"-100"), "invalid_field", "iBeacon"),
        ("espresense", changed(samples.ESPRESENSE, b'-1"', b'-70000"'), "invalid_field", "65535"),
        ("espresense", report(samples.ESPRESENSE, key=None), "invalid_field", "names the receiver"),
        ("mist", report(b"[]"), "invalid_field", "object"),
        ("mist", report(b'{"topic":"asset-raw-rssi"}'), "invalid_field", "`events`"),
        ("mist", changed(samples.MIST, b'"rssi": -79,', b""), "invalid_field", "`rssi`"),
        ("mist", changed(samples.MIST, b"1661300746", b"1e400"), "invalid_field", "range"),
        ("mist", changed(samples.MIST, b"ac950d7b", b""), "invalid_field", "hexadecimal"),
        ("kontakt", kontakt_upload(2, kontakt_event()), "invalid_field", "must be 3 or 4"),
        ("kontakt", kontakt_upload(3, kontakt_event(data="%")), "invalid_field", "base64"),
        ("kontakt", kontakt_upload(3, kontakt_event(rssi=None)), "invalid_field", "rssi"),
        ("kontakt", kontakt_upload(3, kontakt_event(timestamp=10**15)), "invalid_field", "9999"),
        ("kontakt", report(b'{"version":3,"events":[]}'), "invalid_field", "`sourceId`"),
        ("kontakt-cloud", report(b"5"), "invalid_field", "Expected"),
        ("kontakt-cloud", report(b"[5]"), "invalid_field", "object"),
        ("kontakt-cloud", kio(b"57095", b"70000"), "invalid_field", "65535"),
        ("kontakt-cloud", kio(b'"sourceId"', b'"source"'), "invalid_field", "`sourceId`"),
        ("kontakt-cloud", kio(b'"rssi": 4,', b""), "invalid_field", "`rssi`"),
        ("kontakt-cloud", kio(b"23e16784", b"x"), "invalid_field", "hexadecimal"),
        ("kontakt-cloud", kio(b'"2021-10-07T11:41:07.988Z"', b"1e300"), "invalid_field", "9999"),
    ],
)
def test_a_malformed_report_is_a_dead_letter(format_: str, record: Any, reason: str, expected: str):
    found, detail = refused(format_, record)
    assert found == reason
    assert expected in detail


def test_a_report_is_decoded_completely_or_not_at_all():
    """Else one that is put back would count its good part twice."""
    gateway, beacon = orjson.loads(samples.MINEW)
    half = report([gateway, beacon, beacon | {"ibeaconMajor": -1}], offset=5)
    batch = decode("minew", report(samples.MINEW, offset=4), half, report(b"[", offset=6))
    assert [each.record.offset for each in batch.messages] == [4]
    assert [each.record.offset for each in batch.dead_letters] == [5, 6]
    assert batch.dead_positions == [1, 2]
