"""From the records of a detection topic to detections, in the topic's format.

Trigger, recorder and commands read detections with these decoders and with nothing else, so that
they agree on what a record says.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Protocol

from engine.kafka.dead_letter_limit import DeadLetterLimit
from engine.kafka.decoding import DecodedBatch, Record, decode_each
from engine.kafka.detections import (
    DecodedDetection,
    decode_detections,
    decode_record,
    detection_of,
)
from engine.kafka.formats.cloudevents import unwrapped
from engine.kafka.formats.report import MOST_SIGHTINGS, ReadReport, Report, Sighting
from engine.kafka.partition_worker import Records
from engine.kafka.topics import detection_topics
from engine.process.detection_topics import DetectionTopic
from engine.process.settings import Settings

_LONGEST_UDID = 255


class DetectionDecoder(Protocol):
    """Decodes the records of one topic. What `read` raises is UNDECODABLE: a dead letter."""

    @property
    def limit(self) -> DeadLetterLimit | None:
        """On the topic's dead letters."""

    async def decode(self, records: Records) -> DecodedBatch[DecodedDetection]:
        """All of a batch, as in decode_records."""

    def read(self, record: Record) -> Sequence[DecodedDetection]:
        """The detections of one record, all or none."""


class OwnFormatDecoder:
    """This project's own format: a record is a detection. Implements DetectionDecoder."""

    def __init__(self, *, path_loss_exponent: float, limit: DeadLetterLimit | None = None) -> None:
        self.limit = limit
        self._path_loss_exponent = path_loss_exponent

    async def decode(self, records: Records) -> DecodedBatch[DecodedDetection]:
        """Decode the records. Raises TooManyDeadLettersError."""
        return decode_detections(records, self._path_loss_exponent, self.limit)

    def read(self, record: Record) -> Sequence[DecodedDetection]:
        """The one detection."""
        return (decode_record(record, self._path_loss_exponent),)


class ReportDecoder:
    """Any other format: a record is a report of sightings. Implements DetectionDecoder."""

    def __init__(
        self,
        read_report: ReadReport,
        *,
        path_loss_exponent: float,
        in_cloudevents: bool = False,
        limit: DeadLetterLimit | None = None,
    ) -> None:
        self.limit = limit
        self._read_report = read_report
        self._path_loss_exponent = path_loss_exponent
        self._in_cloudevents = in_cloudevents

    async def decode(self, records: Records) -> DecodedBatch[DecodedDetection]:
        """Decode the records. Raises TooManyDeadLettersError."""
        return await decode_each(records, self.read, self.limit)

    def read(self, record: Record) -> Sequence[DecodedDetection]:
        """The detections of the record's report."""
        report = self._report(record)
        sightings = list(self._read_report(report))
        if len(sightings) > MOST_SIGHTINGS:
            raise ValueError(f"{len(sightings)} sightings in a record; at most {MOST_SIGHTINGS}")
        return [self._detection(record, report, sighting) for sighting in sightings]

    def _report(self, record: Record) -> Report:
        at = record.timestamp / 1000
        report = Report(record.value or b"", record.key, record.headers, at)
        return unwrapped(report) if self._in_cloudevents else report

    def _detection(self, record: Record, report: Report, sighting: Sighting) -> DecodedDetection:
        index, message = sighting
        # Formats build messages of parts: the types' own checks have seen the parts only.
        if not 1 <= len(message.device.udid) <= _LONGEST_UDID:
            raise ValueError(f"a udid has 1 to {_LONGEST_UDID} characters")
        detection = detection_of(record, message, self._path_loss_exponent)
        detection.index = index
        if message.detected_at is None:
            detection.detected_at = report.at
        return detection


def detection_decoders(
    settings: Settings, *, limited: bool = False
) -> Mapping[str, DetectionDecoder]:
    """The decoder of each detection topic. `limited`: each topic's dead letters have a limit."""

    def limit() -> DeadLetterLimit | None:
        """One a topic, over all its partitions: one with little traffic is soon full of junk."""
        if not limited:
            return None
        return DeadLetterLimit(share=settings.dead_letter_share, run=settings.dead_letter_run)

    return {topic.name: _decoder(topic, settings, limit()) for topic in detection_topics(settings)}


def _decoder(
    topic: DetectionTopic, settings: Settings, limit: DeadLetterLimit | None
) -> DetectionDecoder:
    exponent = settings.path_loss_exponent
    if topic.format == "own" and not topic.in_cloudevents:
        return OwnFormatDecoder(path_loss_exponent=exponent, limit=limit)
    module = import_module(f"engine.kafka.formats.{topic.format.replace('-', '_')}")
    read_report: ReadReport = module.read
    return ReportDecoder(
        read_report,
        path_loss_exponent=exponent,
        in_cloudevents=topic.in_cloudevents,
        limit=limit,
    )
