"""Decodes the records of a detection topic into detections, by the topic's format.

Trigger, recorder and commands read detections only with these decoders, so that they agree on the
content of a record.
"""

import asyncio
import base64
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec

from catalog.bounds import chunked
from engine.formats.gateways import READERS
from engine.formats.registry import JSON_SCHEMA, RegisteredFormat, RegistryAddress
from engine.formats.report import ReadReport, Report, Sighting
from engine.kafka.dead_letters import DeadLetterLimit
from engine.kafka.detections import (
    UNDECODABLE,
    DecodedBatch,
    DecodedDetection,
    Record,
    decode_record,
    decode_records,
    detection_of,
)
from engine.kafka.messages import Detection, parse_text
from engine.kafka.topics import detection_topics
from engine.kafka.workers import Records
from engine.process.failures import ServerErrors
from engine.process.settings import REGISTERED_FORMATS, Settings

_AT_ONCE = 64  # records of many detections each
MOST_SIGHTINGS = 1000  # of a record
# Positions reserved for each event of a batch: more than a record has bytes.
_POSITIONS_AN_EVENT = 2**32


@dataclass(kw_only=True)
class OwnFormatDecoder:
    """Decodes this project's own format: a record is a detection."""

    records_at_once: ClassVar[int] = 1_000_000  # batches are smaller
    path_loss_exponent: float
    limit: DeadLetterLimit | None = None

    async def decode(
        self, records: Records, among: Records | None = None
    ) -> DecodedBatch[DecodedDetection]:
        """Decode the records. Raises TooManyDeadLettersError."""
        decode = partial(decode_record, path_loss_exponent=self.path_loss_exponent)
        return decode_records(records, decode, self.limit, among=among)


@dataclass(kw_only=True)
class ReportDecoder:
    """Decodes any other format: a record is a report of sightings.

    At most `records_at_once` records may be decoded together, because each may have many.
    """

    records_at_once: ClassVar[int] = 200
    read_report: ReadReport
    path_loss_exponent: float
    in_cloudevents: bool
    limit: DeadLetterLimit | None

    async def decode(self, records: Records) -> DecodedBatch[DecodedDetection]:
        """Decode the records: each whole, or it becomes a dead letter, so that a replay counts no
        detection twice. Raises TooManyDeadLettersError.

        Waits while the schema registry is down; without `registry_errors` raises
        SchemaRegistryError instead.
        """
        decoded: DecodedBatch[DecodedDetection] = DecodedBatch([], [])
        for part in chunked(records, _AT_ONCE):
            await asyncio.sleep(0)  # other tasks have their turn
            await self._prepare(part)
            found = decode_records(part, self._read)
            decoded.messages.extend(chain.from_iterable(found.messages))
            decoded.dead_letters.extend(found.dead_letters)
        if self.limit is not None:
            self.limit.note(records, decoded.dead_letters)
        return decoded

    async def _prepare(self, records: Records) -> None:
        """Fetch the schemas of the records."""
        if not isinstance(self.read_report, RegisteredFormat):
            return
        reports: list[Report] = []
        for record in records:
            with contextlib.suppress(*UNDECODABLE):  # `_read` raises it, for a dead letter
                reports += self._reports(record)
        await self.read_report.prepare(reports)

    def _read(self, record: Record) -> Sequence[DecodedDetection]:
        """The detections of the record's report, or of those in its CloudEvents: all or none.

        Raises one of UNDECODABLE for a record that must become a dead letter.
        """
        found: list[DecodedDetection] = []
        for number, report in enumerate(self._reports(record)):
            for sighting in self.read_report(report):
                if len(found) >= MOST_SIGHTINGS:
                    raise ValueError(f"more than {MOST_SIGHTINGS} sightings in a record")
                detection = self._detection(record, report, sighting)
                detection.index = number * _POSITIONS_AN_EVENT + sighting.position
                found.append(detection)
        return found

    def _reports(self, record: Record) -> Sequence[Report]:
        report = Report(record.value or b"", record.key, record.headers, record.timestamp / 1000)
        if not self.in_cloudevents:
            return (report,)
        reports = _unwrapped(report)
        if isinstance(self.read_report, RegisteredFormat):
            self.read_report.check(reports)
        return reports

    def _detection(self, record: Record, report: Report, sighting: Sighting) -> DecodedDetection:
        _, message, at = sighting
        detection = detection_of(record, message, self.path_loss_exponent)
        if message.detected_at is None:
            detection.detected_at = report.at if at is None else at
        return detection


DetectionDecoder: TypeAlias = OwnFormatDecoder | ReportDecoder


