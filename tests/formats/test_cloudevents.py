"""CloudEvents around a format, in the two modes of the binding for Kafka.

The attributes are those of its examples:
https://github.com/cloudevents/spec/blob/main/cloudevents/bindings/kafka-protocol-binding.md
"""

import base64
from typing import Any

import orjson
import pytest

from tests.formats.records import ARRIVED_AT, decoded, refused, report, triple
from tests.kafka.records import UUID, detection

OWN = "cloudevents+own"
BINARY = (
    ("ce_specversion", b"1.0"),
    ("ce_type", b"com.example.someevent"),
    ("ce_source", b"/mycontext/subcontext"),
    ("ce_id", b"1234-1234-1234"),
    ("ce_time", b"2018-04-05T03:56:24Z"),
    ("content-type", b"application/json"),
)
STRUCTURED = (("content-type", b"application/cloudevents+json; charset=UTF-8"),)
AVRO_EVENT = (("content-type", b"application/cloudevents+avro"),)
BATCH = (("content-type", b"application/cloudevents-batch+json; charset=UTF-8"),)
TIME = 1_522_900_584.0  # of the examples


def event(**fields: Any) -> dict[str, Any]:
    """The structured example; fields given replace its own, None removes one."""
    whole = {
        "specversion": "1.0",
        "type": "com.example.someevent",
        "source": "/mycontext/subcontext",
        "id": "1234-1234-1234",
        "time": "2018-04-05T03:56:24Z",
        "datacontenttype": "application/json",
        "data": detection(),
    } | fields
    return {name: value for name, value in whole.items() if value is not None}


def batch(*events: dict[str, Any]) -> Any:
    """A record of many events."""
    return report(list(events), headers=BATCH)


UNDATED = detection(detected_at=None)
AS_BASE64 = base64.b64encode(orjson.dumps(detection())).decode()


def headers(**fields: bytes | None) -> list[tuple[str, bytes]]:
    """The binary example; a header given replaces its own, None removes one."""
    changed = {name: fields.get(name, value) for name, value in BINARY}
    return [(name, value) for name, value in changed.items() if value is not None]


@pytest.mark.parametrize(
    "record",
    [
        report(detection(), headers=BINARY),
        report(event(), headers=STRUCTURED),
        report(event(), headers=[("Content-Type", b"application/cloudevents+json")]),
        report(event(data=None, data_base64=AS_BASE64), headers=STRUCTURED),
        report(event(data=orjson.dumps(detection()).decode()), headers=STRUCTURED),
    ],
)
def test_the_detection_of_an_event(record: Any):
    (found,) = decoded(OWN, record)
    assert found.key == (UUID, 1, 42)
    assert found.message.device.udid == "device-1"
    assert found.detected_at == 1_795_165_200.0
    assert (found.record, found.index) == (record, 0)


@pytest.mark.parametrize(
    ("record", "at"),
    [
        (report(UNDATED, headers=BINARY), TIME),
        (report(event(data=UNDATED), headers=STRUCTURED), TIME),
        (report(UNDATED, headers=headers(ce_time=None)), ARRIVED_AT),
    ],
)
def test_the_event_dates_what_does_not_date_itself(record: Any, at: float):
    (found,) = decoded(OWN, record)
    assert found.detected_at == at


@pytest.mark.parametrize(
    ("record", "reason", "expected"),
    [
        (report(detection()), "invalid_field", "no CloudEvent"),
        (report(detection(), headers=headers(ce_specversion=b"0.3")), "invalid_field", "0.3"),
        (report(detection(), headers=headers(ce_source=b"")), "invalid_field", "source"),
        (report(detection(), headers=headers(ce_type=b"\xff")), "invalid_field", "UTF-8"),
        (report(b"{", headers=STRUCTURED), "malformed_json", "truncated"),
        (report(event(data=None), headers=STRUCTURED), "invalid_field", "no data"),
        (report(event(data_base64=AS_BASE64), headers=STRUCTURED), "invalid_field", "not both"),
        (report(event(data=None, data_base64="%"), headers=STRUCTURED), "invalid_field", "base64"),
        (report(b"", headers=AVRO_EVENT), "invalid_field", "application/cloudevents+json or "),
        (batch(*[event()] * 1001), "invalid_field", "1001 CloudEvents in a batch"),
    ],
)
def test_an_invalid_event_is_a_dead_letter(record: Any, reason: str, expected: str):
    found, detail = refused(OWN, record)
    assert found == reason
    assert expected in detail


def test_each_event_of_a_batch_has_its_place():
    other = UNDATED | {"minor": 7}
    events = (event(), event(data=other), event(data=None, data_base64=AS_BASE64))
    found = decoded(OWN, batch(*events))
    assert [(triple(each).minor, each.detected_at) for each in found] == [
        (42, 1_795_165_200.0),
        (7, TIME),
        (42, 1_795_165_200.0),
    ]
    assert [each.index for each in found] == [0, 2**32, 2 * 2**32]
    # The first one is the same detection as by itself.
    assert found[0].index == decoded(OWN, report(event(), headers=STRUCTURED))[0].index
    assert decoded(OWN, batch()) == []
