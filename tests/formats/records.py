"""Records of detection topics, and what the product's decoder of a setting makes of them."""

import asyncio
import base64
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from engine.formats.decoders import DetectionDecoder, detection_decoders
from engine.kafka.detections import BeaconKey, DecodedBatch, DecodedDetection, Record
from engine.process.settings_sources import load_settings
from tests.kafka.records import RECORD_TIME
from tests.kafka.records import record as kafka_record

TOPIC = "gateways"
ARRIVED_AT = RECORD_TIME
# The headers of a CloudEvent, and of a batch of them.
EVENT = [("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"/"), ("ce_type", b"t")]
BATCH = [("content-type", b"application/cloudevents-batch+json")]


class Sample(NamedTuple):
    """A report of samples.md, the key of its record, and its detections."""

    key: bytes | None
    value: bytes
    detections: list[str]


def _samples(section: str) -> list[Sample]:
    block = r"(?:^Key `([^`]*)`:\n\n)?^```json\n(.*?)\n```(?:\n\n```text\n(.*?)\n```)?"
    found = re.findall(block, section, re.DOTALL | re.MULTILINE)
    return [
        Sample(k.encode() or None, value.encode(), text.splitlines()) for k, value, text in found
    ]


SAMPLES = {
    section.partition("\n")[0]: _samples(section)
    for section in Path(__file__).with_name("samples.md").read_text("utf-8").split("\n## ")[1:]
}
# An advertisement of an iBeacon, from a gateway's manual: Ingics iGS01S (manualshive.com, page 3),
# UUID B9A5D27D56CC4E3AAB511F2153BCB967, major 0001, minor 452E.
INGICS = bytes.fromhex("0201061AFF4C000215B9A5D27D56CC4E3AAB511F2153BCB9670001452ED6")


def report(
    value: Any,
    *,
    key: bytes | None = b"hall",
    headers: Sequence[tuple[str, bytes]] = (),
    offset: int = 7,
) -> Record:
    """A record of the topic. `value` in bytes, or as JSON."""
    return kafka_record(value, topic=TOPIC, key=key, headers=headers, offset=offset)


def decoder(format_: str, **more: Any) -> DetectionDecoder:
    """Of a topic with this format in DETECTION_TOPICS."""
    return detection_decoders(load_settings(detection_topics=f"{TOPIC}={format_}", **more))[TOPIC]


def decode(format_: str, *records: Record) -> DecodedBatch[DecodedDetection]:
    """As a role decodes a batch. (What is returned to asyncio.run is written out, twice.)"""
    found: list[DecodedBatch[DecodedDetection]] = []

    async def decoding() -> None:
        found.append(await decoder(format_).decode(list(records)))

    asyncio.run(decoding())
    return found[0]


def decoded(format_: str, record: Record) -> list[DecodedDetection]:
    """The detections of a record that is understood."""
    batch = decode(format_, record)
    assert batch.dead_letters == [], batch.dead_letters[0].detail
    return batch.messages


def triple(detection: DecodedDetection) -> BeaconKey:
    """The triple of a detection of a beacon."""
    assert isinstance(detection.key, BeaconKey)
    return detection.key


def refused(format_: str, record: Record) -> tuple[str, str]:
    """Reason and detail of the dead letter of a record that is not."""
    batch = decode(format_, record)
    assert batch.messages == []
    (letter,) = batch.dead_letters
    assert letter.record is record
    return letter.reason.value, letter.detail


def batch_of(reports: Iterable[bytes]) -> bytes:
    """A batch of CloudEvents."""
    event = {"specversion": "1.0", "id": "1", "source": "/", "type": "t"}
    data = [base64.b64encode(each).decode() for each in reports]
    return orjson.dumps([event | {"data_base64": each} for each in data])


def minew_report(at: str, *triples: Sequence[Any]) -> bytes:
    """The report of a gateway that has received these beacons."""
    elements: list[dict[str, Any]] = [{"timestamp": at, "type": "Gateway", "mac": "AC23"}]
    signal = {"type": "iBeacon", "rssi": -50, "ibeaconTxPower": -59, "mac": "C300", "timestamp": at}
    for uuid, major, minor in triples:
        uuid = uuid.replace("-", "").upper()
        elements.append(
            signal | {"ibeaconUuid": uuid, "ibeaconMajor": major, "ibeaconMinor": minor}
        )
    return orjson.dumps(elements)


def kontakt_upload(version: int, *events: dict[str, Any]) -> Any:
    """An upload of a Kontakt.io gateway, with the sample's gateway."""
    upload = orjson.loads(SAMPLES["kontakt"][0].value)
    return report(upload | {"version": version, "events": list(events)}, key=None)


def kontakt_event(**fields: Any) -> dict[str, Any]:
    """An event of such an upload, version 3."""
    data = base64.b64encode(INGICS).decode()
    return {"rssi": -51, "data": data, "timestamp": 1_688_335_200, "srData": ""} | fields