# CloudEvents 1.0 around any format, structured, binary or in batches:
# https://github.com/cloudevents/spec/blob/main/cloudevents/bindings/kafka-protocol-binding.md
# The binding has no batches; clients that send batches use the media type of the JSON format
# (https://github.com/cloudevents/spec/blob/main/cloudevents/formats/json-format.md, section 4).
_STRUCTURED = "application/cloudevents"
_JSON = "application/cloudevents+json"
_BATCH = "application/cloudevents-batch+json"


_Text = Annotated[str, msgspec.Meta(min_length=1)]


class _Event(msgspec.Struct, gc=False):
    specversion: Literal["1.0"]
    id: _Text
    source: _Text
    type: _Text
    time: str | None = None
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data_base64: str | None = None


_decode = msgspec.json.Decoder(_Event).decode
_decode_batch = msgspec.json.Decoder(list[_Event]).decode
_decode_text = msgspec.json.Decoder(str).decode


def _unwrapped(report: Report) -> Sequence[Report]:
    """The reports in the record's CloudEvents (several in a batch), each with its event's time.

    Raises msgspec.DecodeError, RecursionError or ValueError.
    """
    content_type = (report.header_text("content-type") or "").partition(";")[0].strip().lower()
    if content_type == _JSON:
        return (_structured(report, _decode(report.value)),)
    if content_type == _BATCH:
        events = _decode_batch(report.value)
        if len(events) > MOST_SIGHTINGS:
            raise ValueError(f"{len(events)} CloudEvents in a batch; at most {MOST_SIGHTINGS}")
        return [_structured(report, event) for event in events]
    if content_type.startswith(_STRUCTURED):
        raise ValueError(
            f"structured CloudEvents must be {_JSON} or {_BATCH}, not {content_type[:80]}"
        )
    return (_binary(report),)


def _structured(report: Report, event: _Event) -> Report:
    if event.data_base64 is not None:
        if event.data is not msgspec.UNSET:
            raise ValueError("a CloudEvent has data or data_base64, not both")
        value = base64.b64decode(event.data_base64, validate=True)
    elif isinstance(event.data, msgspec.Raw):
        value = bytes(event.data)
        if value.lstrip()[:1] == b'"':  # the text in a JSON string
            value = _decode_text(value).encode()
    else:
        raise ValueError("the CloudEvent has no data")
    return _dated(report._replace(value=value), event.time)


def _binary(report: Report) -> Report:
    names = ("specversion", "id", "source", "type", "time")
    attributes = {name: report.header_text(f"ce_{name}") for name in names}
    if attributes["specversion"] is None:
        raise ValueError(f"no CloudEvent: neither content-type {_JSON} nor a header ce_specversion")
    found = {name: value for name, value in attributes.items() if value is not None}
    return _dated(report, msgspec.convert(found, _Event).time)


def _dated(report: Report, time: str | None) -> Report:
    return report if time is None else report._replace(at=parse_text(time))


def detection_decoders(
    settings: Settings, *, limited: bool = False, registry_errors: ServerErrors | None = None
) -> Mapping[str, DetectionDecoder]:
    """The decoder of each detection topic. `limited`: each topic's dead letters have a limit.

    With `registry_errors`, which counts and logs failures, decoders wait while the schema registry
    is down; without it they raise SchemaRegistryError.
    """
    decoders: dict[str, DetectionDecoder] = {}
    exponent = settings.path_loss_exponent
    for topic in detection_topics(settings):
        limit = DeadLetterLimit(settings.dead_letter_share) if limited else None
        if topic.format == "own" and not topic.in_cloudevents:
            decoders[topic.name] = OwnFormatDecoder(path_loss_exponent=exponent, limit=limit)
            continue
        if topic.format in REGISTERED_FORMATS:
            read_report: ReadReport = _registered(topic.format, settings, registry_errors)
        else:
            read_report = _READERS[topic.format]
        decoders[topic.name] = ReportDecoder(
            read_report=read_report,
            path_loss_exponent=exponent,
            in_cloudevents=topic.in_cloudevents,
            limit=limit,
        )
    return decoders


_decode_own = msgspec.json.Decoder(Detection).decode
_READERS: Mapping[str, ReadReport] = {
    "own": lambda report: (Sighting(0, _decode_own(report.value)),),
    **READERS,
}


def _registered(format_: str, settings: Settings, errors: ServerErrors | None) -> RegisteredFormat:
    """The reader of a format whose schemas are in the registry; each topic has its own cache."""
    url = settings.schema_registry_url
    address = RegistryAddress(
        "" if url is None else url.get_secret_value(), ca_file=settings.schema_registry_ca_file
    )
    kind = JSON_SCHEMA
    if format_ != "json-schema":  # without such a topic these libraries are not needed
        kind = import_module(f"engine.formats.{format_}").SCHEMA_KIND
    return RegisteredFormat(address, kind, errors)
